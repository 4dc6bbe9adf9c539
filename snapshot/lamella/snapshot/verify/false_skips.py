"""False skips: compares random filters answered from statistics with the rows of a block.

Rows that the statistics rule out must not match, rows that they call ALL must match, and the residual filter for a
block must give the same result for its rows as the filter.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from random import Random
from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.errors import InvalidRequest, ManifestError, NotFound
from lamella.snapshot.expression import Predicate, bind, read_filter, text_of
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.function.base import Vector
from lamella.snapshot.manifest import SegmentRef, SnapshotPointer
from lamella.snapshot.pages import PageSource
from lamella.snapshot.prune.block_layer import Layers
from lamella.snapshot.prune.options import read_options
from lamella.snapshot.prune.pages import page_segments, with_pages
from lamella.snapshot.prune.pipeline import Pruning
from lamella.snapshot.prune.residual import with_residuals
from lamella.snapshot.prune.writer import answer_of
from lamella.snapshot.row_filter import RowFilter, vector_of
from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.schema.types import PER_SECOND
from lamella.snapshot.storage import Store
from lamella.snapshot.verify.files import Rows
from lamella.snapshot.verify.layers import Problem
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import PruneAnswer, PrunedBlock, PruneRequest

_OPERATORS: Final[tuple[n.Operator, ...]] = ("lt", "le", "gt", "ge", "eq", "ne")
_DAYS: Final = ((dt.date.min - dt.date(1970, 1, 1)).days, (dt.date.max - dt.date(1970, 1, 1)).days)


class RandomFilters:
    """Generates filters over some rows."""

    def __init__(self, rows: Rows, rng: Random) -> None:
        self._rows = rows
        self._rng = rng
        self._vectors: dict[int, Vector] = {}

    def draw(self, depth: int = 2) -> Predicate:
        """Returns a random filter with at most ``depth`` nested connectives."""
        rng = self._rng
        if depth and rng.random() < 0.35:
            kind = rng.choice(["and", "or", "not", "is true"])
            if kind == "not":
                return n.Not(self.draw(depth - 1))
            if kind == "is true":
                return rng.choice((n.IsTrue, n.IsUnknown))(self.draw(depth - 1))
            parts = tuple(self.draw(depth - 1) for _ in range(2))
            return n.And(parts) if kind == "and" else n.Or(parts)
        return self._test(rng.choice(self._rows.leaves))

    def _test(self, leaf: Leaf) -> Predicate:
        rng, ref = self._rng, n.Ref(leaf.reference)
        kinds = ["compare", "compare", "compare", "in", "null safe", "null"]
        kinds += ["nan"] if leaf.dtype.is_float else []
        kinds += ["prefix"] if leaf.dtype.is_text else []
        kind = rng.choice(kinds)
        literal = self._literal(leaf)
        if literal is None or kind == "null":
            return n.IsNull(ref)
        if kind == "nan":
            return n.IsNan(ref)
        if kind == "prefix":
            return n.StartsWith(ref, n.Literal("string", str(literal.value)[: rng.randint(0, 4)]))
        if kind == "null safe":
            return n.NullSafeEqual(ref, rng.choice([literal, literal, n.Literal("null")]))
        if kind == "in":
            others = [self._literal(leaf) for _ in range(rng.randint(0, 3))]
            listed = (literal, *(other for other in others if other is not None))
            return n.In(ref, (*listed, n.Literal("null")) if rng.random() < 0.2 else listed)
        return n.Compare(rng.choice(_OPERATORS), ref, literal)

    def _literal(self, leaf: Leaf) -> n.Literal | None:
        """Returns a value of a row, or a neighbouring one; None if there is none, or none that a filter can name."""
        vector = self._vectors.get(leaf.id)
        if vector is None:
            vector = self._vectors[leaf.id] = vector_of(self._rows.columns[leaf.id], leaf.dtype)
        if not self._rows.count:
            return None
        row = self._rng.randrange(self._rows.count)
        if not vector.valid[row]:
            return None
        value = vector.values[row].as_py() if vector.is_bytes else vector.values[row]
        return literal_of(leaf.dtype, value, self._rng.choice([0, 0, 0, -1, 1]))


def literal_of(dtype: DataType, value: Any, beside: int) -> n.Literal | None:
    """Converts a value of a type's order to a literal; ``beside``: the next one below or above, if that exists."""
    if dtype.name == "boolean":
        return n.Literal("boolean", bool(value))
    if dtype.is_float:
        return n.Literal("double", float(value) + beside / 2)
    if dtype.is_integer:
        return n.Literal("integer", int(value) + beside)
    if dtype.name == "decimal":
        number = Decimal(int(value) + beside)
        sign, digits, _ = number.as_tuple()
        return n.Literal("decimal", format(Decimal((sign, digits, -dtype.scale)), "f"))
    if dtype.name == "date":
        day = int(value) + beside
        return n.Literal("date", day) if _DAYS[0] <= day <= _DAYS[1] else None
    if dtype.name in ("timestamp", "timestamp_ntz"):
        micros = int(value) * 1_000_000 // PER_SECOND[dtype.unit] + beside
        kind: Any = dtype.name
        return n.Literal(kind, micros) if _DAYS[0] < micros // 86_400_000_000 < _DAYS[1] else None
    if dtype.is_text:
        try:
            return n.Literal("string", bytes(value).decode("utf-8"))
        except UnicodeDecodeError:
            return None
    return n.Literal("binary", bytes(value)) if dtype.order == "bytes" else None  # a time has no literal


