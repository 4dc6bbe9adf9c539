"""What a clean-up deletes, what it keeps, and what it says."""

from __future__ import annotations

import pytest

from lamella.service.catalog import TableRecord
from lamella.snapshot.errors import InvalidPageToken, InvalidRequest, SnapshotExpired
from lamella.snapshot.wire import VacuumAnswer, VacuumRequest, merged_vacuum
from vacuum.lake import DAY, GRACE, HOUR, MIN_AGE, Lake


def grown(lake: Lake) -> str:
    """A table of three appends, a day apart."""
    table_id = lake.table()
    for _ in range(3):
        lake.now_ms += DAY
        lake.append(table_id)
    return table_id


def test_a_dry_run_touches_nothing_and_says_what_it_would_do(lake: Lake) -> None:
    """Without execute the store and the history are as before, and the counts are those of the run that follows."""
    table_id = grown(lake)
    lake.now_ms += 30 * DAY
    before, history = lake.store.locations(), lake.history(table_id)
    (said,) = lake.clean(table_id, execute=False)
    assert lake.store.locations() == before
    assert lake.history(table_id) == history
    (done,) = lake.clean(table_id)
    assert done.garbage == said.garbage
    assert [disposition.expires for disposition in said.snapshots] == [
        disposition.expires for disposition in done.snapshots
    ]
    assert said.deleted.objects == len(before) - len(lake.store.locations()) > 0
    assert not said.executed
    assert done.executed


def test_old_snapshots_expire_and_their_objects_go(lake: Lake) -> None:
    """After its age only the current snapshot is left, with exactly what it needs; expired ones are not there."""
    table_id = grown(lake)
    old = lake.history(table_id)[1]
    lake.now_ms += 30 * DAY
    (done,) = lake.clean(table_id)
    assert [disposition.reason for disposition in done.snapshots][:1] == ["it is the current one"]
    assert [entry.seq for entry in lake.history(table_id)] == [4]
    assert lake.folder(table_id) <= lake.needed(table_id)
    lake.verify(table_id)
    with pytest.raises(SnapshotExpired):
        lake.catalog.snapshot(table_id, old.pointer.snapshot_id)


def test_age_counts_from_when_a_snapshot_was_superseded(lake: Lake) -> None:
    """A snapshot that was current until a moment ago stays its whole age, however long ago it was made."""
    table_id = grown(lake)
    lake.now_ms += 300 * DAY
    lake.append(table_id)
    lake.clean(table_id)
    assert [entry.seq for entry in lake.history(table_id)] == [5, 4]
    lake.now_ms += 7 * DAY
    lake.clean(table_id)
    assert [entry.seq for entry in lake.history(table_id)] == [5]


def test_the_minimum_age_protects_what_was_current_within_it(lake: Lake) -> None:
    """No retention, however short, expires what a reader may have been told of within the minimum age."""
    table_id = grown(lake)
    lake.now_ms += MIN_AGE - 1
    lake.clean(table_id, older_than="0s")
    assert [entry.seq for entry in lake.history(table_id)] == [4, 3]


def test_a_table_has_a_retention_of_its_own(lake: Lake) -> None:
    """Its properties come before the service's defaults, and older_than before both ages."""
    properties = {"lamella__retention__max_age": "1000d", "lamella__retention__min_snapshots": "2"}
    table_id = lake.table(**properties)
    for _ in range(3):
        lake.now_ms += DAY
        lake.append(table_id)
    lake.now_ms += 100 * DAY
    lake.clean(table_id)
    assert len(lake.history(table_id)) == 4
    (done,) = lake.clean(table_id, older_than="50d")
    assert [entry.seq for entry in lake.history(table_id)] == [4, 3]
    assert done.snapshots[1].reason == "among the newest 2"


