"""Schedules and policies in the catalog, over SQLite and PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from lamella.service.catalog import (
    AddedJob,
    JobFilter,
    JobRecord,
    PolicyRecord,
    RuleFired,
    ScheduleRecord,
    SqlCatalog,
    TableRecord,
    open_catalog,
)
from lamella.snapshot.errors import PolicyNotFound, ScheduleNotFound, TableNotFound
from lamella.snapshot.wire import NamespaceInfo
from support.job_records import IDS, new_table, queued

BACKENDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))
T = TypeVar("T")


@pytest.fixture(params=BACKENDS)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog with the namespace ``db``."""
    sqlite = request.param == "sqlite"
    url = str(tmp_path / "catalog.db") if sqlite else str(request.getfixturevalue("postgres_database"))
    catalog = open_catalog(url, connections=20)
    catalog.create_namespace(NamespaceInfo(name="db"), now_ms=1)
    yield catalog
    catalog.close()


def schedule(table: TableRecord, name: str = "nightly", **values: Any) -> ScheduleRecord:
    """A schedule that is due at 1000."""
    given = {
        "kind": "compact",
        "arguments": "{}",
        "time_zone": "UTC",
        "enabled": True,
        "created_ms": 5,
        "every_s": 60,
        "next_ms": 1_000,
    }
    return ScheduleRecord(**{"table_id": table.table_id, "name": name, **given, **values})


def pending(catalog: SqlCatalog) -> list[JobRecord]:
    """The jobs that are queued."""
    return catalog.jobs(JobFilter(states=("queued",)), before_id=None, limit=100)


def at_once(times: int, work: Callable[[], T]) -> list[T]:
    """What several threads get that begin together."""
    barrier = threading.Barrier(times)

    def begin() -> T:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(times) as pool:
        return [future.result() for future in [pool.submit(begin) for _ in range(times)]]


def test_schedules_are_stored_replaced_and_dropped(catalog: SqlCatalog) -> None:
    """By name within a table; a replaced one keeps when it was made and last asked."""
    table = new_table(catalog)
    other = schedule(table, "B", cron="0 3 * * *", every_s=None, time_zone="Europe/Berlin", priority=2, max_attempts=1)
    for each in (schedule(table), other):
        assert catalog.put_schedule(each) == each
    assert catalog.schedules(table.table_id) == [other, schedule(table)]
    fired = catalog.fire_schedule(schedule(table), queued(table), next_ms=2_000, now_ms=1_500)
    assert fired is not None
    replaced = catalog.put_schedule(schedule(table, kind="verify", created_ms=99, next_ms=7))
    assert (replaced.kind, replaced.created_ms, replaced.last_ms, replaced.next_ms) == ("verify", 5, 1_500, 7)
    assert replaced.last_job_id == fired.job_id
    catalog.drop_schedule(table.table_id, "B")
    with pytest.raises(ScheduleNotFound):
        catalog.drop_schedule(table.table_id, "B")
    assert catalog.schedules(table.table_id) == [replaced]
    catalog.drop_table("db", "t", now_ms=2)
    with pytest.raises(TableNotFound):
        catalog.put_schedule(schedule(table))


def test_due_schedules_are_those_of_live_tables_whose_time_has_come(catalog: SqlCatalog) -> None:
    """The longest due first, with the table's name as it is now; one that is not enabled has no time."""
    a, b = new_table(catalog, "a"), new_table(catalog, "b")
    catalog.put_schedule(schedule(a, "late", next_ms=900))
    catalog.put_schedule(schedule(a, "now"))
    catalog.put_schedule(schedule(a, "soon", next_ms=1_001))
    catalog.put_schedule(schedule(a, "off", enabled=False, next_ms=None))
    catalog.put_schedule(schedule(b, "gone"))
    catalog.drop_table("db", "b", now_ms=2)
    due = catalog.due_schedules(now_ms=1_000, limit=10)
    assert [(each.schedule.name, each.namespace, each.table_name) for each in due] == [
        ("late", "db", "a"),
        ("now", "db", "a"),
    ]
    assert [each.schedule.name for each in catalog.due_schedules(now_ms=1_000, limit=1)] == ["late"]


def test_a_schedule_asks_once_for_each_time(catalog: SqlCatalog) -> None:
    """However many ask at once; and it adds no job while the last one is pending."""
    table = new_table(catalog)
    seen = catalog.put_schedule(schedule(table))
    fired = at_once(6, lambda: catalog.fire_schedule(seen, queued(table, twin="x"), next_ms=61_000, now_ms=1_000))
    (job_id,) = {each.job_id for each in fired if each is not None}
    assert fired.count(None) == 5
    (then,) = catalog.schedules(table.table_id)
    assert (then.next_ms, then.last_ms, then.last_job_id) == (61_000, 1_000, job_id)
    again = catalog.fire_schedule(then, queued(table, twin="x"), next_ms=121_000, now_ms=61_000)
    assert again == AddedJob(job_id=job_id, is_new=False)
    assert len(pending(catalog)) == 1


def test_a_schedule_that_changed_meanwhile_does_not_ask_for_what_it_was(catalog: SqlCatalog) -> None:
    """Another kind, other arguments, or none at all any more."""
    table = new_table(catalog)
    seen = catalog.put_schedule(schedule(table))
    for change in ({"kind": "verify"}, {"arguments": '{"x":1}'}, {"next_ms": 2_000}):
        catalog.put_schedule(schedule(table, **change))
        assert catalog.fire_schedule(seen, queued(table), next_ms=9_000, now_ms=1_000) is None
    catalog.drop_schedule(table.table_id, "nightly")
    assert catalog.fire_schedule(seen, queued(table), next_ms=9_000, now_ms=1_000) is None
    assert pending(catalog) == []


