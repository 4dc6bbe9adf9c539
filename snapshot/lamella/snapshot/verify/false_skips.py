"""False skips: filters answered from statistics, as every query is, and from the rows of a block.

What the statistics rule out must hold no match, what they call ALL nothing else, and the rest of a filter that is left
for a block must decide its rows as the filter does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec
import numpy as np

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.errors import InvalidRequest, ManifestError, NotFound
from lamella.snapshot.expression import Predicate, read_filter, text_of
from lamella.snapshot.rows import RowFilter
from lamella.snapshot.schema import Schema
from lamella.snapshot.verify.layers import Problem
from lamella.snapshot.verify.random_filters import RandomFilters
from lamella.snapshot.verify.sampled_rows import Rows
from lamella.snapshot.wire import PruneAnswer, PrunedBlock

#: What a query with a filter is answered about the block.
Prune = Callable[[Predicate], PruneAnswer]


class Audited(msgspec.Struct, frozen=True):
    """What was wrong; how many filters were compared, and how many could not be."""

    problems: tuple[Problem, ...]
    filters: int
    left_out: int


def audit(rows: Rows, schema: Schema, location: str, prune: Prune, *, filters: int, rng: Random) -> Audited:
    """Compare so many random filters; those that some row cannot be decided by are left out."""
    problems: list[Problem] = []
    compared = left_out = 0
    if not rows.leaves:
        return Audited((), 0, 0)
    drawn = RandomFilters(rows, rng)
    for _ in range(filters):
        predicate = drawn.draw()
        try:
            matches = RowFilter(predicate, schema, case_sensitive=True).matches(rows.columns, rows.count)
            answer = prune(predicate)
            problems += _wrong(predicate, answer, location, matches, rows, schema)
        except (InvalidRequest, ManifestError, NotFound):
            left_out += 1  # a value that cannot be computed, or manifests that cannot be read and are reported
        else:
            compared += 1
    return Audited(tuple(problems), compared, left_out)


def _wrong(
    predicate: Predicate, answer: PruneAnswer, location: str, matches: Mask, rows: Rows, schema: Schema
) -> Iterator[Problem]:
    text = text_of(predicate)

    def wrong(code: str, message: str) -> Problem:
        return Problem(code, f"{message}: {text}", None, location)

    block = next((each for each in answer.blocks or () if each.location == location), None)
    if block is None:
        if matches.any():
            yield wrong("false_skip", f"the block is skipped, and {matches.sum()} rows match")
        return
    if block.verdict == "ALL" and not matches.all():
        yield wrong("false_all", f"every row is said to match, and {(~matches).sum()} do not")
    covered, all_match = _ranges(block, rows.count)
    if (matches & ~covered).any():
        yield wrong("false_skip", f"{(matches & ~covered).sum()} matching rows are outside the row ranges")
    if (all_match & ~matches).any():
        yield wrong("false_all", "a row range is said to match as a whole, and does not")
    if answer.residuals is not None and block.residual is not None:
        left = read_filter(answer.residuals[block.residual].tree)
        found = RowFilter(left, schema, case_sensitive=True).matches(rows.columns, rows.count)
        if (matches & ~found).any():
            yield wrong("false_skip", "what is left of the filter is not true for a row that matches")
        if (found & ~matches).any():
            yield wrong("false_all", "what is left of the filter is true for a row that does not match")


def _ranges(block: PrunedBlock, count: int) -> tuple[Mask, Mask]:
    """The rows that are in a range of the answer, and those in a range that matches as a whole."""
    pages: Any = block.pages
    if pages is None or pages.whole:
        return np.ones(count, dtype=bool), np.zeros(count, dtype=bool)
    covered, whole = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    for index, (first, length) in enumerate(zip(pages.file_row, pages.row_count, strict=True)):
        covered[first : first + length] = True
        if pages.all_match is not None and pages.all_match[index]:
            whole[first : first + length] = True
    return covered, whole
