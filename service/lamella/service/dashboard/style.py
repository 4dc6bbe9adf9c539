"""The style of the console on one page: colours, sizes of text, spaces, corners, and each kind of part in use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.dashboard.charts import STEPS
from lamella.service.dashboard.pages import ROOT, Page, Pages
from lamella.snapshot.wire.operation import AUTHENTICATED

STYLE_SHEET: Final = Path(__file__).parent / "static" / "dashboard.css"
_PROPERTY: Final = re.compile(r"--([a-z0-9-]+): ([^;{}]+);")
_COLOURS: Final = re.compile(r"light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)")

#: What text is on which background, by the names of their properties; the contrast of each is at least 4.5.
TEXT_PAIRS: Final = (
    *(("text", "page"), ("text", "card"), ("text", "q0"), ("faint", "page"), ("faint", "card")),
    *(("link", "page"), ("link", "card"), ("accent-text", "accent"), ("card", "bad")),
    *(("good", "good-back"), ("warn", "warn-back"), ("bad", "bad-back"), ("bad", "card"), ("warn", "card")),
)
#: Borders of fields, and colours of figures that stand for something, beside their background: at least 3.
SHAPE_PAIRS: Final = (
    *(("field", "card"), ("accent", "card"), ("accent", "page"), ("all", "card"), ("unknown", "card")),
    *((f"q{step}", "card") for step in (5, 6, 7)),
)
#: Classes of tiles and bars, from the least; then those of a filter's verdicts.
SHADES: Final = (*(f"q{step}" for step in range(STEPS)), "none", "some", "all", "unknown")


class Properties(msgspec.Struct, frozen=True):
    """The custom properties of the style sheet: colours by name (light, dark), and the values of all others."""

    colours: dict[str, tuple[str, str]]
    sizes: dict[str, str]


def properties_of(text: str) -> Properties:
    """Return the custom properties that a style sheet defines."""
    colours, sizes = {}, {}
    for name, value in _PROPERTY.findall(text):
        found = _COLOURS.fullmatch(value)
        if found is None:
            sizes[name] = value
        else:
            colours[name] = (found[1], found[2])
    return Properties(colours, sizes)


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colours (``#rrggbb``) as WCAG 2 defines it, from 1 to 21."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return sum(weight * share for weight, share in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


class StylePages:
    """The page of the style."""

    def __init__(self, *, pages: Pages) -> None:
        self._pages = pages
        self._properties = properties_of(STYLE_SHEET.read_text(encoding="utf-8"))

    async def show(self, request: Request) -> Response:
        found = self._properties
        pairs = [
            (front, back, minimum, *map(contrast, found.colours[front], found.colours[back]))
            for wanted, minimum in ((TEXT_PAIRS, 4.5), (SHAPE_PAIRS, 3.0))
            for front, back in wanted
        ]
        values = {"colours": found.colours, "sizes": found.sizes, "pairs": pairs, "shades": SHADES}
        return self._pages.html(request, "style.html", values, title="Style")

    def pages(self) -> tuple[Page, ...]:
        return (Page(ROOT + "/style", self.show, "ui_style", AUTHENTICATED),)
