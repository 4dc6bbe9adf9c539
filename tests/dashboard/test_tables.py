"""The screens of a table: summary, layer map, columns, indexes, history; by clicks, keys and typing in a browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from fixtures_server import ServerProcess
from lamella.client import Lamella
from lamella.service.dashboard import words
from support.dashboard_tables import EVENTS, LINEITEM, fill_tickets

pytestmark = pytest.mark.browser

TABLE = "/ui/tables/shop/lineitem"
Check = Callable[[Page], None]
Take = Callable[[Page, str], None]


def test_the_overview_leads_to_a_table(page: Page, lake: Lamella, axe: Check, screenshot: Take) -> None:
    """All tables stand there with their figures, and a click on one shows it."""
    page.goto("/ui")
    info = lake.table(LINEITEM).info()
    row = page.get_by_role("row").filter(has_text=LINEITEM)
    expect(row).to_contain_text(f"{info.block_count}")
    expect(row).not_to_contain_text("…")  # what is measured beside the page arrives by itself
    axe(page)
    screenshot(page, "overview")
    row.get_by_role("link", name=LINEITEM).first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("lineitem")
    expect(page.locator("dl").first).to_contain_text(f"{info.row_count:,}")


def test_a_remedy_is_one_click_away(page: Page) -> None:
    """What needs attention leads to the form of the job that mends it, filled in."""
    page.goto("/ui")
    attention = page.get_by_role("region", name="Health")
    attention.get_by_role("link", name=f"Compact {EVENTS}").click()
    expect(page).to_have_url(re.compile("kind=compact&table=shop.events"))


def test_the_overview_can_be_narrowed(page: Page) -> None:
    """Typing a part of a name leaves the tables that have it, and the address says so."""
    page.goto("/ui")
    page.get_by_label("Name holds").fill("event")
    page.get_by_role("button", name="Show").click()
    table = page.get_by_role("table")
    expect(table).to_contain_text(EVENTS)
    expect(table).not_to_contain_text(LINEITEM)
    assert "name=event" in page.url


def test_the_summary_shows_how_a_table_lies(page: Page, axe: Check, screenshot: Take) -> None:
    """Depths, look-ups and the rate of pruning are there once they were measured."""
    page.goto(TABLE)
    expect(page.get_by_role("img", name="Blocks by overlap depth")).to_be_visible()
    expect(page.get_by_text("Average depth")).to_be_visible()
    expect(page.get_by_role("table", name="Data skipped by prunes of this table")).to_contain_text("last hour")
    axe(page)
    screenshot(page, "table")


def test_the_map_leads_from_segments_to_pages_by_clicks(page: Page, axe: Check, screenshot: Take) -> None:
    """A tile leads to its block, whose pages are listed, and the way back is there."""
    page.goto(f"{TABLE}/map?axis=order")
    axe(page)
    screenshot(page, "map-order")
    page.get_by_role("link", name="Segment 2", exact=True).click()
    expect(page.get_by_role("heading", name="Segment 2")).to_be_visible()
    tiles = page.locator(".map button")
    expect(tiles).to_have_count(10)
    tiles.nth(3).hover()
    expect(page.locator("#told")).to_contain_text("block 4 of segment 2")
    tiles.nth(3).click()
    expect(page.get_by_role("heading", name="Block 4 of segment 2")).to_be_visible()
    expect(page.get_by_role("heading", name="Pages of l_shipdate")).to_be_visible()
    axe(page)
    screenshot(page, "block")
    page.get_by_role("combobox", name="Column").select_option("l_partkey")
    expect(page.get_by_role("heading", name="Pages of l_partkey")).to_be_visible()
    page.get_by_role("link", name="Whole table").click()
    expect(page.get_by_role("heading", name="l_shipdate from")).to_be_visible()


def test_blocks_lie_on_the_values_of_the_key(page: Page, axe: Check, screenshot: Take) -> None:
    """A bar is a block with its bounds in its text; the axis has years; a part of the key is chosen, and left again."""
    page.goto(f"{TABLE}/map")
    bars = page.locator("svg.heat a")
    expect(bars).to_have_count(60)
    expect(page.locator("svg.heat text", has_text="1995")).to_be_visible()
    bars.first.hover()
    expect(page.locator("#told")).to_have_text(
        re.compile(r"block \d+ of segment \d+: .*; l_shipdate 199\d-.* to 199\d-")
    )
    axe(page)
    screenshot(page, "map")
    page.get_by_label("From", exact=True).fill("1992-01-01")
    page.get_by_label("To", exact=True).fill("1992-03-01")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="l_shipdate from 1992-01-01 to 1992-03-01")).to_be_visible()
    expect(bars).not_to_have_count(60)
    page.get_by_role("link", name="Wider").click()
    expect(page.get_by_role("heading", name="l_shipdate from 1992-01-04 to")).to_be_visible()
    page.get_by_role("link", name="Whole key").click()
    expect(bars).to_have_count(60)
    bars.first.click()
    expect(page.get_by_role("heading", name="Block 1 of segment 1")).to_be_visible()


@pytest.fixture(scope="module")
def tickets(shared_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A table of blocks that all overlap, more than are shown one by one."""
    with Lamella(shared_server.url) as lake:
        name = fill_tickets(lake, tmp_path_factory.mktemp("tickets"), rows=10)
        yield name
        lake.drop_table(name)


