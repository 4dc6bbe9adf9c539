"""Automatic upkeep of real tables: actions are measured, what disappoints is undone, and budgets are not exceeded."""

from __future__ import annotations

import json
import random
import time
import uuid
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from jobs.conftest import MakeTable
from lamella.client.cli.app import cli
from lamella.client.jobs.auto import AutoResult, run_auto
from lamella.snapshot.errors import ActionNotFound, InvalidRequest, JobLeaseLost
from lamella.snapshot.wire import AutoReport, AutoRule, AutoStart, Policy
from support.event_tables import EventTable, events

BLOCKS = 24


def ready(make_table: MakeTable, rule: AutoRule | None = None, *, prunes: int = 30) -> EventTable:
    """A table in no order, with filters on single ids and users, that are used often."""
    rng = random.Random(7)
    table = make_table(properties={"lamella.record_prunes": "full", "target_block_rows": "100"})
    files = [events(rng, 100) for _ in range(BLOCKS)]
    table.add(*files, verify=True)
    if rule is not None:
        table.handle.set_policy(Policy(auto=rule))
    for number in range(prunes):
        rows = files[number % 6].to_pylist()
        table.handle.prune(f"id = {rows[number % 6]['id']}")
        table.handle.prune(f"user = '{rows[3]['user'] or 'u0001'}'")
    return table


def run(table: EventTable, **more: Any) -> AutoResult:
    """What the job does."""
    return run_auto(table.context(), new_id=lambda: str(uuid.uuid4()), timer=time.monotonic, **more)


def start(table: EventTable, runner: str, **more: Any) -> Any:
    """Begin an action by hand."""
    return table.handle.start_auto(AutoStart(runner=runner, **more))


def report(table: EventTable, action_id: str, runner: str, outcome: str, **more: Any) -> Any:
    """Report it."""
    made = msgspec.convert({"runner": runner, "outcome": outcome, **more}, AutoReport)
    return table.handle.report_auto(action_id, made)


def test_actions_are_done_until_nothing_is_worth_its_cost(make_table: MakeTable) -> None:
    """Look-ups read few blocks afterwards, the ledger has what was predicted and measured, and no row is lost."""
    table = ready(make_table, AutoRule(index_bytes=1 << 20))
    before = table.rows()
    done = run(table)
    assert done.plan is not None
    assert not done.plan.blocked
    assert [each.state for each in done.actions] == ["succeeded"] * len(done.actions)
    assert len(done.actions) >= 2
    for each in done.actions:
        assert each.measured is not None
        assert each.candidate.gain is not None
        assert each.measured.before == each.candidate.gain.before
        assert each.measured.after.skip == pytest.approx(each.candidate.gain.after.skip, abs=0.1)
    assert all(each.decision not in ("do", "next") for each in done.plan.verdicts)
    assert table.handle.auto_ledger().actions == done.actions[::-1]
    assert table.rows() == before
    filters = table.handle.recorded_filters().filters
    read = [table.handle.prune(each.filter, reader_features=("deletes",)).block_count for each in filters]
    assert sum(read) / len(read) < 3
    assert run(table).actions == ()


def test_a_plan_changes_nothing_and_a_dry_run_begins_nothing(make_table: MakeTable) -> None:
    """Without a rule the decisions of one without members are shown; running needs a rule."""
    table = ready(make_table)
    first = table.handle.plan_auto()
    assert (first.has_policy, first.action) == (False, None)
    assert any(each.decision == "do" for each in first.verdicts)
    with pytest.raises(InvalidRequest, match="no rule auto"):
        run(table)
    table.handle.set_policy(Policy(auto=AutoRule(dry_run=True)))
    done = run(table)
    assert (done.actions, done.plan is not None and done.plan.blocked) == ((), "the rule is a dry run")
    assert table.handle.auto_ledger().actions == ()
    assert table.handle.plan_auto(AutoRule(min_gain=0.99)).verdicts[0].decision == "not_worth"
    with pytest.raises(InvalidRequest, match="are not hours"):
        table.handle.plan_auto(AutoRule(hours="nine to five"))


def test_rarely_used_filters_move_nothing(make_table: MakeTable) -> None:
    """One use of each filter saves less than sorting the table costs."""
    table = ready(make_table, AutoRule(kinds=("cluster_key", "recluster", "compact")), prunes=1)
    assert run(table).actions == ()
    assert {each.decision for each in table.handle.plan_auto().verdicts} <= {"not_worth", "unknown", "not_allowed"}


def test_an_index_that_does_not_help_as_predicted_is_dropped(make_table: MakeTable) -> None:
    """It is measured on the filters that it was decided by and not tried again; its undoing can be taken over."""
    table = ready(make_table, AutoRule(kinds=("index",), index_bytes=1 << 20))
    mine, other = str(uuid.uuid4()), str(uuid.uuid4())
    action = start(table, mine, lease_s=1).action
    assert start(table, mine).action.action_id == action.action_id  # the same answer to the same runner
    assert "is running" in start(table, other).blocked
    index = action.candidate.index
    table.handle.create_index(action.candidate.index_name, index.kind, index.expression)  # and it covers nothing
    ended = report(table, action.action_id, mine, "done", lease_s=1)
    assert ended.state == "undoing"
    assert ended.measured.after == ended.measured.before
    time.sleep(1.1)
    taken = start(table, other)
    assert (taken.action.action_id, taken.action.state) == (action.action_id, "undoing")
    with pytest.raises(JobLeaseLost):
        report(table, action.action_id, mine, "undone")
    table.handle.drop_index(action.candidate.index_name)
    undone = report(table, action.action_id, other, "undone")
    assert undone.state == "undone"
    assert report(table, action.action_id, other, "undone") == undone
    verdicts = table.handle.plan_auto().verdicts
    again = [each for each in verdicts if each.candidate.kind == "index" and each.candidate.index == index]
    assert [each.decision for each in again] == ["not_repeated"]
    with pytest.raises(ActionNotFound):
        report(table, str(uuid.uuid4()), other, "undone")
    with pytest.raises(ActionNotFound):
        report(make_table(), action.action_id, other, "undone")  # another table's


