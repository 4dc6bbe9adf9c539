"""The prune lab by typing, clicks and keys in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lamella.client import Lamella
from support.dashboard_tables import LINEITEM

pytestmark = pytest.mark.browser

LAB = "/ui/tables/shop/lineitem/lab"
FILTER = "l_shipdate >= DATE '1994-03-01' AND l_partkey = 1552"
Check = Callable[[Page], None]
Take = Callable[[Page, str], None]


def submit(page: Page, text: str) -> None:
    """Type a filter, and ask."""
    page.get_by_role("textbox", name="Filter").fill(text)
    page.get_by_role("button", name="Prune", exact=True).click()


def test_from_a_filter_to_the_reason_of_a_block(page: Page, lake: Lamella, axe: Check, screenshot: Take) -> None:
    """Type a filter, see how many blocks it leaves and why, and ask of one of them why it is read."""
    page.goto("/ui/tables/shop/lineitem")
    page.get_by_role("link", name="Prune lab", exact=True).click()
    axe(page)
    submit(page, FILTER)
    selected = lake.table(LINEITEM).prune(FILTER).locations
    expect(page.get_by_role("heading", name=f"{len(selected)} of 60 blocks must be read")).to_be_visible()
    expect(page.get_by_role("table", name="Each step looks only at what the one before it kept")).to_contain_text("60")
    parts = page.get_by_role("table", name="What each conjunct of the filter decides alone")
    expect(parts).to_contain_text("l_shipdate >= DATE '1994-03-01'")
    expect(page.get_by_role("table", name="Indexes used")).to_contain_text("by_part")
    expect(page.get_by_role("table", name="The effect of each index on each part")).to_contain_text("helps")
    expect(page.get_by_role("group", name="Segment 1")).to_be_visible()
    axe(page)
    screenshot(page, "lab")
    page.get_by_role("row").filter(has_text=selected[0]).get_by_role("button", name="Why").click()
    expect(page.get_by_role("heading", name="Why is this block read?")).to_be_visible()
    expect(page.get_by_text(selected[0])).to_be_visible()
    axe(page)
    screenshot(page, "lab-block")
    page.get_by_role("button", name="All blocks of this filter").click()
    expect(page.get_by_role("textbox", name="Filter")).to_have_value(FILTER)


def test_why_a_block_is_skipped(page: Page) -> None:
    """The list can show the other blocks too, each with the line that ruled it out; from one to the next is a click."""
    page.goto(LAB)
    submit(page, FILTER)
    page.get_by_role("button", name="Show the skipped ones").click()
    page.get_by_role("button", name="Why").first.click()
    expect(page.get_by_text(re.compile("^Skipped: l_shipdate lies in"))).to_be_visible()
    page.get_by_role("button", name="Next block").click()
    expect(page.get_by_text("Block 2 of 10 in segment 1")).to_be_visible()


def test_a_tile_leads_to_its_block_with_the_filter(page: Page) -> None:
    """By keys alone: one stop of the tab key for a map, arrows within it; the block's page knows the filter."""
    page.goto(LAB)
    submit(page, FILTER)
    tiles = page.get_by_role("group", name="Segment 1").get_by_role("button")
    tiles.first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#told")).to_contain_text("block 2 of segment 1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Block 2 of segment 1")).to_be_visible()
    page.get_by_role("link", name="Why is this block read?").click()
    expect(page.get_by_role("textbox", name="Filter")).to_have_value(FILTER)


