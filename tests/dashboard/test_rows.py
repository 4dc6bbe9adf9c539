"""The page of rows: what is shown, what is said of it, and filters and columns that are wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import Page, expect

from lamella.client import Lamella
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.service.dashboard.rows import Cell, cells, said
from lamella.snapshot.wire import SampleAnswer, SampleColumn
from support.app_client import AppClient
from support.dashboard_tables import EVENTS, LINEITEM
from support.logged_in import logged_in
from support.service_api import parquet_bytes
from support.tenants import Tenants

ROWS = "/ui/tables/shop/lineitem/rows"
Check = Callable[[Page], None]
Take = Callable[[Page, str], None]


@pytest.mark.browser
def test_rows_are_shown_and_filtered(page: Page, lake: Lamella, axe: Check, screenshot: Take) -> None:
    """The first rows come by themselves; a filter leaves those for which it is true, and the page says how many."""
    page.goto("/ui/tables/shop/lineitem")
    page.get_by_role("link", name="Rows", exact=True).click()
    table = page.get_by_role("region", name="Values").get_by_role("table")
    expect(table.get_by_role("row")).to_have_count(21)
    expect(page.get_by_role("status").filter(has_text="There are more rows")).to_be_visible()
    axe(page)
    screenshot(page, "rows")
    page.get_by_label("Filter").fill("l_partkey = 1552 AND l_quantity > 10")
    page.get_by_label("Columns", exact=True).fill("l_partkey, l_quantity")
    page.get_by_role("textbox", name="Rows").fill("100")
    page.get_by_role("button", name="Show", exact=True).click()
    found = lake.table(LINEITEM).sample(
        "l_partkey = 1552 AND l_quantity > 10", ["l_partkey", "l_quantity"], rows=100, max_blocks=16
    )
    shown = table.locator("tr").all()[1:]
    assert [[each.inner_text() for each in row.locator("td").all()] for row in shown] == [
        [str(part), str(quantity)] for part, quantity in found.rows
    ]
    if not found.complete:
        page.get_by_role("link", name=re.compile("Read up to")).click()
    expect(page.get_by_role("status").filter(has_text="all that match")).to_be_visible()
    whole = lake.table(LINEITEM).scan("l_partkey = 1552 AND l_quantity > 10").count()
    expect(page.get_by_role("status").filter(has_text=f"{whole} rows, all")).to_be_visible()


@pytest.mark.browser
def test_wrong_filters_and_columns_are_reported_beside_their_fields(page: Page, axe: Check) -> None:
    """Unknown names, a filter that cannot be decided, and a snapshot that there is not."""
    for query, field, text in (
        ("filter=l_partkee=1", "filter", "l_partkey"),
        ("filter=l_comment RLIKE 'a.'", "filter", "cannot evaluate"),
        ("columns=nothing", "columns", "nothing"),
        ("columns=nothing&filter=l_partkey=1", "columns", "nothing"),
        ("at=never", "at", "never"),
    ):
        page.goto(f"{ROWS}?{query}")
        expect(page.locator(f"#{field}-trouble")).to_contain_text(text)
    axe(page)


@pytest.mark.browser
def test_the_page_needs_no_script_and_fits_a_narrow_screen(new_page: Callable[..., Page], axe: Check) -> None:
    """The table scrolls in itself."""
    page = new_page(java_script_enabled=False)
    page.goto(f"/ui/tables/{EVENTS.replace('.', '/')}/rows?rows=3")
    expect(page.get_by_role("region", name="Values").get_by_role("row")).to_have_count(4)
    narrow = new_page(viewport={"width": 360, "height": 800}, color_scheme="dark")
    narrow.goto(ROWS)
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 360
    axe(narrow)


def test_a_table_whose_files_are_gone_says_so(tmp_path: Path) -> None:
    """The page stays, with what went wrong; and without the setting it shows nothing."""
    file = tmp_path / "0.parquet"
    file.write_bytes(parquet_bytes({"s": ["", None, "x" * 20_000, "<b>"]}))
    warehouse = str(tmp_path / "w")
    with AppClient(create_app(Settings(warehouse=warehouse))) as app:
        app.post("/v1/namespaces", json={"name": "db"})
        app.post("/v1/namespaces/db/tables", json={"name": "t", "schema_from": f"file://{file}"})
        app.post("/v1/namespaces/db/tables/t/register", json={"paths": [str(file)]})
        page = app.get("/ui/tables/db/t/rows").text
        assert "4 rows, all of the table. Read: 1 of 1 block," in page
        assert "&lt;b&gt;" in page
        assert ">empty<" in page
        assert ">null<" in page
        assert "and 10,000 characters more" in page
        file.unlink()
        gone = app.get("/ui/tables/db/t/rows")
        assert gone.status_code == 200
        assert "The rows cannot be read" in gone.text
    with AppClient(create_app(Settings(warehouse=warehouse, sample_rows=False))) as app:
        assert "This service shows no rows" in app.get("/ui/tables/db/t/rows").text


def test_the_page_needs_the_right_to_read(tmp_path: Path) -> None:
    """Who may not read the table finds no page."""
    with Tenants(tmp_path) as tenants:
        table = tenants.resources("north")
        path = f"/ui/tables/north/{table.table}/rows"
        for namespace, status in (("south", 404), ("north", 200)):
            browser = logged_in(tenants, tenants.key({"role": "read", "namespace": namespace})[1])
            page = browser.get(path)
            assert page.status_code == status
            assert (table.value in page.text) is (status == 200)


ANSWER = SampleAnswer(
    snapshot_id="s",
    timestamp_ms=1,
    columns=(SampleColumn(name="a", type="int64"), SampleColumn(name="b", type="struct<x: string>")),
    rows=[[2**60, {"x": "y"}], [None, None]],
    complete=True,
    blocks_total=9,
    blocks_selected=4,
    blocks_read=4,
    bytes_read=2048,
)


def test_nothing_is_called_all_that_is_not() -> None:
    """Each bound has its sentence, and none of them says that these are all rows."""
    assert said(ANSWER, has_filter=True).startswith(
        "2 rows, all that match. Read: 4 of 4 blocks that may match, 2.0 KiB."
    )
    for bound in ("rows", "blocks", "bytes", "time", "answer_bytes"):
        text = said(replace(ANSWER, complete=False, stopped=bound, blocks_read=1), has_filter=False)
        assert "all" not in text.split()
        assert "Read: 1 of 4 blocks, 2.0 KiB." in text


def test_cells_keep_their_digits_and_a_page_has_a_largest_size() -> None:
    """Numbers are not rounded; rows that do not fit are left out."""
    assert cells(ANSWER) == [
        [Cell(str(2**60), "number"), Cell('{"x":"y"}')],
        [Cell("null", "null"), Cell("null", "null")],
    ]
    large = replace(ANSWER, columns=(SampleColumn(name="s", type="string"),), rows=[["x" * 9_000]] * 1_000)
    assert 200 < len(cells(large)) < 240
