"""Builds the cells of a file's columns.

A block's statistics contain the location of each column's chunks. A column's leaf in the file is found by these
locations, not by its name: the schema may have changed since the block was registered, the file has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.zones import Zones, arrays_of, keys_of
from lamella.snapshot.errors import (
    CorruptParquet,
    LamellaError,
    ManifestError,
    NotParquet,
    SchemaMismatch,
    UnsupportedFormat,
)
from lamella.snapshot.manifest import FORMAT_VERSION, Block, ColumnMeta
from lamella.snapshot.pages.cell import Cell, Numbers
from lamella.snapshot.parquet.columns import PlannedColumn, planned_column
from lamella.snapshot.parquet.footer import FileMetadata, Footer, read_footer
from lamella.snapshot.parquet.page_index import PageIndex, PageZones, page_zones, read_page_index
from lamella.snapshot.parquet.statistics_rules import Origin, chunk_stats
from lamella.snapshot.parquet.writer import legacy_calendar, writer_of
from lamella.snapshot.schema import Leaf
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.stats.column import Source
from lamella.snapshot.storage.store import ObjectStat, Store

_CHANGED: Final = "the file has changed since it was registered"


class _Provenance(msgspec.Struct, frozen=True):
    """The source of a column's statistics."""

    source: Source = "footer"


class KnownBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a block's manifest entry that ties its pages to it; members are those of ``Block``."""

    location: str
    file_size: int
    content_id: str | None = None
    footer_sha256: str | None = None
    row_group_row_counts: tuple[int, ...] = ()
    col_metas: dict[int, tuple[ColumnMeta, ...]] = {}
    page_index_location: tuple[int, int] | None = None
    col_stats: dict[int, _Provenance] = {}

    @classmethod
    def of(cls, block: Block) -> KnownBlock:
        """Returns the part of a block of a manifest."""
        return msgspec.convert(
            {name: getattr(block, name) for name in cls.__struct_fields__}, cls, from_attributes=True
        )

    @property
    def distrusted(self) -> str | None:
        """Returns why the file's own statistics are not used: it was verified by a scan because its writer is not
        trusted."""
        if self.page_index_location is None and any(stats.source == "scan" for stats in self.col_stats.values()):
            return "the statistics were verified by reading the values, and the block names no page index"
        return None


class _Manifest(msgspec.Struct, frozen=True):
    """A segment's manifest without its statistics, which take most of the decoding time."""

    format_version: int
    blocks: tuple[KnownBlock, ...] = ()


_MANIFEST: Final = msgspec.json.Decoder(_Manifest)


def known_blocks(manifest: bytes, location: str) -> tuple[KnownBlock, ...]:
    """Returns the blocks of a segment's manifest (whose hash has been checked).

    Raises:
        UnsupportedFormat, ManifestError: as :func:`lamella.snapshot.manifest.decode_segment`.
    """
    try:
        found = _MANIFEST.decode(manifest)
    except msgspec.MsgspecError as error:
        raise ManifestError(f"{location} cannot be decoded: {error}") from error
    if found.format_version > FORMAT_VERSION:
        raise UnsupportedFormat(f"{location} has format version {found.format_version}")
    return found.blocks


def read_block_footer(store: Store, block: KnownBlock) -> Footer:
    """Returns the footer that the block's statistics come from.

    Raises:
        CorruptParquet: the file was replaced, the block does not identify its file, or its own statistics must not be
            used.
        ObjectNotFound, StoreError, NotParquet: as for reading a footer.
    """
    if block.distrusted is not None:
        raise CorruptParquet(block.distrusted)
    if block.footer_sha256 is None:
        raise CorruptParquet("the block was committed without the hash of its footer")
    stat = ObjectStat(location=block.location, size_bytes=block.file_size, content_id=block.content_id or "")
    try:
        footer = read_footer(store, block.location, stat)
    except NotParquet as error:
        if store.stat(block.location).size_bytes == block.file_size:
            raise
        raise CorruptParquet(_CHANGED) from error
    if footer.sha256 != block.footer_sha256:
        raise CorruptParquet(_CHANGED)
    if block.row_group_row_counts and group_rows(footer) != block.row_group_row_counts:
        raise CorruptParquet("the block was committed with different row groups than its file has")
    return footer


def group_rows(footer: Footer) -> tuple[int, ...]:
    """Returns the rows of a file's row groups."""
    return tuple(group.num_rows for group in footer.metadata.row_groups)


def read_cells(
    store: Store, block: KnownBlock, footer: Footer, zoned: Sequence[Leaf], placed: Sequence[Leaf] = ()
) -> dict[int, Cell]:
    """Returns the cells of a block's columns by id: of ``zoned`` with zone maps, of ``placed`` only with page
    locations.

    A column without locations in the block (one that the file lacks, or one with several leaves) is left out.

    Raises:
        ObjectNotFound, StoreError: as the store.
    """
    indexes = _file_leaves(footer.metadata, block, (leaf.id for leaf in (*zoned, *placed)))
    bounds = {indexes[leaf.id] for leaf in zoned if leaf.id in indexes}
    reader = _Cells(footer, read_page_index(store, footer, sorted(indexes.values()), bounds=bounds))
    found = {leaf.id: reader.cell(indexes[leaf.id], leaf, zones=False) for leaf in placed if leaf.id in indexes}
    found.update({leaf.id: reader.cell(indexes[leaf.id], leaf, zones=True) for leaf in zoned if leaf.id in indexes})
    return found


