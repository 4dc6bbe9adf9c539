"""The page of advice: what could be done, what is not known, and the way from there to the form that does it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from fixtures_server import ServerProcess
from lamella.client import Lamella
from lamella.service.catalog import TableRecord
from lamella.service.dashboard.advice import action_of, bars_of, suggestion_of
from lamella.snapshot.manifest import ObjectRef, SnapshotPointer
from lamella.snapshot.wire import Candidate, CandidateCost, CandidateGain, Cost, IndexChange
from support.dashboard_tables import LINEITEM, fill_tickets
from support.logged_in import logged_in
from support.tenants import Tenants

Check = Callable[[Page], None]
Take = Callable[[Page, str], None]


@pytest.fixture(scope="module")
def tickets(shared_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a table of ids in no order, whose different values are not counted."""
    with Lamella(shared_server.url) as lake:
        name = fill_tickets(lake, tmp_path_factory.mktemp("tickets"))
        for _ in range(100):  # each process writes its own notes when it is asked: a connection may lead to any
            with Lamella(shared_server.url) as another:
                if another.table(name).recorded_filters().filters:
                    break
        yield f"/ui/tables/{name.replace('.', '/')}"
        lake.drop_table(name)


@pytest.mark.browser
def test_what_is_not_known_is_measured_on_request_and_leads_to_the_form(
    page: Page, tickets: str, axe: Check, screenshot: Take
) -> None:
    """Nothing is called useless that is not known; a sample decides, and a click leads to the form of the index."""
    page.goto(tickets)
    page.get_by_role("link", name="Advice").first.click()
    missing = page.get_by_role("region", name="What cannot be predicted")
    expect(missing).to_contain_text("Cannot tell what it would save")
    expect(missing).not_to_contain_text("sample_blocks")
    expect(page.locator("main")).not_to_contain_text("Nothing that was tried saves anything")
    axe(page)
    page.get_by_role("link", name="Read a sample").click()
    found = page.get_by_role("region", name="What could be done")
    expect(found).to_contain_text("A new index")
    expect(found.get_by_role("img", name=re.compile("now .* blocks")).first).to_be_visible()
    axe(page)
    screenshot(page, "advice")
    found.get_by_role("link", name="Create the index … id").click()
    expect(page.get_by_role("heading", level=2).first).to_contain_text("New index of kind")
    expect(page.get_by_label("Over")).to_have_value("id")
    expect(page.get_by_role("region", name="Effect")).to_contain_text("It helps 1 of 1 recorded filter")


@pytest.mark.browser
def test_a_command_is_copied_and_findings_lead_to_the_page(page: Page, lake: Lamella) -> None:
    """From the home page and the table's findings; the commands are those of the API."""
    page.goto("/ui")
    page.get_by_role("region", name="Health").get_by_role("link", name="Advice for shop.events").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("events")
    page.goto(f"/ui/tables/{LINEITEM.replace('.', '/')}/advice")
    first = page.locator("#found-1")
    expect(first).to_be_visible()
    answer = lake.table(LINEITEM).candidates(10)
    commands = [each.inner_text() for each in page.locator(".advice pre").all()]
    assert sorted(commands) == sorted(each.command for each in (*answer.candidates, *answer.unpredicted))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    first.get_by_role("button", name="Copy the command").click()
    expect(page.locator("#said")).not_to_be_empty()
    assert page.evaluate("navigator.clipboard.readText()") == commands[0]


def test_it_needs_the_right_to_maintain(tmp_path: Path) -> None:
    """It shows what filters others used, as the API does to maintainers alone."""
    with Tenants(tmp_path) as tenants:
        table = tenants.resources("north")
        path = f"/ui/tables/north/{table.table}"
        for role, status in (("read", 403), ("maintain", 200)):
            browser = logged_in(tenants, tenants.key({"role": role, "namespace": "north"})[1])
            assert browser.get(f"{path}/advice").status_code == status
            assert (f"{path}/advice" in browser.get(path).text) is (role == "maintain")


NO_OBJECT = ObjectRef(location="x", size_bytes=0, sha256="")
RECORD = TableRecord(
    table_id="t",
    namespace="a.b",
    name="c",
    location="x",
    version=1,
    pointer=SnapshotPointer(snapshot_id="s", timestamp_ms=0, manifest=NO_OBJECT, sidecar=NO_OBJECT),
    created_at_ms=0,
)


@pytest.mark.parametrize(
    ("candidate", "href"),
    [
        (
            Candidate(kind="compact", text="", command="", job="compact"),
            "/ui/jobs/new?kind=compact&table=a.b.c&preview=1",
        ),
        (
            Candidate(kind="vacuum", text="", command="", job="vacuum", arguments={"execute": True}),
            "/ui/jobs/new?kind=vacuum&table=a.b.c&preview=1",
        ),
        (
            Candidate(
                kind="index",
                text="",
                command="",
                index=IndexChange(kind="bloom", expression="year(x)", time_zone="Europe/Paris"),
                index_name="i",
            ),
            "/ui/tables/a.b/c/indexes/new?kind=bloom&name=i&expression=year%28x%29&time_zone=Europe%2FParis&preview=1",
        ),
        (
            Candidate(kind="drop_index", text="", command="", index_name="i"),
            "/ui/tables/a.b/c/indexes/i/drop",
        ),
        (
            Candidate(kind="cluster_key", text="", command="", job="recluster", cluster_key=("x", "s.y")),
            "/ui/tables/a.b/c?key=x%2C+s.y#key-heading",
        ),
        (Candidate(kind="cluster_key", text="", command="", missing="no filters are recorded"), None),
    ],
)
def test_each_candidate_leads_to_the_form_that_does_it(candidate: Candidate, href: str | None) -> None:
    """Filled in; nothing is done before the form is sent, and no address makes a trial run a real one."""
    action = action_of(RECORD, candidate)
    assert (None if action is None else action.href) == href


def test_gains_and_costs_are_shown_as_they_are() -> None:
    """Bars are of the larger read; what is not known of the cost is not zero."""
    now, then = Cost(blocks=40.0, bytes=4e6, skip=0.0), Cost(blocks=10.0, bytes=1e6, skip=0.75)
    gain = CandidateGain(before=now, after=then, filters=1, times=3, unknown=2, reason="why; and more")
    assert (bars_of(gain).before_share, bars_of(gain).after_share) == (1.0, 0.25)
    assert bars_of(CandidateGain(before=then, after=now, filters=1, times=1)).before_share == 0.25
    shown = suggestion_of(
        RECORD,
        Candidate(
            kind="index",
            text="t",
            command="c",
            gain=gain,
            cost=CandidateCost(index_bytes=None, read_bytes=1024),
            missing="no counts; repeat the request with sample_blocks",
        ),
    )
    assert {each.name: each.text for each in shown.facts} == {
        "Reads": "1.0 KiB",
        "Size of the index": "cannot be predicted",
        "Predicted for": "1 recorded filter, 3 uses",
        "Not predicted": "2 filters: why; and more",
    }
    assert shown.missing == "no counts"
