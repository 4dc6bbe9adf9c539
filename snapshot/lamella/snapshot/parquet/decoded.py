"""The values of one leaf of a file, batch by batch, in the Arrow type that stands for the file's own type.

pyarrow decodes by the Arrow schema that a writer may have stored beside Parquet's; here only Parquet's counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.parquet import ParquetFile

from lamella.snapshot.errors import CorruptParquet
from lamella.snapshot.layout.store import Store
from lamella.snapshot.parquet.footer import Footer
from lamella.snapshot.parquet.logical import INT96
from lamella.snapshot.parquet.store_file import StoreFile
from lamella.snapshot.parquet.tree import FileLeaf
from lamella.snapshot.schema import DataType

#: Rows that are decoded at a time.
BATCH_ROWS: Final = 1 << 16


class Unreadable(Exception):
    """pyarrow cannot give the values of a leaf as what they are; the message says why."""


class DecodedFile:
    """A file whose leaves can be decoded. Close it."""

    def __init__(self, store: Store, footer: Footer, *, int96_unit: str = "us") -> None:
        """Open a file whose footer has been read.

        Raises:
            Unreadable: pyarrow does not know such files.
            CorruptParquet: it reads another footer.
        """
        self._footer = footer
        try:
            self._file = ParquetFile(
                StoreFile(store, footer.stat),
                coerce_int96_timestamp_unit=int96_unit,
                page_checksum_verification=True,
                arrow_extensions_enabled=False,
            )
        except pa.ArrowNotImplementedError as error:
            raise Unreadable(str(error)) from error
        except (pa.ArrowException, OSError) as error:
            raise CorruptParquet(f"{footer.location}: {error}") from error
        found = self._file.metadata
        if found.num_columns != len(footer.metadata.schema.leaves) or found.num_row_groups != len(
            footer.metadata.row_groups
        ):
            raise CorruptParquet(f"{footer.location}: the footer is read in two ways")

    def close(self) -> None:
        """Let go of the file."""
        self._file.close(force=True)

    def values(self, index: int) -> Iterator[pa.Array]:
        """The values of a leaf that is not below a list or map, all rows of all row groups in order.

        Raises:
            Unreadable: the values cannot be decoded, or not as what they are.
            CorruptParquet: damaged pages, or another number of rows than the footer says.
        """
        leaf = self._footer.metadata.schema.leaves[index]
        for array in self._decoded(index, leaf):
            yield in_file_type(leaf, array)

    def nanoseconds(self, index: int) -> Iterator[pa.Array]:
        """The values of an INT96 leaf of a file that was opened with that unit; those far off have wrapped around.

        Raises as :meth:`values`.
        """
        for array in self._decoded(index, self._footer.metadata.schema.leaves[index]):
            if array.type != pa.timestamp("ns"):
                raise Unreadable(f"INT96 is decoded as {array.type}")
            yield array

    def _decoded(self, index: int, leaf: FileLeaf) -> Iterator[pa.Array]:
        for group, facts in enumerate(self._footer.metadata.row_groups):
            if not facts.num_rows:
                continue
            rows = 0
            for batch in self._batches(group, index, leaf):
                array = batch.column(0)
                while pa.types.is_struct(array.type):
                    array = pc.struct_field(array, [0])  # null where the struct is
                rows += len(array)
                yield array
            if rows != facts.num_rows:
                raise CorruptParquet(
                    f"{self._footer.location}: column {leaf.name!r} has {rows} rows in row group {group}, "
                    f"which the footer says has {facts.num_rows}",
                    column=leaf.name,
                )

    def _batches(self, group: int, index: int, leaf: FileLeaf) -> Iterator[Any]:
        # The reader below ParquetFile takes a leaf's index; by name, "a.b" may be two different leaves.
        batches = self._file.reader.iter_batches(
            BATCH_ROWS, row_groups=[group], column_indices=[index], use_threads=False
        )
        try:
            yield from batches
        except pa.ArrowNotImplementedError as error:
            raise Unreadable(str(error)) from error
        except (pa.ArrowException, OSError) as error:
            raise CorruptParquet(
                f"{self._footer.location}: column {leaf.name!r} cannot be read: {error}", column=leaf.name
            ) from error


def in_file_type(leaf: FileLeaf, array: pa.Array) -> pa.Array:
    """Values as pyarrow decoded them in the Arrow type of the leaf's own type; raises Unreadable."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    dtype = leaf.dtype
    if dtype.order is None:
        return array
    if dtype.name in ("time", "timestamp", "timestamp_ntz"):
        unit = "us" if leaf.physical == INT96 else dtype.unit
        if getattr(array.type, "unit", None) != unit or pa.types.is_duration(array.type):
            raise Unreadable(f"{dtype} is decoded as {array.type}")
        return array
    try:
        return array.cast(arrow_type(dtype))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Unreadable(f"{dtype} is decoded as {array.type}: {error}") from error


def arrow_type(dtype: DataType) -> pa.DataType:
    """The Arrow type that values of a type with order, but times, are measured in."""
    if dtype.name == "boolean":
        return pa.bool_()
    if dtype.is_integer:
        return getattr(pa, dtype.name)()
    if dtype.is_float:
        return pa.float64() if dtype.bits == 64 else pa.float32()
    if dtype.name == "date":
        return pa.date32()
    if dtype.name == "decimal":
        return pa.decimal128(dtype.precision, dtype.scale)
    return pa.large_binary()
