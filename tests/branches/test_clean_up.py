"""Clean-ups of a table with branches: what any of them needs stays, and the rest goes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lamella.service.catalog import HistoryEntry, StoredAnswer
from lamella.snapshot.errors import CommitConflict, TableNotFound
from vacuum.lake import DAY, GRACE, HOUR, MIN_AGE, Lake

_WAITS = st.sampled_from([HOUR, DAY // 2, DAY, 3 * DAY, 8 * DAY])
_NAMES = st.sampled_from(["p", "q", "r"])


class Branched(RuleBasedStateMachine):
    """A table and up to three branches that are appended to, cut, moved, dropped and cleaned up.

    ``expected``: the blocks of each live head, by its id.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.lake = Lake(str(Path(self.folder.name) / "catalog.db"), max_age_ms=4 * DAY, segment_blocks=2)
        self.main = self.lake.table("t")
        self.heads: dict[str, str] = {"main": self.main}
        self.expected: dict[str, set[str]] = {self.main: set()}
        self.changed = True
        self.number = 0

    def teardown(self) -> None:
        """Give back the database."""
        self.lake.catalog.close()
        self.folder.cleanup()

    def head(self, data: st.DataObject) -> str:
        """A live head; something is about to change in it."""
        self.changed = True
        return self.heads[data.draw(st.sampled_from(sorted(self.heads)))]

    def snapshots(self) -> list[HistoryEntry]:
        """Everything in the histories of live heads."""
        return [entry for head in self.heads.values() for entry in self.lake.history(head)]

    @rule(data=st.data(), count=st.integers(1, 3))
    def append(self, data: st.DataObject, count: int) -> None:
        """New files become blocks."""
        head = self.head(data)
        files = [self.lake.file(head) for _ in range(count)]
        self.lake.commit(head, add=files)
        self.expected[head] |= set(files)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Some blocks leave."""
        head = self.head(data)
        if self.expected[head]:
            gone = data.draw(
                st.lists(st.sampled_from(sorted(self.expected[head])), min_size=1, max_size=3, unique=True)
            )
            self.lake.commit(head, remove=gone)
            self.expected[head] -= set(gone)

    @rule(data=st.data(), name=_NAMES, idle=st.sampled_from([None, 2 * DAY]))
    def branch(self, data: st.DataObject, name: str, idle: int | None) -> None:
        """A branch begins at any snapshot of any head; an old one of that name goes."""
        self.changed = True
        entry = data.draw(st.sampled_from(self.snapshots()))
        made = self.lake.branch(entry, name, replace=True, max_idle_ms=idle)
        old = self.heads.get(name)
        self.heads[name] = made
        self.expected[made] = set(self.lake.warehouse.block_locations(entry.pointer))
        if old is not None:
            del self.expected[old]

    @rule(name=_NAMES)
    def drop(self, name: str) -> None:
        """A branch goes."""
        if name in self.heads:
            head = self.heads.pop(name)
            self.lake.catalog.drop_branch(self.lake.catalog.table_by_id(head), now_ms=self.lake.now_ms)
            del self.expected[head]

    @rule(data=st.data())
    def fast_forward(self, data: st.DataObject) -> None:
        """A head gets what another one has, or is refused because it has more."""
        target, source = self.head(data), self.head(data)
        if target == source:
            return
        catalog = self.lake.catalog
        before = catalog.table_by_id(target).pointer
        to = catalog.table_by_id(source).pointer
        lineage = {entry.pointer.snapshot_id for entry in catalog.history(source, limit=1_000)}
        try:
            assert catalog.fast_forward(
                catalog.table_by_id(target), catalog.table_by_id(source), now_ms=self.lake.now_ms
            )
        except CommitConflict:
            assert before.snapshot_id not in lineage or before.snapshot_id == to.snapshot_id
            return
        assert before.snapshot_id in lineage
        assert catalog.table_by_id(target).pointer == to
        self.expected[target] = set(self.expected[source])

    @rule(data=st.data())
    def tag(self, data: st.DataObject) -> None:
        """A snapshot gets a name."""
        self.changed = True
        self.number += 1
        self.lake.tag(self.main, f"tag{self.number}", data.draw(st.sampled_from(self.snapshots())))

    @rule(data=st.data())
    def untag(self, data: st.DataObject) -> None:
        """A name goes."""
        names = [tag.name for tag in self.lake.catalog.tags(self.main, now_ms=self.lake.now_ms)]
        if names:
            self.lake.catalog.drop_tag(self.main, data.draw(st.sampled_from(names)), now_ms=self.lake.now_ms)

    @rule(ttl=_WAITS, data=st.data())
    def lease(self, ttl: int, data: st.DataObject) -> None:
        """A reader holds a snapshot for a while."""
        self.changed = True
        self.lake.lease(self.main, data.draw(st.sampled_from(self.snapshots())), ttl_ms=ttl)

    @rule(wait=_WAITS)
    def wait(self, wait: int) -> None:
        """Time passes."""
        self.lake.now_ms += wait

    @rule(data=st.data(), max_objects=st.sampled_from([1, 3, 1_000]))
    def clean_up(self, data: st.DataObject, max_objects: int) -> None:
        """What no head needs is gone then; what a tag or lease holds is there, also if its branch is not."""
        lake = self.lake
        where = self.head(data)
        pinned = {tag.snapshot_id for tag in lake.catalog.tags(self.main, now_ms=lake.now_ms)}
        pinned |= {lease.snapshot_id for lease in lake.catalog.leases(self.main, now_ms=lake.now_ms)}
        main_record = lake.catalog.table_by_id(where)
        lake.clean(main_record.main_id, cleaner=lake.cleaner(max_objects=max_objects))
        live = {self.main, *(each.record.table_id for each in lake.catalog.branches(self.main))}
        for name, head in list(self.heads.items()):
            if head not in live:  # it was idle for too long
                del self.heads[name], self.expected[head]
        for snapshot_id in pinned:
            lake.catalog.snapshot(self.main, snapshot_id)
        old = {
            found.location
            for found in lake.store.list(lake.warehouse.table_location(self.main))
            if found.modified_ms < lake.now_ms - MIN_AGE
        }
        assert old <= set().union(*(lake.needed(head) for head in lake.catalog.heads(self.main)))

    @precondition(lambda self: self.changed)
    @invariant()
    def every_snapshot_is_whole(self) -> None:
        """All that the histories need is there, and each head has its blocks."""
        for head in self.lake.catalog.heads(self.main):
            self.lake.verify(head)
        for head in self.heads.values():
            pointer = self.lake.catalog.table_by_id(head).pointer
            assert set(self.lake.warehouse.block_locations(pointer)) == self.expected[head]
        self.changed = False


TestBranched = Branched.TestCase
TestBranched.settings = settings(
    max_examples=15, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A warehouse whose time the test moves."""
    return Lake(str(tmp_path / "catalog.db"), max_age_ms=4 * DAY)


