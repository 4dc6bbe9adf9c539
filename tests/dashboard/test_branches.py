"""Branches on the history page of a table."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lamella.client import Lamella
from support.dashboard_tables import LINEITEM

pytestmark = pytest.mark.browser


def test_the_branches_of_a_table_lead_to_their_pages(page: Page, lake: Lamella, axe: Callable[[Page], None]) -> None:
    """With where each begins, and whether the table could be fast-forwarded to it; the pages are those of a table."""
    table = lake.table(LINEITEM)
    namespace, name = LINEITEM.split(".")
    table.create_branch("trial")
    try:
        table.branch("trial").delete("l_quantity < 2", mode="merge-on-read")
        page.goto(f"/ui/tables/{namespace}/{name}/history")
        branches = page.get_by_role("region", name="Branches")
        expect(branches.get_by_role("row").filter(has_text="trial")).to_contain_text("possible")
        axe(page)
        branches.get_by_role("link", name="trial").click()
        expect(page.get_by_role("region", name="Branches")).to_contain_text("trial (shown here)")
        expect(page.locator(".line-of-time").get_by_role("listitem").first).to_contain_text("delete")
        page.goto(f"/ui/tables/{namespace}/{name}@trial")
        expect(page.get_by_role("heading", level=1)).to_contain_text(f"{name}@trial")
    finally:
        table.drop_branch("trial")
