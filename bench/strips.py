"""Pictures of many measured values as SVG: a row for each group, a point for each value, by a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

import msgspec

_WIDTH: Final = 860
_LEFT, _RIGHT, _TOP, _BOTTOM = 190, 30, 64, 46
_STRIP: Final = 18
_GAP: Final = 16
_COLOURS: Final = ("#d62728", "#4477aa", "#228833", "#aa3377")
_STEPS: Final = (1, 2, 5)


class Row(msgspec.Struct, frozen=True):
    """The values of one group by series; ``middle``: the value of each series that is marked by a line."""

    label: str
    values: dict[str, Sequence[float]]
    middle: dict[str, float]


def svg(title: str, rows: Sequence[Row], axis: str, *, even: float | None = None) -> str:
    """The picture. ``axis`` says what the values are; a line is drawn at ``even``."""
    series = list(dict.fromkeys(name for row in rows for name in row.values))
    height = _TOP + len(rows) * (_STRIP * len(series) + _GAP) + _BOTTOM
    every = [value for row in rows for values in row.values.values() for value in values]
    every += [value for row in rows for value in row.middle.values()]
    low, high = min(every) / 1.05, max(every) * 1.05
    bottom = height - _BOTTOM

    def at(value: float) -> float:
        share = (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="20" y="22" font-size="14">{escape(title)}</text>',
    ]
    for number, name in enumerate(series):
        name_x = _LEFT + number * 150
        parts.append(f'<circle cx="{name_x}" cy="44" r="4" fill="{_COLOURS[number]}"/>')
        parts.append(f'<text x="{name_x + 10}" y="48">{escape(name)}</text>')
    for value in _ticks(low, high):
        x = at(value)
        colour = "#888888" if value == even else "#dddddd"
        parts.append(f'<line x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom}" stroke="{colour}"/>')
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{value:,g}</text>')
    parts.append(
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{bottom + 36}" text-anchor="middle">{escape(axis)}</text>'
    )
    y: float = _TOP + _GAP / 2
    for row in rows:
        strip_height = _STRIP * len(series)
        parts.append(
            f'<text x="{_LEFT - 12}" y="{y + strip_height / 2 + 4}" text-anchor="end">{escape(row.label)}</text>'
        )
        for number, name in enumerate(series):
            middle_y = y + _STRIP * (number + 0.5)
            colour = _COLOURS[number]
            parts += [
                f'<circle cx="{at(value)}" cy="{middle_y}" r="3" fill="{colour}" fill-opacity="0.45"/>'
                for value in row.values.get(name, ())
            ]
            if name in row.middle:
                x = at(row.middle[name])
                parts.append(
                    f'<line x1="{x}" y1="{middle_y - 8}" x2="{x}" y2="{middle_y + 8}" stroke="{colour}" '
                    'stroke-width="3"/>'
                )
        y += strip_height + _GAP
    return "\n".join([*parts, "</svg>", ""])


def _ticks(low: float, high: float) -> list[float]:
    """The numbers 1, 2 and 5 times powers of ten between two values."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [round(step * 10.0**power, 9) for power in powers for step in _STEPS if low <= step * 10.0**power <= high]
