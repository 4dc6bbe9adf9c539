"""A block's file: reads its tail once, checks the footer, and maps its columns to the table's.

pyarrow decodes one column's pages from a small Parquet file built in memory; this module writes its footer (in Thrift's
compact protocol).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.snapshot.deletes import RangeReader, deleted_rows
from lamella.snapshot.errors import BlockReplaced, CorruptParquet, EncryptedParquet
from lamella.snapshot.parquet import thrift
from lamella.snapshot.parquet.block import optional_in_files
from lamella.snapshot.parquet.columns import plan
from lamella.snapshot.parquet.footer import CODECS, TAIL_BYTES, Footer, read_footer
from lamella.snapshot.parquet.page_index import ChunkPages, read_page_index
from lamella.snapshot.parquet.schema import FileLeaf
from lamella.snapshot.parquet.thrift import INT, ThriftError
from lamella.snapshot.parquet.writer import legacy_calendar
from lamella.snapshot.schema import Column, Leaf, Schema
from lamella.snapshot.schema.arrow import constant_scalars
from lamella.snapshot.stats.constant import constant_values
from lamella.snapshot.storage import ListedObject, ObjectStat, Store
from lamella.snapshot.wire import PrunedBlock


class FileTail:
    """A :class:`~lamella.snapshot.storage.Store` that caches the last bytes of one file.

    Earlier bytes are read from the underlying store; the last such read is cached too (a long footer).
    """

    def __init__(self, store: Store, stat: ObjectStat) -> None:
        self._store = store
        self._location = stat.location
        self._size = stat.size_bytes
        self.start = max(0, stat.size_bytes - TAIL_BYTES)
        self._data = store.read_range(stat.location, self.start, stat.size_bytes - self.start)
        self._last: tuple[int, bytes] = (0, b"")

    def footer(self, size: int) -> bytes:
        """Return the footer, of a known size in bytes."""
        return self.read_range(self._location, self._size - 8 - size, size)

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Return some bytes, from memory if cached."""
        if location != self._location:
            return self._store.read_range(location, start, length)
        for at, data in ((self.start, self._data), self._last):
            if at <= start and start + length <= at + len(data):
                return data[start - at : start - at + length]
        found = self._store.read_range(location, start, length)
        self._last = (start, found)
        return found

    def read(self, location: str) -> bytes:
        """Delegate to the store."""
        return self._store.read(location)

    def stat(self, location: str) -> ObjectStat:
        """Delegate to the store."""
        return self._store.stat(location)

    def put(self, location: str, data: bytes) -> ObjectStat:
        """Delegate to the store."""
        return self._store.put(location, data)

    def expand(self, url: str, *, plain: bool = False) -> list[str]:
        """Delegate to the store."""
        return self._store.expand(url, plain=plain)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:
        """Delegate to the store."""
        return self._store.list(prefix, start_after=start_after)

    def delete(self, location: str) -> None:
        """Delegate to the store."""
        self._store.delete(location)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Delegate to the store."""
        return self._store.delete_many(locations)


_I32 = 5
_I64 = 6
_BINARY = 8
_LIST = 9
_STRUCT = 12

#: The wire type of a field and its bytes.
Value = tuple[int, bytes]


def i32(number: int) -> Value:
    """Encode a 32-bit integer."""
    return _I32, _zigzag(number)


def i64(number: int) -> Value:
    """Encode a 64-bit integer."""
    return _I64, _zigzag(number)


def binary(data: bytes) -> Value:
    """Encode bytes or UTF-8 text."""
    return _BINARY, _varint(len(data)) + data


def structure(fields: dict[int, Value]) -> Value:
    """Encode a structure; fields by id, ascending."""
    out = bytearray()
    last = 0
    for number, (wire, data) in fields.items():
        delta = number - last
        if not 0 < delta < 16:
            raise ValueError("field ids ascend by less than sixteen")
        out.append(delta << 4 | wire)
        out += data
        last = number
    out.append(0)
    return _STRUCT, bytes(out)


def sequence(items: Iterable[Value]) -> Value:
    """Encode a nonempty list of values of one wire type."""
    listed = list(items)
    return raw_sequence(listed[0][0], [data for _, data in listed])


def raw_sequence(wire: int, items: list[bytes]) -> Value:
    """Encode a list of values that are already encoded."""
    count = len(items)
    head = bytes([count << 4 | wire]) if count < 15 else bytes([0xF0 | wire]) + _varint(count)
    return _LIST, head + b"".join(items)


def structures(items: list[bytes]) -> Value:
    """Encode a list of structures that are already encoded."""
    return raw_sequence(_STRUCT, items)


def _zigzag(number: int) -> bytes:
    return _varint((number << 1) ^ (number >> 63))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


# A small Parquet file in memory, made of one column's pages of a large file.
#
# pyarrow reads whole column chunks only. So the selected pages, with their dictionary page, are concatenated as one
# chunk of a file of their own, with a footer that describes just that chunk; pyarrow then decodes nothing else. The
# column's schema elements are copied byte for byte, so logical types stay the same; the original's Arrow metadata is
# dropped.

_MAGIC: Final = b"PAR1"
_SCHEMA: Final = 2
#: Encodings that a chunk may have; readers use the encodings in the page headers.
_ENCODINGS: Final = (0, 3, 8)


class Element(msgspec.Struct, frozen=True):
    """A schema element: its bytes, its index in the depth-first list, the elements of its children."""

    data: bytes
    at: int
    children: tuple[Element, ...]

    def all_data(self) -> list[bytes]:
        """Return the bytes of this element and of all below it, depth first."""
        return [self.data, *(data for child in self.children for data in child.all_data())]

    @property
    def leaf_count(self) -> int:
        """The number of leaves below it; a leaf counts as one."""
        return sum(child.leaf_count for child in self.children) or 1


class LeafData(msgspec.Struct, frozen=True):
    """What the small file takes from one leaf: the encoded pages (a dictionary first) and their number of values."""

    leaf: FileLeaf
    codec: str
    num_values: int
    parts: tuple[bytes, ...]


def read_elements(footer: bytes) -> tuple[Element, ...]:
    """Return the elements of a file's columns, with their descendants.

    Raises:
        CorruptParquet: the list cannot be decoded, or is inconsistent.
    """
    try:
        count, _, at = thrift.list_header(footer, thrift.find(footer, _SCHEMA, 9))
        flat: list[tuple[bytes, int]] = []
        for _ in range(count):
            fields, end = thrift.struct(footer, at, {5: INT})
            flat.append((footer[at:end], fields.get(5, 0)))
            at = end
        root, behind = _element(flat, 0)
    except (ThriftError, IndexError) as error:
        raise CorruptParquet(f"the schema cannot be decoded: {error}") from error
    if behind != len(flat):
        raise CorruptParquet("the schema has elements outside its root")
    return root.children


def _element(flat: Sequence[tuple[bytes, int]], at: int) -> tuple[Element, int]:
    data, count = flat[at]
    here = at
    at += 1
    children = []
    for _ in range(count):
        child, at = _element(flat, at)
        children.append(child)
    return Element(data, here, tuple(children)), at


def path_to(columns: Sequence[Element], leaf: int) -> list[Element]:
    """Return the elements from a column down to the leaf number ``leaf``."""
    for element in columns:
        count = element.leaf_count
        if leaf < count:
            return [element, *(path_to(element.children, leaf) if element.children else ())]
        leaf -= count
    raise CorruptParquet("the schema has fewer leaves than its chunks")


def one_leaf(path: Sequence[Element]) -> list[bytes]:
    """Return the elements of a column reduced to one leaf."""
    return [*(_only_child(element) for element in path[:-1]), path[-1].data]


def _only_child(element: Element) -> bytes:
    fields = thrift.decode(element.data, {3: INT, 4: thrift.BINARY})
    _, data = structure({3: i32(fields[3]), 4: binary(fields[4]), 5: i32(1)})
    return data


def decode(elements: Sequence[bytes], leaves: Sequence[LeafData], num_rows: int) -> Any:
    """Return the rows of one column, as an Arrow array; ``leaves``: all leaves of its ``elements``, in order.

    Raises:
        CorruptParquet: the pages cannot be decoded, or have another number of rows.
    """
    file = _file(elements, leaves, num_rows)
    try:
        with pq.ParquetFile(pa.BufferReader(file), coerce_int96_timestamp_unit="us") as opened:
            column = opened.read(use_threads=False).column(0)
    except (pa.ArrowException, OSError) as error:
        raise CorruptParquet(f"column {leaves[0].leaf.name!r} cannot be decoded: {error}") from error
    if len(column) != num_rows:
        raise CorruptParquet(f"column {leaves[0].leaf.name!r} has {len(column)} rows instead of {num_rows}")
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _file(elements: Sequence[bytes], leaves: Sequence[LeafData], num_rows: int) -> bytes:
    body: list[bytes] = [_MAGIC]
    at = len(_MAGIC)
    chunks = []
    for data in leaves:
        size = sum(map(len, data.parts))
        body.extend(data.parts)
        meta = structure(
            {
                1: i32(data.leaf.physical),
                2: sequence(map(i32, _ENCODINGS)),
                3: sequence(map(binary, data.leaf.file_path)),
                4: i32(_codec(data)),
                5: i64(data.num_values),
                6: i64(size),
                7: i64(size),
                9: i64(at),  # of the dictionary when there is one: readers look at the first page's own header
            }
        )
        chunks.append(structure({2: i64(at), 3: meta}))
        at += size
    _, root = structure({4: binary(b"schema"), 5: i32(1)})
    group = structure({1: sequence(chunks), 2: i64(at - len(_MAGIC)), 3: i64(num_rows)})
    _, footer = structure(
        {
            1: i32(1),
            2: structures([root, *elements]),
            3: i64(num_rows),
            4: sequence([group]),
        }
    )
    return b"".join([*body, footer, len(footer).to_bytes(4, "little"), _MAGIC])


def _codec(data: LeafData) -> int:
    if data.codec not in CODECS:
        raise CorruptParquet(f"column {data.leaf.name!r} is compressed by an unknown codec", column=data.leaf.name)
    return CODECS.index(data.codec)


class BlockFile:
    """The file of one block in the answer to a prune.

    ``written``: the schema that it was written with; ``schema``: the schema to read it by. ``vectors``: reads its list
    of deleted rows; None: the store.

    Raises:
        BlockReplaced: the file is not the registered one.
        CorruptDeletes, HashMismatch: the list of deleted rows is damaged.
        ObjectNotFound, StoreError, NotParquet, SchemaMismatch: from reading its footer.
    """

    def __init__(
        self, store: Store, block: PrunedBlock, written: Schema, schema: Schema, vectors: RangeReader | None = None
    ) -> None:
        self.location = block.location
        self.block = block
        self.written = written
        self.schema = schema
        self._store = store
        stat = store.stat(block.location)
        known = None if block.pages is None else block.pages.content_id
        if stat.size_bytes != block.file_size or (known is not None and known != stat.content_id):
            raise _replaced(block.location)
        self._stat = stat
        self._tail = FileTail(store, stat)
        self.footer: Footer = read_footer(self._tail, block.location, stat)
        rows = sum(group.num_rows for group in self.footer.metadata.row_groups)
        if rows != block.row_count:
            raise _replaced(block.location)
        constants = block.constants or {}
        self._plan = plan(self.footer.metadata.schema, optional_in_files(written, constants))
        self._leaves: Mapping[int, int] = {column.column_id: column.index for column in self._plan.present}
        self._page_locations: dict[tuple[int, int], ChunkPages | None] = {}
        #: Dates and times may be of the old calendar.
        self.has_old_calendar = legacy_calendar(self.footer.metadata.properties)
        #: The positions of deleted rows in the file.
        self.deleted = deleted_rows(vectors or store, block.deletes or (), block.row_count)
        #: The values of columns that the file does not hold, by column id.
        self.constants: Mapping[int, pa.Scalar] = constant_scalars(constant_values(constants, written), written)

    def check_unchanged(self) -> None:
        """Raise BlockReplaced when the file is not the one that was opened."""
        if self._store.stat(self.location) != self._stat:
            raise _replaced(self.location)

    @property
    def group_rows(self) -> list[int]:
        """The number of rows of each row group."""
        return [group.num_rows for group in self.footer.metadata.row_groups]

    @cached_property
    def elements(self) -> tuple[Element, ...]:
        """The file's columns as schema elements."""
        return read_elements(self._tail.footer(self.footer.footer_size))

    def leaf_index(self, leaf: Leaf) -> int | None:
        """Return the number of a column's leaf in the file; None when the file lacks it."""
        return self._leaves.get(leaf.id)

    def column_leaves(self, column: Column) -> range:
        """Return the numbers of all leaves of a top-level column; empty when the file lacks it.

        Leaves that were dropped since count too: they hold which structs, lists and maps are null.
        """
        path = self.written.paths().get(column.id)
        found = [
            self._leaves[leaf.id] for leaf in self.written.leaves() if leaf.path[:1] == path and leaf.id in self._leaves
        ]
        start = 0
        for element in self.elements:
            stop = start + element.leaf_count
            if any(start <= index < stop for index in found):
                return range(start, stop)
            start = stop
        return range(0)

    def path(self, leaf: int) -> list[Element]:
        """Return the schema elements from a top-level column down to a leaf."""
        return path_to(self.elements, leaf)

    def pages(self, group: int, leaves: Sequence[int], rows: int) -> list[ChunkPages | None]:
        """Return the page locations of some chunks; None: unknown, or not worth a request for ``rows`` of their rows.

        The page index usually comes with the footer. Otherwise it needs a request, which pays off when few rows are
        selected.
        """
        row_group = self.footer.metadata.row_groups[group]
        few = rows * 2 <= row_group.num_rows
        missing = []
        for leaf in leaves:
            index_range = row_group.chunks[leaf].offset_index
            if (group, leaf) not in self._page_locations and (
                few or (index_range is not None and index_range[0] >= self._tail.start)
            ):
                missing.append(leaf)
        if missing:
            index = read_page_index(self._tail, self.footer, missing)
            groups = range(len(self.footer.metadata.row_groups))
            self._page_locations.update(
                {(number, leaf): index.at(number, leaf) for number in groups for leaf in missing}
            )
        return [self._page_locations.get((group, leaf)) for leaf in leaves]

    def written_name(self, column: Column) -> str:
        """Return the name of a top-level column when the file was written."""
        return self.written.paths()[column.id][0]

    def check_readable(self, group: int, leaf: int) -> None:
        """Raise EncryptedParquet for a chunk whose pages cannot be read."""
        if self.footer.metadata.row_groups[group].chunks[leaf].encrypted:
            raise EncryptedParquet(f"{self.location} has an encrypted column", location=self.location)


def _replaced(location: str) -> BlockReplaced:
    return BlockReplaced(f"{location} is not the file that the table's statistics come from", location=location)