def test_a_table_can_be_exempt(lake: Lake) -> None:
    """With clean-up switched off nothing expires and nothing is deleted, garbage or not."""
    table_id = lake.table(lamella__vacuum__enabled="false")
    lake.append(table_id)
    lake.file(table_id)
    lake.append(table_id)
    lake.now_ms += 100 * DAY
    before = lake.store.locations()
    (done,) = lake.clean(table_id)
    assert lake.store.locations() == before
    assert len(lake.history(table_id)) == 3
    assert done.deleted.objects == 0


def test_tags_and_leases_hold_a_snapshot(lake: Lake) -> None:
    """They hold it with all its objects until they end; a lease ends by itself."""
    table_id = grown(lake)
    tagged, leased = lake.history(table_id)[2], lake.history(table_id)[1]
    lake.now_ms += 30 * DAY
    lake.tag(table_id, "audit", tagged)
    lake.lease(table_id, leased, ttl_ms=HOUR)
    (done,) = lake.clean(table_id)
    assert [entry.seq for entry in lake.history(table_id)] == [4, 3, 2]
    reasons = {disposition.snapshot_id: disposition.reason for disposition in done.snapshots}
    assert reasons[tagged.pointer.snapshot_id] == "tag audit"
    assert reasons[leased.pointer.snapshot_id] == "leased by reader"
    lake.verify(table_id)
    lake.now_ms += 2 * HOUR
    lake.clean(table_id)
    assert [entry.seq for entry in lake.history(table_id)] == [4, 2]
    lake.verify(table_id)


def test_orphans_go_when_they_are_old_enough(lake: Lake) -> None:
    """What a commit left that never became current stays for the minimum age, and then goes."""
    table_id = grown(lake)
    orphan = lake.file(table_id)
    lake.commit(table_id, add=[orphan], stop_before_swap=True)
    lake.now_ms += MIN_AGE - 1
    lake.clean(table_id)
    assert orphan in lake.store.locations()
    lake.now_ms += 10
    (done,) = lake.clean(table_id)
    assert orphan not in lake.store.locations()
    assert lake.folder(table_id) <= lake.needed(table_id)
    assert done.garbage["block"].objects == 1


def test_the_stores_time_protects_too(lake: Lake) -> None:
    """An object whose name is old but which was written just now is left alone."""
    table_id = grown(lake)
    name = f"{lake.warehouse.table_location(table_id)}/_sg/{lake.ids.new()}_v1.json"
    lake.now_ms += 30 * DAY
    lake.store.put(name, b"late")
    (done,) = lake.clean(table_id)
    assert name in lake.store.locations()
    assert done.young.objects == 1


@pytest.mark.parametrize(
    "name",
    [
        "readme.txt",
        "_b/part-00000.parquet",
        "_b/0192aaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee_v1.parquet",
        "_sg/{id}_v9.json",
        "_sg/{id}_v1.toast",
        "_new/{id}_v1.json",
        "_sg/deeper/{id}_v1.json",
        "_sg/{id}_v1.json.bak",
    ],
)
def test_names_that_are_not_understood_are_never_touched(lake: Lake, name: str) -> None:
    """They are reported, however old they are."""
    table_id = grown(lake)
    location = f"{lake.warehouse.table_location(table_id)}/{name.format(id=lake.ids.new())}"
    lake.store.put(location, b"?")
    lake.now_ms += 1_000 * DAY
    (done,) = lake.clean(table_id)
    assert location in lake.store.locations()
    assert done.unknowns == (location,)


def test_what_a_put_left_behind_goes(lake: Lake) -> None:
    """The temporary file of a put that died is known by its name, also beside an object that is needed."""
    table_id = grown(lake)
    manifest = lake.history(table_id)[0].pointer.manifest.location
    folder, _, name = manifest.rpartition("/")
    lake.store.put(f"{folder}/.{name}.{'0' * 32}.tmp", b"half")
    lake.now_ms += 2 * DAY
    (done,) = lake.clean(table_id)
    assert done.garbage["temporary"].objects == 1
    assert manifest in lake.store.locations()


