"""Options that keep Spark's own Parquet reader from skipping rows that match, where it is not told filter by filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    4.3 loses rows when it skips by footers that do not (see :mod:`lamella.client.spark.parquet_skipping`), NaN and -0.0
    rows when it skips by FLOAT and DOUBLE columns, and any rows when a file's column index is wrong. With one column
    that is not believed, it skips by none.
    """
    options = {} if page_index else {"parquet.filter.columnindex.enabled": "false"}
    has_floats = any(leaf.dtype.is_float for leaf in schema.leaves())
    if has_floats or not set(skippable_columns(schema)) <= set(believed):
        options |= {f"parquet.filter.{level}.enabled": "false" for level in _SKIPPING}
        options["parquet.filter.columnindex.enabled"] = "false"
    return options
