"""Checks whether Iceberg readers, which only know a table's current columns, read a file as Lamella does."""

from __future__ import annotations

from lamella.snapshot.parquet.schema import INT96, FileLeaf, FileSchema
from lamella.snapshot.schema import DataType, Leaf, Schema


def reads_as(written: DataType, wanted: DataType) -> bool:
    """Returns whether Iceberg's readers accept values of a file's type as values of the table's type."""
    if written == wanted or (written.is_text and wanted.is_text):
        return True
    if written.is_integer and wanted.is_integer:  # unsigned ones fail in Spark, or are read as signed
        return written.order == "int" and written.bits <= wanted.bits
    if written.is_float and wanted.is_float:
        return written.bits <= wanted.bits and written.bits > 16
    if written.name == wanted.name == "decimal":
        return written.scale == wanted.scale and written.precision <= wanted.precision
    if written.name == wanted.name and written.name in ("time", "timestamp", "timestamp_ntz"):
        return written.unit == "us"
    return {written.name, wanted.name} <= {"binary", "bson"}


_REMEDY = "rewrite it (compact)"


def unreadable(file: FileSchema, schema: Schema) -> str | None:
    """Returns why a file that was registered with ``schema`` cannot be read through a name mapping; None if it can.

    A file with field ids is read by these ids, whatever the mapping is. Lamella's own writer uses the table's ids;
    other writers have ids of their own.
    """
    leaves = file.leaves
    by_path = {leaf.path: leaf for leaf in schema.leaves()}
    numbers = {path: column_id for column_id, path in schema.paths().items()}
    is_numbered = any(number is not None for leaf in leaves for number in leaf.numbers)
    for leaf in leaves:
        wanted = by_path.get(leaf.path)
        if wanted is None:
            return f"its name for a column is {leaf.name!r}, and an Iceberg name mapping is case-sensitive"
        wanted_numbers = tuple(numbers[leaf.path[: at + 1]] for at in range(len(leaf.path)))
        if is_numbered and leaf.numbers != wanted_numbers:
            return f"its column ids differ from the table's ({leaf.name!r} has {leaf.numbers}); {_REMEDY}"
        if not _is_read(leaf, wanted):
            return f"column {leaf.name!r} is {leaf.dtype} in it, and {wanted.dtype} in the table; {_REMEDY}"
    return None


def _is_read(leaf: FileLeaf, wanted: Leaf) -> bool:
    if leaf.physical == INT96:
        return wanted.dtype.name in ("timestamp", "timestamp_ntz")
    return reads_as(leaf.dtype, wanted.dtype)
