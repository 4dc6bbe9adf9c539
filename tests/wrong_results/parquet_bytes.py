"""Parquet files byte by byte: real pages that every reader can read, under statistics and indexes that say anything.

Files are uncompressed, with version 1 data pages. What a writer would compute (sizes, offsets, row counts) is computed;
what a writer may get wrong (bounds, counts, page indexes, column orders, its own name) is given.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parquet.crafted import (
    BOOLEAN,
    BYTE_ARRAY,
    DOUBLE,
    FIXED,
    FLOAT,
    I32,
    INT32,
    INT64,
    INT96,
    encode,
    varint,
)

PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8
REQUIRED, OPTIONAL = 0, 1
TYPE_ORDER: Mapping[int, Any] = {1: {}}
IEEE_754_ORDER: Mapping[int, Any] = {2: {}}


# --- columns ---


@dataclass(frozen=True)
class Stats:
    """What a chunk claims of itself; ``low``/``high`` are min_value/max_value, the old ones min and max."""

    low: bytes | None = None
    high: bytes | None = None
    nulls: int | None = None
    old_low: bytes | None = None
    old_high: bytes | None = None
    exact: bool | None = None
    nans: int | None = None

    def thrift(self) -> dict[int, Any]:
        """As Statistics."""
        return {
            1: self.old_high,
            2: self.old_low,
            3: self.nulls,
            5: self.high,
            6: self.low,
            7: self.exact,
            8: self.exact,
            9: self.nans,
        }


@dataclass(frozen=True)
class PageIndex:
    """What a chunk's column index and offset index claim. ``first_rows`` None: the truth."""

    null_pages: Sequence[bool]
    lows: Sequence[bytes]
    highs: Sequence[bytes]
    null_counts: Sequence[int] | None = None
    order: int = 0  # 0 unordered, 1 ascending, 2 descending
    first_rows: Sequence[int] | None = None


@dataclass(frozen=True)
class Col:
    """A column: its values (None is null) for the whole file, and what is claimed of it per row group."""

    name: str
    physical: int
    values: Sequence[Any]
    logical: Any = None
    converted: int | None = None
    scale: int | None = None
    precision: int | None = None
    length: int | None = None
    required: bool = False
    dictionary: bool = False
    page_rows: int | None = None
    stats: Sequence[Stats | None] = ()
    index: Sequence[PageIndex | None] = ()
    order: Mapping[int, Any] = field(default_factory=lambda: TYPE_ORDER)
    meta: Mapping[int, Any] = field(default_factory=dict)

    def element(self) -> dict[int, Any]:
        """As SchemaElement."""
        return {
            1: I32(self.physical),
            2: None if self.length is None else I32(self.length),
            3: I32(REQUIRED if self.required else OPTIONAL),
            4: self.name,
            6: None if self.converted is None else I32(self.converted),
            7: None if self.scale is None else I32(self.scale),
            8: None if self.precision is None else I32(self.precision),
            10: self.logical,
        }


def raw(physical: int, value: Any) -> bytes:
    """A value as PLAIN writes it, without the length that a BYTE_ARRAY begins with."""
    if isinstance(value, bytes):
        return value
    if physical == BOOLEAN:
        return bytes((value,))
    if physical == INT32:
        return int(value % (1 << 32)).to_bytes(4, "little")
    if physical == INT64:
        return int(value % (1 << 64)).to_bytes(8, "little")
    if physical == FLOAT:
        return struct.pack("<f", value)
    if physical == DOUBLE:
        return struct.pack("<d", value)
    if isinstance(value, str):
        return value.encode()
    raise AssertionError(f"no bytes for {value!r}")


def int96(julian_day: int, nanos: int) -> bytes:
    """A timestamp in the old form: nanoseconds of the day, then the Julian day."""
    return struct.pack("<qi", nanos, julian_day)


