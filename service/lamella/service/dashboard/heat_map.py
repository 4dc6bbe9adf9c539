"""Draws the blocks of a snapshot along the values of a key, or in their order: a heat map of many, bars of few.

A heat map has a column for each part of the axis, which links to that part, and a row for each overlap depth or size;
its cells are coloured by how many blocks they have. Bars are single blocks from their minimum to their maximum.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np
from markupsafe import Markup, escape

from lamella.service.dashboard import words
from lamella.service.dashboard.charts import MapRenderer, Scale, Step, share_colour, share_legend
from lamella.service.dashboard.key_scale import TICKS, Bins, bins_of, shortened, text_of
from lamella.snapshot.prune.outcome import NONE
from lamella.snapshot.warehouse.key_axis import KeyAxes, KeyAxis, Rows, Window, counts_of
from lamella.snapshot.warehouse.layer_map import NOT_KNOWN, LayerMap, LayerMaps, Tiles

#: Columns and cells of a heat map, at most.
MAX_COLUMNS: Final = 96
MAX_CELLS: Final = 1_000
#: With at most so many blocks, and so many on top of each other, a part of an axis is drawn as bars.
MAX_BARS: Final = 500
MAX_LANES: Final = 60
#: Depths up to this have a row each; beyond, rows are powers of two.
_SINGLE_ROWS: Final = 10
#: Rows of widths: from these fractions of the key's bounds on.
_WIDTHS: Final = (0.001, 0.01, 0.1, 0.5)
#: Heights in pixels.
_HEIGHT: Final = 240
_ROW_HEIGHTS: Final = (14, 48)
_LANE_HEIGHTS: Final = (6, 28)
_AXIS_HEIGHT: Final = 20
#: Widths in percent of the picture.
_MIN_WIDTH: Final = 0.25
_GAP: Final = 0.06
#: Labels so near to an end are aligned to it.
_NEAR_END: Final = 0.06


#: What the rows of a heat map are: depth, size, or the part of the key that blocks extend over.
Measure = Literal["depth", "size", "match", "width"]


class Classes(msgspec.Struct, frozen=True, eq=False):
    """The rows of a heat map, from below: the ``labels`` and full ``texts`` of each, and the row of each block (int64).

    ``counted``: the blocks that are in a row; others have no rows.
    """

    labels: tuple[str, ...]
    texts: tuple[str, ...]
    of_block: Any
    counted: Any


class Column(msgspec.Struct, frozen=True):
    """A column of a heat map: where it begins and ends (0 to 1), its text, and where it leads; None: nowhere."""

    start: float
    end: float
    text: str
    href: str | None


Ticks = Sequence[tuple[float, str]]


class Drawing(msgspec.Struct, frozen=True):
    """A picture: the labels of its rows, the picture itself, its legend, and the text of each column or bar."""

    labels: Markup
    picture: Markup
    legend: tuple[Step, ...]
    texts: tuple[str, ...]


def classes_of(layer_map: LayerMap, measure: Measure, axis: KeyAxis | None = None) -> Classes:
    """Return the rows of a heat map by one measure; without a key sizes instead of depths, without an axis depths
    instead of widths."""
    if measure == "width" and axis is not None:
        return _classes_of_widths(layer_map, axis)
    if measure == "size" or layer_map.depth is None:
        return _classes_of_sizes(layer_map)
    depth = np.maximum(layer_map.depth, 0)
    counted = np.asarray(layer_map.row_count > 0)
    deepest = max(int(depth.max(initial=1)), 1)
    minimum = int(depth[depth > 0].min(initial=deepest))
    if deepest <= _SINGLE_ROWS:
        labels = [str(number) for number in range(1, deepest + 1)]
        row_of = np.maximum(np.arange(deepest + 1, dtype=np.int64) - 1, 0)
    else:
        # Powers of two, from the one below the least depth.
        low = max(minimum.bit_length() - 2, 0)
        ends = [(1 << power, min((2 << power) - 1, deepest)) for power in range(low, deepest.bit_length())]
        labels = [_span(*each) for each in ends]
        power = np.frexp(np.arange(deepest + 1, dtype=np.float64))[1].astype(np.int64) - 1
        row_of = np.maximum(power - low, 0)
    texts = [f"depth {label}" for label in labels]
    if layer_map.is_exact:
        return Classes(tuple(labels), tuple(texts), row_of[depth], counted)
    unknown = len(labels)
    rows = np.where(layer_map.depth == NOT_KNOWN, unknown, row_of[depth])
    return Classes((*labels, "?"), (*texts, "depth not evaluated"), rows, counted)


def _span(low: int, high: int) -> str:
    return words.short(low) if low == high else f"{words.short(low)}{words.NOTHING}{words.short(high)}"


def _classes_of_sizes(layer_map: LayerMap) -> Classes:
    power = np.frexp(np.maximum(layer_map.file_size, 1).astype(np.float64))[1].astype(np.int64) - 1
    low, high = (int(power.min()), int(power.max())) if len(power) else (0, 0)
    step = -(-(high - low + 1) // _SINGLE_ROWS)
    sizes = [words.size(1 << each).replace(".0 ", " ") for each in range(low, high + 1, step)]
    texts = tuple(f"size from {size}" for size in sizes)
    return Classes(tuple(sizes), texts, (power - low) // step, np.asarray(layer_map.row_count > 0))


def _classes_of_widths(layer_map: LayerMap, axis: KeyAxis) -> Classes:
    low, high = axis.low.astype(np.int64), axis.high.astype(np.int64)
    width = np.maximum(high - low, 0) / max(axis.point_count - 1, 1)
    rows = np.searchsorted(np.array(_WIDTHS), width, side="right")
    texts = (f"width below {words.percent(_WIDTHS[0])}", *(f"width from {words.percent(each)}" for each in _WIDTHS))
    labels = (f"< {words.percent(_WIDTHS[0])}", *map(words.percent, _WIDTHS))
    return Classes(labels, texts, rows, np.asarray(layer_map.row_count > 0))


def columns_for(classes: Classes) -> int:
    """Return how many columns a heat map with these rows has at most."""
    return min(MAX_COLUMNS, MAX_CELLS // max(len(classes.labels), 1))


def counts_on_axis(axis: KeyAxis, bins: Bins, classes: Classes, blocks: Any) -> Rows:
    """Return how many of some blocks are in each cell, on an axis of values."""
    chosen = np.flatnonzero(blocks & classes.counted)
    first, last = axis.crossed(bins.edges, chosen)
    return counts_of(classes.of_block[chosen], len(classes.labels), first, last, len(bins))


def counts_in_order(tiles: Tiles, classes: Classes, blocks: Any) -> Rows:
    """Return how many of some blocks are in each cell, on an axis of segments; the blocks are in the tiles."""
    chosen = np.flatnonzero(blocks & classes.counted)
    # ``first_block`` ascends; tiles without blocks begin where the next one does.
    column = np.searchsorted(tiles.first_block, chosen, side="right") - 1
    return counts_of(classes.of_block[chosen], len(classes.labels), column, column, len(tiles))


def heat_map(
    columns: Sequence[Column],
    ticks: Ticks,
    classes: Classes,
    counts: Rows,
    selected: Rows | None,
    *,
    by_share: bool,
    title: str,
) -> Drawing:
    """Return the heat map of ``counts`` (a row for each class, a column for each column).

    ``selected``: how many blocks of each cell a filter keeps; cells in which it keeps none are dimmed. ``by_share``:
    cells are coloured by the fraction that is kept.
    """
    scale = Scale(float((counts if selected is None else selected).max(initial=1)))
    tall = _between(_HEIGHT // max(len(classes.labels), 1), _ROW_HEIGHTS)
    height = tall * len(classes.labels)
    parts, texts = [], []
    for number, column in enumerate(columns):
        here = counts[:, number].tolist()
        here_selected = None if selected is None else selected[:, number].tolist()
        text = _column_text(column, classes, here, here_selected)
        texts.append(text)
        cells = [_rect("hit", column, 0, height, text, gap=0)]
        for row, count in enumerate(here):
            if count:
                left = None if here_selected is None else here_selected[row]
                name = _cell_class(scale, count, left, by_share=by_share)
                label = f"{column.text}; {classes.texts[row]}: {_blocks(count, left)}"
                cells.append(_rect(name, column, height - (row + 1) * tall + 1, tall - 1, label))
        parts.append(
            Markup("<g>{}</g>").format(Markup("").join(cells))
            if column.href is None
            else _link(column.href, text, cells)
        )
    labels = [(height - (row + 0.5) * tall, label) for row, label in enumerate(classes.labels)]
    steps = share_legend() if by_share and selected is not None else _legend(scale, dimmed=selected is not None)
    return Drawing(_labels(labels, height), _picture(parts, ticks, height, title), steps, tuple(texts))


class Bar(msgspec.Struct, frozen=True):
    """A block as a bar from ``start`` to ``end`` (0 to 1); ``text`` and ``href`` as of a column."""

    start: float
    end: float
    colour: str
    text: str
    href: str


def lanes_of(bars: Sequence[tuple[float, float]]) -> list[int]:
    """Return for each bar, in order of their starts, the lowest lane in which no earlier bar overlaps it."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    lanes = []
    for start, end in bars:
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (max(end, start + _MIN_WIDTH / 100), lane))
        lanes.append(lane)
    return lanes


