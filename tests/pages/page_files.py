"""Files of one column and one row group with page indexes by hand: what the indexes say is up to the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamella.snapshot.columnar.keys import BytesKeys, NumberKeys
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NULL, MAY_NUMBER
from lamella.snapshot.manifest import Block
from lamella.snapshot.pages import Cell
from lamella.snapshot.pages.build import KnownBlock, read_cells
from lamella.snapshot.parquet import Footer, block_of, read_footer, schema_of
from lamella.snapshot.parquet.page_index import PageIndex, read_page_index
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.storage import FsspecStore
from parquet.crafted import chunk, encode, metadata, statistics, stored

PAGE_BYTES = 20
#: Rows of the pages of :func:`page_file`, unless it is told others.
ROWS = (3, 4, 3)


class PageFile(msgspec.Struct, frozen=True):
    """A stored file and what is read of it."""

    store: FsspecStore
    footer: Footer
    schema: Schema
    block: Block

    def index(self, *, bounds: bool = True) -> PageIndex:
        """The page index of the column."""
        return read_page_index(self.store, self.footer, bounds={0} if bounds else ())

    @property
    def leaf(self) -> Leaf:
        """The column."""
        return self.schema.leaves()[0]

    def cell(self, leaf: Leaf | None = None) -> Cell:
        """The column's cell, with statistics."""
        (found,) = read_cells(self.store, KnownBlock.of(self.block), self.footer, [leaf or self.leaf]).values()
        return found

    def pages(self) -> list[tuple[Any, Any, str]]:
        """Per page (low, high, what a row may be); empty when the pages are not told apart."""
        cell = self.cell()
        if cell.zones is None or not cell.zoned[0]:
            return []
        out = []
        for entry in range(1, len(cell.zones)):
            flags = int(cell.zones.flags[entry])
            low, high = (_at(keys, entry) for keys in (cell.zones.low, cell.zones.high))
            may = "".join(name for bit, name in ((MAY_NULL, "0"), (MAY_NUMBER, "v"), (MAY_NAN, "n")) if flags & bit)
            out.append((low if flags & LOW_KNOWN else None, high if flags & HIGH_KNOWN else None, may))
        return out


def _at(keys: Any, entry: int) -> Any:
    if isinstance(keys, BytesKeys):
        return keys.at(entry)
    return keys.array[entry].item() if isinstance(keys, NumberKeys) else None


def offset_index(sizes: Sequence[int], rows: Sequence[int], start: int = 4) -> list[dict[int, Any]]:
    """Page locations for pages that follow each other."""
    found = []
    row = 0
    for size, count in zip(sizes, rows, strict=True):
        found.append({1: start, 2: size, 3: row})
        start += size
        row += count
    return found


def column_index(
    bounds: Sequence[tuple[bytes, bytes] | None],
    *,
    nulls: Sequence[int] | None = None,
    nans: Sequence[int] | None = None,
    order: int = 0,
    levels: Sequence[int] | None = None,
    **replace: Any,
) -> dict[int, Any]:
    """A ColumnIndex; None as bounds is a page of nulls. ``replace``: fields by ``f1``, ``f2``, ..."""
    fields: dict[int, Any] = {
        1: [each is None for each in bounds],
        2: [b"" if each is None else each[0] for each in bounds],
        3: [b"" if each is None else each[1] for each in bounds],
        4: order,
        5: None if nulls is None else list(nulls),
        7: None if levels is None else list(levels),
        8: None if nans is None else list(nans),
    }
    fields.update({int(name[1:]): value for name, value in replace.items()})
    return fields


def page_file(
    leaf: Mapping[int, Any],
    column: Mapping[int, Any] | bytes | None,
    *,
    rows: Sequence[int] = ROWS,
    stats: Mapping[int, Any] | None = None,
    locations: Sequence[Mapping[int, Any]] | bytes | None = None,
    dictionary_bytes: int = 0,
    meta: Mapping[int, Any] | None = None,
    group_rows: int | None = None,
    index_location: tuple[int | None, int | None] | None = None,
    **more: Any,
) -> PageFile:
    """A file of a column ``leaf`` with the ColumnIndex ``column``; ``locations`` replace the honest offset index."""
    sizes = [PAGE_BYTES] * len(rows)
    data = bytes(dictionary_bytes + sum(sizes))
    if locations is None:
        locations = offset_index(sizes, rows, 4 + dictionary_bytes)
    index_bytes = locations if isinstance(locations, bytes) else encode({1: list(locations)})
    bounds = b"" if column is None else column if isinstance(column, bytes) else encode(column)
    total = sum(rows) if group_rows is None else group_rows
    at = 4 + len(data)
    outer = {
        4: at + len(bounds) if index_location is None else index_location[0],
        5: len(index_bytes) if index_location is None else index_location[1],
        6: at if bounds else None,
        7: len(bounds) if bounds else None,
    }
    fields = {7: len(data), 9: 4 + dictionary_bytes, **(meta or {})}
    given = statistics(nulls=0) if stats is None else stats
    one = chunk([leaf[4]], leaf[1], given, num_values=total, meta=fields, outer=outer)
    footer = encode(metadata([leaf], [(total, [one])], **more))
    raw = b"PAR1" + data + bounds + index_bytes + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    store, location = stored(raw)
    read = read_footer(store, location)
    schema = schema_of(read)
    return PageFile(store, read, schema, block_of(read, schema))