def test_a_table_never_sees_its_neighbours(lake: Lake) -> None:
    """A folder whose name begins with the table's id is another folder, whatever is in it."""
    table_id = grown(lake)
    root = lake.warehouse.table_location(table_id)
    beside = [f"{root}-2/_sg/{lake.ids.new()}_v1.json", f"{root}2/_b/{lake.ids.new()}_v1.parquet"]
    for location in beside:
        lake.store.put(location, b"theirs")
    other = lake.table("other")
    theirs = lake.folder(other)
    lake.now_ms += 1_000 * DAY
    lake.clean(table_id)
    assert set(beside) | theirs <= lake.store.locations()


def test_a_table_at_another_location_is_refused(lake: Lake) -> None:
    """The folder must be the one that this warehouse gives the table."""
    table_id = grown(lake)
    record = lake.catalog.table_by_id(table_id)
    moved = TableRecord(
        table_id=table_id,
        namespace=record.namespace,
        name=record.name,
        location="memory://elsewhere",
        version=record.version,
        pointer=record.pointer,
        created_at_ms=record.created_at_ms,
    )
    with pytest.raises(InvalidRequest, match="not its folder"):
        lake.vacuum.vacuum(moved, VacuumRequest(execute=True))


def test_parts_together_do_what_one_does(lake: Lake) -> None:
    """However few objects a part looks at, the parts say and do what one would."""
    table_id = grown(lake)
    for _ in range(5):
        lake.file(table_id)
    lake.now_ms += 30 * DAY
    (whole,) = lake.clean(table_id, execute=False)
    for execute in (False, True):
        parts = lake.clean(table_id, cleaner=lake.cleaner(max_objects=2), execute=execute)
        together = merged_vacuum(parts)
        assert len(parts) > 5
        assert together.garbage == whole.garbage
        assert together.live == whole.live
        assert together.snapshots == whole.snapshots
    assert lake.folder(table_id) <= lake.needed(table_id)
    lake.verify(table_id)


def test_a_token_of_another_table_is_refused(lake: Lake) -> None:
    """A token cannot lead a clean-up out of its table's folder."""
    first, second = grown(lake), lake.table("second")
    (part, *_) = lake.clean(first, cleaner=lake.cleaner(max_objects=1), execute=False)
    for token in (part.next_page_token, "nonsense", ""):
        with pytest.raises(InvalidPageToken):
            lake.vacuum.vacuum(lake.catalog.table_by_id(second), VacuumRequest(page_token=token))


def test_what_could_not_be_deleted_is_tried_again(lake: Lake) -> None:
    """A failure is reported and stays on the list; the next run deletes it."""
    table_id = grown(lake)
    stubborn, other = lake.file(table_id), lake.file(table_id)
    lake.now_ms += 2 * DAY
    lake.store.refusing.add(stubborn)
    (done,) = lake.clean(table_id)
    assert [left.location for left in done.left] == [stubborn]
    assert other not in lake.store.locations()
    lake.store.refusing.clear()
    lake.clean(table_id)
    assert stubborn not in lake.store.locations()
    assert lake.catalog.deletion_marks(table_id, after="", limit=10) == []


def test_external_blocks_stay_unless_requested(lake: Lake) -> None:
    """A registered file outside of the folder goes only when asked, and only when no table needs it."""
    table_id, other = lake.table("one"), lake.table("two")
    gone, shared, stays = (lake.file(table_id, external=True) for _ in range(3))
    lake.commit(table_id, add=[gone, shared, stays])
    lake.commit(other, add=[shared])
    lake.commit(table_id, remove=[gone, shared])
    lake.now_ms += 30 * DAY
    lake.commit(other, remove=[shared])  # an older snapshot of the other table still has it
    (said,) = lake.clean(table_id, execute=False, include_external_blocks=True)
    assert said.garbage["external"].objects == 1
    (done,) = lake.clean(table_id, include_external_blocks=True)
    assert done.garbage["external"].objects == 1
    assert {gone, shared, stays} & lake.store.locations() == {shared, stays}
    lake.verify(table_id)
    lake.verify(other)


