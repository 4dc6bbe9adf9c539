"""The style sheet: contrasts in both schemes, values only in its custom properties, and each of these in use."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lamella.service.dashboard.style import (
    SHADES,
    SHAPE_PAIRS,
    STYLE_SHEET,
    TEXT_PAIRS,
    contrast,
    properties_of,
)

TEXT = STYLE_SHEET.read_text()
PROPERTIES = properties_of(TEXT)
#: What follows the block of custom properties.
RULES = TEXT[TEXT.index(':root[data-scheme="light"]') :]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [("#000000", "#ffffff", 21.0), ("#777777", "#777777", 1.0), ("#767676", "#ffffff", 4.54)],
)
def test_contrasts_are_those_of_the_standard(first: str, second: str, expected: float) -> None:
    """Known pairs, in either order."""
    assert contrast(first, second) == pytest.approx(expected, abs=0.01)
    assert contrast(second, first) == contrast(first, second)


@pytest.mark.parametrize(("pairs", "minimum"), [(TEXT_PAIRS, 4.5), (SHAPE_PAIRS, 3.0)], ids=["text", "shapes"])
@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrasts_are_sufficient(pairs: tuple[tuple[str, str], ...], minimum: float, scheme: int) -> None:
    """Text 4.5, borders and figures 3, in both schemes."""
    found = {
        (front, back): contrast(*(PROPERTIES.colours[name][scheme] for name in (front, back))) for front, back in pairs
    }
    assert {pair: value for pair, value in found.items() if value < minimum} == {}


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_shades_go_one_way(scheme: int) -> None:
    """More is further from the card's colour, so that an order can be seen."""
    card = PROPERTIES.colours["card"][scheme]
    values = [contrast(PROPERTIES.colours[shade][scheme], card) for shade in SHADES if re.fullmatch(r"q\d", shade)]
    assert values == sorted(values)
    assert len(set(values)) == 8


def test_rules_have_no_values_of_their_own() -> None:
    """Colours, sizes of text, corners and spaces are custom properties; a pixel of a border is the exception."""
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?![^{]*\{)", RULES) == []
    declared = re.findall(r"(?:font-size|border-radius|padding[\w-]*|margin[\w-]*|gap): ([^;}]+)", RULES)
    assert len(declared) > 80
    single = [value for value in declared if re.search(r"(?<![\w.-])[1-9][\d.]*(px|rem)", value)]
    assert single == []


def test_each_property_is_used() -> None:
    """And each that is used is defined."""
    used = set(re.findall(r"var\(--([\w-]+)\)", TEXT))
    assert used == {*PROPERTIES.colours, *PROPERTIES.sizes}


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_style_is_shown(
    new_page: Callable[..., Page], axe: Callable[[Page], None], screenshot: Callable[[Page, str], None], scheme: str
) -> None:
    """Every property stands there with its value, and axe finds nothing wrong with any part."""
    page = new_page(color_scheme=scheme)
    page.goto("/ui/style")
    for name in (*PROPERTIES.colours, *PROPERTIES.sizes):
        expect(page.get_by_role("rowheader", name=f"--{name}", exact=True)).to_be_visible()
    for part in ("Text", "Tiles and facts", "Badges and messages", "A table", "A form", "Nothing to show"):
        expect(page.get_by_role("region", name=part, exact=True)).to_be_visible()
    axe(page)
    screenshot(page, f"style-{scheme}")
