"""Which filters Spark's own Parquet reader may use to skip inside blocks, per filter or by reader options."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema import DataType, Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Which filters Spark's own Parquet reader may use to skip inside blocks.
#
# Spark 4.3 trusts footers: bounds without a column order, reversed bounds, wrong null counts, and it takes a missing
# null count as no nulls. It orders NaN above bounds that leave NaN out, and treats 0.0 and -0.0 as different values in
# dictionaries and bloom filters. So a filter is passed to the reader only if the service says of every column in it
# that the footers of the blocks in question can be trusted (``reader_columns``), and only with values that the reader
# interprets exactly: for floats neither zero nor NaN, for timestamps whole milliseconds, since it truncates finer
# values when a file has milliseconds.

_MILLISECOND_US: Final = 1000
_ON_ONE_COLUMN: Final = frozenset(
    {"eq", "eq-null-safe", "lt", "lt-eq", "gt", "gt-eq", "in", "is-null", "not-null", "starts-with", "like"}
)


def columns_in(tree: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the columns that a filter compares with constants; None when it contains anything else."""
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
    """Whether Spark's reader loses no row by this filter.

    ``believed``: the columns whose footers are valid in all blocks that will be read, and that have no NaN there.
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


_SKIPPING: Final = ("stats", "dictionary", "bloom")


def refuse_case_sensitive(spark: SparkSession) -> None:
    """Raise InvalidRequest in a session that matches names case-sensitively.

    A file may spell a column in another case than the table, and Spark's reader would treat it as missing.
    """
    if str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true":
        raise InvalidRequest(
            "with spark.sql.caseSensitive=true this way of reading would miss columns that files spell in another case;"
            " set it to false, or read through the catalog of lamella.client.spark.attach"
        )


def skippable_columns(schema: Schema) -> list[str]:
    """Return the columns by which Spark's reader could skip: all but those below lists and maps."""
    return [leaf.name for leaf in schema.leaves() if not leaf.repeated]


def unambiguous_columns(schema: Schema) -> list[str]:
    """Return those whose name is unambiguous; ``a.b`` may be a column and a field of another column."""
    counts = Counter(name.lower() for name in skippable_columns(schema))
    return [name for name in skippable_columns(schema) if counts[name.lower()] == 1]


def reader_options(schema: Schema, *, page_index: bool, believed: Collection[str]) -> dict[str, str]:
    """Return options for a read whose filters are not known in advance.

    ``page_index``: column indexes are trusted. ``believed``: the columns whose footers are valid in every block. Spark
    4.3 loses rows when it skips by invalid footers (see above), NaN and -0.0 rows when it skips by FLOAT and DOUBLE
    columns, and any rows when a file's column index is wrong. If any column is not believed, skipping is disabled for
    all.
    """
    options = {} if page_index else {"parquet.filter.columnindex.enabled": "false"}
    has_floats = any(leaf.dtype.is_float for leaf in schema.leaves())
    if has_floats or not set(skippable_columns(schema)) <= set(believed):
        options |= {f"parquet.filter.{level}.enabled": "false" for level in _SKIPPING}
        options["parquet.filter.columnindex.enabled"] = "false"
    return options
