"""Automatic upkeep in the console: the rule's form, what would be done now, and what was done."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from fixtures_server import ServerProcess, start_shared
from lamella.client import Lamella
from lamella.snapshot.errors import PolicyNotFound
from lamella.snapshot.wire import AutoReport, AutoRule, AutoStart, CompactRule, Policy
from support.dashboard_tables import EVENTS, fill
from support.posted_forms import Form, Screens

AUTO = "/ui/tables/shop/events/upkeep/auto"


@pytest.fixture(scope="module")
def shared_server(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A service of this file's own, since its tests change policies."""
    folder = tmp_path_factory.mktemp("dashboard-auto")
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse"})
    with Lamella(server.url) as lake:
        fill(lake, folder, scale=0.001)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def nothing_left(shared_server: ServerProcess) -> Iterator[None]:
    """No policy outlives its test."""
    yield
    with Lamella(shared_server.url) as lake:
        if rule_of(lake) is not None:
            lake.table(EVENTS).drop_policy()


def rule_of(lake: Lamella) -> Policy | None:
    """The policy of the table."""
    try:
        return lake.table(EVENTS).policy().policy
    except PolicyNotFound:
        return None


def test_the_form_sets_the_rule_and_keeps_the_others(screens: Screens, lake: Lamella) -> None:
    """Sizes, durations and percent as people write them; what the form does not show stays, and so does a rule when
    the others are saved.
    """
    before = AutoRule(kinds=("index", "compact"), priority=-1)
    lake.table(EVENTS).set_policy(Policy(compact=CompactRule(small_blocks=7), auto=before))
    form = screens.get(AUTO)
    assert form.fields["mode"] == ""  # a select: the browser fills it
    form.fields |= {"mode": "dry_run", "every": "2 h", "rewritten": "200 GB", "index": "1.5GiB", "gain": "5"}
    form.fields |= {"hours": "22:00-06:00", "time_zone": "Europe/Berlin", "payback": "3.5"}
    screens.post(AUTO, form)
    wanted = AutoRule(
        dry_run=True,
        every_s=7_200,
        rewritten_bytes_per_day=200_000_000_000,
        index_bytes=3 << 29,
        hours="22:00-06:00",
        time_zone="Europe/Berlin",
        payback_days=3.5,
        min_gain=0.05,
        kinds=("index", "compact"),
        priority=-1,
    )
    assert rule_of(lake) == Policy(compact=CompactRule(small_blocks=7), auto=wanted)
    upkeep = screens.get("/ui/tables/shop/events/upkeep")
    assert "A dry run" in upkeep.text
    upkeep.fields |= {"compact": "on", "compact.threshold": "9"}
    screens.post("/ui/tables/shop/events/upkeep/policy", upkeep)
    assert rule_of(lake) == Policy(compact=CompactRule(small_blocks=9), auto=wanted)
    form = screens.get(AUTO)
    form.fields["mode"] = "off"
    screens.post(AUTO, form)
    assert rule_of(lake) == Policy(compact=CompactRule(small_blocks=9))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"mode": "on", "hours": "at night"}, "are not hours"),
        ({"mode": "on", "rewritten": "much"}, "whole number"),
        ({"mode": "on", "payback": "soon"}, "a number of days"),
        ({"mode": "on", "gain": "100"}, "in_gain"),
        ({"mode": "perhaps"}, "hoose whether"),
    ],
)
def test_what_cannot_be_meant_comes_back_with_the_reason(
    screens: Screens, lake: Lamella, fields: dict[str, str], text: str
) -> None:
    """With the input, and nothing is changed."""
    form = screens.get(AUTO)
    form.fields |= fields
    answer = Form(screens.post(AUTO, form, expect=400).text)
    assert any(text in alert for alert in answer.alerts)
    assert {name: answer.fields[name] for name in fields if name != "mode"} == {
        name: value for name, value in fields.items() if name != "mode"
    }
    assert rule_of(lake) is None


def test_decisions_and_the_ledger_are_shown(page: Page, server_url: str, lake: Lamella) -> None:
    """Off, it says what would be decided; then what was done, with the prediction and the reason."""
    table = lake.table(EVENTS)
    for number in range(60):
        table.prune(f"user_id BETWEEN {number * 7} AND {number * 7 + 5}")
        table.prune(f"user_id = {number * 7}")
    page.goto(server_url + AUTO)
    expect(page.get_by_text("Nothing yet.")).to_be_visible()
    page.get_by_role("link", name="Explain").click()
    expect(page.get_by_text("Automatic upkeep is off.")).to_be_visible()
    expect(page.get_by_text("Queries tried")).to_be_visible()
    page.get_by_label("Automatic upkeep is").select_option("on")
    page.get_by_label("Saves at least percent").fill("1")
    page.get_by_role("button", name="Save").click()
    page.wait_for_url("**done=policy_set**")
    assert rule_of(lake) == Policy(auto=AutoRule(min_gain=0.01))
    table.set_policy(Policy(auto=AutoRule(min_gain=0.0, payback_days=366, index_bytes=1 << 40)))
    runner = str(uuid4())
    plan = table.start_auto(AutoStart(runner=runner, sample_blocks=8))
    assert plan.action is not None, [(each.decision, each.candidate.text, each.reason) for each in plan.verdicts]
    table.report_auto(plan.action.action_id, AutoReport(runner=runner, outcome="failed", reason="no disk"))
    page.goto(server_url + AUTO)
    row = page.get_by_role("row").filter(has_text=plan.action.change)
    expect(row).to_contain_text("Failed")
    expect(row).to_contain_text("no disk")
    expect(row).to_contain_text("predicted")
