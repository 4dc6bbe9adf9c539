"""Views of one block for display."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NUMBER, Zones
from lamella.snapshot.commit.snapshots import seen_blocks
from lamella.snapshot.errors import InvalidRequest, NotFound
from lamella.snapshot.expression.text import ValueText, value_text
from lamella.snapshot.manifest import Block, DeleteFile, Segment, SnapshotPointer
from lamella.snapshot.pages import BlockPages, Cell, PageSource
from lamella.snapshot.pages.source import Usage
from lamella.snapshot.prune.block_layer import Layers, number_of_segment
from lamella.snapshot.prune.pages import checked_pages, page_segments
from lamella.snapshot.prune.top_k import value_at
from lamella.snapshot.schema import DataType, Leaf
from lamella.snapshot.stats import ColumnStats, from_bound
from lamella.snapshot.stats.column import Nan, Source
from lamella.snapshot.warehouse.manifests import Manifests


class BoundsText(msgspec.Struct, frozen=True):
    """Bounds as SQL literals, None if unknown; ``is_cut``: one of them is truncated at its ellipsis."""

    min: str | None = None
    max: str | None = None
    is_cut: bool = False


NOTHING_KNOWN: Final = BoundsText()


def stats_text(dtype: DataType, stats: ColumnStats) -> BoundsText:
    """Returns the bounds of statistics."""
    if dtype.order is None:
        return NOTHING_KNOWN
    sides = [None if bound is None else value_text(dtype, from_bound(dtype, bound)) for bound in (stats.min, stats.max)]
    return _both(*sides)


def zones_text(dtype: DataType, zones: Zones, row: int) -> BoundsText:
    """Returns the bounds of one entry of zone maps."""
    flags = int(zones.flags[row])
    low = value_text(dtype, value_at(zones.low, row)) if flags & LOW_KNOWN and zones.low is not None else None
    high = value_text(dtype, value_at(zones.high, row)) if flags & HIGH_KNOWN and zones.high is not None else None
    return _both(low, high)


def zones_nan(dtype: DataType, zones: Zones, row: int) -> Nan | None:
    """Returns whether rows of one entry are NaN; None for types without NaN."""
    if not dtype.is_float:
        return None
    flags = int(zones.flags[row])
    if not flags & MAY_NAN:
        return "none"
    return "maybe" if flags & MAY_NUMBER else "all"


def _both(low: ValueText | None, high: ValueText | None) -> BoundsText:
    return BoundsText(
        None if low is None else low.text,
        None if high is None else high.text,
        any(side is not None and side.is_cut for side in (low, high)),
    )


_NOT_PLACED: Final = "the block does not say where its file holds the column"
_NO_STATISTICS: Final = "its pages have no statistics"


class ColumnView(msgspec.Struct, frozen=True, kw_only=True):
    """A column of the current schema, in one block or in all.

    ``min`` and ``max`` are SQL literals, ``is_cut`` if one is too long to show; with ``min_exact`` and ``max_exact``
    they occur as values, otherwise they only enclose all values. ``nan`` is None for types without NaN.
    ``distinct_count``: distinct values; ``sum``: the exact sum, as text; ``size_bytes``: compressed size of its chunks
    in the file. ``source``: the origin of the statistics; None: there are none. ``reason``: why a bound is unknown.
    """

    column_id: int
    name: str
    type: str
    min: str | None = None
    max: str | None = None
    is_cut: bool = False
    min_exact: bool = False
    max_exact: bool = False
    null_count: int | None = None
    nan: Nan | None = None
    distinct_count: int | None = None
    sum: str | None = None
    size_bytes: int | None = None
    source: Source | None = None
    reason: str | None = None


class BlockView(msgspec.Struct, frozen=True, kw_only=True):
    """A block; members are those of :class:`~lamella.snapshot.manifest.Block`.

    ``number``: its index in its segment. ``block_size``: uncompressed bytes. ``created``: ISO 8601. ``schema_id``: the
    schema that its file was written with. ``cluster_level``: how often its rows were rewritten for the key
    ``cluster_key_id``. ``row_groups``: the rows of each. ``live_row_count``: those that are not
    deleted, None if their number is unknown.
    """

    segment_id: str
    number: int
    location: str
    row_count: int
    file_size: int
    block_size: int | None
    format: str
    compression: str | None
    created: str | None
    created_by: str | None
    schema_id: int
    cluster_key_id: int | None
    cluster_level: int | None
    content_id: str | None
    footer_sha256: str | None
    row_groups: tuple[int, ...] | None
    deletes: tuple[DeleteFile, ...]
    live_row_count: int | None
    columns: tuple[ColumnView, ...]


class BlockRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row in a list of blocks. ``level``: None if the block was not written for the current cluster key."""

    number: int
    location: str
    row_count: int
    file_size: int
    level: int | None
    created: str | None