def why(error: LamellaError) -> str:
    """Returns an error as a reason that does not differ from file to file."""
    return error.message if isinstance(error, CorruptParquet) and "location" not in error.details else error.code


def _file_leaves(metadata: FileMetadata, block: KnownBlock, column_ids: Iterable[int]) -> dict[int, int]:
    """Returns the file's leaves by column id: those whose chunks are exactly where the block's manifest states, in any
    row group."""
    chunks = [
        tuple((group.chunks[leaf].offset, group.chunks[leaf].compressed_size) for group in metadata.row_groups)
        for leaf in range(len(metadata.schema.leaves))
    ]
    found: dict[tuple[tuple[int, int], ...], int] = {}
    doubled: set[tuple[tuple[int, int], ...]] = set()
    for leaf, indexes in enumerate(chunks):
        if indexes in found:
            doubled.add(indexes)
        found[indexes] = leaf
    wanted = {
        column_id: tuple((meta.offset, meta.len) for meta in block.col_metas.get(column_id, ()))
        for column_id in column_ids
    }
    return {
        column_id: found[indexes]
        for column_id, indexes in wanted.items()
        if indexes and indexes in found and indexes not in doubled
    }


_AllZones = tuple[Zones, Numbers, npt.NDArray[np.bool_], list[str | None]]


class _Cells:
    def __init__(self, footer: Footer, pages: PageIndex) -> None:
        self._metadata = footer.metadata
        self._pages = pages
        self._origin = Origin(writer_of(footer.metadata.created_by), legacy_calendar(footer.metadata.properties))

    def cell(self, index: int, leaf: Leaf, *, zones: bool) -> Cell:
        groups = self._metadata.row_groups
        chunks = [group.chunks[index] for group in groups]
        found = [self._pages.at(number, index) for number in range(len(groups))]
        reasons = [self._pages.reasons.get((number, index)) for number in range(len(groups))]
        maps, nulls, zoned = None, np.empty(0, np.int64), np.zeros(len(groups), dtype=bool)
        if zones:
            maps, nulls, zoned, why_not = self._all_zones(index, leaf)
            reasons = [first or second for first, second in zip(reasons, why_not, strict=True)]
        nothing: list[Numbers] = [np.empty(0, dtype=np.int64)]
        return Cell(
            group_rows=np.array([group.num_rows for group in groups], dtype=np.int64),
            offsets=np.array([chunk.offset for chunk in chunks], dtype=np.int64),
            sizes=np.array([chunk.compressed_size for chunk in chunks], dtype=np.int64),
            dictionary_sizes=np.array([p.dictionary[1] if p and p.dictionary else 0 for p in found], dtype=np.int64),
            page_counts=np.array([0 if p is None else len(p) for p in found], dtype=np.int64),
            page_rows=np.concatenate(nothing + [p.row_counts for p in found if p is not None]),
            page_sizes=np.concatenate(nothing + [p.sizes for p in found if p is not None]),
            zoned=zoned,
            zones=maps,
            null_counts=nulls,
            reason=next((r for group, r in zip(groups, reasons, strict=True) if r and group.num_rows), None),
        )

    def _all_zones(self, index: int, leaf: Leaf) -> _AllZones:
        groups = self._metadata.row_groups
        column: PlannedColumn | None = None
        mismatch: str | None = None
        try:
            column = planned_column(index, self._metadata.schema.leaves[index], leaf)
        except SchemaMismatch as error:
            mismatch = error.message
        entries: list[tuple[int, ColumnStats | None]] = []
        parts: list[PageZones] = []
        zoned = np.zeros(len(groups), dtype=bool)
        reasons: list[str | None] = [None] * len(groups)
        for number, group in enumerate(groups):
            if column is None or not group.num_rows:
                entries.append((group.num_rows, None))
                reasons[number] = mismatch
                continue
            stats, pages = self._group_zones(column, number)
            entries.append((group.num_rows, stats))
            if isinstance(pages, PageZones):
                parts.append(pages)
                zoned[number] = True
            else:
                reasons[number] = pages
        lows, highs, flags, nulls = arrays_of(leaf.dtype, entries)
        for part in parts:
            lows.extend(part.lows)
            highs.extend(part.highs)
        return (
            Zones(
                keys_of(leaf.dtype, lows),
                keys_of(leaf.dtype, highs),
                np.concatenate([flags, *(part.flags for part in parts)]),
            ),
            np.concatenate([nulls, *(part.nulls for part in parts)]),
            zoned,
            reasons,
        )

    def _group_zones(self, column: PlannedColumn, number: int) -> tuple[ColumnStats, PageZones | str | None]:
        metadata = self._metadata
        group = metadata.row_groups[number]
        chunk = group.chunks[column.index]
        orders = metadata.column_orders
        order = orders[column.index] if len(orders) == len(metadata.schema.leaves) else 0
        stats = chunk_stats(column, chunk, group.num_rows, order, self._origin)
        pages = self._pages.at(number, column.index)
        if pages is None:
            return stats, None
        index = self._pages.column_indexes.get((number, column.index), b"")
        return stats, page_zones(column, chunk, stats, pages, index, order, self._origin)
