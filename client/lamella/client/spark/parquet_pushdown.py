"""Which filters Spark's own Parquet reader may use to skip inside blocks, filter by filter or by its options."""

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
# Spark 4.3 believes what stands in a footer: bounds without a column order, bounds the wrong way round, null counts of
# writers that count wrongly, no null count as no nulls. It orders NaN above bounds that leave NaN out, and takes 0.0
# and -0.0 for different values in dictionaries and bloom filters. So a filter goes to the reader only where the
# service says of every column in it that the footers of the blocks at hand can be believed (``reader_columns``), and
# only with values that the reader takes for what they are: on floats neither a zero nor NaN, on timestamps whole
# milliseconds, since it cuts what is finer when a file has milliseconds.

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


_SKIPPING: Final = ("stats", "dictionary", "bloom")


def refuse_case_sensitive(spark: SparkSession) -> None:
    """Raise InvalidRequest in a session that tells names apart by case.

    A file may spell a column another way than the table, and Spark's reader would take it for absent.
    """
    if str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true":
        raise InvalidRequest(
            "with spark.sql.caseSensitive=true this way of reading would miss columns that files spell in another case;"
            " set it to false, or read through the catalog of lamella.client.spark.attach"
        )


def skippable_columns(schema: Schema) -> list[str]:
    """The columns by which Spark's reader could skip: all but those below lists and maps."""
    return [leaf.name for leaf in schema.leaves() if not leaf.repeated]


def askable_columns(schema: Schema) -> list[str]:
    """Those of them that a name stands for alone; ``a.b`` may be a column and a field of another one."""
    counts = Counter(name.lower() for name in skippable_columns(schema))
    return [name for name in skippable_columns(schema) if counts[name.lower()] == 1]


def reader_options(schema: Schema, *, page_index: bool, believed: Collection[str]) -> dict[str, str]:
    """Options for a read whose filters are not known beforehand.

    ``page_index``: column indexes are trusted. ``believed``: the columns whose footers hold in every block read. Spark
    4.3 loses rows when it skips by footers that do not (see above), NaN and -0.0
    rows when it skips by FLOAT and DOUBLE columns, and any rows when a file's column index is wrong. With one column
    that is not believed, it skips by none.
    """
    options = {} if page_index else {"parquet.filter.columnindex.enabled": "false"}
    has_floats = any(leaf.dtype.is_float for leaf in schema.leaves())
    if has_floats or not set(skippable_columns(schema)) <= set(believed):
        options |= {f"parquet.filter.{level}.enabled": "false" for level in _SKIPPING}
        options["parquet.filter.columnindex.enabled"] = "false"
    return options