class PageView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of one column, or (``is_page`` False) a row group or the whole block if its pages are unknown.

    ``row_group``: None for the whole block. It has ``row_count`` rows, beginning with row ``first_row`` of the row
    group, which is row ``file_row`` of the file, in ``size_bytes`` at ``offset``. ``min`` and ``max`` enclose its
    values, as SQL literals. ``reason``: why something is unknown.
    """

    row_group: int | None
    first_row: int
    file_row: int
    row_count: int
    is_page: bool
    offset: int | None = None
    size_bytes: int | None = None
    min: str | None = None
    max: str | None = None
    is_cut: bool = False
    null_count: int | None = None
    nan: Nan | None = None
    reason: str | None = None


class BlockViews:
    """Creates views of blocks. ``layers``: those of a snapshot; ``pages``: the source of page statistics."""

    def __init__(self, manifests: Manifests, layers: Callable[[SnapshotPointer], Layers], pages: PageSource) -> None:
        self._manifests = manifests
        self._layers = layers
        self._pages = pages

    def block(self, pointer: SnapshotPointer, segment_id: str, number: int) -> BlockView:
        """Returns one block, with all columns of the current schema.

        Raises:
            SegmentNotFound: the snapshot does not have the segment; NotFound: the segment has no block with that
                number.
            StoreError, ManifestError: the manifest cannot be read.
        """
        layers, segment = self._layers(pointer), self._segment(pointer, segment_id)
        block = _at(segment, number)
        (seen,) = seen_blocks(layers.head, [block])
        cluster = block.cluster_stats
        return BlockView(
            segment_id=segment_id,
            number=number,
            location=block.location,
            row_count=block.row_count,
            file_size=block.file_size,
            block_size=block.block_size or None,
            format=block.format,
            compression=block.compression or None,
            created=block.create_on,
            created_by=block.created_by,
            schema_id=block.written_with,
            cluster_key_id=None if cluster is None else cluster.key_id,
            cluster_level=None if cluster is None else cluster.level,
            content_id=block.content_id,
            footer_sha256=block.footer_sha256,
            row_groups=block.row_group_row_counts or None,
            deletes=block.deletes,
            live_row_count=block.live_row_count,
            columns=tuple(_column(leaf, seen) for leaf in layers.head.schema.leaves()),
        )

    def blocks(self, pointer: SnapshotPointer, segment_id: str, first: int, count: int) -> tuple[BlockRow, ...]:
        """Returns up to ``count`` blocks of a segment, from number ``first`` on.

        Raises:
            InvalidRequest: a negative number; SegmentNotFound, StoreError, ManifestError: as :meth:`block`.
        """
        if first < 0 or count < 0:
            raise InvalidRequest(f"{min(first, count)} is not a block number", first=first, count=count)
        key = self._layers(pointer).head.cluster_key
        some = self._segment(pointer, segment_id).blocks[first : first + count]
        return tuple(
            BlockRow(
                number=number,
                location=block.location,
                row_count=block.row_count,
                file_size=block.file_size,
                level=block.cluster_stats.level
                if key is not None and block.cluster_stats is not None and block.cluster_stats.key_id == key.key_id
                else None,
                created=block.create_on,
            )
            for number, block in enumerate(some, first)
        )

    def pages(self, pointer: SnapshotPointer, segment_id: str, number: int, column: str) -> tuple[PageView, ...]:
        """Returns the pages of a column in one block, in its order, from the source that page-level prunes use.

        Raises:
            UnknownColumn: no such leaf column; SegmentNotFound, NotFound, StoreError, ManifestError: as :meth:`block`.
        """
        layers = self._layers(pointer)
        leaf = layers.head.schema.leaf(column)
        row = number_of_segment(layers.segments.texts("segment_id"), segment_id)
        sidecar = self._manifests.blocks(layers.head, layers.sidecar(row))
        _check(number, len(sidecar), segment_id)
        row_count = int(sidecar.numbers("row_count")[number])
        usage = Usage()
        segment = page_segments(layers.segments)(row)
        (found,) = self._pages.pages(segment, [number], zoned=[leaf], placed=[leaf], usage=usage)
        found = checked_pages(found, row_count, usage)
        cell = found.cells.get(leaf.id)
        return tuple(_unknown(found, row_count) if cell is None else _units(leaf, cell))

    def _segment(self, pointer: SnapshotPointer, segment_id: str) -> Segment:
        segments = self._layers(pointer).segments
        row = number_of_segment(segments.texts("segment_id"), segment_id)
        return self._manifests.segment_at(page_segments(segments)(row).manifest)


def _at(segment: Segment, number: int) -> Block:
    _check(number, len(segment.blocks), segment.segment_id)
    return segment.blocks[number]


def _check(number: int, count: int, segment_id: str) -> None:
    if not 0 <= number < count:
        raise NotFound(f"the segment has no block {number}, but {count}", segment_id=segment_id, block=number)


def column_view(leaf: Leaf, stats: ColumnStats | None, size_bytes: int | None) -> ColumnView:
    """Returns the view of a column from its statistics in a block, a segment or a snapshot."""
    view = ColumnView(column_id=leaf.id, name=leaf.name, type=str(leaf.dtype), size_bytes=size_bytes)
    if stats is None:
        return msgspec.structs.replace(view, reason="no statistics were recorded")
    bounds = stats_text(leaf.dtype, stats)
    return msgspec.structs.replace(
        view,
        min=bounds.min,
        max=bounds.max,
        is_cut=bounds.is_cut,
        min_exact=stats.min_exact,
        max_exact=stats.max_exact,
        null_count=stats.null_count,
        nan=stats.nan if leaf.dtype.is_float else None,
        distinct_count=stats.distinct_of_values,
        sum=stats.sum,
        source=stats.source,
        reason=stats.reason,
    )


def _column(leaf: Leaf, block: Block) -> ColumnView:
    chunks = block.col_metas.get(leaf.id)
    size_bytes = None if not chunks else sum(chunk.len for chunk in chunks)
    return column_view(leaf, block.col_stats.get(leaf.id), size_bytes)


def _units(leaf: Leaf, cell: Cell) -> list[PageView]:
    """Returns the pages of a cell, and the row groups whose pages are unknown."""
    units, zones = cell.units, cell.zones
    starts, entries = cell.zone_starts
    found = []
    for at, group in enumerate(units.groups.tolist()):
        is_page = bool(cell.page_counts[group] > 0)
        is_known = zones is not None and (bool(cell.zoned[group]) or not is_page)
        entry = int(entries[np.searchsorted(starts, units.starts[at], side="right") - 1])
        nulls = int(cell.null_counts[entry]) if is_known else -1
        bounds = zones_text(leaf.dtype, zones, entry) if zones is not None and is_known else NOTHING_KNOWN
        found.append(
            PageView(
                row_group=group,
                first_row=int(units.first_rows[at]),
                file_row=int(units.starts[at]),
                row_count=int(units.rows[at]),
                is_page=is_page,
                offset=int(units.offsets[at]),
                size_bytes=int(units.sizes[at]),
                min=bounds.min,
                max=bounds.max,
                is_cut=bounds.is_cut,
                null_count=None if nulls < 0 else nulls,
                nan=zones_nan(leaf.dtype, zones, entry) if zones is not None and is_known else None,
                reason=None if is_page and is_known else cell.reason or _NO_STATISTICS,
            )
        )
    return found


def _unknown(pages: BlockPages, row_count: int) -> list[PageView]:
    """Returns the row groups of a block, or the block, if nothing is known of a column in it."""
    reason = pages.reason or _NOT_PLACED
    if not pages.group_rows:
        groups: list[tuple[int | None, int]] = [(None, row_count)]
    else:
        groups = list(enumerate(pages.group_rows))
    found, file_row = [], 0
    for group, rows in groups:
        if rows:
            found.append(
                PageView(row_group=group, first_row=0, file_row=file_row, row_count=rows, is_page=False, reason=reason)
            )
        file_row += rows
    return found