def test_an_action_that_nobody_reports_has_failed(make_table: MakeTable) -> None:
    """Its lease ends, and the next one can begin; a late report is refused."""
    table = ready(make_table, AutoRule(index_bytes=1 << 20))
    mine = str(uuid.uuid4())
    lost = start(table, mine, lease_s=1).action
    assert report(table, lost.action_id, mine, "running", lease_s=1, rewritten_bytes=5).rewritten_bytes == 5
    time.sleep(1.1)
    following = start(table, str(uuid.uuid4())).action
    assert following.change != lost.change
    with pytest.raises(JobLeaseLost):
        report(table, lost.action_id, mine, "done")
    ledger = {each.action_id: each for each in table.handle.auto_ledger().actions}
    assert ledger[lost.action_id].rewritten_bytes == max(5, lost.candidate.cost.rewritten_bytes)
    states = {name: each.state for name, each in ledger.items()}
    assert states == {lost.action_id: "failed", following.action_id: "running"}
    with pytest.raises(InvalidRequest, match="runner is a UUID"):
        start(table, "me")


def test_a_failed_action_is_in_the_ledger_and_the_next_is_tried(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index that could not be built is dropped."""
    table = ready(make_table, AutoRule(kinds=("index",), index_bytes=1 << 20))
    calls: list[str] = []

    def broken(_self: Any, name: str, *_: Any, **__: Any) -> None:
        calls.append(name)
        raise InvalidRequest("no rows today")

    monkeypatch.setattr(type(table.handle), "refresh_index", broken)
    done = run(table)
    assert len(done.actions) == len(calls) >= 2
    assert {(each.state, each.reason) for each in done.actions} == {("failed", "no rows today")}
    assert not table.handle.indexes()


def test_what_people_did_meanwhile_stays(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index of the name that an action wanted is not dropped, and a key that was set since the decision stays."""
    table = ready(make_table, AutoRule(kinds=("index",), index_bytes=1 << 20))
    begin = type(table.handle).start_auto

    def first_people(handle: Any, request: AutoStart) -> Any:
        plan = begin(handle, request)
        if plan.action is not None and plan.action.candidate.kind == "index":
            handle.create_index(plan.action.candidate.index_name, "bloom", "price")
        if plan.action is not None and plan.action.candidate.kind == "cluster_key":
            handle.cluster_by(["price"])
        return plan

    monkeypatch.setattr(type(table.handle), "start_auto", first_people)
    (action,) = run(table, max_actions=1).actions
    assert action.state == "failed"
    assert [each.expression for each in table.handle.indexes()] == ["price"]
    table.handle.set_policy(Policy(auto=AutoRule(kinds=("cluster_key",))))
    (action,) = run(table, max_actions=1).actions
    assert (action.state, action.rewritten_bytes) == ("failed", 0)
    assert table.handle.cluster_key().columns == ("price",)


def test_budgets_bound_what_is_rewritten(make_table: MakeTable) -> None:
    """A fifth of the table a day: no key that rewrites all of it, and no more than that is rewritten."""
    table = ready(make_table, AutoRule())
    size = sum(each.file_size for each in table.blocks())
    table.handle.cluster_by(["id"])
    budget = size // 5
    table.handle.set_policy(
        Policy(auto=AutoRule(rewritten_bytes_per_day=budget, kinds=("recluster", "compact", "cluster_key")))
    )
    done = run(table)
    assert sum(each.rewritten_bytes for each in done.actions) <= budget
    assert done.plan is not None
    assert done.plan.budget.rewritten_bytes == sum(each.rewritten_bytes for each in done.actions)
    keys = [each for each in done.plan.verdicts if each.candidate.kind == "cluster_key"]
    assert all(each.decision in ("not_allowed", "not_worth") for each in keys)


def test_the_command_explains_runs_and_lists(make_table: MakeTable, jobs_url: str) -> None:
    """With tables for people and JSON for programs."""
    table = ready(make_table, AutoRule(index_bytes=1 << 20))

    def said(*words: str) -> str:
        done = CliRunner().invoke(cli, ["auto", *words, "--url", jobs_url, table.name])
        assert done.exit_code == 0, done.output
        return done.stdout

    text = said("explain")
    assert "NOW:" in text
    assert "it would have saved" in text
    assert "outside of the hours" in said("explain", "--hours=00:00-00:01", "--time-zone=Pacific/Kiritimati") or (
        "NOW:" in text  # in that minute
    )
    assert said("ledger").startswith("nothing was done")
    assert "succeeded:" in said("run", "--engine=local", "--processes=1", "--max-actions=1")
    explained = json.loads(said("explain", "--json"))
    assert [each["state"] for each in explained["actions"]] == ["succeeded"]
    assert "succeeded" in said("ledger")
    ran = json.loads(said("run", "--engine=local", "--processes=1", "--json"))
    assert ran["plan"]["budget"]["index_bytes"] > 0
    assert all(each["decision"] != "do" for each in ran["plan"]["verdicts"])
