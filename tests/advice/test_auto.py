"""Decisions of automatic upkeep: what is worth its cost, what budgets and hours allow, and what is not repeated."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.advice.auto import (
    budget_of,
    change_of,
    check_rule,
    failed,
    opening,
    outcome_of,
    own_indexes,
    verdicts_of,
)
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.wire import (
    AutoAction,
    AutoRule,
    AutoVerdict,
    Candidate,
    CandidateCost,
    CandidateGain,
    CandidatesAnswer,
    Cost,
    IndexChange,
)

DAY_MS = 86_400_000
NOW_MS = 20_000 * DAY_MS
MB = 1_000_000


def gain(before: float, after: float, times: int = 100, unknown: int = 0) -> CandidateGain:
    """Blocks of a megabyte each, of a hundred."""
    costs = [Cost(blocks=each, bytes=each * MB, skip=1 - each / 100) for each in (before, after)]
    return CandidateGain(before=costs[0], after=costs[1], filters=3, times=times, unknown=unknown, reason="unknown")


def rewrite(kind: str = "recluster", blocks: int = 10, saves: CandidateGain | None = None, **more: Any) -> Candidate:
    """A rewrite of blocks of a megabyte each."""
    return msgspec.convert(
        {
            "kind": kind,
            "text": kind,
            "command": "lamella ...",
            "gain": saves,
            "cost": CandidateCost(blocks=blocks, rewritten_bytes=blocks * MB),
            **more,
        },
        Candidate,
    )


def index(name: str = "by_user", saves: CandidateGain | None = None, index_bytes: float | None = 1_000) -> Candidate:
    """A bloom index on the column user."""
    return Candidate(
        kind="index",
        text="index",
        command="lamella ...",
        gain=saves,
        cost=CandidateCost(read_bytes=100 * MB, index_bytes=index_bytes),
        index=IndexChange(kind="bloom", expression="user"),
        index_name=name,
    )


def action(candidate: Candidate, state: str = "succeeded", age_ms: int = 0, **more: Any) -> AutoAction:
    """An action that ended so long ago."""
    ended = None if state == "running" else NOW_MS - age_ms
    made = {
        "action_id": f"a{age_ms}",
        "state": state,
        "change": change_of(candidate),
        "candidate": candidate,
        "snapshot_id": "s",
        "started_ms": NOW_MS - age_ms - 1,
        "finished_ms": ended,
    }
    return msgspec.convert({**made, **more}, AutoAction)


def decided(
    candidates: list[Candidate], rule: AutoRule | None = None, actions: list[AutoAction] | None = None
) -> list[AutoVerdict]:
    """The decisions for a table of a hundred megabytes."""
    rule, actions = rule or AutoRule(), actions or []
    answer = CandidatesAnswer(
        snapshot_id="s",
        blocks_total=100,
        bytes_total=100 * MB,
        candidates=tuple(each for each in candidates if not each.missing),
        unpredicted=tuple(each for each in candidates if each.missing),
    )
    budget = budget_of(rule, actions, 100 * MB, {"by_user": 2_000_000, "mine": 5}, NOW_MS)
    return verdicts_of(rule, answer, actions, budget, NOW_MS)


def test_the_best_for_its_cost_comes_first_and_the_others_wait_for_it() -> None:
    """One action at a time: each changes what the others would gain."""
    dear, cheap = rewrite(blocks=90, saves=gain(50, 10)), rewrite("compact", 5, gain(50, 30))
    found = decided([dear, cheap])
    assert [(each.candidate.kind, each.decision) for each in found] == [("compact", "do"), ("recluster", "next")]
    assert (found[0].saved_blocks, found[0].saved_bytes) == pytest.approx((100 * 20, 100 * 20 * MB))
    assert (found[0].cost_blocks, found[0].cost_bytes) == pytest.approx((2 * 5, 2 * 5 * MB))


def test_opened_blocks_are_not_reported_as_bytes() -> None:
    """On a table of tiny blocks nearly all of the gain is that fewer are opened; the bytes that are named are bytes."""
    kb = 1_000
    before, after = Cost(blocks=12, bytes=12.0 * kb, skip=0.0), Cost(blocks=1, bytes=17.0 * kb, skip=0.0)
    saves = CandidateGain(before=before, after=after, filters=1, times=12)
    tiny = Candidate(
        kind="compact",
        text="compact",
        command="compact",
        cost=CandidateCost(blocks=12, rewritten_bytes=17 * kb),
        gain=saves,
    )
    (found,) = decided([tiny])
    assert found.decision == "do"
    assert found.reason == (
        "it would have saved opening 132 blocks (reading 60.0 kB more) in 7 days (12 uses) and takes opening 24 "
        "blocks, and 34.0 kB read and written, where opening a block counts as reading 4.2 MB"
    )
    assert (found.saved_blocks, found.saved_bytes) == pytest.approx((12 * 11, -12 * 5 * kb))
    assert (found.cost_blocks, found.cost_bytes) == pytest.approx((24, 34 * kb))


@pytest.mark.parametrize(("times", "decision"), [(4, "not_worth"), (5, "do")])
def test_an_action_waits_until_it_would_have_saved_its_cost(times: int, decision: str) -> None:
    """Ten blocks read and written cost as much as four blocks read five times."""
    (found,) = decided([rewrite(blocks=10, saves=gain(50, 46, times))])
    assert found.decision == decision
    assert "it would have saved" in found.reason


def test_small_gains_are_not_worth_it_however_often() -> None:
    """A rule wants a part of the reads to be saved."""
    (found,) = decided([rewrite(blocks=1, saves=gain(50, 49.5, 10_000))])
    assert (found.decision, "saves 1.0%" in found.reason) == ("not_worth", True)
    (found,) = decided([rewrite(blocks=1, saves=gain(50, 49.5, 10_000))], AutoRule(min_gain=0.0))
    assert found.decision == "do"


def test_what_is_unknown_is_not_done() -> None:
    """A key that other filters could suffer from is unknown, and so is a candidate without a prediction."""
    key = rewrite("cluster_key", 10, gain(50, 10, unknown=2), cluster_key=("day",))
    missing = rewrite(blocks=10, missing="no filters are recorded")
    found = decided([key, missing, rewrite("compact", 10, gain(50, 10, unknown=2))])
    assert [(each.candidate.kind, each.decision) for each in found] == [
        ("compact", "do"),
        ("cluster_key", "unknown"),
        ("recluster", "unknown"),
    ]


def test_budgets_of_rewritten_bytes_are_of_the_last_24_hours() -> None:
    """What was rewritten before is free again; what runs counts as predicted."""
    good = rewrite(blocks=40, saves=gain(50, 10))
    spent = action(good, age_ms=DAY_MS - 1, rewritten_bytes=70 * MB)
    (found,) = decided([good], actions=[spent])
    assert (found.decision, "30.0 MB of 100.0 MB are left" in found.reason) == ("waits", True)
    (found,) = decided([good], actions=[msgspec.structs.replace(spent, finished_ms=NOW_MS - DAY_MS)])
    assert found.decision == "do"
    (found,) = decided([good], actions=[action(rewrite("compact", 61), "running")])
    assert found.decision == "waits"
    (found,) = decided([good], AutoRule(rewritten_bytes_per_day=39 * MB))
    assert (found.decision, "the budget is 39.0 MB in 24 hours" in found.reason) == ("not_allowed", True)


def test_indexes_have_a_budget_of_bytes() -> None:
    """Own indexes count with what they take now; one of unknown size is not made."""
    good, own = index("other", gain(50, 1), 24 * MB), action(index())
    assert decided([good], actions=[own])[0].decision == "not_allowed"
    assert decided([good])[0].decision == "do"
    assert decided([index("other", gain(50, 1), None)])[0].decision == "unknown"
    assert decided([good], AutoRule(index_bytes=27 * MB), [own])[0].decision == "do"


def test_only_own_indexes_are_dropped() -> None:
    """People's indexes stay, and so does what is not an action's own any more."""

    def drop(name: str) -> Candidate:
        return Candidate(kind="drop_index", text="", command="", freed_bytes=5.0, index_name=name)

    made = action(index(), age_ms=5)
    found = {
        each.candidate.index_name: each.decision for each in decided([drop("by_user"), drop("mine")], None, [made])
    }
    assert found == {"by_user": "do", "mine": "not_allowed"}
    assert own_indexes([made]) == {"by_user"}
    assert own_indexes([made, action(drop("by_user"), age_ms=3)]) == set()
    assert own_indexes([made, action(drop("by_user"), "failed", age_ms=3)]) == {"by_user"}
    assert own_indexes([action(index(), "undone")]) == set()


def test_kinds_of_a_rule_are_the_only_ones() -> None:
    """A rule may allow some kinds alone."""
    good = rewrite(blocks=10, saves=gain(50, 10))
    assert decided([good], AutoRule(kinds=("index",)))[0].decision == "not_allowed"
    assert decided([good], AutoRule(kinds=("recluster",)))[0].decision == "do"


def test_space_is_freed_where_it_is_much() -> None:
    """A vacuum of less than a twentieth of the table waits; a purge frees a tenth of what it rewrites."""
    small, large = (Candidate(kind="vacuum", text="", command="", freed_bytes=freed) for freed in (4.9 * MB, 5.0 * MB))
    assert decided([small])[0].decision == "not_worth"
    assert decided([large])[0].decision == "do"
    assert decided([rewrite("purge", 10, freed_bytes=0.9 * MB)])[0].decision == "not_worth"
    assert decided([rewrite("purge", 10, freed_bytes=1.0 * MB)])[0].decision == "do"


def test_half_of_the_prediction_is_enough() -> None:
    """Below it an index is dropped, other things are not repeated for some time."""
    made = action(index(saves=gain(50, 10)), "running")  # predicts that 80 % are saved
    half = outcome_of(made, gain(50, 30), "", [], NOW_MS)
    assert (half.state, half.finished_ms, half.retry_ms) == ("succeeded", NOW_MS, None)
    less = outcome_of(made, gain(50, 30.1), "", [], NOW_MS)
    assert (less.state, less.retry_ms) == ("undoing", NOW_MS + 8 * DAY_MS)
    again = decided([index("other", gain(50, 10))], None, [msgspec.structs.replace(less, state="undone")])
    assert (again[0].decision, "it was tried" in again[0].reason) == ("not_repeated", True)
    sort = action(rewrite(saves=gain(50, 10)), "running")
    assert outcome_of(sort, gain(50, 49), "", [], NOW_MS).state == "disappointing"
    assert outcome_of(sort, None, "it expired", [], NOW_MS).state == "unmeasured"


@pytest.mark.parametrize(("after", "state"), [(49, "disappointing"), (60, "undoing")])
def test_a_cluster_key_is_undone_if_filters_read_more(after: float, state: str) -> None:
    """One with some gain stays: the rows are written in its order."""
    made = action(rewrite("cluster_key", 10, gain(50, 10), cluster_key=("day",)), "running")
    assert outcome_of(made, gain(50, after), "", [], NOW_MS).state == state


def test_each_disappointment_doubles_the_time_to_the_next_try() -> None:
    """Of the same change; up to 32 days."""
    sort, waits = rewrite(saves=gain(50, 10)), []
    actions: list[AutoAction] = []
    for number in range(8):
        made = action(sort, "running", number)
        actions.append(outcome_of(made, gain(50, 50), "", actions, NOW_MS))
        waits.append(((actions[-1].retry_ms or 0) - NOW_MS) // DAY_MS)
    assert waits == [1, 2, 4, 8, 16, 32, 32, 32]
    lost = failed(action(rewrite("compact"), "running"), "broken", actions, NOW_MS)
    assert (lost.state, lost.reason, (lost.retry_ms or 0) - NOW_MS) == ("failed", "broken", DAY_MS // 24)


@given(
    first=st.integers(0, 1439),
    end=st.integers(0, 1439),
    now_ms=st.integers(19_000 * 1440, 21_000 * 1440).map(lambda minute: minute * 60_000),
    name=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]),
)
def test_hours_are_open_as_a_clock_on_the_wall_says(first: int, end: int, now_ms: int, name: str) -> None:
    """Minute by minute: it opens at the first minute from now on whose time is within the hours."""
    hours = f"{first // 60:02}:{first % 60:02}-{end // 60:02}:{end % 60:02}"
    is_open, opens_ms = opening(AutoRule(hours=hours, time_zone=name), now_ms)

    def within(at_ms: int) -> bool:
        local = dt.datetime.fromtimestamp(at_ms / 1000, ZoneInfo(name))
        minute = local.hour * 60 + local.minute
        if first == end:
            return True
        return first <= minute < end if first < end else minute >= first or minute < end

    assert is_open == within(now_ms)
    if is_open:
        assert opens_ms is None
        return
    assert opens_ms is not None
    assert now_ms < opens_ms <= now_ms + 25 * 3_600_000
    before = dt.datetime.fromtimestamp(now_ms / 1000, ZoneInfo(name))
    after = dt.datetime.fromtimestamp(opens_ms / 1000, ZoneInfo(name))
    if before.utcoffset() == after.utcoffset():  # the clocks are not changed in between
        assert within(opens_ms)
        assert not within(opens_ms - 60_000)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"hours": "22-6"}, "are not hours"),
        ({"hours": "24:00-06:00"}, "are not hours"),
        ({"time_zone": "Mars/Base"}, "no time zone"),
        ({"rewritten_bytes_per_day": -1}, "rewritten_bytes_per_day"),
        ({"payback_days": 0.0}, "payback_days"),
        ({"payback_days": float("nan")}, "payback_days"),
        ({"min_gain": 1.0}, "min_gain"),
        ({"kinds": ("reclustering",)}, "is no kind of candidate"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused(change: dict[str, Any], text: str) -> None:
    """With the member's path."""
    with pytest.raises(InvalidRequest, match=text) as caught:
        check_rule(AutoRule(**change))
    assert str(caught.value.details["path"]).startswith("$.auto")
