"""Search in a browser: by the key /, by clicks, without scripts; what is found, and by whom."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, expect

from fixtures_server import ServerProcess, start_shared
from lamella.client import Lamella
from support.app_client import AppClient
from support.job_records import IDS
from support.tenants import ROOT_KEY, TenantResources, Tenants

_HIDDEN = re.compile(r'name="(csrf|once)" value="([^"]+)"')
_SEARCHED = re.compile(r"Columns of ([\d,]+) of ([\d,]+) tables? searched")
_LONGEST_S = 60.0


@pytest.fixture(scope="module")
def shared_server(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A service with twenty-five tables, of which one has a column that no other has, and a tag."""
    folder = tmp_path_factory.mktemp("dashboard-search")
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse"})
    file, other = folder / "x.parquet", folder / "other.parquet"
    pq.write_table(pa.table({"id": [1], "Ship_Date": [2]}), file)
    pq.write_table(pa.table({"id": [1]}), other)
    with Lamella(server.url) as lake:
        lake.create_namespace("sales.eu")
        for number in range(24):
            lake.create_table(f"sales.eu.part_{number:02}", schema_from=f"file://{other}")
        lake.create_table("sales.eu.orders", schema_from=f"file://{file}")
        lake.table("sales.eu.orders").register([f"file://{file}"])
        lake.table("sales.eu.orders").tag("quarter-end")
    yield server
    server.stop()


def searched(page: Page) -> None:
    """Wait until the columns of all tables were searched; the page reloads itself."""
    expect(page.locator("#hits")).not_to_have_attribute("data-live", re.compile("."))


@pytest.mark.browser
def test_a_column_is_found_by_a_key_and_one_click(page: Page, axe: Callable[[Page], None]) -> None:
    """From any page: /, a part of its name, Enter, its line; the page shows the column alone."""
    page.goto("/ui/jobs")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search")).to_be_focused()
    page.keyboard.type("ship_d/")
    expect(page.get_by_role("searchbox", name="Search")).to_have_value("ship_d/")
    page.keyboard.press("Backspace")
    page.keyboard.press("Enter")
    searched(page)
    axe(page)
    page.get_by_role("region", name="Columns").get_by_role("link", name="Ship_Date").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    expect(page.get_by_role("rowheader")).to_have_text(["Ship_Date"])


@pytest.mark.browser
def test_the_key_goes_to_no_field_that_has_the_focus(page: Page) -> None:
    """A location is typed with it."""
    page.goto("/ui")
    field = page.get_by_label("Name holds")
    field.focus()
    page.keyboard.press("/")
    expect(field).to_have_value("/")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+/")
    expect(page.get_by_role("searchbox", name="Search")).not_to_be_focused()


@pytest.mark.browser
def test_search_is_a_form_where_there_are_no_scripts(new_page: Callable[..., Page]) -> None:
    """Groups of tables, namespaces, tags and locations, each hit with its path and its page."""
    page = new_page(java_script_enabled=False)
    page.goto("/ui")
    for text, group, hit, path, leads_to in (
        ("ORDERS", "Tables", "orders", "sales.eu", "/ui/tables/sales.eu/orders"),
        ("eu.ord", "Tables", "orders", "sales.eu", "/ui/tables/sales.eu/orders"),
        ("s.e", "Namespaces", "sales.eu", "", "/ui/namespaces/sales.eu"),
        ("ter-E", "Tags", "quarter-end", "sales.eu.orders", "/ui/tables/sales.eu/orders?at=quarter-end"),
    ):
        page.get_by_role("searchbox", name="Search").fill(text)
        page.get_by_role("button", name="Search").click()
        line = page.get_by_role("region", name=group).get_by_role("listitem").filter(has_text=hit)
        expect(line.first).to_contain_text(path)
        assert line.first.get_by_role("link").get_attribute("href") == leads_to
    page.get_by_role("searchbox", name="Search").fill("warehouse")
    page.get_by_role("button", name="Search").click()
    locations = page.get_by_role("region", name="Locations of tables")
    expect(locations.get_by_role("listitem")).to_have_count(20)
    locations.get_by_role("link", name="Show more locations").click()
    expect(locations.get_by_role("listitem")).to_have_count(25)
    page.goto("/ui/search?q=nothing-like-this")
    expect(page.locator("main")).to_contain_text("Nothing contains")


@pytest.mark.browser
def test_a_wrong_search_is_said_to_be_wrong(page: Page) -> None:
    """Wildcards are characters; what is too long is refused."""
    page.goto("/ui/search?q=%25")
    expect(page.locator("main")).to_contain_text("Nothing contains")
    page.goto(f"/ui/search?q={'x' * 201}")
    expect(page.locator("main")).to_contain_text("at most 200 characters")


class Visitor:
    """A browser that is logged in."""

    def __init__(self, tenants: Tenants, key: str) -> None:
        self.http = AppClient(tenants.app.app, follow_redirects=False)
        hidden = dict(_HIDDEN.findall(self.http.get("/ui/login").text))
        assert self.http.post("/ui/login", data={**hidden, "key": key, "next": "/ui"}).status_code == 303

    def get(self, path: str) -> str:
        """A page, once the survey of tables is over."""
        give_up = time.monotonic() + _LONGEST_S
        while True:
            answer: httpx2.Response = self.http.get(path)
            assert answer.status_code == 200
            found = _SEARCHED.search(answer.text)
            is_over = "checked so far" not in answer.text and (found is None or found[1] == found[2])
            if is_over or time.monotonic() > give_up:
                return answer.text
            time.sleep(0.05)


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    """A service of two tenants."""
    with Tenants(tmp_path_factory.mktemp("tenants")) as tenants:
        yield tenants


