"""A small Parquet file in memory, made of one column's pages out of a large one.

pyarrow reads whole column chunks only. So the wanted pages, with the dictionary page that they need, are put behind
each other as one chunk of a file of their own, under a footer that says just that; pyarrow then decodes nothing else.
The column's schema elements are taken over byte for byte, so logical types stay what they were; what the original says
about Arrow types does not come along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.client.scan import compact
from lamella.snapshot.errors import CorruptParquet
from lamella.snapshot.parquet import thrift
from lamella.snapshot.parquet.metadata import CODECS
from lamella.snapshot.parquet.thrift import INT, ThriftError
from lamella.snapshot.parquet.tree import FileLeaf

_MAGIC: Final = b"PAR1"
_SCHEMA: Final = 2
#: Encodings that a chunk may have: the pages' own headers are what readers go by.
_ENCODINGS: Final = (0, 3, 8)


class Element(msgspec.Struct, frozen=True):
    """A schema element: its bytes, its place in the depth-first list, the elements of its children."""

    data: bytes
    at: int
    children: tuple[Element, ...]

    def all_data(self) -> list[bytes]:
        """Its bytes and those of all below it, depth first."""
        return [self.data, *(data for child in self.children for data in child.all_data())]

    @property
    def leaf_count(self) -> int:
        """The leaves below it; a leaf is one itself."""
        return sum(child.leaf_count for child in self.children) or 1


class LeafData(msgspec.Struct, frozen=True):
    """What a miniature takes over of one leaf: the encoded pages (a dictionary first), how many values they hold."""

    leaf: FileLeaf
    codec: str
    num_values: int
    parts: tuple[bytes, ...]


def read_elements(footer: bytes) -> tuple[Element, ...]:
    """The elements of a file's columns, with all below them.

    Raises:
        CorruptParquet: the list cannot be decoded, or does not add up.
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
    """The elements from a column down to the leaf number ``leaf``."""
    for element in columns:
        count = element.leaf_count
        if leaf < count:
            return [element, *(path_to(element.children, leaf) if element.children else ())]
        leaf -= count
    raise CorruptParquet("the schema has fewer leaves than its chunks")


def one_leaf(path: Sequence[Element]) -> list[bytes]:
    """The elements of a column of which only one leaf is left."""
    return [*(_only_child(element) for element in path[:-1]), path[-1].data]


def _only_child(element: Element) -> bytes:
    fields = thrift.decode(element.data, {3: INT, 4: thrift.BINARY})
    _, data = compact.structure({3: compact.i32(fields[3]), 4: compact.binary(fields[4]), 5: compact.i32(1)})
    return data


def decode(elements: Sequence[bytes], leaves: Sequence[LeafData], num_rows: int) -> Any:
    """The rows of one column, as an Arrow array; ``leaves`` are all leaves of its ``elements``, in order.

    Raises:
        CorruptParquet: the pages cannot be decoded, or hold another number of rows.
    """
    file = _file(elements, leaves, num_rows)
    try:
        with pq.ParquetFile(pa.BufferReader(file), coerce_int96_timestamp_unit="us") as opened:
            column = opened.read(use_threads=False).column(0)
    except (pa.ArrowException, OSError) as error:
        raise CorruptParquet(f"column {leaves[0].leaf.name!r} cannot be decoded: {error}") from error
    if len(column) != num_rows:
        raise CorruptParquet(f"column {leaves[0].leaf.name!r} has {len(column)} rows where {num_rows} should be")
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
        meta = compact.structure(
            {
                1: compact.i32(data.leaf.physical),
                2: compact.sequence(map(compact.i32, _ENCODINGS)),
                3: compact.sequence(map(compact.binary, data.leaf.file_path)),
                4: compact.i32(_codec(data)),
                5: compact.i64(data.num_values),
                6: compact.i64(size),
                7: compact.i64(size),
                9: compact.i64(at),  # of the dictionary when there is one: readers look at the first page's own header
            }
        )
        chunks.append(compact.structure({2: compact.i64(at), 3: meta}))
        at += size
    _, root = compact.structure({4: compact.binary(b"schema"), 5: compact.i32(1)})
    group = compact.structure({1: compact.sequence(chunks), 2: compact.i64(at - len(_MAGIC)), 3: compact.i64(num_rows)})
    _, footer = compact.structure(
        {
            1: compact.i32(1),
            2: compact.structures([root, *elements]),
            3: compact.i64(num_rows),
            4: compact.sequence([group]),
        }
    )
    return b"".join([*body, footer, len(footer).to_bytes(4, "little"), _MAGIC])


def _codec(data: LeafData) -> int:
    if data.codec not in CODECS:
        raise CorruptParquet(f"column {data.leaf.name!r} is compressed by an unknown codec", column=data.leaf.name)
    return CODECS.index(data.codec)