def _plain(physical: int, values: Sequence[Any]) -> bytes:
    if physical == BOOLEAN:
        bits = sum(int(value) << at for at, value in enumerate(values))
        return bits.to_bytes((len(values) + 7) // 8, "little")
    parts = [raw(physical, value) for value in values]
    if physical == BYTE_ARRAY:
        return b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    assert physical in (INT32, INT64, INT96, FLOAT, DOUBLE, FIXED)
    return b"".join(parts)


def _runs(numbers: Sequence[int], bits: int) -> bytes:
    """RLE: every number a run of one."""
    return b"".join(varint(1 << 1) + number.to_bytes((bits + 7) // 8, "little") for number in numbers)


def _page(kind: int, header: Mapping[int, Any], body: bytes) -> bytes:
    at = 5 if kind == 0 else 7
    return encode({1: I32(kind), 2: I32(len(body)), 3: I32(len(body)), at: header}) + body


@dataclass
class _Chunk:
    column: Col
    group: int
    values: Sequence[Any]
    meta: dict[int, Any] = field(default_factory=dict)
    locations: list[dict[int, Any]] = field(default_factory=list)
    index_at: tuple[int, int] | None = None
    offsets_at: tuple[int, int] | None = None

    def write(self, out: bytearray) -> None:
        """Put the pages behind ``out`` and remember where."""
        column = self.column
        start = len(out)
        dictionary: list[bytes] = []
        dictionary_at = None
        present = [raw(column.physical, value) for value in self.values if value is not None]
        if column.dictionary:
            dictionary = list(dict.fromkeys(present))
            dictionary_at = start
            header = {1: I32(len(dictionary)), 2: I32(PLAIN)}
            out += _page(2, header, _plain(column.physical, dictionary))
        data_at = len(out)
        step = column.page_rows or max(1, len(self.values))
        for first in range(0, len(self.values), step):
            page_at = len(out)
            out += self._data_page(self.values[first : first + step], dictionary)
            self.locations.append({1: page_at, 2: I32(len(out) - page_at), 3: first})
        size = len(out) - start
        stats = column.stats[self.group] if self.group < len(column.stats) else None
        self.meta = {
            1: I32(column.physical),
            2: [I32(PLAIN), I32(RLE)] + ([I32(RLE_DICTIONARY)] if column.dictionary else []),
            3: [column.name],
            4: I32(0),
            5: len(self.values),
            6: size,
            7: size,
            9: data_at,
            11: dictionary_at,
            12: stats.thrift() if stats is not None else None,
            13: self._encodings() if self.locations else None,
            **column.meta,
        }

    def _encodings(self) -> list[dict[int, Any]]:
        pages = [{1: I32(0), 2: I32(RLE_DICTIONARY if self.column.dictionary else PLAIN), 3: I32(len(self.locations))}]
        return [{1: I32(2), 2: I32(PLAIN), 3: I32(1)}, *pages] if self.column.dictionary else pages

    def _data_page(self, values: Sequence[Any], dictionary: list[bytes]) -> bytes:
        column = self.column
        body = b""
        if not column.required:
            levels = _runs([int(value is not None) for value in values], 1)
            body = len(levels).to_bytes(4, "little") + levels
        present = [value for value in values if value is not None]
        if column.dictionary:
            bits = max(1, (len(dictionary) - 1).bit_length())
            indices = [dictionary.index(raw(column.physical, value)) for value in present]
            body += bytes((bits,)) + _runs(indices, bits)
        else:
            body += _plain(column.physical, present)
        encoding = RLE_DICTIONARY if column.dictionary else PLAIN
        return _page(0, {1: I32(len(values)), 2: I32(encoding), 3: I32(RLE), 4: I32(RLE)}, body)

    def write_index(self, out: bytearray) -> None:
        """Put the page index, if one is claimed, behind ``out``."""
        claims = self.column.index[self.group] if self.group < len(self.column.index) else None
        if claims is None:
            return
        column_index = {
            1: list(claims.null_pages),
            2: list(claims.lows),
            3: list(claims.highs),
            4: I32(claims.order),
            5: None if claims.null_counts is None else list(claims.null_counts),
        }
        self.index_at = _append(out, encode(column_index))
        rows = claims.first_rows or [location[3] for location in self.locations]
        locations = [{**location, 3: row} for location, row in zip(self.locations, rows, strict=True)]
        self.offsets_at = _append(out, encode({1: locations}))

    def thrift(self) -> dict[int, Any]:
        """As ColumnChunk."""
        offsets, index = self.offsets_at, self.index_at
        return {
            2: self.meta[9],
            3: self.meta,
            4: offsets and offsets[0],
            5: offsets and I32(offsets[1]),
            6: index and index[0],
            7: index and I32(index[1]),
        }


def _append(out: bytearray, data: bytes) -> tuple[int, int]:
    at = len(out)
    out += data
    return at, len(data)


def _chunks(columns: Sequence[Col], groups: Sequence[int]) -> Iterator[list[_Chunk]]:
    first = 0
    for number, rows in enumerate(groups):
        yield [_Chunk(column, number, column.values[first : first + rows]) for column in columns]
        first += rows


def write(
    path: Path,
    *columns: Col,
    groups: Sequence[int] | None = None,
    created_by: str | None = "parquet-cpp-arrow version 26.0.1",
    orders: bool = True,
    properties: Mapping[str, str] | None = None,
    sorted_by: int | None = None,
    num_rows: int | None = None,
) -> str:
    """Write one file and return its path.

    ``groups``: rows of each row group (one by default). ``orders`` False leaves column_orders out. ``sorted_by``: the
    place of the column that the file claims to be sorted by. ``num_rows``: what the file claims to hold.
    """
    rows = len(columns[0].values)
    assert all(len(column.values) == rows for column in columns)
    sizes = [rows] if groups is None else list(groups)
    assert sum(sizes) == rows
    out = bytearray(b"PAR1")
    made = list(_chunks(columns, sizes))
    for chunks in made:
        for chunk in chunks:
            chunk.write(out)
    for chunks in made:
        for chunk in chunks:
            chunk.write_index(out)
    sorting = None if sorted_by is None else [{1: I32(sorted_by), 2: False, 3: False}]
    footer = {
        1: I32(2),
        2: [{4: "schema", 5: I32(len(columns))}, *(column.element() for column in columns)],
        3: rows if num_rows is None else num_rows,
        4: [
            {
                1: [chunk.thrift() for chunk in chunks],
                2: sum(chunk.meta[6] for chunk in chunks),
                3: size,
                4: sorting,
            }
            for chunks, size in zip(made, sizes, strict=True)
        ],
        5: [{1: key, 2: value} for key, value in properties.items()] if properties else None,
        6: created_by,
        7: [column.order for column in columns] if orders else None,
    }
    data = encode(footer)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(out) + data + len(data).to_bytes(4, "little") + b"PAR1")
    return str(path)