def test_a_policy_is_stored_replaced_and_dropped(catalog: SqlCatalog) -> None:
    """One a table; a replaced one is due for a check, and its rules still cool down."""
    table = new_table(catalog)
    with pytest.raises(PolicyNotFound):
        catalog.policy(table.table_id)
    first = PolicyRecord(table_id=table.table_id, policy='{"a":1}', updated_ms=1)
    catalog.put_policy(first)
    assert catalog.policy(table.table_id) == first
    assert catalog.begin_check(first, now_ms=50)
    job = queued(table)
    done = catalog.end_check(table.table_id, began_ms=50, findings="[1]", jobs={"compact": job})
    assert done == {"compact": AddedJob(job_id=job.job_id, is_new=True)}
    fired = {"compact": RuleFired(at_ms=50, job_id=job.job_id)}
    checked = msgspec.structs.replace(first, checked_ms=50, findings="[1]", fired=fired)
    assert catalog.policy(table.table_id) == checked
    catalog.put_policy(PolicyRecord(table_id=table.table_id, policy='{"b":2}', updated_ms=2))
    assert catalog.policy(table.table_id) == msgspec.structs.replace(first, policy='{"b":2}', updated_ms=2, fired=fired)
    catalog.drop_policy(table.table_id)
    with pytest.raises(PolicyNotFound):
        catalog.drop_policy(table.table_id)
    catalog.drop_table("db", "t", now_ms=2)
    with pytest.raises(TableNotFound):
        catalog.put_policy(first)


def test_due_policies_are_those_of_live_tables_that_were_not_checked_for_long(catalog: SqlCatalog) -> None:
    """The longest ago first, those that never were before all."""
    tables = {name: new_table(catalog, name) for name in ("a", "b", "c", "gone")}
    records = {name: PolicyRecord(table_id=t.table_id, policy="{}", updated_ms=1) for name, t in tables.items()}
    for record in records.values():
        catalog.put_policy(record)
    assert catalog.begin_check(records["a"], now_ms=60)
    assert catalog.begin_check(records["b"], now_ms=50)
    catalog.drop_table("db", "gone", now_ms=2)

    def due(before_ms: int, limit: int = 10) -> list[str]:
        found = catalog.due_policies(checked_before_ms=before_ms, limit=limit)
        return [next(n for n, r in records.items() if r.table_id == each.table_id) for each in found]

    assert due(60) == ["c", "b", "a"]
    assert due(59) == ["c", "b"]
    assert due(60, limit=1) == ["c"]


def test_one_of_those_who_check_at_once_enqueues(catalog: SqlCatalog) -> None:
    """And its jobs are unique: a twin that is pending stands for what a rule asks."""
    table = new_table(catalog)
    seen = PolicyRecord(table_id=table.table_id, policy="{}", updated_ms=1)
    catalog.put_policy(seen)
    assert at_once(6, lambda: catalog.begin_check(seen, now_ms=10)).count(True) == 1
    twin = queued(table, kind="verify", twin="v")
    catalog.enqueue_job(twin, unique=False)
    jobs = {"compact": queued(table, twin="c"), "verify": queued(table, kind="verify", twin="v")}
    done = catalog.end_check(table.table_id, began_ms=10, findings="[]", jobs=jobs)
    assert done["verify"] == AddedJob(job_id=twin.job_id, is_new=False)
    assert done["compact"].is_new
    assert len(pending(catalog)) == 2


def test_a_check_of_a_policy_that_changed_meanwhile_does_nothing(catalog: SqlCatalog) -> None:
    """Replaced, dropped, or checked by another who thought this check was dead."""
    table = new_table(catalog)
    jobs = {"compact": queued(table)}
    seen = PolicyRecord(table_id=table.table_id, policy="{}", updated_ms=1)

    def replace() -> None:
        catalog.put_policy(msgspec.structs.replace(seen, updated_ms=2))

    def overtake() -> None:
        assert catalog.begin_check(catalog.policy(table.table_id), now_ms=20)

    def drop() -> None:
        catalog.drop_policy(table.table_id)

    for change in (replace, overtake, drop):
        catalog.put_policy(seen)
        assert catalog.begin_check(seen, now_ms=10)
        change()
        assert catalog.end_check(table.table_id, began_ms=10, findings="[]", jobs=jobs) == {}
    assert pending(catalog) == []
    assert not catalog.begin_check(seen, now_ms=30)


def test_a_forgotten_table_takes_its_schedules_and_policy_along(catalog: SqlCatalog) -> None:
    """Its jobs stay, as the record of what was done, until they are old."""
    table = new_table(catalog)
    catalog.put_schedule(schedule(table))
    catalog.put_policy(PolicyRecord(table_id=table.table_id, policy="{}", updated_ms=1))
    catalog.enqueue_job(queued(table), unique=False)
    catalog.drop_table("db", "t", now_ms=2, purge=True)
    assert catalog.forget_table(table.table_id)
    assert catalog.schedules(table.table_id) == []
    with pytest.raises(PolicyNotFound):
        catalog.policy(table.table_id)
    assert len(pending(catalog)) == 1
    found = catalog.claim_job(worker="w", kinds=None, lease_token=str(IDS.new()), lease_expires_ms=9, now_ms=8)
    assert found.job is None
    assert [job.state for job in found.orphaned] == ["failed"]
