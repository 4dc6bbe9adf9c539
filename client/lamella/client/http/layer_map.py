"""A picture of a table: its segments and blocks along the values of one column, and which of them a filter selects."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from lamella.client.http.blocks import ranges_of
from lamella.client.http.results import PruneResult
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import InvalidRequest, ManifestError
from lamella.snapshot.html_tables import escaped
from lamella.snapshot.manifest import Block, Segment, Snapshot
from lamella.snapshot.schema import Leaf
from lamella.snapshot.stats.bound import Bound, Value, from_bound
from lamella.snapshot.wire.prune import Verdict as Selected

#: A larger table is shown by its segments alone, since their manifests would have to be fetched.
MAX_BLOCKS: Final = 1_000
MAX_SEGMENTS: Final = 32
_WIDTH: Final = 720
_TILE: Final = 14
#: A bar, and what a row of bars takes; many rows are lower.
_BAR: Final = (10, 13)
_LOW_BAR: Final = (3, 4)
_MANY_LANES: Final = 30
#: That of a prune, or NONE: the filter does not select the block.
MapVerdict = Selected | Literal["NONE"]
_COLOURS: Final[dict[MapVerdict, str]] = {"ALL": "#1a7f5a", "SOME": "#d08b1d", "NONE": "#c9ced6", "UNKNOWN": "#d08b1d"}
_MEANINGS: Final[dict[MapVerdict, str]] = {
    "ALL": "all rows match",
    "SOME": "some rows may match",
    "NONE": "no row matches: not read",
    "UNKNOWN": "not decided",
}
#: What the picture says of its colours.
_LEGEND: Final = {verdict: meaning for verdict, meaning in _MEANINGS.items() if verdict != "UNKNOWN"}
_LEGEND_WIDTH: Final = 150


class MapBlock(msgspec.Struct, frozen=True):
    """A block: ``low`` and ``high`` are positions from 0 to 1 on the axis (None: no value of the column)."""

    low: float | None
    high: float | None
    verdict: MapVerdict
    text: str


class MapSegment(msgspec.Struct, frozen=True):
    """A segment and its blocks; ``blocks`` is empty in the map of a large table."""

    segment_id: str
    block_count: int
    selected_blocks: int
    blocks: tuple[MapBlock, ...] = ()


class TableMap(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of :meth:`lamella.client.http.Table.layer_map`. Notebooks show it; :meth:`to_svg` is the picture.

    ``column``: the column of the axis, with ``first`` and ``last`` of its bounds as text; None: the map of a large
    table, or no column has bounds. The axis has the bounds of blocks at equal distances, in their order.
    """

    snapshot_id: str
    segments: tuple[MapSegment, ...]
    column: str | None = None
    first: str = ""
    last: str = ""

    @property
    def block_count(self) -> int:
        """The number of blocks of the table."""
        return sum(segment.block_count for segment in self.segments)

    @property
    def selected_blocks(self) -> int:
        """The number of blocks that the filter selects; all without a filter."""
        return sum(segment.selected_blocks for segment in self.segments)

    def to_svg(self) -> str:
        """The picture, which needs nothing from elsewhere.

        Example:
            >>> table.layer_map("price > 99.5").to_svg()[:4]
            '<svg'
        """
        parts, height = self._bars() if self.column is not None else self._tiles()
        if self.column is not None:
            height += 14
            parts += [
                _label(4, height, self.first),
                _label(_WIDTH // 2, height, self.column, anchor="middle"),
                _label(_WIDTH - 4, height, self.last, anchor="end"),
            ]
        height += 18
        for number, (verdict, meaning) in enumerate(_LEGEND.items()):
            x = 4 + number * _LEGEND_WIDTH
            parts.append(f'<rect x="{x}" y="{height - 9}" width="10" height="10" fill="{_COLOURS[verdict]}"/>')
            parts.append(_label(x + 14, height, meaning))
        height += 5
        title = f"{self.selected_blocks:,} of {counted(self.block_count, 'block')}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
            f'height="{height}" role="img" style="max-width: 100%; font: 11px sans-serif"><title>{title}</title>'
            f"{''.join(parts)}</svg>"
        )

    def _repr_html_(self) -> str:
        """The picture with a caption, for notebooks."""
        caption = (
            f"{self.selected_blocks:,} of {counted(self.block_count, 'block')} in "
            f"{counted(len(self.segments), 'segment')}"
        )
        axis = "" if self.column is None else f", by {self.column}"
        return f"<div><div>{escaped(caption + axis)}</div>{self.to_svg()}</div>"

    def _bars(self) -> tuple[list[str], int]:
        """The blocks as bars from minimum to maximum, below one another where they overlap, segment by segment."""
        parts, top = [], 4
        lanes = [_lanes_of(segment.blocks) for segment in self.segments]
        bar, step = _BAR if sum(max(each, default=0) + 1 for each in lanes) <= _MANY_LANES else _LOW_BAR
        for segment, of_blocks in zip(self.segments, lanes, strict=True):
            height = (max(of_blocks, default=0) + 1) * step + 6
            parts.append(
                f"<g><title>segment {escaped(segment.segment_id)}: {segment.selected_blocks:,} of "
                f'{counted(segment.block_count, "block")}</title><rect x="0.5" y="{top - 2.5}" width="{_WIDTH - 1}" '
                f'height="{height - 1}" rx="3" fill="none" stroke="#9aa3af" stroke-opacity="0.6"/></g>'
            )
            for block, lane in zip(segment.blocks, of_blocks, strict=True):
                low = 4 + (0.0 if block.low is None else block.low) * (_WIDTH - 8)
                high = 4 + (0.0 if block.high is None else block.high) * (_WIDTH - 8)
                parts.append(_rect(block, low, top + lane * step + 1, max(high - low, 3.0), bar))
            top += height + 3
        return parts, top

    def _tiles(self) -> tuple[list[str], int]:
        """A tile for each segment of a large table, the darker the more of its blocks are selected."""
        across = _WIDTH // _TILE
        parts = []
        for number, segment in enumerate(self.segments):
            row, column = divmod(number, across)
            share = segment.selected_blocks / segment.block_count if segment.block_count else 0.0
            colour = _COLOURS["NONE" if share == 0 else "SOME"]
            text = (
                f"segment {segment.segment_id}: {segment.selected_blocks:,} of {counted(segment.block_count, 'block')}"
            )
            opacity = 0.35 + 0.65 * share if share else 1.0
            parts.append(
                f'<rect x="{column * _TILE}" y="{row * _TILE}" width="{_TILE - 2}" height="{_TILE - 2}" rx="2" '
                f'fill="{colour}" fill-opacity="{opacity:.2f}"><title>{escaped(text)}</title></rect>'
            )
        return parts, max(-(-len(self.segments) // across), 1) * _TILE


def _label(x: int, y: int, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="#6b7280">{escaped(text)}</text>'


def _rect(block: MapBlock, x: float, y: float, width: float, height: int) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" rx="1.5" fill="{_COLOURS[block.verdict]}">'
        f"<title>{escaped(block.text)}</title></rect>"
    )


def _lanes_of(blocks: Sequence[MapBlock]) -> list[int]:
    """The row of each block in which it overlaps no other; blocks without values are in the first."""
    lanes = [0] * len(blocks)
    free: list[tuple[float, int]] = []  # where rows end
    with_values = (number for number, block in enumerate(blocks) if block.low is not None)
    for number in sorted(with_values, key=lambda each: blocks[each].low or 0.0):
        low, high = blocks[number].low or 0.0, blocks[number].high or 0.0
        lane = heapq.heappop(free)[1] if free and free[0][0] < low else len(free)
        heapq.heappush(free, (high, lane))
        lanes[number] = lane
    return lanes


def is_small(everything: PruneResult) -> bool:
    """Returns whether the blocks of a table are shown, and not its segments alone."""
    ranges = ranges_of(everything)
    return len(ranges.segment_id) <= MAX_SEGMENTS and sum(ranges.block_count) <= MAX_BLOCKS


def axis_of(snapshot: Snapshot, column: str | None) -> Leaf | None:
    """Returns the column of the axis: the one given, the first of the cluster key, or the first with statistics.

    Raises:
        UnknownColumn: no such column.
        InvalidRequest: a column without minimum and maximum.
    """
    if column is not None:
        leaf = snapshot.schema.leaf(column)
        if leaf not in snapshot.schema.leaves_with_statistics():
            raise InvalidRequest(f"the column {column!r} has no minimum and maximum", parameter="column")
        return leaf
    for name in snapshot.cluster_key.columns if snapshot.cluster_key is not None else ():
        found = snapshot.schema.find(name)  # None: an expression
        if found is not None:
            return found
    return next(iter(snapshot.schema.leaves_with_statistics()), None)


class _Bounds(NamedTuple):
    """The bounds of a block; None: unknown."""

    low: Value | None
    high: Value | None
    has_values: bool


def map_of(
    everything: PruneResult, selected: PruneResult, leaf: Leaf | None, segments: Mapping[str, Segment]
) -> TableMap:
    """Returns the map. ``everything``, ``selected``: answers with ranges, without and with the filter; ``segments``:
    the manifests of a small table by id, empty for a large one.
    """
    sizes = {each: len(found) for each, found in _verdicts(everything).items()}
    verdicts = _verdicts(selected)
    if not segments or leaf is None:
        large = (MapSegment(each, count, len(verdicts.get(each, {}))) for each, count in sizes.items())
        return TableMap(snapshot_id=everything.snapshot_id, segments=tuple(large))
    bounds = {each: [_bounds(block, leaf) for block in segments[each].blocks] for each in sizes}
    values = sorted({value for found in bounds.values() for each in found for value in each[:2] if value is not None})
    positions: dict[Value | None, float] = {value: at / max(len(values) - 1, 1) for at, value in enumerate(values)}
    shown = []
    for segment_id, count in sizes.items():
        found = verdicts.get(segment_id, {})
        blocks = []
        for number, (block, each) in enumerate(zip(segments[segment_id].blocks, bounds[segment_id], strict=True)):
            verdict: MapVerdict = found.get(number, "NONE")
            name = block.location.rpartition("/")[2]
            text = f"{name}: {counted(block.row_count, 'row')}, {_range_text(leaf, each)}; {_MEANINGS[verdict]}"
            low, high = positions.get(each.low, 0.0), positions.get(each.high, 1.0)
            blocks.append(
                MapBlock(low, high, verdict, text) if each.has_values else MapBlock(None, None, verdict, text)
            )
        shown.append(MapSegment(segment_id, count, len(found), tuple(blocks)))
    first, last = (_text(leaf, values[end]) if values else "" for end in (0, -1))
    return TableMap(snapshot_id=everything.snapshot_id, segments=tuple(shown), column=leaf.name, first=first, last=last)


def _verdicts(answer: PruneResult) -> dict[str, dict[int, MapVerdict]]:
    """Returns the verdict of each selected block by its number, by segment, in the snapshot's order."""
    ranges = ranges_of(answer)
    found: dict[str, dict[int, MapVerdict]] = {}
    for segment, first, count, verdict in zip(
        ranges.segment, ranges.first, ranges.block_count, ranges.verdict, strict=True
    ):
        numbers = range(first, first + count)
        found.setdefault(ranges.segment_id[segment], {}).update(dict.fromkeys(numbers, verdict))
    return found


def _bounds(block: Block, leaf: Leaf) -> _Bounds:
    if leaf.id in block.constants:
        constant = block.constants[leaf.id]
        value = None if constant is None else _value(leaf, constant)
        return _Bounds(value, value, constant is not None)
    stats = block.col_stats.get(leaf.id)
    if stats is None:
        return _Bounds(None, None, True)
    return _Bounds(_value(leaf, stats.min), _value(leaf, stats.max), stats.null_count != block.row_count)


def _value(leaf: Leaf, bound: Bound | None) -> Value | None:
    try:
        return None if bound is None else from_bound(leaf.dtype, bound)
    except ManifestError:  # of an earlier type of the column
        return None


def _range_text(leaf: Leaf, bounds: _Bounds) -> str:
    if not bounds.has_values:
        return f"no {leaf.name}"
    low, high = ("?" if each is None else _text(leaf, each) for each in bounds[:2])
    return f"{leaf.name} from {low} to {high}"


def _text(leaf: Leaf, value: Value) -> str:
    from lamella.snapshot.expression import value_text  # loads the filter language, which most programs do not need

    return value_text(leaf.dtype, value).text
