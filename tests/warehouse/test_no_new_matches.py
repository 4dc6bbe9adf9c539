"""Changes that rest on no new row matching a filter, beside a plain model of what came since."""

from __future__ import annotations

from random import Random

import pytest

from lamella.snapshot.commit import Applied, ChangeSet, Request, apply_changes
from lamella.snapshot.errors import NewMatches, SchemaConflict
from lamella.snapshot.manifest import Block, SnapshotPointer
from lamella.snapshot.schema import Column, Schema, parse_type
from lamella.snapshot.schema.evolution import AddColumn
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import NoNewMatches

SCHEMA = Schema.assign([Column(name="a", type="int64")])
INT64 = parse_type("int64")


class History:
    """A table whose blocks are ranges of ``a``, and for each snapshot which (location, content) pairs it has."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.warehouse = Warehouse(FsspecStore(), f"memory://matches/{seed}", segment_blocks=4)
        pointer = self.warehouse.create("t", SCHEMA, now_ms=1)
        self.ranges: dict[tuple[str, str], tuple[int, int]] = {}
        self.states: list[tuple[SnapshotPointer, frozenset[tuple[str, str]]]] = [(pointer, frozenset())]
        self.contents = 0

    def block(self, location: str) -> Block:
        """A new file at a location."""
        low = self.rng.randint(0, 90)
        high = low + self.rng.choice([0, 3, 30])
        self.contents += 1
        content = f"c{self.contents}"
        self.ranges[location, content] = (low, high)
        stats = ColumnStats(min=to_bound(INT64, low), max=to_bound(INT64, high), null_count=0)
        return Block(location=location, row_count=2, file_size=1, content_id=content, col_stats={1: stats})

    def step(self) -> None:
        """Blocks that come, go, or are replaced in place; sometimes an older state again."""
        pointer, present = self.states[-1]
        if self.rng.random() < 0.15:
            target, then = self.rng.choice(self.states[:-1] or self.states)
            if target.snapshot_id != pointer.snapshot_id and then != present:
                # There are no files here that a rollback could look at, so the older blocks are committed again.
                refs = list(self.warehouse.segments(target))
                blocks = [block for ref in refs for block in self.warehouse.segment(ref).blocks]
                added = self.warehouse.prepare("t", SCHEMA, blocks)
                gone = [location for location, _ in present]
                pointer = self.warehouse.commit(pointer, added=added, removed=gone, now_ms=2).pointer
                self.states.append((pointer, then))
                return
        locations = sorted(location for location, _ in present)
        gone = self.rng.sample(locations, min(len(locations), self.rng.choice([0, 0, 1, 2])))
        names = {f"memory://b/{self.rng.randint(0, 40)}" for _ in range(self.rng.randint(0, 3))}
        coming = sorted(name for name in names if name not in locations or name in gone)
        blocks = [self.block(name) for name in coming]
        if not blocks and not gone:
            return
        added = self.warehouse.prepare("t", SCHEMA, blocks)
        pointer = self.warehouse.commit(pointer, added=added, removed=gone, now_ms=2).pointer
        left = {each for each in present if each[0] not in gone}
        made = {(block.location, str(block.content_id)) for block in blocks}
        self.states.append((pointer, frozenset(left | made)))

    def matching_new(self, base: int, low: int, high: int) -> set[str]:
        """The locations of blocks that are there now, were not then, and reach into the range."""
        (_, then), (_, now) = self.states[base], self.states[-1]
        return {
            location
            for location, content in now - then
            if self.ranges[location, content][0] <= high and self.ranges[location, content][1] >= low
        }


@pytest.mark.parametrize("seed", range(60))
def test_a_change_is_refused_exactly_when_a_new_block_may_match(seed: int) -> None:
    """Over histories with folds, removals, replaced files and older states: the blocks named are those of the model."""
    history = History(seed)
    rng = history.rng
    for _ in range(rng.randint(1, 25)):
        history.step()
    for _ in range(12):
        base = rng.randrange(len(history.states))
        low = rng.randint(0, 120)
        high = low + rng.choice([0, 10, 60])
        unwanted = NoNewMatches(filter=f"a BETWEEN {low} AND {high}")
        found = history.warehouse.new_matches(history.states[base][0], history.states[-1][0], unwanted)
        expected = history.matching_new(base, low, high)
        if expected:
            assert isinstance(found, NewMatches)
            assert set(found.details["blocks"]) == expected
            assert found.details["snapshot_id"] == history.states[-1][0].snapshot_id
        else:
            assert found is None


def test_other_columns_since_then_are_a_conflict_of_their_own() -> None:
    """Even when nothing else came."""
    warehouse = Warehouse(FsspecStore(), "memory://matches/schema")
    first = warehouse.create("t", SCHEMA, now_ms=1)
    changed = warehouse.evolve(first, [AddColumn(name="b", type="int64")], now_ms=2).pointer
    unwanted = NoNewMatches(filter="a = 1")
    assert isinstance(warehouse.new_matches(first, changed, unwanted), SchemaConflict)
    assert warehouse.new_matches(changed, changed, unwanted) is None


def test_such_a_change_is_not_made_behind_one_that_adds_blocks() -> None:
    """Of several change sets in one call, nobody knows yet what the earlier ones' blocks hold."""
    serial = Request(added=[], removed=["a"], is_serial=True)
    plain = Request(added=[("c", "n1")], removed=[])
    present = {"a": "s", "b": "s"}
    applied_changes = apply_changes(present, [plain, serial], known_schemas=[0], snapshot_id="base")
    assert isinstance(applied_changes.outcomes[0], Applied)
    assert isinstance(applied_changes.outcomes[1], NewMatches)
    assert applied_changes.removals == {}
    removing = Request(added=[], removed=["b"])
    assert all(
        isinstance(outcome, Applied)
        for outcome in apply_changes(present, [removing, serial], known_schemas=[0], snapshot_id="base").outcomes
    )
    assert all(
        isinstance(outcome, Applied)
        for outcome in apply_changes(present, [serial, plain], known_schemas=[0], snapshot_id="base").outcomes
    )


def test_a_call_with_several_change_sets_refuses_only_the_one_that_it_speaks_against() -> None:
    """The others land; each outcome is its own."""
    history = History(1_000)
    warehouse = history.warehouse
    base = history.states[-1][0]
    (one,) = warehouse.prepare("t", SCHEMA, [Block(location="memory://b/x", row_count=1, file_size=1)])
    now = warehouse.commit(base, added=[one], now_ms=2).pointer
    (two,) = warehouse.prepare("t", SCHEMA, [Block(location="memory://b/y", row_count=1, file_size=1)])
    unwanted = NoNewMatches(filter="a = 1")
    done = warehouse.commit_many(
        now,
        [
            ChangeSet(properties={"k": "v"}, read_at=base, no_new_matches=unwanted),
            ChangeSet(properties={"l": "w"}, read_at=now, no_new_matches=unwanted),
            ChangeSet(added=(two,)),
        ],
        now_ms=3,
    )
    assert [type(outcome) for outcome in done.outcomes] == [NewMatches, Applied, Applied]
    assert done.applied.snapshot.properties == {"l": "w"}
