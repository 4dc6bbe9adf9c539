"""The service's own screen: health, rates, the audit trail, the configuration."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lamella.client import Lamella
from support.dashboard_tables import LINEITEM

pytestmark = pytest.mark.browser

Check = Callable[[Page], None]
Take = Callable[[Page, str], None]


def test_the_service_tells_how_it_is(page: Page, axe: Check, screenshot: Take) -> None:
    """Catalog and store answer, both workers are there, and prunes were counted by stage."""
    page.goto("/ui/service")
    expect(page.get_by_role("region", name="Health").get_by_text("answers")).to_have_count(2)
    expect(page.get_by_role("img", name="Requests over the last 24 hours")).to_be_visible()
    expect(page.get_by_role("region", name="Prunes, 99th percentile")).to_contain_text("median")
    expect(page.get_by_role("region", name="Processes")).to_contain_text("Workers")
    expect(page.get_by_role("table", name="All prunes together")).to_contain_text("block")
    axe(page)
    screenshot(page, "service")


def test_figures_renew_themselves(page: Page, lake: Lamella) -> None:
    """A request that comes while the page is open is counted there without loading it again."""
    page.goto("/ui/service")
    lake.table(LINEITEM).clustering(["l_partkey"])
    expect(page.get_by_role("row").filter(has_text="/clustering")).to_be_visible()


def test_a_change_by_the_page_is_in_the_audit_trail(page: Page) -> None:
    """What a form changed stands in the trail, found from the service's screen by clicks and typing."""
    page.goto("/ui/tables/shop/events/history")
    page.get_by_label("Name").fill("audited")
    page.get_by_role("button", name="Set the tag").click()
    page.get_by_role("link", name="Remove the tag audited").click()
    page.get_by_role("button", name="Remove the tag").click()
    page.get_by_role("link", name="Service").click()
    page.get_by_role("link", name="All entries").click()
    page.get_by_label("Only about").fill("shop.events")
    page.get_by_role("button", name="Show").click()
    table = page.get_by_role("table")
    expect(table).to_contain_text("ui_put_tag")
    expect(table).to_contain_text("ui_drop_tag")
    expect(table).not_to_contain_text("shop.lineitem")


def test_the_audit_trail_can_be_read_by_all(page: Page, axe: Check) -> None:
    """Its page has nothing that gets in the way of a screen reader."""
    page.goto("/ui/service/audit")
    axe(page)


def test_the_configuration_is_there_without_its_secrets(page: Page) -> None:
    """Each setting has its value and what it is; of a secret it is said whether it is set."""
    page.goto("/ui/service")
    page.get_by_role("link", name="Settings").click()
    expect(page.get_by_role("row").filter(has_text="Processes that serve requests")).to_contain_text("2")
    expect(page.get_by_role("row").filter(has_text="Signs page tokens")).to_contain_text("not set")