def bar_map(bars: Sequence[Bar], ticks: Ticks, legend: tuple[Step, ...], *, title: str) -> Drawing | None:
    """Return single blocks as bars, in order of their starts; None if too many are on top of each other."""
    lanes = lanes_of([(bar.start, bar.end) for bar in bars])
    count = max(lanes, default=0) + 1
    if count > MAX_LANES:
        return None
    tall = _between(_HEIGHT // count, _LANE_HEIGHTS)
    height = tall * count
    parts = [
        _link(bar.href, bar.text, [_rect(bar.colour, Column(bar.start, bar.end, "", None), top, tall - 1, bar.text)])
        for bar, lane in zip(bars, lanes, strict=True)
        for top in (height - (lane + 1) * tall + 1,)
    ]
    labels = _labels([(height - tall / 2, "1"), (tall / 2, str(count))] if count > 1 else [(tall / 2, "1")], height)
    return Drawing(labels, _picture(parts, ticks, height, title), legend, tuple(bar.text for bar in bars))


def bars_of(
    axis: KeyAxis,
    bins: Bins,
    blocks: Rows,
    painter: MapRenderer,
    link: Callable[..., str],
    dimmed: Any | None,
) -> list[Bar]:
    """Return some blocks as bars in the order of their minima; ``dimmed``: those that a filter rules out."""
    order = blocks[np.lexsort((axis.high[blocks], axis.low[blocks]))]
    found = []
    for block, tile in zip(order.tolist(), painter.some(order), strict=True):
        low, high = int(axis.low[block]), int(axis.high[block])
        start = bins.position(axis.value(low)) if low >= 0 else 0.0
        end = bins.position(axis.value(high), is_upper=True) if high < axis.point_count else 1.0
        is_dim = dimmed is not None and bool(dimmed[block])
        colour = f"{tile.colour} dim" if is_dim and tile.colour != "none" else tile.colour
        found.append(Bar(start, end, colour, f"{tile.text}; {bounds_text(axis, block)}", link(zoom=tile.zoom)))
    found.sort(key=lambda bar: (bar.start, bar.end))
    return found


def bounds_text(axis: KeyAxis, block: int) -> str:
    """Return the bounds of a block on an axis; a question mark for an unknown one."""
    low, high = int(axis.low[block]), int(axis.high[block])
    low_text = shortened(text_of(axis.dtype, axis.value(low))) if low >= 0 else "?"
    high_text = shortened(text_of(axis.dtype, axis.value(high))) if high < axis.point_count else "?"
    return f"{axis.column} {low_text}" if low_text == high_text != "?" else f"{axis.column} {low_text} to {high_text}"


def _cell_class(scale: Scale, count: int, selected: int | None, *, by_share: bool) -> str:
    if selected is None:
        return scale.colour(count)
    if by_share:
        return share_colour(selected, count)
    return scale.colour(selected) if selected else f"{scale.colour(count)} dim"


def _blocks(count: int, selected: int | None) -> str:
    return words.plural(count, "block") + ("" if selected is None else f", {words.count(selected)} kept")


def _column_text(column: Column, classes: Classes, counts: Sequence[int], selected: Sequence[int] | None) -> str:
    rows = [row for row, count in enumerate(counts) if count]
    if not rows:
        return f"{column.text}: no block"
    span = classes.texts[rows[0]] if len(rows) == 1 else f"{classes.texts[rows[0]]} to {classes.labels[rows[-1]]}"
    return f"{column.text}: {_blocks(sum(counts), None if selected is None else sum(selected))}, {span}"


def _legend(scale: Scale, *, dimmed: bool) -> tuple[Step, ...]:
    steps = tuple(
        Step(step.colour, f"{step.text} {'block' if step.text == 'from 1' else 'blocks'}") for step in scale.legend()
    )
    return (*steps, Step("dim", "no block is kept")) if dimmed else steps


def _rect(name: str, column: Column, top: float, tall: float, text: str, *, gap: float = _GAP) -> Markup:
    wide = max((column.end - column.start) * 100 - gap, _MIN_WIDTH)
    left = min(column.start * 100, 100 - wide)
    # Formatting Markup takes several times as long, and there are up to a thousand of these.
    return Markup(  # noqa: S704  # the text is escaped
        f'<rect class="{name}" x="{left:.2f}%" y="{top:.0f}" width="{wide:.2f}%" height="{tall:.0f}">'
        f"<title>{escape(text)}</title></rect>"
    )


def _link(href: str, text: str, inner: Sequence[Markup]) -> Markup:
    link = f'<a href="{escape(href)}" aria-label="{escape(text)}">{"".join(inner)}</a>'
    return Markup(link)  # noqa: S704  # all of it is escaped


def _picture(parts: Sequence[Markup], ticks: Ticks, height: int, title: str) -> Markup:
    axis = []
    for number, (share, label) in enumerate(ticks):
        anchor = "start" if share < _NEAR_END else "end" if share > 1 - _NEAR_END else "middle"
        axis.append(
            Markup(
                '<g{}><line x1="{:.2f}%" x2="{:.2f}%" y1="{}" y2="{}"/>'
                '<text class="axis" x="{:.2f}%" y="{}" text-anchor="{}">{}</text></g>'
            ).format(
                Markup(' class="more"') if number % 2 else "",
                *(share * 100, share * 100, height, height + 4),
                *(share * 100, height + 16, anchor, label),
            )
        )
    return Markup(
        '<svg class="heat" height="{}" role="group" aria-label="{}"><g data-told="told">{}</g><g class="ticks" '
        'aria-hidden="true">{}</g></svg>'
    ).format(height + _AXIS_HEIGHT, title, Markup("").join(parts), Markup("").join(axis))


def _labels(labels: Sequence[tuple[float, str]], height: int) -> Markup:
    texts = [
        Markup('<text class="axis" x="100%" y="{:.0f}" text-anchor="end">{}</text>').format(y + 4, t) for y, t in labels
    ]
    return Markup('<svg class="heat-rows" height="{}" aria-hidden="true">{}</svg>').format(
        height + _AXIS_HEIGHT, Markup("").join(texts)
    )


def _between(value: int, ends: tuple[int, int]) -> int:
    return min(max(value, ends[0]), ends[1])


class MapView(msgspec.Struct, frozen=True, eq=False):
    """What is drawn: the map of a snapshot in one colouring; ``verdicts``: of a filter, None without one."""

    layer_map: LayerMap
    painter: MapRenderer
    measure: Measure
    verdicts: Any | None

    @property
    def ruled_out(self) -> Any | None:
        """Return the blocks that the filter rules out; None without one."""
        return None if self.verdicts is None else self.verdicts == NONE

    @property
    def by_share(self) -> bool:
        """Return whether cells are coloured by what is kept."""
        return self.measure == "match"


Lines = Sequence[tuple[str, str]]


class OnKey(msgspec.Struct, frozen=True):
    """A part of a map on the values of a column: the picture, and its columns or bars as texts with addresses."""

    drawing: Drawing
    lines: Lines
    block_count: int
    is_bars: bool
    is_even: bool

    @classmethod
    def of(
        cls, view: MapView, axis: KeyAxis, window: Window, axes: KeyAxes, even: bool | None, link: Callable[..., str]
    ) -> OnKey:
        """Return the blocks in a window: as bars if they are few, otherwise as a heat map."""
        classes = classes_of(view.layer_map, view.measure, axis)
        bins = bins_of(axis, window, columns_for(classes), even=even)
        inside = axis.blocks_in(window)
        count = int(np.count_nonzero(inside))
        title = f"Blocks by {axis.column}"
        if count <= MAX_BARS:
            bars = bars_of(axis, bins, np.flatnonzero(inside), view.painter, link, view.ruled_out)
            drawing = bar_map(bars, bins.ticks(), view.painter.legend(), title=title)
            if drawing is not None:
                lines = [(bar.text, bar.href) for bar in bars]
                return cls(drawing, lines, count, True, bins.is_even)
        measure = "depth" if view.by_share else view.measure
        name = (view.layer_map.snapshot_id, view.layer_map.columns, axis.column, bins.edges, measure)
        counts = axes.counts(name, lambda: counts_on_axis(axis, bins, classes, inside))
        selected = None
        if view.verdicts is not None:
            selected = _selected(
                counts, inside, view.verdicts, lambda blocks: counts_on_axis(axis, bins, classes, blocks)
            )
        columns = []
        for number in range(len(bins)):
            part = bins.window_of(number)
            query = {"low": text_of(axis.dtype, part.low), "high": text_of(axis.dtype, part.high)}
            href = None if part == window else link(**query)
            columns.append(Column(*bins.sides(number), bins.text(number), href))
        drawing = heat_map(columns, bins.ticks(), classes, counts, selected, by_share=view.by_share, title=title)
        lines = [(text, column.href or link()) for text, column in zip(drawing.texts, columns, strict=True)]
        return cls(drawing, lines, count, False, bins.is_even)


def in_order(view: MapView, first: int, count: int, axes: KeyAxes, link: Callable[..., str]) -> Drawing:
    """Return segments in their order as a heat map."""
    layer_map = view.layer_map
    classes = classes_of(layer_map, view.measure)
    tiles = LayerMaps.tiles(layer_map, columns_for(classes), segments=slice(first, first + count))
    inside = np.zeros(len(layer_map), dtype=bool)
    inside[int(layer_map.bounds[first]) : int(layer_map.bounds[first + count])] = True
    measure = "depth" if view.by_share else view.measure
    name = (layer_map.snapshot_id, layer_map.columns, first, count, measure)
    counts = axes.counts(name, lambda: counts_in_order(tiles, classes, inside))
    selected = None
    if view.verdicts is not None:
        selected = _selected(counts, inside, view.verdicts, lambda blocks: counts_in_order(tiles, classes, blocks))
    columns, ticks = [], []
    every = -(-len(tiles) // TICKS) or 1
    for number in range(len(tiles)):
        start, many = int(tiles.first_segment[number]), int(tiles.segment_count[number])
        text = f"segment {start + 1}" if many == 1 else f"segments {start + 1} to {start + many}"
        zoom = str(start) if many == 1 else f"{start}-{start + many - 1}"
        columns.append(Column(number / len(tiles), (number + 1) / len(tiles), text, link(zoom=zoom)))
        if number % every == 0:
            ticks.append((number / len(tiles), f"segment {words.count(start + 1)}"))
    return heat_map(columns, ticks, classes, counts, selected, by_share=view.by_share, title="Blocks by segment")


def _selected(counts: Rows, inside: Any, verdicts: Any, counted: Callable[[Any], Rows]) -> Rows:
    """Return the counts of the selected blocks; of these and the others the fewer are counted."""
    selected = inside & (verdicts != NONE)
    if 2 * np.count_nonzero(selected) <= np.count_nonzero(inside):
        return counted(selected)
    return counts - counted(inside & (verdicts == NONE))
