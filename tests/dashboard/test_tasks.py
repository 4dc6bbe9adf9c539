"""An administrator's tasks in the console, from the home page on, with the clicks that each takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Locator, Page, expect

from fixtures_server import ServerProcess, start_shared
from lamella.client import Lamella
from support.dashboard_tables import EVENTS, fill
from support.tenants import ROOT_KEY, ROOT_SHA256

pytestmark = pytest.mark.browser
#: Clicks that a task may take, from the home page on; typing is none.
_MAX_CLICKS = 3


class Clicks:
    """Clicks on a page, and counts them."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.count = 0

    def click(self, target: Locator) -> None:
        """One more."""
        self.count += 1
        target.click()

    def table(self, name: str) -> None:
        """Go from the list of tables to one of them."""
        self.click(self.page.get_by_role("row").get_by_role("link", name=name, exact=True).first)

    def tab(self, name: str) -> None:
        """Go to another page about the table."""
        self.click(self.page.get_by_role("navigation", name="Table").get_by_role("link", name=name, exact=True))

    def menu(self, name: str) -> None:
        """Go to another part of the console."""
        self.click(self.page.get_by_role("navigation", name="Main").get_by_role("link", name=name, exact=True))

    def said(self, text: str) -> None:
        """The page says that it is done."""
        expect(self.page.get_by_role("status").filter(has_text=text)).to_be_visible()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the service's files are."""
    return tmp_path_factory.mktemp("dashboard-tasks")


@pytest.fixture(scope="module")
def shared_server(pytestconfig: pytest.Config, folder: Path) -> Iterator[ServerProcess]:
    """A service that asks for keys, with tables that one may change."""
    allowed = json.dumps({"*": [f"file://{folder / name}/" for name in ("lineitem", "events", "staff")]})
    settings = {"warehouse": folder / "warehouse", "auth": "true", "root_key_sha256": ROOT_SHA256}
    settings["allowed_locations"] = allowed
    server = start_shared(pytestconfig, folder, settings)
    with Lamella(server.url, token=ROOT_KEY) as lake:
        fill(lake, folder, scale=0.001)
    yield server
    server.stop()


@pytest.fixture
def staff(folder: Path) -> Path:
    """A file that tables may register."""
    path = folder / "staff" / "x.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": [1, 2, 3]}), path)
    return path


@pytest.fixture
def lake(server_url: str) -> Iterator[Lamella]:
    """A client that may do everything."""
    with Lamella(server_url, token=ROOT_KEY) as client:
        yield client


@pytest.fixture
def clicks(page: Page) -> Iterator[Clicks]:
    """The home page of one who is logged in; at the end the task took few enough clicks."""
    page.goto("/ui")
    page.get_by_label("API key").fill(ROOT_KEY)
    page.get_by_role("button", name="Log in", exact=True).click()
    page.wait_for_url(re.compile("/ui$"))
    found = Clicks(page)
    yield found
    assert 0 < found.count <= _MAX_CLICKS


def test_a_table_gets_the_usual_rules(clicks: Clicks, lake: Lamella) -> None:
    """The table, its upkeep, the button."""
    clicks.table(EVENTS)
    clicks.tab("Upkeep")
    clicks.click(clicks.page.get_by_role("button", name="Keep this table in shape"))
    clicks.said("The policy is saved")
    assert lake.table(EVENTS).policy().policy.compact is not None


def test_a_nightly_compaction_is_scheduled(clicks: Clicks, lake: Lamella) -> None:
    """The table, its upkeep, the button."""
    clicks.table(EVENTS)
    clicks.tab("Upkeep")
    clicks.click(clicks.page.get_by_role("button", name="Compact every night"))
    clicks.said("The schedule is saved")
    assert [each.kind for each in lake.table(EVENTS).schedules()] == ["compact"]


def test_who_changed_a_table_is_seen_and_the_change_is_rolled_back(clicks: Clicks, lake: Lamella, staff: Path) -> None:
    """The table says who; the link beside the snapshot before, and the button that confirms."""
    lake.create_namespace("hr")
    lake.create_table("hr.staff", schema_from=str(staff))
    lake.table("hr.staff").register([str(staff)])
    clicks.page.reload()
    clicks.table("hr.staff")
    recent = clicks.page.get_by_role("region", name="Recent changes")
    expect(recent.get_by_role("listitem").first).to_contain_text("by root")
    expect(recent.get_by_role("listitem").first).to_contain_text("3 rows (+3)")
    clicks.click(recent.get_by_role("link", name="Roll back to it").first)
    clicks.click(clicks.page.get_by_role("button", name="Roll back"))
    clicks.said("The table has the blocks of the older snapshot again")
    assert lake.table("hr.staff").info().row_count == 0


def test_a_key_is_made(clicks: Clicks, lake: Lamella) -> None:
    """Its text is there once, with a button that copies it."""
    clicks.menu("Access")
    form = clicks.page.locator("form").filter(has=clicks.page.get_by_role("button", name="Create the key"))
    form.get_by_label("Name").fill("loader")
    form.get_by_label("On").fill("shop.*")
    clicks.click(form.get_by_role("button", name="Create the key"))
    text = clicks.page.locator("#key").inner_text()
    with Lamella(lake.url, token=text) as made:
        assert EVENTS.partition(".")[2] in made.tables("shop")
    clicks.click(clicks.page.get_by_role("button", name="Copy"))


def test_a_key_is_revoked(clicks: Clicks, lake: Lamella) -> None:
    """The page of keys, the key, and the button that confirms."""
    lake.keys.create("old", [])
    clicks.menu("Access")
    clicks.click(clicks.page.get_by_role("link", name="Revoke old"))
    clicks.click(clicks.page.get_by_role("button", name="Revoke the key"))
    clicks.said("The key is revoked")


def test_the_latency_of_the_last_day_is_seen(clicks: Clicks) -> None:
    """One click."""
    clicks.menu("Service")
    expect(clicks.page.get_by_role("heading", name="Prunes, 99th percentile")).to_be_visible()
