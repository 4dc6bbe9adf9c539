"""The plot of ``docs/performance.md``: processor time of a narrow range by the size of the table, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from speed.engine import ENGINES, FLOORS, OURS
from speed.figures import cpu_ms
from speed.merging import run_of

_WIDTH, _HEIGHT = 860, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 220, 40, 50
_COLOURS: Final = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#999933", "#882255")
_OWN: Final = "#d62728"
_FLOOR: Final = "#888888"

Point = tuple[float, float]


def write(results: dict[str, Any], file: Path, predicate: str = "P1") -> None:
    """Write the plot of one predicate."""
    file.parent.mkdir(parents=True, exist_ok=True)
    sizes = results.get("prune", {})
    several = len({run_of(size) for size in sizes.values()}) > 1
    note = " (each size is of one run, not all of the same)" if several else ""
    file.write_text(svg(lines_of(sizes, predicate), f"{predicate}: processor time of one prune{note}"))


def lines_of(sizes: dict[str, Any], predicate: str) -> dict[str, list[Point]]:
    """(blocks, milliseconds) by engine."""
    found: dict[str, list[Point]] = {}
    for size in sizes.values():
        for name in ENGINES:
            ms = cpu_ms(size, name, predicate)
            if ms is not None:
                found.setdefault(name, []).append((size["blocks"], ms))
    return found


def svg(lines: dict[str, list[Point]], title: str) -> str:
    """A picture with logarithmic axes, the names beside the ends of their lines."""
    points = [point for line in lines.values() for point in line] or [(1.0, 1.0)]
    across = _Axis([x for x, _ in points], _LEFT, _WIDTH - _RIGHT)
    up = _Axis([y for _, y in points], _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="22" font-size="14">{escape(title)}, ms</text>',
        *(_grid(across, up)),
    ]
    taken: list[float] = []
    colours = iter(_COLOURS * 2)
    for name, line in sorted(lines.items(), key=lambda each: each[1][-1][1]):
        colour = _OWN if name in OURS else _FLOOR if name in FLOORS else next(colours)
        parts += _line(name, [(across.at(x), up.at(y)) for x, y in line], colour, taken)
    return "\n".join([*parts, "</svg>", ""])


class _Axis:
    """Powers of ten that hold all values, from ``start`` to ``stop`` in the picture."""

    def __init__(self, values: Sequence[float], start: float, stop: float) -> None:
        self.low = math.floor(math.log10(min(values)))
        self.high = max(self.low + 1, math.ceil(math.log10(max(values))))
        self._start, self._stop = start, stop

    def at(self, value: float) -> float:
        """Where a value is."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self._start + share * (self._stop - self._start), 1)


def _grid(across: _Axis, up: _Axis) -> list[str]:
    parts = []
    for power in range(across.low, across.high + 1):
        x = across.at(10.0**power)
        parts.append(f'<line x1="{x}" y1="{_TOP}" x2="{x}" y2="{_HEIGHT - _BOTTOM}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{10**power:,}</text>')
    for power in range(up.low, up.high + 1):
        y = up.at(10.0**power)
        parts.append(f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}" stroke="#dddddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{10.0**power:,g}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 12}" text-anchor="middle">blocks</text>')
    return parts


def _line(name: str, points: Sequence[Point], colour: str, taken: list[float]) -> list[str]:
    """A line, its points, and its name where no other name is; names come from the lowest line up."""
    path = " ".join(f"{x},{y}" for x, y in points)
    x, y = points[-1]
    label = y
    while any(abs(label - other) < 14 for other in taken):
        label -= 2
    taken.append(label)
    dashes = ' stroke-dasharray="4 3"' if name in FLOORS else ""
    width = 3 if name in OURS else 1.5
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>',
        *(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points),
        f'<text x="{x + 10}" y="{round(label + 4, 1)}" fill="{colour}">{escape(name)}</text>',
    ]
