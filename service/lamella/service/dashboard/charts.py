"""Charts as SVG: values in, markup out. Colours are classes of the style sheet, so they follow light and dark.

Every chart is one picture to a screen reader, with its title; the same numbers stand beside it as a table or as text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from markupsafe import Markup

from lamella.service.dashboard import words

#: Steps of the colour scale; ``q0`` is the least.
STEPS: Final = 8
_WIDTH: Final = 640
_AXIS: Final = 18
_MOST_POINTS: Final = 500

Pair = tuple[str, float]


def bars(pairs: Sequence[Pair], *, title: str, height: int = 140, form: Callable[[float], str] = words.count) -> Markup:
    """A bar for each pair, from left to right; ``form`` spells the values."""
    most = max((value for _, value in pairs), default=0) or 1
    step = _WIDTH / max(len(pairs), 1)
    every = max(1, -(-len(pairs) // 24))
    parts = []
    for number, (label, value) in enumerate(pairs):
        tall = max(value / most * (height - _AXIS - 4), 1.5 if value else 0)
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
    least: float | None = None,
) -> Markup:
    """A line through points ``(x, y)``, x ascending; ``least``: where the axis of y begins at the latest."""
    if not points:
        return Markup("")
    every = -(-len(points) // _MOST_POINTS)
    points = [*points[:-1:every], points[-1]]
    low, high = points[0][0], points[-1][0]
    bottom = min([y for _, y in points] + ([] if least is None else [least]))
    top = max(y for _, y in points)
    wide, tall = _WIDTH - 8, height - 24

    def place(x: float, y: float) -> str:
        across = 0.5 if high == low else (x - low) / (high - low)
        up = 0.5 if top == bottom else (y - bottom) / (top - bottom)
        return f"{_n(4 + across * wide)},{_n(12 + (1 - up) * tall)}"

    places = [place(x, y) for x, y in points]
    parts = [Markup('<polyline class="line" points="{}"/>').format(" ".join(places))]
    last = places[-1].split(",")
    parts.append(Markup('<circle class="dot" cx="{}" cy="{}" r="3.5"/>').format(*last))
    parts.append(Markup('<text class="axis" x="2" y="10">{}</text>').format(form(top)))
    parts.append(Markup('<text class="axis" x="2" y="{}">{}</text>').format(height - 1, form(bottom)))
    return _picture(parts, _WIDTH, height, title)


def share(part: float | None, *, title: str) -> Markup:
    """A bar that is filled to ``part`` of it; nothing when that is not known."""
    if part is None:
        return Markup("")
    filled = _n(min(max(part, 0), 1) * 100)
    parts = [
        Markup('<rect class="track" width="100" height="8" rx="2"/>'),
        Markup('<rect class="bar" width="{}" height="8" rx="2"/>').format(filled),
    ]
    return _picture(parts, 100, 8, title, kind="share")


def strip(widths: Sequence[tuple[float, int | None, str]], *, title: str) -> Markup:
    """Pieces of one bar from left to right: how wide, which colour (None: not known), what it is."""
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


def step_of(value: float, most: float) -> int:
    """The colour step of a value from 0 to ``most``."""
    if most <= 0:
        return 0
    return min(int(value / most * STEPS), STEPS - 1)


def _picture(parts: Sequence[Markup], width: int, height: int, title: str, *, kind: str = "chart") -> Markup:
    # bars without text may be stretched; text may not
    fit = "xMidYMid meet" if kind == "chart" else "none"
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="{}" role="img" aria-label="{}">{}</svg>'
    ).format(kind, width, height, fit, title, Markup("").join(parts))


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
