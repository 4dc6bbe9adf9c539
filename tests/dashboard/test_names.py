"""Forms complete names: of what their viewer may see, a bounded number, with and without a script."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from lamella.client import Lamella
from lamella.service.dashboard.names import MAX_NAMES
from support.dashboard_tables import EVENTS
from support.logged_in import logged_in
from support.tenants import ROOT_KEY, Tenants

_LIST = re.compile(r'<datalist id="names-(\w+)">(.*?)</datalist>', re.DOTALL)
_OPTION = re.compile(r'<option value="([^"]*)">')


def lists_of(text: str) -> dict[str, list[str]]:
    """The lists of a page."""
    return {name: _OPTION.findall(options) for name, options in _LIST.findall(text)}


@pytest.mark.browser
@pytest.mark.parametrize(
    ("path", "label", "name"),
    [
        ("/ui/tables/shop/events/lab", "Columns to read", "columns"),
        ("/ui/tables/shop/events/lab", "Snapshot, tag or time", "tags"),
        ("/ui/tables/shop/lineitem/lab", "Snapshot, tag or time", "tags"),
        ("/ui/tables/shop/events/lab/compare", "Table", "tables"),
        ("/ui/tables/shop/events/rows", "Columns", "columns"),
        ("/ui/tables/shop/events", "Columns (empty: no key)", "columns"),
        ("/ui/tables/shop/events/columns", "Name holds", "columns"),
        ("/ui/jobs", "Table", "tables"),
        ("/ui/jobs/new?kind=compact", "Table (needed)", "tables"),
    ],
)
@pytest.mark.few(3)
def test_fields_name_what_there_is_without_a_script(
    new_page: Callable[..., Page], lake: Lamella, path: str, label: str, name: str
) -> None:
    """The list of a field is in the page."""
    page = new_page(java_script_enabled=False)
    page.goto(path)
    field = page.get_by_role("combobox", name=label, exact=True)
    if name == "tags" and "events" in path:
        return  # a table without a tag has no list
    listed = field.get_attribute("list")
    assert listed == f"names-{name}"
    options = [each.get_attribute("value") for each in page.locator(f"#{listed} option").all()]
    expected = {
        "columns": [leaf.name for leaf in lake.table(EVENTS).info().schema.leaves()],
        "tables": ["shop.events", "shop.lineitem"],
        "tags": ["first-load"],
    }[name]
    assert [each for each in options if each in expected] == expected


@pytest.mark.browser
def test_the_script_completes_each_name_of_several(page: Page) -> None:
    """What is named already is not offered again, and what was typed stays."""
    page.goto("/ui/tables/shop/events/rows")
    field = page.get_by_role("combobox", name="Columns", exact=True)
    listed = page.locator(f"#{field.get_attribute('list')} option")
    expect(listed.first).to_have_attribute("value", "user_id")
    field.fill("kind, us")
    expect(listed.first).to_have_attribute("value", "kind, user_id")
    assert "kind, kind" not in [each.get_attribute("value") for each in listed.all()]


def test_lists_have_only_what_their_viewer_may_see(tmp_path: Path) -> None:
    """Tables, namespaces and principals of others are in no list; forms that need a role list what it is on."""
    with Tenants(tmp_path) as tenants:
        own, other = tenants.resources("north", "tag"), tenants.resources("south", "tag")
        reader = logged_in(tenants, tenants.key({"role": "read", "namespace": "north"})[1])
        admin = logged_in(tenants, tenants.key({"role": "admin", "namespace": "north"})[1])
        name, _ = tenants.key({"role": "read", "namespace": "south"})
        for browser in (reader, admin):
            for path in (
                "/ui/jobs",
                "/ui/jobs/new?kind=compact",
                "/ui/access",
                f"/ui/tables/north/{own.table}/lab",
                f"/ui/tables/north/{own.table}/lab/compare",
                f"/ui/tables/north/{own.table}/rows",
            ):
                page = browser.get(path)
                assert page.status_code == 200, path
                text = page.text
                assert other.table not in text, path
                assert other.tag == own.tag or other.tag not in text, path
                assert name not in text, path
                assert "south" not in text, path
        compared = lists_of(reader.get(f"/ui/tables/north/{own.table}/lab/compare").text)
        assert compared["tables"] == [f"north.{own.table}"]
        assert set(compared["columns"]) == {"id", own.column}
        assert "tables" not in lists_of(reader.get("/ui/jobs/new?kind=compact").text)
        scopes = lists_of(admin.get("/ui/access").text)["scopes"]
        assert scopes == ["north.*", f"north.{own.table}"]
        whole = lists_of(logged_in(tenants, ROOT_KEY).get("/ui/access").text)
        assert whole["scopes"][:3] == ["*", "north.*", "south.*"]
        assert f"key:{name}" in whole["principals"]


def test_lists_are_bounded(tmp_path: Path) -> None:
    """However many columns a table has."""
    with Tenants(tmp_path, auth=False, root_key_sha256=None) as tenants:
        columns = [{"name": f"c{number:04}", "type": "int64"} for number in range(2 * MAX_NAMES)]
        tenants.root.call("POST", "/v1/namespaces/north/tables", {"name": "wide", "schema": columns})
        found = lists_of(tenants.root.send("GET", "/ui/tables/north/wide/rows").text)
        assert len(found["columns"]) == MAX_NAMES