def test_without_the_request_external_blocks_outlive_their_snapshots(lake: Lake) -> None:
    """The default never deletes what Lamella did not write."""
    table_id = lake.table()
    gone = lake.append(table_id, external=True)
    lake.commit(table_id, remove=[gone])
    lake.now_ms += 30 * DAY
    lake.clean(table_id)
    assert gone in lake.store.locations()


@pytest.mark.slow
def test_an_external_file_that_was_replaced_stays(lake: Lake) -> None:
    """Another file at the same place is not the one that was registered."""
    table_id = lake.table()
    gone = lake.append(table_id, external=True)
    lake.commit(table_id, remove=[gone])
    lake.store.delete(gone)
    lake.now_ms += 30 * DAY
    lake.store.put(gone, b"other rows")
    (done,) = lake.clean(table_id, include_external_blocks=True)
    assert gone in lake.store.locations()
    assert "another file" in done.left[0].reason


def test_a_dropped_table_goes_after_its_grace(lake: Lake) -> None:
    """Until then it can be undropped whole; afterwards its folder is empty and the catalog has forgotten it."""
    table_id, other = grown(lake), lake.table("other")
    before, theirs = lake.folder(table_id), lake.folder(other)
    lake.now_ms += 2 * DAY
    lake.catalog.drop_table("db", "t", now_ms=lake.now_ms)
    lake.now_ms += GRACE - 1
    assert lake.vacuum.purge_dropped(VacuumRequest(execute=True)).tables == ()
    assert lake.folder(table_id) == before
    lake.now_ms += 2
    said = lake.vacuum.purge_dropped(VacuumRequest())
    assert lake.folder(table_id) == before
    done = lake.vacuum.purge_dropped(VacuumRequest(execute=True))
    assert said.tables == done.tables == (table_id,)
    assert said.garbage == done.garbage
    assert lake.folder(table_id) == set()
    assert lake.folder(other) == theirs
    assert lake.catalog.dropped_before(lake.now_ms) == []


def test_a_dropped_table_goes_with_its_external_files_in_parts(lake: Lake) -> None:
    """A later part finds manifests deleted whose external files an earlier part condemned, and goes on."""
    table_id = lake.table()
    files = {lake.append(table_id, external=True) for _ in range(4)}
    lake.catalog.drop_table("db", "t", now_ms=lake.now_ms)
    lake.now_ms += GRACE + DAY
    parts: list[VacuumAnswer] = []
    while not parts or parts[-1].next_page_token is not None:
        request = VacuumRequest(execute=True, include_external_blocks=True)
        parts.append(lake.cleaner(max_objects=3).purge_dropped(request))
    assert len(parts) > 3
    assert not any(part.left for part in parts)
    assert files.isdisjoint(lake.store.locations())
    assert lake.folder(table_id) == set()
    assert lake.catalog.dropped_before(lake.now_ms) == []


def test_a_lease_holds_a_dropped_table(lake: Lake) -> None:
    """A reader that leased a snapshot before the drop keeps its files."""
    table_id = grown(lake)
    before = lake.folder(table_id)
    lake.lease(table_id, lake.history(table_id)[0], ttl_ms=10 * DAY)
    lake.catalog.drop_table("db", "t", now_ms=lake.now_ms)
    lake.now_ms += GRACE + DAY
    done = lake.vacuum.purge_dropped(VacuumRequest(execute=True))
    assert lake.folder(table_id) == before
    assert done.left[0].reason == "leased by reader"
    lake.now_ms += 10 * DAY
    lake.vacuum.purge_dropped(VacuumRequest(execute=True))
    assert lake.folder(table_id) == set()
