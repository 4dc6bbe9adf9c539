"""How filters are written, with examples: docs/filters.md in short."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.schema import Leaf
from lamella.snapshot.warehouse.bounds_text import stats_text

#: Columns that a page has buttons for, and examples of the table's own.
MOST_COLUMNS: Final = 60
_MOST_EXAMPLES: Final = 5
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Form(msgspec.Struct, frozen=True):
    """A kind of predicate or term, with examples."""

    name: str
    examples: tuple[str, ...]


#: What prunes. Everything else is unknown: it rules out nothing, and the page says so.
FORMS: Final = (
    Form("Comparisons", ("a = 4", "a <> 4", "a >= 4", "a <=> NULL")),
    Form("Ranges and lists", ("a BETWEEN 1 AND 2", "a IN (1, 2, 3)", "a NOT IN (1, 2)")),
    Form("Null and NaN", ("a IS NULL", "a IS NOT NULL", "isnan(x)")),
    Form("Text", ("s LIKE 'ab%'", "startswith(s, 'ab')", "lower(s) = 'ab'", "left(s, 2) = 'ab'")),
    Form("Dates and times", ("day >= DATE '2024-01-31'", "t < TIMESTAMP '2024-01-31 12:00:00'", "year(day) = 2024")),
    Form("Arithmetic and casts", ("a * 2 > 98", "abs(a) < 5", "CAST(t AS DATE) = DATE '2024-01-31'")),
    Form("Two columns", ("a < b", "datediff(t, day) > 7")),
    Form("JSON in text", ("get_json_object(s, '$.user.id') = '7'",)),
    Form("Joined", ("a > 4 AND s = 'x'", "a > 4 OR b IS NULL", "NOT (a > 4)")),
)


def own_examples(head: Snapshot) -> tuple[str, ...]:
    """Predicates over the table's own columns, with values that occur there: those of its cluster key first."""
    leaves = head.schema.leaves()
    key = () if head.cluster_key is None else head.cluster_key.columns
    ordered = [leaf for leaf in leaves if leaf.name in key] + [leaf for leaf in leaves if leaf.name not in key]
    found: list[str] = []
    kinds: set[str] = set()
    for leaf in ordered:
        if leaf.dtype.name in kinds or leaf.repeated:
            continue
        for example in _examples(head, leaf):
            kinds.add(leaf.dtype.name)
            found.append(example)
            if len(found) == _MOST_EXAMPLES:
                return tuple(found)
    return tuple(found)


def column_names(head: Snapshot) -> tuple[str, ...]:
    """The columns as they stand in a filter."""
    return tuple(_spelled(leaf) for leaf in head.schema.leaves()[:MOST_COLUMNS] if not leaf.repeated)


def _examples(head: Snapshot, leaf: Leaf) -> Iterator[str]:
    stats = head.summary.col_stats.get(leaf.id)
    if stats is None:
        return
    bounds = stats_text(leaf.dtype, stats)
    if bounds.min is not None and not bounds.is_cut:
        yield f"{_spelled(leaf)} {'=' if leaf.dtype.is_text else '<='} {bounds.min}"


def _spelled(leaf: Leaf) -> str:
    return ".".join(part if _PLAIN.fullmatch(part) else "`" + part.replace("`", "``") + "`" for part in leaf.path)
