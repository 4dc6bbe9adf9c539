"""What the lab suggests for a filter: predicted as by the API, measured where statistics cannot tell, and with a way
to the form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from fixtures_server import ServerProcess
from lamella.client import Lamella
from lamella.snapshot.wire import IndexChange
from support.dashboard_tables import EVENTS, LINEITEM, fill_tickets

pytestmark = pytest.mark.browser

Check = Callable[[Page], None]
Take = Callable[[Page, str], None]


@pytest.fixture(scope="module")
def tickets(shared_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A table of ids in no order, whose different values are not counted."""
    with Lamella(shared_server.url) as lake:
        name = fill_tickets(lake, tmp_path_factory.mktemp("tickets"))
        yield name
        lake.drop_table(name)


def ask(page: Page, table: str, text: str) -> None:
    """Ask the lab for a filter."""
    page.goto(f"/ui/tables/{table.replace('.', '/')}/lab")
    page.get_by_role("textbox", name="Filter").fill(text)
    page.get_by_role("button", name="Prune", exact=True).click()


def test_the_verdict_comes_first_and_suggestions_last(
    page: Page, lake: Lamella, tickets: str, axe: Check, screenshot: Take
) -> None:
    """How many blocks of how many, bytes and time; then stages; then what would help, measured on some blocks."""
    ask(page, tickets, "id = '80000000'")
    verdict = page.get_by_role("region", name=re.compile("of 128 blocks must be read"))
    expect(verdict).to_contain_text("Time of the prune")
    expect(verdict).to_contain_text("Data read")
    headings = [each.inner_text() for each in page.locator("main h2").all()]
    assert headings[1].endswith("of 128 blocks must be read")
    assert headings[2] == "Step by step"
    found = page.locator("#suggestions")
    expect(found).to_contain_text("An index of kind", timeout=30_000)
    expect(found).to_contain_text("blocks were read, since statistics could not tell")
    expect(found).not_to_contain_text("would leave out more")
    axe(page)
    screenshot(page, "lab-suggestions")
    kind = re.search(r"An index of kind (\w+) on id", found.inner_text())
    assert kind is not None
    answer = lake.table(tickets).what_if(
        index=IndexChange(kind=kind[1], expression="id"), filters=["id = '80000000'"], sample_blocks=32
    )
    assert answer.then is not None
    shown = f"{answer.then.blocks:,.1f}".removesuffix(".0")
    expect(found.locator("#help-1, #help-2").filter(has_text="An index of kind")).to_contain_text(f"{shown} block")
    found.get_by_role("link", name="Create the index … id").click()
    expect(page.get_by_label("Over")).to_have_value("id")


def test_a_key_is_suggested_and_filled_in(page: Page, lake: Lamella) -> None:
    """A key on the column of the filter would help, and the form has it; nothing is set by looking."""
    before = lake.table(LINEITEM).info()
    ask(page, LINEITEM, "l_suppkey = 7")
    found = page.locator("#suggestions")
    expect(found).to_contain_text("The cluster key l_suppkey", timeout=30_000)
    found.get_by_role("link", name=re.compile("Set the key")).click()
    expect(page.get_by_label("Columns (empty: no key)")).to_have_value("l_suppkey")
    expect(page.get_by_text("The key now: l_shipdate")).to_be_visible()
    assert lake.table(LINEITEM).info() == before


def test_a_filter_that_reads_one_block_needs_no_help(page: Page) -> None:
    """Neither does no filter."""
    ask(page, EVENTS, "at = 5")
    expect(page.get_by_role("region", name=re.compile("of 40 blocks must be read"))).to_be_visible()
    expect(page.locator("#suggestions")).to_have_count(0)
