"""Options that keep Spark's own Parquet reader from skipping rows that match."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.schema import Schema

_SKIPPING: Final = ("stats", "dictionary", "bloom")


def reader_options(schema: Schema, *, page_index: bool) -> dict[str, str]:
    """Options that keep Spark's Parquet reader from skipping rows that match.

    Spark 4.3 loses NaN and -0.0 rows when it skips by the statistics, dictionaries or bloom filters of FLOAT and
    DOUBLE columns, and any rows when a file's column index is wrong.
    """
    options = {} if page_index else {"parquet.filter.columnindex.enabled": "false"}
    if any(leaf.dtype.is_float for leaf in schema.leaves()):
        options |= {f"parquet.filter.{level}.enabled": "false" for level in _SKIPPING}
        options["parquet.filter.columnindex.enabled"] = "false"
    return options
