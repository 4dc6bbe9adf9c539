"""Random histories with clean-ups at random times, against what must hold of every one of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from vacuum.lake import DAY, HOUR, MIN_AGE, Lake

_WAITS = st.sampled_from([HOUR, DAY // 2, DAY, 3 * DAY, 8 * DAY])


class Histories(RuleBasedStateMachine):
    """Two tables of one warehouse that are appended to, cut, tagged, leased, rolled back and cleaned up."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.lake = Lake(str(Path(self.folder.name) / "catalog.db"), max_age_ms=4 * DAY, segment_blocks=2)
        self.tables = [self.lake.table("a"), self.lake.table("b")]
        self.shared: list[str] = []
        self.changed = True
        self.number = 0

    def teardown(self) -> None:
        """Give back the database."""
        self.lake.catalog.close()
        self.folder.cleanup()

    def table(self, which: int) -> str:
        """One of the tables; something is about to change in it."""
        self.changed = True
        return self.tables[which]

    def blocks(self, table_id: str) -> list[str]:
        """The blocks of the current snapshot."""
        pointer = self.lake.history(table_id)[0].pointer
        return sorted(self.lake.warehouse.block_locations(pointer))

    @rule(which=st.integers(0, 1), count=st.integers(1, 4), external=st.booleans())
    def append(self, which: int, count: int, external: bool) -> None:
        """New files become blocks; external ones may be registered elsewhere later."""
        table_id = self.table(which)
        files = [self.lake.file(table_id, external=external) for _ in range(count)]
        self.lake.commit(table_id, add=files)
        self.shared += files if external else []

    @rule(which=st.integers(0, 1), data=st.data())
    def register_again(self, which: int, data: st.DataObject) -> None:
        """A file that another table, or an earlier snapshot, has had."""
        table_id = self.table(which)
        free = [f for f in self.shared if f in self.lake.store.locations() and f not in self.blocks(table_id)]
        if free:
            self.lake.commit(table_id, add=[data.draw(st.sampled_from(free))])

    @rule(which=st.integers(0, 1), data=st.data())
    def remove(self, which: int, data: st.DataObject) -> None:
        """Some blocks leave."""
        table_id = self.table(which)
        present = self.blocks(table_id)
        if present:
            gone = data.draw(st.lists(st.sampled_from(present), min_size=1, max_size=3, unique=True))
            self.lake.commit(table_id, remove=gone)

    @rule(which=st.integers(0, 1))
    def abandon(self, which: int) -> None:
        """A commit dies before its swap."""
        table_id = self.table(which)
        self.lake.commit(table_id, add=[self.lake.file(table_id)], stop_before_swap=True)

    @rule(which=st.integers(0, 1), data=st.data())
    def tag(self, which: int, data: st.DataObject) -> None:
        """A snapshot of the history gets a name."""
        table_id = self.table(which)
        self.number += 1
        self.lake.tag(table_id, f"tag{self.number}", data.draw(st.sampled_from(self.lake.history(table_id))))

    @rule(which=st.integers(0, 1), data=st.data())
    def untag(self, which: int, data: st.DataObject) -> None:
        """A name goes."""
        table_id = self.table(which)
        names = [tag.name for tag in self.lake.catalog.tags(table_id, now_ms=self.lake.now_ms)]
        if names:
            self.lake.catalog.drop_tag(table_id, data.draw(st.sampled_from(names)), now_ms=self.lake.now_ms)

    @rule(which=st.integers(0, 1), ttl=_WAITS, data=st.data())
    def lease(self, which: int, ttl: int, data: st.DataObject) -> None:
        """A reader holds a snapshot for a while."""
        table_id = self.table(which)
        self.lake.lease(table_id, data.draw(st.sampled_from(self.lake.history(table_id))), ttl_ms=ttl)

    @rule(which=st.integers(0, 1), data=st.data())
    def roll_back(self, which: int, data: st.DataObject) -> None:
        """An old snapshot's blocks are current again."""
        table_id = self.table(which)
        target = data.draw(st.sampled_from(self.lake.history(table_id)))
        if {*self.lake.warehouse.block_locations(target.pointer)} != {*self.blocks(table_id)}:
            self.lake.rollback(table_id, target)

    @rule(wait=_WAITS)
    def wait(self, wait: int) -> None:
        """Time passes."""
        self.lake.now_ms += wait

    @rule(which=st.integers(0, 1), external=st.booleans(), max_objects=st.sampled_from([1, 3, 1_000]))
    def clean_up(self, which: int, external: bool, max_objects: int) -> None:
        """What is unreferenced and old is gone then, and nothing else; what a tag or lease holds is in the history."""
        lake, table_id = self.lake, self.table(which)
        pinned = {tag.seq for tag in lake.catalog.tags(table_id, now_ms=lake.now_ms)}
        pinned |= {lease.seq for lease in lake.catalog.leases(table_id, now_ms=lake.now_ms)}
        before = {entry.seq for entry in lake.history(table_id)}
        others = lake.store.locations() - lake.folder(table_id)
        lake.clean(table_id, cleaner=lake.cleaner(max_objects=max_objects), include_external_blocks=external)
        after = {entry.seq for entry in lake.history(table_id)}
        assert pinned | {max(before)} <= after <= before
        old = {
            found.location
            for found in lake.store.list(lake.warehouse.table_location(table_id))
            if found.modified_ms < lake.now_ms - MIN_AGE
        }
        assert old <= lake.needed(table_id)
        if not external:
            assert others <= lake.store.locations()

    @precondition(lambda self: self.changed)
    @invariant()
    def every_snapshot_is_whole(self) -> None:
        """All that the histories need is there."""
        for table_id in self.tables:
            self.lake.verify(table_id)
        self.changed = False


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=12, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