@pytest.mark.usefixtures("tickets")
def test_many_blocks_are_a_heat_map_whose_columns_lead_into_it(page: Page, axe: Check, screenshot: Take) -> None:
    """A column tells its part of the key and leads there; a cell tells how many blocks it has; a way leads out."""
    page.goto("/ui/tables/shop/tickets/map?key=id&colour=width")
    columns = page.locator("svg.heat a")
    count = columns.count()
    assert 20 < count <= 96
    assert page.locator("svg.heat rect").count() <= 1_000 + count
    cells = columns.nth(count // 2).locator("rect:not(.hit)")
    cells.first.hover()
    expect(page.locator("#told")).to_have_text(re.compile(r"; width from .*: \d+ blocks"))
    axe(page)
    screenshot(page, "map-heat")
    columns.nth(5).focus()
    text = page.locator("#told").inner_text()
    page.keyboard.press("Enter")
    part = text.split(":")[0]
    expect(page.get_by_role("heading", name=f"id from {part}", exact=True)).to_be_visible()
    page.get_by_role("link", name="Whole key").click()
    expect(columns).to_have_count(count)


def test_a_filter_dims_what_it_skips(page: Page, lake: Lamella) -> None:
    """With a filter, cells and blocks that are ruled out are dimmed, and the others are not."""
    text = "l_shipdate < DATE '1992-06-01'"
    page.goto(f"{TABLE}/map?colour=depth&filter={quote(text)}")
    selected = lake.table(LINEITEM).prune(text).block_count
    expect(page.locator("svg.heat rect.dim")).to_have_count(60 - selected)
    expect(page.locator("svg.heat rect:not(.dim):not(.hit)")).to_have_count(selected)


def test_a_part_of_the_key_that_is_none_is_an_error_beside_the_map(page: Page) -> None:
    """The whole key stays, and the message says what is wrong."""
    page.goto(f"{TABLE}/map?low=tomorrow")
    expect(page.get_by_role("alert")).to_contain_text("'tomorrow' is not a value of type date")
    expect(page.locator("svg.heat a")).to_have_count(60)
    page.goto(f"{TABLE}/map?low=1995-01-01&high=1994-01-01")
    expect(page.get_by_role("alert")).to_contain_text("which is less")


def test_the_map_is_walked_by_keys(page: Page) -> None:
    """The tab key stops once at a map; arrows move on it; the tile with the focus is told, and Enter opens it."""
    page.goto(f"{TABLE}/map?zoom=1")
    tiles = page.locator(".map button")
    tiles.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(tiles.nth(2)).to_be_focused()
    expect(page.locator("#told")).to_contain_text("block 3 of segment 2")
    page.keyboard.press("End")
    expect(tiles.last).to_be_focused()
    assert [tile.get_attribute("tabindex") for tile in tiles.all()].count("0") == 1
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Block 10 of segment 2")).to_be_visible()


def test_a_block_is_reached_with_nothing_but_keys(page: Page) -> None:
    """From the overview over the skip link, the table and its map into a block: Tab, arrows and Enter are enough."""

    def tab_to(selector: str) -> None:
        for _ in range(80):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"the tab key does not reach {selector}")

    page.goto("/ui")
    expect(page.get_by_role("table")).not_to_contain_text("…")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    tab_to("th a[href$='/shop/lineitem']")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("lineitem")
    tab_to(".tabs a[href$='/map']")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="l_shipdate from")).to_be_visible()
    tab_to("svg.heat a")
    page.keyboard.press("ArrowRight")
    text = page.locator("#told").inner_text()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=words.sentence(text.split(":")[0]))).to_be_visible()


def test_the_map_shows_what_a_filter_leaves(page: Page, lake: Lamella) -> None:
    """The tiles that have the colour of kept blocks are as many as the API keeps."""
    text = "l_shipdate < DATE '1992-06-01'"
    page.goto(f"{TABLE}/map?axis=order")
    page.get_by_label("Filter, to show").fill(text)
    page.get_by_label("Colour").select_option("match")
    page.get_by_role("button", name="Show").click()
    selected = lake.table(LINEITEM).prune(text).block_count
    assert 0 < selected < 60
    expect(page.locator("main")).to_contain_text(f"{selected} of 60 blocks are kept")
    coloured = page.locator(".map button.all, .map button.some, .map button.unknown")
    expect(coloured).to_have_count(selected)


def test_a_wrong_filter_is_shown_beside_the_map(page: Page) -> None:
    """The map stays, and says what is wrong."""
    page.goto(f"{TABLE}/map?filter=l_shipdat%20%3D%201")
    expect(page.get_by_role("alert")).to_contain_text("l_shipdat")
    expect(page.locator("svg.heat a").first).to_be_visible()


