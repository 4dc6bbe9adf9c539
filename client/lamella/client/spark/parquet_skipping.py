"""Which filters Spark's own Parquet reader may use to skip inside blocks.

Spark 4.3 believes what stands in a footer: bounds without a column order, bounds the wrong way round, null counts of
writers that count wrongly, no null count as no nulls. It orders NaN above bounds that leave NaN out, and takes 0.0 and
-0.0 for different values in dictionaries and bloom filters. So a filter goes to the reader only where the service says
of every column in it that the footers of the blocks at hand can be believed (``reader_columns``), and only with values
that the reader takes for what they are: on floats neither a zero nor NaN, on timestamps whole milliseconds, since it
cuts what is finer when a file has milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, Final

from lamella.snapshot.schema import DataType, Schema

_MILLISECOND_US: Final = 1000
_ON_ONE_COLUMN: Final = frozenset(
    {"eq", "eq-null-safe", "lt", "lt-eq", "gt", "gt-eq", "in", "is-null", "not-null", "starts-with", "like"}
)


def columns_in(tree: Mapping[str, Any]) -> frozenset[str] | None:
    """The columns that a filter compares with constants; None when there is anything else in it."""
    kind = tree["type"]
    if kind in ("true", "false"):
        return frozenset()
    if kind in ("and", "or") and "children" in tree:
        parts = [columns_in(child) for child in tree["children"]]
        known = [part for part in parts if part is not None]
        return frozenset().union(*known) if len(known) == len(parts) else None
    if kind == "not":
        return columns_in(tree["child"])
    term, value = tree.get("term"), tree.get("value")
    if isinstance(value, Mapping) and value.get("type") != "literal":
        return None  # another column, or a function of one
    return frozenset({term}) if kind in _ON_ONE_COLUMN and isinstance(term, str) else None


def is_sound_in_parquet(tree: Mapping[str, Any], schema: Schema, believed: Collection[str]) -> bool:
    """True when Spark's reader loses no row by this filter.

    ``believed``: the columns whose footers hold in all blocks that will be read, and that have no NaN there.
    """
    columns = columns_in(tree)
    return columns is not None and columns <= set(believed) and _values_are_plain(tree, schema)


def _values_are_plain(tree: Mapping[str, Any], schema: Schema) -> bool:
    parts = tree.get("children", [tree["child"]] if "child" in tree else None)
    if parts is not None:
        return all(_values_are_plain(part, schema) for part in parts)
    if "term" not in tree:
        return True
    dtype = schema.leaf(tree["term"]).dtype
    values = tree.get("values", [tree["value"]] if "value" in tree else [])
    return all(value["value"] is None or _is_plain(dtype, value["value"]) for value in values)


def _is_plain(dtype: DataType, value: Any) -> bool:
    if dtype.is_float:
        number = float(value)
        return number != 0 and not math.isnan(number)
    if dtype.name in ("timestamp", "timestamp_ntz"):
        return int(value) % _MILLISECOND_US == 0
    return True