# A query's path through the layers for one block: snapshot, segment, block, pages, and the residual filter.
#
# The stages are those of ordinary queries; only the other blocks are dropped on the way.


class BlockPrune:
    """Prunes of one snapshot; ``cache_bytes`` limits the cache of its sidecars."""

    def __init__(self, store: Store, pointer: SnapshotPointer, cache_bytes: int) -> None:
        self._pointer = pointer
        self._manifests = Manifests(store, cache_bytes)
        self._pages = PageSource(store, self._manifests.read, cache_bytes=cache_bytes // 4)

    def answer(self, predicate: Predicate, ref: SegmentRef, row: int) -> PruneAnswer:
        """Returns the answer of a query with this filter for block number ``row`` of a segment.

        Raises:
            InvalidRequest: a filter that does not fit the schema.
            ManifestError, ObjectNotFound, StoreError: a sidecar cannot be read.
        """
        request = PruneRequest(level="page", segments=(ref.segment_id,), case_sensitive=True, residuals=True)
        head = self._manifests.head(self._pointer)
        bound = bind(predicate, head.schema, case_sensitive=True)
        segments = self._manifests.layer(self._pointer)
        pruning = Pruning(
            Layers(head, segments), lambda _row: self._manifests.blocks(head, ref.sidecar), time.perf_counter
        )
        options = read_options(request, head.schema, None)
        found = pruning.run(bound, blocks=True, explain=False, options=options)
        selection = found.only(tuple(part.where(part.rows == row) for part in found.parts()))
        found = msgspec.structs.replace(found, selection=selection, order=None, bounds=None)
        found = with_pages(found, bound, self._pages, page_segments(segments), None, time.perf_counter)
        return answer_of(with_residuals(found, predicate, head.schema, request))


#: Returns the answer of a query with a filter for the block.
Prune = Callable[[Predicate], PruneAnswer]


class Audited(msgspec.Struct, frozen=True):
    """What was wrong; how many filters were compared, and how many could not be."""

    problems: tuple[Problem, ...]
    filters: int
    left_out: int


def audit(rows: Rows, schema: Schema, location: str, prune: Prune, *, filters: int, rng: Random) -> Audited:
    """Compare ``filters`` random filters; those that cannot be evaluated on some row are left out."""
    problems: list[Problem] = []
    compared = left_out = 0
    if not rows.leaves:
        return Audited((), 0, 0)
    chosen = RandomFilters(rows, rng)
    for _ in range(filters):
        predicate = chosen.draw()
        try:
            matches = RowFilter(predicate, schema, case_sensitive=True).matches(rows.columns, rows.count)
            answer = prune(predicate)
            problems += _wrong(predicate, answer, location, matches, rows, schema)
        except (InvalidRequest, ManifestError, NotFound):
            left_out += 1  # a value cannot be computed, or a manifest (reported elsewhere) cannot be read
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
            yield wrong("false_skip", f"the block is skipped, but {matches.sum()} rows match")
        return
    if block.verdict == "ALL" and not matches.all():
        yield wrong("false_all", f"every row is reported to match, but {(~matches).sum()} do not")
    covered, all_match = _ranges(block, rows.count)
    if (matches & ~covered).any():
        yield wrong("false_skip", f"{(matches & ~covered).sum()} matching rows are outside the row ranges")
    if (all_match & ~matches).any():
        yield wrong("false_all", "a whole row range is reported to match, but does not")
    if answer.residuals is not None and block.residual is not None:
        left = read_filter(answer.residuals[block.residual].tree)
        found = RowFilter(left, schema, case_sensitive=True).matches(rows.columns, rows.count)
        if (matches & ~found).any():
            yield wrong("false_skip", "the residual filter is not true for a matching row")
        if (found & ~matches).any():
            yield wrong("false_all", "the residual filter is true for a row that does not match")


def _ranges(block: PrunedBlock, count: int) -> tuple[Mask, Mask]:
    """Returns the rows in a range of the answer, and those in a range that matches as a whole."""
    pages: Any = block.pages
    if pages is None or pages.whole:
        return np.ones(count, dtype=bool), np.zeros(count, dtype=bool)
    covered, whole = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    for index, (first, length) in enumerate(zip(pages.file_row, pages.row_count, strict=True)):
        covered[first : first + length] = True
        if pages.all_match is not None and pages.all_match[index]:
            whole[first : first + length] = True
    return covered, whole
