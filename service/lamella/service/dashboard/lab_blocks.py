"""The blocks of an answer: as a map in the colours of their verdicts, and as a list, a page at a time."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from lamella.service.dashboard.tiles import MOST_TILES, NESTED_SEGMENTS, Group, Painter, Step, Tile
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.prune.found import VERDICTS
from lamella.snapshot.prune.kept import Codes
from lamella.snapshot.prune.verdict import NONE
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.layer_map import LayerMap

#: Blocks of one page of the list.
LISTED: Final = 25


class Picture(msgspec.Struct, frozen=True):
    """A map: ``groups`` of blocks in their segments, or ``tiles`` of several segments each."""

    legend: tuple[Step, ...]
    groups: tuple[Group, ...]
    tiles: tuple[Tile, ...]


class Line(msgspec.Struct, frozen=True):
    """A block: ``place`` is its segment's number and its own."""

    place: str
    segment: int
    number: int
    location: str
    row_count: int
    file_size: int
    verdict: str


class Listing(msgspec.Struct, frozen=True):
    """Some of the blocks that are ``which``, from the one ``start``; ``before`` and ``after``: other pages."""

    which: str
    lines: tuple[Line, ...]
    start: int
    total: int
    before: int | None
    after: int | None


def picture_of(layer_map: LayerMap, verdicts: Codes) -> Picture:
    """The whole snapshot."""
    painter = Painter(layer_map, "match", verdicts)
    segments = len(layer_map.segment_id)
    if segments <= NESTED_SEGMENTS and len(layer_map) <= MOST_TILES:
        return Picture(painter.legend(), painter.groups(), ())
    return Picture(painter.legend(of_shares=True), (), painter.segments(0, segments))


def listed(
    warehouse: Warehouse, pointer: SnapshotPointer, layer_map: LayerMap, verdicts: Codes, which: str, start: int
) -> Listing:
    """A page of the blocks that are kept, or of those that are skipped."""
    chosen = np.flatnonzero(verdicts != NONE if which == "kept" else verdicts == NONE)
    if start >= len(chosen):  # behind the end: the last page
        start = max(len(chosen) - 1, 0) // LISTED * LISTED
    lines: list[Line] = []
    locations: dict[int, list[str]] = {}
    for block in chosen[start : start + LISTED].tolist():
        segment = int(layer_map.segment[block])
        number = block - int(layer_map.starts[segment])
        if segment not in locations:
            locations[segment] = warehouse.blocks_of(pointer, layer_map.segment_id[segment]).location
        code = int(verdicts[block])
        lines.append(
            Line(
                place=f"{segment}.{number}",
                segment=segment,
                number=number,
                location=locations[segment][number],
                row_count=int(layer_map.row_count[block]),
                file_size=int(layer_map.file_size[block]),
                verdict="skipped" if code == NONE else VERDICTS[code],
            )
        )
    total = len(chosen)
    return Listing(
        which,
        tuple(lines),
        start,
        total,
        max(start - LISTED, 0) if start else None,
        start + LISTED if start + LISTED < total else None,
    )
