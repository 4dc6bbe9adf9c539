"""Parquet footers by hand: an encoder for Thrift's compact protocol, and files that consist of little but a footer.

A structure is a dictionary by field id; numbers become i64 (``I8`` makes a byte, ``I32`` an i32); booleans, bytes,
text, dictionaries and lists what they look like. That is all that ``parquet.thrift`` needs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet import block_of, read_footer, schema_of
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.storage import FsspecStore

BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED = range(8)
REQUIRED, OPTIONAL, REPEATED = range(3)

_COUNTER = itertools.count()


class I8(int):
    """A number that is written as one byte."""


class I32(int):
    """A number that is written as an i32; readers that were generated from the definition insist on it."""


# --- Thrift's compact protocol, write side ---


def varint(number: int) -> bytes:
    """ULEB128."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def zigzag(number: int) -> bytes:
    """A signed number."""
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def _wire(value: Any) -> int:
    if isinstance(value, bool):
        return 1 if value else 2
    if isinstance(value, I8):
        return 3
    if isinstance(value, I32):
        return 5
    if isinstance(value, int):
        return 6
    if isinstance(value, float):
        return 7
    if isinstance(value, bytes | str):
        return 8
    return 12 if isinstance(value, Mapping) else 9


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"\x01" if value else b"\x02"
    if isinstance(value, I8):
        return (value & 255).to_bytes(1, "little")
    if isinstance(value, int):
        return zigzag(value)
    if isinstance(value, float):
        return bytes(8)
    if isinstance(value, bytes | str):
        raw = value.encode() if isinstance(value, str) else value
        return varint(len(raw)) + raw
    if isinstance(value, Mapping):
        return encode(value)
    kind = _wire(value[0]) if value else 6
    kind = 1 if kind == 2 else kind
    header = bytes((len(value) << 4 | kind,)) if len(value) < 15 else bytes((0xF0 | kind,)) + varint(len(value))
    return header + b"".join(map(_value, value))


def encode(fields: Mapping[int, Any]) -> bytes:
    """A structure; members that are None are left out."""
    out = bytearray()
    last = 0
    for field, value in fields.items():
        if value is None:
            continue
        kind = _wire(value)
        if 0 < field - last < 16:
            out.append((field - last) << 4 | kind)
        else:
            out.append(kind)
            out += zigzag(field)
        last = field
        if not isinstance(value, bool):
            out += _value(value)
    return bytes(out) + b"\x00"


# --- Parquet's metadata ---


def element(
    name: str | bytes,
    physical: int | None = None,
    *,
    repetition: int | None = OPTIONAL,
    children: int | None = None,
    length: int | None = None,
    converted: int | None = None,
    scale: int | None = None,
    precision: int | None = None,
    logical: Any = None,
) -> dict[int, Any]:
    """A SchemaElement."""
    return {
        1: physical,
        2: length,
        3: repetition,
        4: name,
        5: children,
        6: converted,
        7: scale,
        8: precision,
        10: logical,
    }


def statistics(
    low: bytes | None = None,
    high: bytes | None = None,
    *,
    nulls: int | None = None,
    old_low: bytes | None = None,
    old_high: bytes | None = None,
    exact: bool | None = None,
    nans: int | None = None,
) -> dict[int, Any]:
    """Statistics: ``low`` and ``high`` are min_value and max_value, the old ones min and max."""
    return {1: old_high, 2: old_low, 3: nulls, 5: high, 6: low, 7: exact, 8: exact, 9: nans}


def chunk(
    path: Sequence[str | bytes],
    physical: int,
    stats: Mapping[int, Any] | None = None,
    *,
    num_values: int = 10,
    meta: Mapping[int, Any] | None = None,
    outer: Mapping[int, Any] | None = None,
) -> dict[int, Any]:
    """A ColumnChunk with one page behind the magic; ``meta`` and ``outer`` replace fields (None leaves one out)."""
    fields: dict[int, Any] = {1: physical, 2: [0], 3: list(path), 4: 1, 5: num_values, 6: 60, 7: 50, 9: 4, 12: stats}
    fields.update(meta or {})
    around: dict[int, Any] = {2: 4, 3: fields}
    around.update(outer or {})
    return dict(sorted(around.items()))


def metadata(
    leaves: Sequence[Mapping[int, Any]],
    groups: Sequence[tuple[int, Sequence[Mapping[int, Any]]]],
    *,
    top: int | None = None,
    orders: Sequence[Mapping[int, Any]] | None = (),
    created_by: str | None = "parquet-cpp-arrow version 26.0.1",
    properties: Mapping[str, str] | None = None,
    more: Mapping[int, Any] | None = None,
) -> dict[int, Any]:
    """FileMetaData. ``orders``: the default is order 1 for each leaf; None leaves them out."""
    if orders is not None and not orders:
        orders = [{1: {}} for leaf in leaves if leaf.get(5) is None]
    root = element("schema", repetition=None, children=len(leaves) if top is None else top)
    fields: dict[int, Any] = {
        1: 2,
        2: [root, *leaves],
        3: sum(rows for rows, _ in groups),
        4: [{1: list(chunks), 2: 60 * len(chunks), 3: rows} for rows, chunks in groups],
        5: [{1: key, 2: value} for key, value in properties.items()] if properties else None,
        6: created_by,
        7: list(orders) if orders is not None else None,
    }
    fields.update(more or {})
    return fields


def file_bytes(footer: Mapping[int, Any] | bytes, *, body_bytes: int = 200, magic: bytes = b"PAR1") -> bytes:
    """A file of zeros with that footer."""
    raw = footer if isinstance(footer, bytes) else encode(footer)
    return b"PAR1" + bytes(body_bytes) + raw + len(raw).to_bytes(4, "little") + magic


def stored(data: bytes) -> tuple[FsspecStore, str]:
    """A store that holds ``data``, and where."""
    store = FsspecStore()
    location = f"memory://crafted/{next(_COUNTER)}.parquet"
    return store, store.put(location, data).location


def block(footer: Mapping[int, Any], schema: Schema | None = None) -> tuple[Block, Schema]:
    """The block of a crafted file, in a table of ``schema`` (its own by default)."""
    read = read_footer(*stored(file_bytes(footer)))
    schema = schema or schema_of(read)
    return block_of(read, schema), schema


def stats_of(
    leaf: Mapping[int, Any],
    *chunks: Mapping[int, Any] | None,
    table_type: str | None = None,
    rows: int = 10,
    meta: Mapping[int, Any] | None = None,
    outer: Mapping[int, Any] | None = None,
    **more: Any,
) -> ColumnStats:
    """The statistics of a file of one column ``leaf``, with a row group for each of ``chunks`` (Statistics)."""
    groups = [(rows, [chunk([leaf[4]], leaf[1], stats, num_values=rows, meta=meta, outer=outer)]) for stats in chunks]
    schema = None
    if table_type is not None:
        schema = _one_column(leaf[4], table_type)
    found, _ = block(metadata([leaf], groups, **more), schema)
    (only,) = found.col_stats.values()
    return only


def _one_column(name: str, kind: str) -> Schema:
    return Schema.assign([Column(name=name, type=kind)])


def flat(names: Iterable[str], physical: int = INT64) -> list[dict[int, Any]]:
    """Optional leaves of one type."""
    return [element(name, physical) for name in names]