def test_the_cursor_goes_to_the_mistake(page: Page, axe: Check, screenshot: Take) -> None:
    """A filter that cannot be read stays as typed, with the cursor where it is wrong, in a later line too."""
    page.goto(LAB)
    text = "l_comment <> '😀' AND\n  l_shipdat < DATE '1995-01-01'"
    submit(page, text)
    field = page.get_by_role("textbox", name="Filter")
    expect(page.get_by_role("alert")).to_contain_text("Did you mean l_shipdate")
    expect(field).to_have_value(text)
    expect(field).to_be_focused()
    start = field.evaluate("field => field.selectionStart")
    assert start == field.evaluate("field => field.value.indexOf('l_shipdat ')")
    axe(page)
    screenshot(page, "lab-mistake")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("l_shipdate < DATE '1995-01-01'")
    page.keyboard.press("ControlOrMeta+Enter")
    expect(page.get_by_role("heading", name="blocks must be read")).to_be_visible()


def test_columns_and_examples_are_put_in_by_a_click(page: Page) -> None:
    """Where the cursor is; what results can be asked."""
    page.goto(LAB)
    page.get_by_role("button", name="l_orderkey", exact=True).click()
    page.keyboard.type("< 100 AND ")
    page.get_by_role("button", name="l_quantity", exact=True).click()
    page.keyboard.type("< 60")
    expect(page.get_by_role("textbox", name="Filter")).to_have_value("l_orderkey < 100 AND l_quantity < 60")
    page.keyboard.press("ControlOrMeta+Enter")
    expect(page.get_by_role("heading", name="blocks must be read")).to_be_visible()


def test_what_is_copied_is_what_stands_there(new_page: Callable[..., Page]) -> None:
    """Each of the three texts has a button, and the clipboard gets it as it is."""
    page = new_page(permissions=["clipboard-read", "clipboard-write"])
    page.goto(LAB)
    submit(page, "l_shipmode = 'it''s \"x\"' OR l_orderkey < 90")
    for name in ("curl", "python", "sql"):
        shown = page.locator(f"#copy-{name}")
        page.locator(f"[data-copy=copy-{name}]").click()
        expect(page.locator("#said")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == shown.evaluate("text => text.textContent")


def test_two_snapshots_are_compared(page: Page, axe: Check, screenshot: Take) -> None:
    """From an answer to the same filter on an older snapshot beside it, with the difference in words."""
    page.goto(LAB)
    submit(page, "l_shipdate < DATE '1996-01-01'")
    page.get_by_role("button", name="Compare").click()
    axe(page)
    page.get_by_role("group", name="Right", exact=True).get_by_label("Snapshot, tag or time").fill("first-load")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("region", name="Right: shop.lineitem at first-load")).to_contain_text("of 10")
    expect(page.get_by_role("region", name="Difference")).to_contain_text("The right one reads")
    axe(page)
    screenshot(page, "lab-compare")
    page.get_by_label("Another cluster key").check()
    page.get_by_label("Columns", exact=True).fill("l_partkey")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("region", name="After the change")).to_be_visible()
    axe(page)


@pytest.mark.parametrize("options", [{"viewport": {"width": 360, "height": 740}}, {"color_scheme": "dark"}])
@pytest.mark.few(1)
def test_narrow_and_dark_screens(new_page: Callable[..., Page], axe: Check, options: dict[str, object]) -> None:
    """Nothing is wider than the screen but what scrolls in itself, and colours have contrast in the dark too."""
    page = new_page(**options)
    for path in (LAB, f"{LAB}/block", f"{LAB}/compare"):
        page.goto(f"{path}?filter=l_partkey+%3D+7&block=0.0&with=rows&rows=100")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        axe(page)


def test_without_a_script_all_is_there(new_page: Callable[..., Page]) -> None:
    """The form, the answer, the reasons and the lists work in a browser that runs no script."""
    page = new_page(java_script_enabled=False)
    page.goto(LAB)
    expect(page.get_by_text("startswith(s, 'ab')")).to_be_visible()
    submit(page, FILTER)
    expect(page.get_by_role("heading", name="blocks must be read")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_role("table", name="26 to")).to_be_visible()
    page.get_by_role("button", name="Why").first.click()
    expect(page.get_by_role("heading", name="Why is this block read?")).to_be_visible()