def test_a_snapshot_that_a_fast_forward_superseded_has_its_time(lake: Lake) -> None:
    """It was current until then, whenever the branch's commits were made: readers may still read its blocks."""
    main = lake.table()
    first = lake.append(main)
    branch = lake.branch(lake.history(main)[0], "p")
    lake.commit(branch, remove=[first])
    lake.append(branch)
    lake.now_ms += 8 * DAY
    lake.catalog.fast_forward(lake.catalog.table_by_id(main), lake.catalog.table_by_id(branch), now_ms=lake.now_ms)
    lake.now_ms += HOUR
    lake.clean(main)
    assert first in lake.store.locations()
    lake.now_ms += 5 * DAY
    lake.clean(main)
    assert first not in lake.store.locations()


def test_a_fast_forward_that_lost_a_race_stores_no_answer(lake: Lake) -> None:
    """Its request is tried again with the same key."""
    main = lake.table()
    branch = lake.branch(lake.history(main)[0], "p")
    lake.append(branch)
    seen = lake.catalog.table_by_id(branch)
    lake.append(branch)
    answer = StoredAnswer(key="k", scope="POST /x", request_sha256="a", status=200, body=b"{}", created_at_ms=1)
    target = lake.catalog.table_by_id(main)
    assert not lake.catalog.fast_forward(target, seen, now_ms=lake.now_ms, remember=answer)
    assert lake.catalog.answer("k", "POST /x") is None
    current = lake.catalog.table_by_id(branch)
    assert lake.catalog.fast_forward(target, current, now_ms=lake.now_ms, remember=answer)
    assert lake.catalog.answer("k", "POST /x") == answer
    assert lake.catalog.table_by_id(main).pointer == current.pointer


def test_an_idle_branch_is_dropped_and_its_files_go_after_the_grace_period(lake: Lake) -> None:
    """Its age counts from its last commit."""
    main = lake.table()
    lake.append(main)
    branch = lake.branch(lake.history(main)[0], "p", max_idle_ms=2 * DAY)
    lake.now_ms += 2 * DAY - HOUR
    own = lake.append(branch)
    lake.now_ms += 2 * DAY - HOUR
    lake.clean(main)
    assert [each.name for each in lake.catalog.branches(main)] == ["p"]
    lake.now_ms += HOUR
    lake.clean(main)
    assert lake.catalog.branches(main) == []
    lake.clean(main)
    assert own in lake.store.locations()
    with pytest.raises(TableNotFound):
        lake.append(branch)
    lake.now_ms += GRACE + HOUR
    lake.clean(main)
    assert own not in lake.store.locations()
    assert lake.catalog.heads(main) == [main]


def test_a_dry_run_counts_what_a_clean_up_deletes(lake: Lake) -> None:
    """With branches as without."""
    main = lake.table()
    gone = lake.append(main)
    branch = lake.branch(lake.history(main)[0], "p")
    lake.commit(branch, remove=[gone])
    lake.commit(main, remove=[gone])
    lake.now_ms += 8 * DAY
    (dry,) = lake.clean(main, execute=False)
    assert gone in lake.store.locations()
    (done,) = lake.clean(main)
    assert gone not in lake.store.locations()
    assert dry.garbage == done.garbage
    assert {each.branch for each in dry.snapshots} == {None, "p"}
