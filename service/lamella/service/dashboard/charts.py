"""Charts and tiles as SVG markup. Colours are classes of the style sheet, so they follow light and dark mode.

Every chart is one image to a screen reader, with its title; the same numbers are next to it as a table or as text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np
from markupsafe import Markup

from lamella.service.dashboard import words
from lamella.snapshot.prune.outcome import ALL, NONE, SOME
from lamella.snapshot.warehouse.layer_map import LayerMap, LayerMaps

#: Steps of the colour scale; ``q0`` is the lowest.
STEPS: Final = 8
_WIDTH: Final = 640
_AXIS: Final = 18
_MAX_POINTS: Final = 500

Pair = tuple[str, float]


def bars(pairs: Sequence[Pair], *, title: str, height: int = 140, form: Callable[[float], str] = words.count) -> Markup:
    """Return a bar chart; ``form`` formats the values."""
    highest = max((value for _, value in pairs), default=0) or 1
    step = _WIDTH / max(len(pairs), 1)
    every = max(1, -(-len(pairs) // 24))
    parts = []
    for number, (label, value) in enumerate(pairs):
        tall = max(value / highest * (height - _AXIS - 4), 1.5 if value else 0)
        left = number * step
        parts.append(
            Markup('<g><title>{}: {}</title><rect class="bar" x="{}" y="{}" width="{}" height="{}"/></g>').format(
                label, form(value), _n(left + step * 0.1), _n(height - _AXIS - tall), _n(step * 0.8), _n(tall)
            )
        )
        if number % every == 0:
            parts.append(
                Markup('<text class="axis" x="{}" y="{}" text-anchor="middle">{}</text>').format(
                    _n(left + step / 2), height - 4, label
                )
            )
    return _picture(parts, _WIDTH, height, title)


def line(
    points: Sequence[tuple[float, float]],
    *,
    title: str,
    height: int = 110,
    form: Callable[[float], str] = words.short,
    y_start: float | None = None,
    x_ends: tuple[str, str] | None = None,
    width: int = _WIDTH,
) -> Markup:
    """Return a line chart of points ``(x, y)``, x ascending; ``y_start``: the y axis starts at this value or below;
    ``x_ends``: labels of the first and the last point."""
    if not points:
        return Markup("")
    every = -(-len(points) // _MAX_POINTS)
    points = [*points[:-1:every], points[-1]]
    low, high = points[0][0], points[-1][0]
    bottom = min([y for _, y in points] + ([] if y_start is None else [y_start]))
    top = max(y for _, y in points)
    wide, tall = width - 8, height - 24 - (12 if x_ends else 0)

    def position(x: float, y: float) -> str:
        across = 0.5 if high == low else (x - low) / (high - low)
        up = (0.0 if y == y_start else 0.5) if top == bottom else (y - bottom) / (top - bottom)
        return f"{_n(4 + across * wide)},{_n(12 + (1 - up) * tall)}"

    positions = [position(x, y) for x, y in points]
    parts = [Markup('<polyline class="line" points="{}"/>').format(" ".join(positions))]
    last = positions[-1].split(",")
    parts.append(Markup('<circle class="dot" cx="{}" cy="{}" r="3.5"/>').format(*last))
    parts.append(Markup('<text class="axis" x="2" y="10">{}</text>').format(form(top)))
    if x_ends is None:
        parts.append(Markup('<text class="axis" x="2" y="{}">{}</text>').format(height - 1, form(bottom)))
    else:
        for x, anchor, label in zip((2, width - 2), ("start", "end"), x_ends, strict=True):
            text = Markup('<text class="axis" x="{}" y="{}" text-anchor="{}">{}</text>')
            parts.append(text.format(x, height - 4, anchor, label))
    return _picture(parts, width, height, title)


def share(part: float | None, *, title: str) -> Markup:
    """Return a bar that is filled to ``part``; empty if that is not known."""
    if part is None:
        return Markup("")
    filled = _n(min(max(part, 0), 1) * 100)
    parts = [
        Markup('<rect class="track" width="100" height="8" rx="2"/>'),
        Markup('<rect class="bar" width="{}" height="8" rx="2"/>').format(filled),
    ]
    return _picture(parts, 100, 8, title, kind="share")


def strip(widths: Sequence[tuple[float, int | None, str]], *, title: str) -> Markup:
    """Return one bar of pieces from left to right: width, colour (None: not known), label."""
    total = sum(wide for wide, _, _ in widths) or 1
    parts, left = [], 0.0
    for wide, step, text in widths:
        across = wide / total * _WIDTH
        colour = "unknown" if step is None else f"q{step}"
        parts.append(
            Markup('<rect class="{}" x="{}" y="0" width="{}" height="28"><title>{}</title></rect>').format(
                colour, _n(left), _n(max(across - (1 if across > 3 else 0), 0.3)), text
            )
        )
        left += across
    return _picture(parts, _WIDTH, 28, title, kind="strip")


def step_of(value: float, max_value: float) -> int:
    """Return the colour step of a value from 0 to ``max_value``."""
    if max_value <= 0:
        return 0
    return min(int(value / max_value * STEPS), STEPS - 1)


def _picture(parts: Sequence[Markup], width: int, height: int, title: str, *, kind: str = "chart") -> Markup:
    # a chart without text may be stretched
    fit = "xMidYMid meet" if kind == "chart" else "none"
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="{}" role="img" aria-label="{}">{}</svg>'
    ).format(kind, width, height, fit, title, Markup("").join(parts))


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


Colour = Literal["depth", "size", "match"]

#: Most tiles of one map; such a page has about 150 kB.
MAX_TILES: Final = 1_000
#: With at most so many segments, and blocks in them, a map shows the blocks in their segments.
NESTED_SEGMENTS: Final = 60
_VERDICTS: Final = {ALL: "all", SOME: "some"}
_WORDS: Final = {"all": "every row matches", "some": "rows may match", "unknown": "could not be ruled out"}


class Step(msgspec.Struct, frozen=True):
    """A line of a legend."""

    colour: str
    text: str


#: Colours of tiles by the share of kept blocks.
_SHARES: Final = (
    Step("none", "no block is kept"),
    Step("q1", "few blocks are kept"),
    Step("q4", "half"),
    Step("q7", "all"),
)


def share_legend() -> tuple[Step, ...]:
    """Return the meaning of the colours of tiles with several blocks."""
    return _SHARES


class Tile(msgspec.Struct, frozen=True):
    """A tile of a map; ``zoom`` is its target, ``colour`` a class of the style sheet."""

    zoom: str
    colour: str
    text: str


class Group(msgspec.Struct, frozen=True):
    """A segment with its blocks."""

    segment: int
    text: str
    tiles: tuple[Tile, ...]


class Scale:
    """Colours of values from 1 on, on a logarithmic scale."""

    def __init__(self, max_value: float, form: Any = words.short) -> None:
        self._max_value = max(float(max_value), 1.0)
        self._form = form
        self._unit = math.log2(self._max_value + 1) / STEPS

    def colour(self, value: float) -> str:
        """Return the class of a value; below 1, or unknown: the class for nothing."""
        if not value >= 1:
            return "none"
        return f"q{min(int(math.log2(value) / self._unit), STEPS - 1)}"

    def legend(self) -> tuple[Step, ...]:
        """Return each colour in use, with the lowest value that has it."""
        found: dict[str, Step] = {}
        for number in range(STEPS):
            lowest = 2 ** (number * self._unit)
            if lowest <= self._max_value:
                lowest = math.ceil(lowest)
                found.setdefault(self.colour(lowest), Step(self.colour(lowest), f"from {self._form(lowest)}"))
        return tuple(found.values())


class MapRenderer:
    """Renders one map in one colouring. ``verdicts``: of every block, for the colouring "match"."""

    def __init__(self, layer_map: LayerMap, colour: Colour, verdicts: Any = None) -> None:
        self._map = layer_map
        self._colour = colour
        self._verdicts = verdicts
        max_value = 1
        if colour == "depth" and layer_map.depth is not None and len(layer_map):
            max_value = int(layer_map.depth.max())
        elif colour == "size" and len(layer_map):
            max_value = int(layer_map.file_size.max())
        self._scale = Scale(max_value, words.size if colour == "size" else words.short)

    def legend(self, *, of_shares: bool = False) -> tuple[Step, ...]:
        """Return the meaning of the colours; ``of_shares``: of tiles with several blocks."""
        if self._colour == "match" and of_shares:
            return _SHARES
        if self._colour == "match":
            shown = [Step(name, text) for name, text in _WORDS.items()]
            return (*shown, Step("none", "ruled out"))
        return self._scale.legend()

    def groups(self) -> tuple[Group, ...]:
        """Return every segment with its blocks."""
        return tuple(
            Group(number, f"Segment {number + 1}", self.blocks(number)) for number in range(len(self._map.segment_id))
        )

    def segments(self, first: int, count: int) -> tuple[Tile, ...]:
        """Return segments as tiles, several in one if there are many."""
        tiles = LayerMaps.tiles(self._map, MAX_TILES, segments=slice(first, first + count))
        selected_blocks = None if self._verdicts is None else LayerMaps.selected_blocks(self._verdicts, tiles)
        found = []
        for number in range(len(tiles)):
            start, many = int(tiles.first_segment[number]), int(tiles.segment_count[number])
            blocks = int(tiles.block_count[number])
            parts = [f"segment {start + 1}" if many == 1 else f"segments {start + 1} to {start + many}"]
            parts.append(f"{words.plural(blocks, 'block')}, {words.size(int(tiles.file_size[number]))}")
            colour = "none"
            if (
                tiles.mean_depth is not None
                and tiles.max_depth is not None
                and not math.isnan(tiles.mean_depth[number])
            ):
                mean, deepest = float(tiles.mean_depth[number]), int(tiles.max_depth[number])
                parts.append(f"depth {mean:.1f} on average, {deepest} at most")
                colour = self._scale.colour(mean) if self._colour == "depth" else colour
            if self._colour == "size":
                colour = self._scale.colour(int(tiles.file_size[number]) / max(blocks, 1))
            if selected_blocks is not None:
                parts.append(f"{words.count(int(selected_blocks[number]))} kept")
                colour = share_colour(int(selected_blocks[number]), blocks) if self._colour == "match" else colour
            zoom = str(start) if many == 1 else f"{start}-{start + many - 1}"
            found.append(Tile(zoom, colour, ": ".join((parts[0], ", ".join(parts[1:])))))
        return tuple(found)

    def blocks(self, segment: int, first: int = 0, count: int = MAX_TILES) -> tuple[Tile, ...]:
        """Return the blocks of a segment, starting at a number."""
        whole = self._map.blocks(segment)
        chosen = slice(whole.start + first, min(whole.start + first + count, whole.stop))
        rows, sizes = self._map.row_count[chosen].tolist(), self._map.file_size[chosen].tolist()
        depths: Sequence[int | None] = [None] * len(rows)
        if self._map.depth is not None:
            depths = self._map.depth[chosen].tolist()
        verdicts: Sequence[int | None] = [None] * len(rows)
        if self._verdicts is not None:
            verdicts = np.asarray(self._verdicts[chosen]).tolist()
        return tuple(
            self._block(segment, first + number, *figures)
            for number, figures in enumerate(zip(rows, sizes, depths, verdicts, strict=True))
        )

    def some(self, blocks: Any) -> tuple[Tile, ...]:
        """Return some blocks as tiles, in the given order (their numbers among all)."""
        found = []
        for block in blocks.tolist():
            segment = int(self._map.segment[block])
            depth = None if self._map.depth is None else int(self._map.depth[block])
            verdict = None if self._verdicts is None else int(self._verdicts[block])
            rows, size_bytes = int(self._map.row_count[block]), int(self._map.file_size[block])
            found.append(self._block(segment, block - int(self._map.starts[segment]), rows, size_bytes, depth, verdict))
        return tuple(found)

    def _block(
        self, segment: int, number: int, rows: int, size_bytes: int, depth: int | None, verdict: int | None
    ) -> Tile:
        parts = [f"{words.plural(rows, 'row')}, {words.size(size_bytes)}"]
        if depth is not None and depth >= 0:
            parts.append(f"depth {depth}")
        state = None if verdict is None else "none" if verdict == NONE else _VERDICTS.get(verdict, "unknown")
        if state is not None:
            parts.append(_WORDS.get(state, "ruled out"))
        if self._colour == "match":
            colour = state or "none"
        elif self._colour == "size":
            colour = self._scale.colour(size_bytes)
        else:
            colour = self._scale.colour(depth or 0)
        return Tile(f"{segment}.{number}", colour, f"block {number + 1} of segment {segment + 1}: {', '.join(parts)}")


def share_colour(selected_blocks: int, blocks: int) -> str:
    """Return the class of a tile of several blocks, by how many of them are kept."""
    if not selected_blocks:
        return "none"
    return f"q{min(1 + int(selected_blocks / max(blocks, 1) * (STEPS - 1)), STEPS - 1)}"
