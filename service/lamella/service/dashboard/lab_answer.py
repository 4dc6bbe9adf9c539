"""The result of a prune in the lab: the funnel, verdicts, savings, and the blocks as a map and a list."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, Final

import msgspec
import numpy as np
from markupsafe import Markup

from lamella.service.dashboard import charts, words
from lamella.service.dashboard.charts import MAX_TILES, NESTED_SEGMENTS, Group, MapRenderer, Step, Tile
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.prune.outcome import ALL, NONE, SOME, UNKNOWN
from lamella.snapshot.prune.result import VERDICTS, Codes, PruneResult
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.layer_map import LayerMap
from lamella.snapshot.wire import LayerUse, NotUsed, Report

#: Most predicates, and most unused parts, on a page.
MAX_LISTED: Final = 60
#: Most segments whose column sizes are added up.
_MAX_SIZED: Final = 200

_STAGES: Final = {
    "snapshot": ("Table", "its summary", "table"),
    "segment": ("Segments", "their summaries", "segment"),
    "block": ("Blocks", "their bounds and counts", "block"),
    "index": ("Skip indexes", "their entries for blocks", "block"),
    "limit": ("Limit", "blocks that suffice for the limit", "block"),
}
_EPOCH: Final = dt.date(1970, 1, 1)
_EPOCH_US: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # the zone is added to the text
_SPELLED: Final = re.compile(r"'(?:[^']|'')*'|\b(date|timestamp|timestamp_ntz)\((-?\d{1,18})\)")


class Figures(msgspec.Struct, frozen=True):
    """What a prune keeps of a snapshot."""

    blocks: int
    blocks_total: int
    rows: int
    rows_total: int
    bytes: int
    bytes_total: int

    @property
    def block_share(self) -> float:
        """Return the share of all blocks that is read."""
        return self.blocks / self.blocks_total if self.blocks_total else 0.0

    @property
    def byte_share(self) -> float:
        """Return the share of all bytes that is read."""
        return self.bytes / self.bytes_total if self.bytes_total else 0.0

    @property
    def blocks_saved(self) -> int:
        """Return the number of blocks that are not read."""
        return self.blocks_total - self.blocks

    @property
    def bytes_saved(self) -> int:
        """Return the bytes of blocks that are not read."""
        return self.bytes_total - self.bytes


class StageLine(msgspec.Struct, frozen=True):
    """A step of the funnel; ``unit`` is what it counts."""

    name: str
    looks_at: str
    unit: str
    considered: int
    selected: int
    bytes: int
    ms: float

    @property
    def share(self) -> float:
        """Return the share that it keeps."""
        return self.selected / self.considered if self.considered else 0.0


class VerdictLine(msgspec.Struct, frozen=True):
    """How many blocks have a verdict; ``colour`` is a class of the style sheet."""

    name: str
    colour: str
    meaning: str
    blocks: int


class PredicateLine(msgspec.Struct, frozen=True):
    """A part of the filter, and what each layer decides by it alone."""

    predicate: str
    layers: tuple[LayerUse, ...]


class Answer(msgspec.Struct, frozen=True):
    """The result. ``column_bytes``: of the requested columns in the kept blocks; None: no columns requested, or too
    many.

    ``knows_column_bytes``: the size is known for all of these blocks, not only for some.
    """

    figures: Figures
    verdicts: tuple[VerdictLine, ...]
    stages: tuple[StageLine, ...]
    report: Report
    column_bytes: int | None
    knows_column_bytes: bool

    @property
    def ms(self) -> float:
        """Return how long all stages took."""
        return sum(stage.ms for stage in self.stages)

    @property
    def funnel(self) -> Markup:
        """Return the bytes after each stage as a chart."""
        pairs = [("whole table", float(self.figures.bytes_total))]
        pairs += [(stage.name, float(stage.bytes)) for stage in self.stages if stage.name != _STAGES["snapshot"][0]]
        return charts.bars(pairs, title="Bytes of data left after each stage", form=words.size)


class Parts(msgspec.Struct, frozen=True):
    """With ``explain``: the predicates, how many more there are, and what could not be used."""

    predicates: tuple[PredicateLine, ...]
    more_predicates: int
    not_used: tuple[NotUsed, ...]
    more_not_used: int


def figures_of(found: PruneResult, layer_map: LayerMap, verdicts: Codes) -> Figures:
    """What is left; ``verdicts``: of all blocks."""
    selected = verdicts != NONE
    report = found.answer.report
    return Figures(
        blocks=int(selected.sum()),
        blocks_total=report.blocks_total,
        rows=int(layer_map.row_count[selected].sum()),
        rows_total=report.rows_total,
        bytes=int(layer_map.file_size[selected].sum()),
        bytes_total=report.bytes_total,
    )


def answer_of(found: PruneResult, layer_map: LayerMap, verdicts: Codes) -> Answer:
    """All that needs no explaining."""
    counts = np.bincount(verdicts, minlength=4).tolist()
    column_bytes, knows_all = _column_bytes(found)
    report = found.answer.report
    return Answer(
        figures=figures_of(found, layer_map, verdicts),
        verdicts=(
            VerdictLine("ALL", "all", "every row matches, proven; the filter need not be evaluated", counts[ALL]),
            VerdictLine("SOME", "some", "the statistics overlap the filter", counts[SOME]),
            VerdictLine("UNKNOWN", "unknown", "kept: the statistics cannot rule them out", counts[UNKNOWN]),
            VerdictLine("skipped", "none", "no row matches, or none is needed", counts[NONE]),
        ),
        stages=tuple(
            StageLine(
                *_STAGES.get(stage.stage, (stage.stage.capitalize(), "", "block")),
                stage.considered,
                stage.kept,
                stage.bytes,
                stage.ms,
            )
            for stage in report.stages
        ),
        report=report,
        column_bytes=column_bytes,
        knows_column_bytes=knows_all,
    )


def parts_of(report: Report) -> Parts:
    """Return the predicates of a report with explanations."""
    by_predicate: dict[str, list[LayerUse]] = {}
    for use in report.layers or ():
        by_predicate.setdefault(use.predicate, []).append(use)
    lines = [PredicateLine(readable(text), tuple(uses)) for text, uses in by_predicate.items()]
    return Parts(
        tuple(lines[:MAX_LISTED]),
        max(len(lines) - MAX_LISTED, 0),
        report.not_used[:MAX_LISTED],
        max(len(report.not_used) - MAX_LISTED, 0),
    )


def readable(predicate: str) -> str:
    """Return a predicate of a report with dates and times as in SQL."""
    return _SPELLED.sub(_spelled, predicate)


def _spelled(match: re.Match[str]) -> str:
    kind = match[1]
    if kind is None:
        return match[0]
    try:
        if kind == "date":
            return f"DATE '{_EPOCH + dt.timedelta(days=int(match[2]))}'"
        moment = (_EPOCH_US + dt.timedelta(microseconds=int(match[2]))).isoformat(" ")
    except OverflowError:
        return match[0]
    return f"TIMESTAMP '{moment}+00:00'" if kind == "timestamp" else f"TIMESTAMP_NTZ '{moment}'"


def _column_bytes(found: PruneResult) -> tuple[int | None, bool]:
    """Of the kept blocks, and whether all of them tell: a size that is not known is kept as 0."""
    if found.column_ids is None or found.selection is None or len(found.selection.segments) > _MAX_SIZED:
        return None, True
    of_columns: list[Any] = [
        part.sidecar.column_size_bytes([each])[part.rows] for part in found.parts() for each in found.column_ids
    ]
    return sum(int(sizes.sum()) for sizes in of_columns), all(bool(sizes.all()) for sizes in of_columns)


#: Blocks on one page of the list.
LISTED: Final = 25


class Picture(msgspec.Struct, frozen=True):
    """A map: ``groups`` of blocks in their segments, or ``tiles`` of several segments each."""

    legend: tuple[Step, ...]
    groups: tuple[Group, ...]
    tiles: tuple[Tile, ...]


class Line(msgspec.Struct, frozen=True):
    """A block: ``numbers`` has the numbers of its segment and of the block in it."""

    numbers: str
    segment: int
    number: int
    location: str
    row_count: int
    file_size: int
    verdict: str


class Listing(msgspec.Struct, frozen=True):
    """A page of the kept or skipped blocks (``which``), from ``start`` on; ``before`` and ``after``: other pages."""

    which: str
    lines: tuple[Line, ...]
    start: int
    total: int
    before: int | None
    after: int | None


def picture_of(layer_map: LayerMap, verdicts: Codes) -> Picture:
    """Return the map of the whole snapshot."""
    painter = MapRenderer(layer_map, "match", verdicts)
    segments = len(layer_map.segment_id)
    if segments <= NESTED_SEGMENTS and len(layer_map) <= MAX_TILES:
        return Picture(painter.legend(), painter.groups(), ())
    return Picture(painter.legend(of_shares=True), (), painter.segments(0, segments))


def listed(
    warehouse: Warehouse, pointer: SnapshotPointer, layer_map: LayerMap, verdicts: Codes, which: str, start: int
) -> Listing:
    """Return a page of the kept blocks, or of the skipped ones."""
    chosen = np.flatnonzero(verdicts != NONE if which == "kept" else verdicts == NONE)
    if start >= len(chosen):  # beyond the end: the last page
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
                numbers=f"{segment}.{number}",
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