def unwell(tenants: Tenants, name: str) -> TenantResources:
    """A table of a tenant with a failed job, and too many small blocks."""
    resources = tenants.resources(name, "tag")
    table = f"{name}.{resources.table}"
    job = tenants.root.call("POST", "/v1/jobs", {"kind": "verify", "table": table})
    token = str(IDS.new())
    tenants.root.call("POST", "/v1/jobs/claim", {"worker": "w", "lease_token": token, "lease_s": 60})
    report = {"lease_token": token, "outcome": "failed", "retry": False}
    report["error"] = {"code": "odd", "detail": f"{resources.value} is odd"}
    tenants.root.call("POST", f"/v1/jobs/{job['job_id']}/finish", report)
    for number in range(32):
        file = f"{resources.location}/{name}-more-{number}.parquet"
        tenants.write(resources.location, f"{name}-more-{number}.parquet", resources.column, resources.value, number)
        path = f"/v1/namespaces/{name}/tables/{resources.table}/register"
        tenants.root.call("POST", path, {"paths": [file], "strict": True})
    return resources


def test_each_finds_and_is_shown_only_what_is_theirs(tenants: Tenants) -> None:
    """Findings, hits and counts: of the tenants' own tables, jobs and keys, and of nothing else."""
    own, other = unwell(tenants, "south"), unwell(tenants, "north")
    tenants.root.call("POST", "/v1/keys", {"name": "north-ends", "grants": [NORTH], "expires_s": 3_600})
    readers: dict[str, tuple[Any, int]] = {
        "namespace": ({"role": "admin", "namespace": "south"}, 1),
        "table": ({"role": "read", "namespace": "south", "table": own.table}, 1),
        "all": ({"role": "read"}, 2),
    }
    for name, (grant, count) in readers.items():
        visitor = Visitor(tenants, tenants.key(grant)[1])
        pages = [visitor.get("/ui"), visitor.get("/ui/health")]
        for word in (other.table, other.column, "north", other.tag, own.table, own.column, own.location[-20:], "a"):
            pages += [visitor.get(f"/ui/search?q={word}"), visitor.get(f"/ui/search?q={word}&only=columns")]
        for text in pages:
            shown = re.sub(r'q=[^"&]*|“[^”]*”', "", text)  # what was asked for is told again
            assert own.table in shown or "search" in text
            leaked = [word for word in other.words() if word in shown.partition("<main")[2]]
            assert bool(leaked) is False or name == "all", leaked
        assert f"of {count} table" in visitor.get("/ui/search?q=x")
        assert f"{own.value} is odd" in pages[0]
        assert f"{own.table}: 34 of 34 blocks are smaller" in pages[0]
        assert (other.table in pages[0]) is (name == "all")
        assert "north-ends" not in pages[0]
        assert ("kind=compact" in pages[0]) is (name == "namespace")
        assert own.column in visitor.get(f"/ui/search?q={own.column}&only=columns").partition("<main")[2]
    root = Visitor(tenants, ROOT_KEY).get("/ui")
    assert "The key north-ends expires" in root
    assert other.table in root
    assert "/ui/access/keys/north-ends/rotate" in root


NORTH = {"role": "read", "namespace": "north"}


def test_a_table_that_moved_away_is_not_found_by_its_old_name(tenants: Tenants) -> None:
    """Not even before the survey knows of it."""
    moved = tenants.resources("south")
    visitor = Visitor(tenants, tenants.key({"role": "read", "namespace": "south"})[1])
    query = f"/ui/search?q={moved.column}&only=columns"
    give_up = time.monotonic() + _LONGEST_S
    while f">{moved.namespace}.{moved.table}<" not in visitor.get(query):  # the last survey was before it was made
        assert time.monotonic() < give_up
        time.sleep(0.05)
    tenants.root.call("POST", f"/v1/namespaces/south/tables/{moved.table}/rename", {"namespace": "north", "name": "m"})
    assert f"{moved.namespace}.{moved.table}<" not in visitor.http.get(query).text


@pytest.mark.parametrize(
    ("accept", "status"),
    [("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", 307), ("*/*", 200), ("application/json", 200), (None, 200)],
)
def test_the_root_leads_browsers_to_the_console(tenants: Tenants, accept: str | None, status: int) -> None:
    """And tells programs where everything is, without a key."""
    headers = {} if accept is None else {"Accept": accept}
    if accept is None:
        tenants.app.headers.pop("accept", None)
    answer = tenants.app.get("/", headers=headers, follow_redirects=False)
    assert answer.status_code == status
    assert answer.headers["vary"] == "Accept"
    if status == 307:
        assert answer.headers["location"] == "/ui"
        return
    links = answer.json()
    assert links.pop("name") == "Lamella"
    assert links.pop("version") == version("lamella")
    assert set(links) == {"docs", "openapi", "health", "ui"}
    for path in links.values():
        assert tenants.app.get(path, follow_redirects=False).status_code in (200, 303), path


def test_without_a_console_the_root_names_none(tmp_path: Path) -> None:
    """Programs get the other links, and browsers a page with them, which may load nothing."""
    with Tenants(tmp_path, dashboard=False) as tenants:
        answer = tenants.app.get("/", headers={"Accept": "application/json"}, follow_redirects=False)
        assert set(answer.json()) == {"name", "version", "docs", "openapi", "health"}
        page = tenants.app.get("/", headers={"Accept": "text/html"}, follow_redirects=False)
        assert page.status_code == 200
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        links = re.findall(r'href="([^"]+)"', page.text)
        assert len(links) == 3
        for link in links:
            assert tenants.app.get(f"/{link}").status_code == 200
