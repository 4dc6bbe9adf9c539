"""When schedules are due, and what rules decide."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.service.catalog import RuleFired, TableRecord
from lamella.service.jobs.policies import Measurements, findings_of
from lamella.service.jobs.schedules import next_cron, next_every
from lamella.snapshot.errors import StoreError
from lamella.snapshot.manifest import ObjectRef, SnapshotPointer
from lamella.snapshot.wire import (
    CompactRule,
    IndexRefreshRule,
    Policy,
    ReclusterRule,
    Rule,
    RuleFinding,
    VacuumRule,
)

REF = ObjectRef(location="file:///1", size_bytes=1, sha256="0" * 64)
TABLE = TableRecord(
    table_id="t",
    namespace="db",
    name="t",
    location="file:///w",
    version=1,
    pointer=SnapshotPointer(snapshot_id="s", timestamp_ms=1, manifest=REF, sidecar=REF),
    created_at_ms=1,
)
NOW_MS = 10_000_000


def ms(text: str) -> int:
    """A time in Unix milliseconds."""
    return int(dt.datetime.fromisoformat(text).timestamp() * 1000)


@given(st.integers(1, 10**7), st.integers(0, 10**12), st.integers(0, 10**12))
def test_intervals_keep_their_phase(every_s: int, last_ms: int, delay_ms: int) -> None:
    """The next time is after now, by no more than an interval, and a whole number of them behind the last."""
    now_ms = last_ms + delay_ms
    found = next_every(every_s, last_ms, now_ms)
    assert now_ms < found <= now_ms + every_s * 1000
    assert (found - last_ms) % (every_s * 1000) == 0


def test_an_interval_is_not_zero_when_the_clock_was_set_back() -> None:
    """A time before the last one still has its next behind the last."""
    assert next_every(60, 1_000_000, 500) == 1_060_000


@pytest.mark.parametrize(
    ("cron", "zone", "now", "then"),
    [
        ("*/15 * * * *", "UTC", "2026-03-01T10:00:00Z", "2026-03-01T10:15:00Z"),
        ("30 3 * * SUN", "UTC", "2026-03-04T00:00:00Z", "2026-03-08T03:30:00Z"),
        ("0 0 29 2 *", "UTC", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 9 * * *", "Europe/Berlin", "2026-07-01T08:00:00Z", "2026-07-02T07:00:00Z"),
        ("0 9 * * *", "+02:00", "2026-01-01T00:00:00Z", "2026-01-01T07:00:00Z"),
        # The night of 29 March 2026 has no 02:30 in Berlin, and that of 25 October has two.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
    ],
)
def test_cron_names_the_next_time(cron: str, zone: str, now: str, then: str) -> None:
    """In its time zone, also where the clocks change."""
    assert next_cron(cron, zone, ms(now)) == ms(then)


class Said:
    """Conditions as they are said to be; an error is raised."""

    def __init__(self, **figures: Any) -> None:
        self._figures = figures
        self.measured: list[str] = []

    def _figure(self, name: str) -> Measurements:
        self.measured.append(name)
        found = self._figures[name]
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, Measurements) else Measurements(found)

    def small_blocks(self, _table: TableRecord) -> Measurements:
        return self._figure("small_blocks")

    def average_depth(self, _table: TableRecord) -> Measurements:
        return self._figure("average_depth")

    def blocks_with_deletes(self, _table: TableRecord, _min_deleted_share: float | None) -> Measurements:
        return self._figure("blocks_with_deletes")

    def indexes(self, _table: TableRecord) -> list[str]:
        return sorted(name for name in self._figures if name.startswith("index"))

    def not_indexed_blocks(self, _table: TableRecord, index: str) -> Measurements:
        return self._figure(index)

    def snapshots(self, _table: TableRecord, _at_most: int) -> Measurements:
        return self._figure("snapshots")


def decided(policy: Policy, said: Said, fired: dict[str, int] | None = None) -> dict[str, RuleFinding]:
    """What each rule finds; ``fired``: when they last asked."""
    before = {rule: RuleFired(at_ms=at_ms, job_id="j") for rule, at_ms in (fired or {}).items()}
    return {finding.rule: finding for _, finding in findings_of(policy, TABLE, said, before, NOW_MS)}


def test_a_threshold_is_met_by_that_much_or_more() -> None:
    """The finding says what was measured."""
    policy = Policy(compact=CompactRule(small_blocks=10), recluster=ReclusterRule(average_depth=2.5))
    found = decided(policy, Said(small_blocks=10, average_depth=2.4))
    assert (found["compact"].due, found["compact"].measured, found["compact"].threshold) == (True, 10, 10)
    assert (found["recluster"].due, found["recluster"].reason) == (False, "2.4 average depth, fewer than 2.5")


def test_each_index_is_a_case_of_its_own() -> None:
    """With its own cool-down and its own argument."""
    policy = Policy(index_refresh=IndexRefreshRule(not_indexed_blocks=5, arguments={"mode": "full"}))
    said = Said(index_a=9, index_b=4, index_c=9)
    cases = findings_of(policy, TABLE, said, {"index_refresh:index_c": RuleFired(at_ms=NOW_MS - 1, job_id="j")}, NOW_MS)
    assert {case.arguments["index"]: finding.due for case, finding in cases} == {
        "index_a": True,
        "index_b": False,
        "index_c": False,
    }
    assert cases[0][0].arguments == {"mode": "full", "index": "index_a"}
    assert said.measured == ["index_a", "index_b"], "what cools down is not measured"


@pytest.mark.parametrize(
    ("since_s", "due"), [(None, True), (59, False), (60, False), (3_599, False), (3_600, True), (9_999, True)]
)
def test_a_rule_by_time_is_due_when_its_last_job_is_that_long_ago(since_s: int | None, due: bool) -> None:
    """And at once when there was none."""
    fired = None if since_s is None else {"verify": NOW_MS - since_s * 1000}
    found = decided(Policy(verify=Rule(every_s=3_600, cool_down_s=60)), Said(), fired)
    assert found["verify"].due is due


def test_a_rule_cools_down_whatever_is_measured() -> None:
    """A job that could not help is not repeated at each check."""
    policy = Policy(vacuum=VacuumRule(snapshots=1, every_s=1, cool_down_s=100))
    for since_s, due in ((99, False), (100, True)):
        assert decided(policy, Said(snapshots=50), {"vacuum": NOW_MS - since_s * 1000})["vacuum"].due is due


def test_what_cannot_be_measured_decides_nothing() -> None:
    """It is not due by its threshold, says why, and does not keep other rules from theirs; its time still counts."""
    policy = Policy(
        compact=CompactRule(small_blocks=1),
        recluster=ReclusterRule(average_depth=1),
        vacuum=VacuumRule(snapshots=1, every_s=5),
        verify=Rule(every_s=5),
    )
    said = Said(
        small_blocks=StoreError("gone"), average_depth=Measurements(None, "no key"), snapshots=StoreError("gone")
    )
    found = decided(policy, said)
    assert [found[rule].due for rule in ("compact", "recluster", "vacuum", "verify")] == [False, False, True, True]
    assert found["compact"].reason == "could not be measured: gone"
    assert found["recluster"].reason == "could not be measured: no key"