def test_columns_show_their_bounds(page: Page, axe: Check, screenshot: Take) -> None:
    """Least and greatest values stand beside each column."""
    page.goto(f"{TABLE}/columns")
    row = page.get_by_role("row").filter(has_text="l_quantity")
    expect(row).to_contain_text("1.00")
    expect(row).to_contain_text("50.00")
    axe(page)
    screenshot(page, "columns")


def test_indexes_show_what_they_know(page: Page, axe: Check, screenshot: Take) -> None:
    """Coverage, size and score stand there, and blocks that are not indexed have a link that indexes them."""
    page.goto(f"{TABLE}/indexes")
    row = page.get_by_role("row").filter(has_text="by_part")
    expect(row).to_contain_text("50 of 60 blocks")
    expect(row.get_by_role("link", name="Refresh by_part")).to_be_visible()
    expect(row).not_to_contain_text("…")
    axe(page)
    screenshot(page, "indexes")


def test_two_snapshots_are_compared(page: Page, axe: Check, screenshot: Take) -> None:
    """The difference of two snapshots lists the blocks that came."""
    page.goto(f"{TABLE}/history")
    axe(page)
    screenshot(page, "history")
    page.get_by_role("button", name="Show the difference").click()
    expect(page.get_by_role("heading", name="Added blocks")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="part-059.parquet")).to_be_visible()
    axe(page)


def test_a_rollback_asks_first_and_can_be_taken_back(page: Page, lake: Lamella, axe: Check, screenshot: Take) -> None:
    """Rolling back says what it will do, does it when that is confirmed, and is undone the same way."""
    table = lake.table(EVENTS)
    before = table.info()
    table.tag("before-rollback")
    first = list(table.snapshots())[-1]
    page.goto(f"/ui/tables/shop/events/history/rollback?to={first.snapshot_id}")
    expect(page.locator("main")).to_contain_text(f"{before.row_count:,} rows")
    axe(page)
    screenshot(page, "rollback")
    assert table.info().snapshot_id == before.snapshot_id
    page.get_by_role("button", name="Roll back").click()
    expect(page.get_by_role("status").first).to_contain_text("older snapshot")
    assert table.info().row_count == 0
    page.goto("/ui/tables/shop/events/history/rollback?to=before-rollback")
    page.get_by_role("button", name="Roll back").click()
    expect(page.get_by_role("status").first).to_be_visible()
    assert table.info().row_count == before.row_count


def test_tags_are_set_and_removed(page: Page, lake: Lamella) -> None:
    """A tag that is typed in names the current snapshot, and goes again."""
    page.goto("/ui/tables/shop/events/history")
    page.get_by_label("Name").fill("tuesday")
    page.get_by_role("button", name="Set the tag").click()
    expect(page.get_by_role("table", name="A tagged snapshot")).to_contain_text("tuesday")
    assert "tuesday" in {tag.name for tag in lake.table(EVENTS).tags()}
    page.get_by_role("link", name="Remove the tag tuesday").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Remove the tag tuesday of shop.events?")
    page.get_by_role("link", name="Go back").click()
    assert "tuesday" in {tag.name for tag in lake.table(EVENTS).tags()}
    page.get_by_role("link", name="Remove the tag tuesday").click()
    page.get_by_role("button", name="Remove the tag").click()
    expect(page.get_by_role("status").first).to_contain_text("removed")
    assert "tuesday" not in {tag.name for tag in lake.table(EVENTS).tags()}


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/map",
        "/map?axis=order",
        "/map?zoom=1",
        "/map?zoom=1.2",
        "/columns",
        "/rows",
        "/advice",
        "/indexes",
        "/history",
    ],
)
@pytest.mark.few(4)
def test_tables_are_read_without_a_script(new_page: Callable[..., Page], path: str) -> None:
    """Every page of a table shows its heading and its content to a browser without JavaScript."""
    page = new_page(java_script_enabled=False)
    page.goto(TABLE + path)
    expect(page.get_by_role("heading", level=1)).to_have_text("lineitem")
    expect(page.locator("main section").first).to_be_visible()


@pytest.mark.parametrize("path", ["/ui", TABLE, f"{TABLE}/map", f"{TABLE}/map?zoom=1.2", f"{TABLE}/history"])
@pytest.mark.few(2)
def test_pages_fit_a_narrow_screen_in_the_dark(new_page: Callable[..., Page], axe: Check, path: str) -> None:
    """On a telephone's screen nothing sticks out sideways, and contrasts hold in the dark."""
    page = new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
    page.goto(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0
    axe(page)


def test_the_scheme_is_changed_and_remembered(page: Page, axe: Check) -> None:
    """The button turns to the dark, and the next page is dark too."""
    page.goto("/ui")
    page.get_by_role("button", name="Dark").click()
    page.goto(f"{TABLE}/map")
    assert page.evaluate("document.documentElement.dataset.scheme") == "dark"
    expect(page.get_by_role("button", name="Light")).to_be_visible()
    axe(page)
