"""What happens beside a clean-up, at every step of it: no snapshot of the history ever loses an object."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lamella.snapshot.errors import (
    DeletionPending,
    LamellaError,
    ObjectNotFound,
    SnapshotExpired,
    StoreError,
    TableNotFound,
    Unavailable,
)
from lamella.snapshot.wire import VacuumRequest
from vacuum.lake import DAY, GRACE, HOUR, MIN_AGE, Lake

STEPS = 40


class Died(Exception):
    """The process that cleaned up is no more."""


def ready(lake: Lake) -> tuple[str, str]:
    """A table with snapshots that are to expire and a file that is garbage."""
    table_id = lake.table(f"t{lake.now_ms}")
    for _ in range(3):
        lake.now_ms += DAY
        lake.append(table_id)
    garbage = lake.file(table_id)
    lake.now_ms += 30 * DAY
    return table_id, garbage


def at_step(lake: Lake, number: int, act: Callable[[], object]) -> list[str]:
    """Let ``act`` happen before that step of the next clean-up; what it raised, or "done"."""
    outcome: list[str] = []
    left = number

    def hook(step: str, _location: str) -> None:
        nonlocal left
        if step == "put" or outcome:
            return
        left -= 1
        if left == 0:
            lake.store.hook = None
            try:
                act()
                outcome.append("done")
            except LamellaError as error:
                outcome.append(error.code)

    lake.store.hook = hook
    return outcome


def actions(lake: Lake, table_id: str, garbage: str) -> dict[str, Callable[[], object]]:
    """What others may do."""
    old = lake.history(table_id)[2]
    return {
        "append": lambda: lake.append(table_id),
        "remove": lambda: lake.commit(table_id, remove=[garbage_free(lake, table_id)]),
        "register garbage": lambda: lake.commit(table_id, add=[garbage]),
        "roll back": lambda: lake.rollback(table_id, old),
        "tag": lambda: lake.tag(table_id, "late", old),
        "lease": lambda: lake.lease(table_id, old, ttl_ms=HOUR),
        "clean up": lambda: lake.clean(table_id),
    }


def garbage_free(lake: Lake, table_id: str) -> str:
    """A block of the current snapshot."""
    return next(iter(lake.warehouse.block_locations(lake.history(table_id)[0].pointer)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["append", "remove", "register garbage", "roll back", "tag", "lease", "clean up"])
@pytest.mark.few(3)
def test_whatever_happens_at_any_step_the_history_stays_whole(lake: Lake, name: str) -> None:
    """At each step of a clean-up another request runs from start to end: it succeeds and keeps what it needs, or it is
    refused."""
    outcomes = set()
    for number in range(1, STEPS):
        table_id, garbage = ready(lake)
        outcome = at_step(lake, number, actions(lake, table_id, garbage)[name])
        lake.clean(table_id)
        lake.store.hook = None
        lake.verify(table_id)
        reached = bool(outcome)
        outcomes.update(outcome)
        lake.now_ms += 30 * DAY
        lake.clean(table_id)
        lake.verify(table_id)
        assert lake.folder(table_id) <= lake.needed(table_id)
        if not reached:
            break
    else:
        pytest.fail("the clean-up has more steps than were tried")
    expected = {
        "register garbage": {"done", "unavailable", "deletion_pending", "object_not_found"},
        "roll back": {"snapshot_expired"},
        "tag": {"snapshot_expired"},
        "lease": {"snapshot_expired"},
    }.get(name, {"done"})
    assert outcomes <= expected
    assert expected & {"done", "snapshot_expired"} <= outcomes


def test_tags_leases_and_the_current_snapshot_win_against_an_expiry_decided_before(lake: Lake) -> None:
    """The decision may be old by the time it is carried out; the transaction looks again."""
    table_id, _ = ready(lake)
    history = lake.history(table_id)
    lake.tag(table_id, "late", history[1])
    lake.lease(table_id, history[2], ttl_ms=HOUR)
    seqs = [entry.seq for entry in history]
    assert lake.catalog.expire_snapshots(table_id, seqs, now_ms=lake.now_ms) == [1]
    assert [entry.seq for entry in lake.history(table_id)] == [4, 3, 2]


def test_a_rollback_that_lost_to_the_expiry_is_refused(lake: Lake) -> None:
    """A rollback that read its snapshot before it expired does not become current afterwards."""
    table_id, _ = ready(lake)
    old = lake.history(table_id)[2]
    lake.catalog.expire_snapshots(table_id, [old.seq], now_ms=lake.now_ms)
    with pytest.raises(SnapshotExpired):
        lake.rollback(table_id, old)
    lake.clean(table_id)
    lake.verify(table_id)


def test_a_commit_slower_than_the_minimum_age_is_refused(lake: Lake) -> None:
    """Its segments may be gone: it fails cleanly and does not become current without them."""
    table_id, _ = ready(lake)
    file = lake.file(table_id)
    slow = lake.catalog.guard(table_id, [file], since_ms=lake.ids.new().int >> 80)
    entry = lake.commit(table_id, add=[file], stop_before_swap=True)
    lake.now_ms += 2 * MIN_AGE
    lake.clean(table_id)
    with pytest.raises(Unavailable):
        lake.catalog.advance(table_id, entry, guard=slow)
    lake.verify(table_id)


def test_a_slow_commit_is_left_alone_when_nothing_of_it_was_deleted(lake: Lake) -> None:
    """A clean-up that reached only older objects disturbs no commit."""
    table_id, _ = ready(lake)
    file = lake.file(table_id, external=True)
    guard = lake.catalog.guard(table_id, [file], since_ms=lake.ids.new().int >> 80)
    entry = lake.commit(table_id, add=[file], stop_before_swap=True)
    lake.now_ms += HOUR
    record = lake.catalog.table_by_id(table_id)
    lake.catalog.expire_snapshots(table_id, [1], now_ms=lake.now_ms)
    assert entry.seq == record.version + 1
    assert lake.catalog.advance(table_id, entry, guard=guard)
    lake.clean(table_id)
    lake.verify(table_id)


def test_a_file_cannot_be_registered_while_it_is_being_deleted(lake: Lake) -> None:
    """Neither a commit that begins after the condemnation nor one that looked at the file before it gets in."""
    table_id, garbage = ready(lake)
    early = lake.catalog.guard(table_id, [garbage], since_ms=lake.ids.new().int >> 80)
    entry = lake.commit(table_id, add=[garbage], stop_before_swap=True)

    def die(step: str, location: str) -> None:
        if step == "delete" and location == garbage:
            raise Died

    lake.store.hook = die
    with pytest.raises(Died):
        lake.clean(table_id)
    lake.store.hook = None
    with pytest.raises(DeletionPending) as caught:
        lake.commit(table_id, add=[garbage])
    assert caught.value.details == {"location": garbage}
    with pytest.raises(Unavailable):
        lake.catalog.advance(table_id, entry, guard=early)
    lake.clean(table_id)
    with pytest.raises(ObjectNotFound):
        lake.commit(table_id, add=[garbage])
    with pytest.raises(Unavailable):
        lake.catalog.advance(table_id, entry, guard=early)
    lake.verify(table_id)


def test_another_tables_commit_cannot_take_an_external_file_that_is_being_deleted(lake: Lake) -> None:
    """External files are condemned for all tables at once, also for those that looked at them before."""
    table_id, other = lake.table("one"), lake.table("two")
    file = lake.append(table_id, external=True)
    lake.commit(table_id, remove=[file])
    lake.now_ms += 30 * DAY
    guard = lake.catalog.guard(other, [file], since_ms=lake.ids.new().int >> 80)
    entry = lake.commit(other, add=[file], stop_before_swap=True)
    lake.clean(table_id, include_external_blocks=True)
    assert file not in lake.store.locations()
    with pytest.raises(Unavailable):
        lake.catalog.advance(other, entry, guard=guard)
    lake.verify(other)


@pytest.mark.parametrize("name", ["one", "two"])
def test_an_external_file_that_is_registered_again_in_time_stays(lake: Lake, name: str) -> None:
    """A commit that became current before the condemnation is seen by the last look."""
    tables = {"one": lake.table("one"), "two": lake.table("two")}
    file = lake.append(tables["one"], external=True)
    lake.commit(tables["one"], remove=[file])
    lake.now_ms += 30 * DAY
    outcome = at_step(lake, 1, lambda: lake.commit(tables[name], add=[file]))
    lake.clean(tables["one"])
    assert outcome == ["done"]
    lake.clean(tables["one"], include_external_blocks=True)
    assert file in lake.store.locations()
    lake.verify(tables[name])


def test_a_clean_up_that_died_is_finished_by_the_next(lake: Lake) -> None:
    """Killed at any step, it leaves a whole history; the next one deletes what it left."""
    for number in range(1, STEPS):
        table_id, _ = ready(lake)
        left = number

        def die(_step: str, _location: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Died

        lake.store.hook = die
        try:
            lake.clean(table_id)
            finished = True
        except Died:
            finished = False
        lake.store.hook = None
        lake.verify(table_id)
        lake.clean(table_id)
        lake.verify(table_id)
        assert lake.folder(table_id) <= lake.needed(table_id)
        assert lake.catalog.deletion_marks(table_id, after="", limit=10) == []
        if finished:
            return
    pytest.fail("the clean-up has more steps than were tried")


@pytest.mark.parametrize("execute", [True, False])
def test_a_clean_up_is_not_disturbed_by_one_that_expires_more(lake: Lake, execute: bool) -> None:
    """Whenever another clean-up deletes a snapshot that this one had found in the history, it is no damage."""
    for number in range(1, 2 * STEPS):
        table_id, garbage = ready(lake)
        orphan = lake.file(table_id)
        lake.now_ms += 2 * MIN_AGE
        left = number

        def other(_location: str, table_id: str = table_id) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                lake.clean(table_id, older_than="10d")
                assert [entry.seq for entry in lake.history(table_id)] == [4]

        lake.store.read_hook = other
        lake.clean(table_id, older_than="1000d", execute=execute)
        lake.store.read_hook = None
        lake.verify(table_id)
        if left > 0:
            break
        assert {garbage, orphan}.isdisjoint(lake.store.locations())
        assert lake.folder(table_id) <= lake.needed(table_id)
    else:
        pytest.fail("the clean-up reads more objects than were tried")


def test_external_files_of_snapshots_that_another_clean_up_deleted_are_named(lake: Lake) -> None:
    """Nothing says any more which files were theirs: the clean-up that expired them says so, and deletes none."""
    table_id = lake.table()
    file = lake.append(table_id, external=True)
    lake.commit(table_id, remove=[file])
    old = {entry.pointer.manifest.location for entry in lake.history(table_id)[1:]}
    lake.now_ms += 30 * DAY

    def other(_location: str) -> None:
        if [entry.seq for entry in lake.history(table_id)] == [3]:
            lake.store.read_hook = None
            lake.clean(table_id)

    lake.store.read_hook = other
    (done,) = lake.clean(table_id, include_external_blocks=True)
    assert {left.location for left in done.left} == old
    assert file in lake.store.locations()
    lake.verify(table_id)


def test_a_table_that_is_being_purged_cannot_be_undropped(lake: Lake) -> None:
    """The catalog decides first: from then on the table is gone, though its files are still there."""
    table_id, _ = ready(lake)
    name = lake.catalog.table_by_id(table_id).name
    lake.catalog.drop_table("db", name, now_ms=lake.now_ms)
    lake.now_ms += GRACE + 1
    tried = []

    def undrop(_step: str, _location: str) -> None:
        with pytest.raises(TableNotFound):
            lake.catalog.undrop_table(table_id, "db", name)
        tried.append(1)

    lake.store.hook = undrop
    lake.vacuum.purge_dropped(VacuumRequest(execute=True))
    lake.store.hook = None
    assert tried
    assert lake.folder(table_id) == set()


def test_a_store_that_fails_in_the_listing_deletes_nothing(lake: Lake) -> None:
    """Half a listing, or a manifest that cannot be read, is no ground to delete anything."""
    table_id, garbage = ready(lake)

    def fail(step: str, _location: str) -> None:
        if step == "list":
            raise StoreError("the test fails")

    lake.store.hook = fail
    with pytest.raises(StoreError):
        lake.clean(table_id)
    lake.store.hook = None
    lake.store.delete(lake.history(table_id)[0].pointer.manifest.location)
    deleted = list(lake.store.deleted)
    with pytest.raises(LamellaError):
        lake.clean(table_id)
    assert lake.store.deleted == deleted
    assert garbage in lake.store.locations()
