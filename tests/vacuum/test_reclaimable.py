"""What a clean-up would free, from differences of neighbours: against sets of everything, and a dry run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from lamella.service.catalog import HistoryEntry
from lamella.snapshot.vacuum import Decision, Reclaimable, Tally, Version, reclaimable
from lamella.snapshot.wire import VacuumRequest
from vacuum.lake import DAY, Lake


@dataclass
class Past:
    """Snapshots, oldest first: their objects, and which of them are kept."""

    objects: list[frozenset[int]]
    is_retained: list[bool]
    returning: frozenset[int]
    seqs: list[int]

    def decisions(self) -> list[Decision]:
        """As a clean-up decides, newest first."""
        return [
            Decision(version=self._version(position), expires=not retained, reason="")
            for position, retained in reversed(list(enumerate(self.is_retained)))
        ]

    def _version(self, position: int) -> Version:
        return Version(seq=self.seqs[position], snapshot_id=str(position), timestamp_ms=position, superseded_ms=None)

    def left(self, first: Version, second: Version) -> Tally:
        """The objects of the first that the second lacks; the object ``n`` has 2 ** n bytes, so that sums tell."""
        gone = self.objects[int(first.snapshot_id)] - self.objects[int(second.snapshot_id)]
        return Tally(objects=len(gone), size_bytes=sum(1 << each for each in gone))

    def only_expired(self) -> int:
        """The bytes of what no kept snapshot has, by the definition."""
        retained = {
            each for objects, keep in zip(self.objects, self.is_retained, strict=True) if keep for each in objects
        }
        return sum(1 << each for each in {each for objects in self.objects for each in objects} - retained)


@st.composite
def pasts(draw: st.DrawFn, *, returns: bool) -> Past:
    """Random histories in which objects come and go; with ``returns`` there are rollbacks."""
    now: set[int] = set()
    fresh = 0
    objects: list[frozenset[int]] = []
    returning = set()
    for position in range(draw(st.integers(2, 12))):
        if returns and objects and draw(st.integers(0, 3)) == 0:
            now = set(draw(st.sampled_from(objects)))
            returning.add(position)
        else:
            now -= {each for each in now if draw(st.booleans())}
        count = draw(st.integers(1, 2))
        now |= set(range(fresh, fresh + count))
        fresh += count
        objects.append(frozenset(now))
    is_retained = [draw(st.booleans()) for _ in objects[1:]] + [True]
    return Past(objects, is_retained, frozenset(returning), list(range(len(objects))))


@given(pasts(returns=False))
@example(Past([frozenset({0}), frozenset({1}), frozenset({2})], [True, False, True], frozenset(), [0, 1, 2]))
@example(Past([frozenset({0, 1}), frozenset({1}), frozenset({1})], [True, False, True], frozenset(), [0, 1, 2]))
def test_without_rollbacks_it_is_what_only_expired_snapshots_have(past: Past) -> None:
    """Exactly, whichever snapshots are kept by tags, leases and age."""
    found = reclaimable(past.decisions(), past.left)
    assert found.min_bytes == found.max_bytes == past.only_expired()
    assert (found.snapshots, found.not_compared) == (past.is_retained.count(False), 0)


@given(pasts(returns=True))
@example(  # an object that was counted when it left is back in the current snapshot
    Past(
        [frozenset({0}), frozenset({0, 1}), frozenset({2}), frozenset({1, 3})],
        [False, False, False, True],
        frozenset({3}),
        [0, 1, 2, 3],
    )
)
def test_after_rollbacks_it_lies_between_the_limits(past: Past) -> None:
    """What a rollback brings back may be counted once more, and never less."""
    found = reclaimable(past.decisions(), past.left, returning=past.returning)
    assert found.max_bytes is not None
    assert found.min_bytes <= past.only_expired() <= found.max_bytes


@given(pasts(returns=True), st.data())
def test_a_gap_may_have_been_a_rollback(past: Past, data: st.DataObject) -> None:
    """Snapshots that have left the history took with them whether they were rollbacks; what is left is a history."""
    stay = [position for position in range(len(past.objects) - 1) if data.draw(st.booleans())] + [len(past.objects) - 1]
    rest = Past(
        [past.objects[position] for position in stay],
        [past.is_retained[position] for position in stay],
        past.returning,
        stay,
    )
    found = reclaimable(rest.decisions(), rest.left, returning=rest.returning)
    assert found.max_bytes is not None
    assert found.min_bytes <= rest.only_expired() <= found.max_bytes


@given(pasts(returns=True), st.data())
def test_what_was_not_compared_leaves_a_lower_limit(past: Past, data: st.DataObject) -> None:
    """There is no upper one then, and the number of comparisons that are left is told."""
    unknown = 0

    def left(first: Version, second: Version) -> Tally | None:
        nonlocal unknown
        if data.draw(st.booleans()):
            unknown += 1
            return None
        return past.left(first, second)

    found = reclaimable(past.decisions(), left, returning=past.returning)
    assert found.min_bytes <= past.only_expired()
    assert found.not_compared == unknown
    assert (found.max_bytes is None) == (unknown > 0)


def test_nothing_is_compared_while_nothing_is_expired() -> None:
    """A table whose snapshots are all kept costs nothing."""

    def fail(_first: Version, _second: Version) -> Tally:
        raise AssertionError("compared")

    past = Past([frozenset({0}), frozenset({1})], [True, True], frozenset(), [0, 1])
    assert reclaimable(past.decisions(), fail, returning={1}).max_bytes == 0


def test_it_is_what_a_dry_run_finds(lake: Lake) -> None:
    """Blocks, manifests, sidecars and folded segments of a real table; a tag keeps what its snapshot names.

    Segments that were folded by the commit that they were prepared for were in no snapshot; a clean-up deletes them
    whatever expires.
    """
    table_id = lake.table()
    files = [lake.append(table_id) for _ in range(7)]
    tagged = lake.commit(table_id, remove=files[:2])
    lake.tag(table_id, "kept", tagged)
    lake.commit(table_id, add=[lake.file(table_id), lake.file(table_id, external=True)], remove=files[2:5])
    lake.append(table_id)
    lake.commit(table_id, remove=files[5:])
    in_no_snapshot = 0
    for days in (3, 8):
        lake.now_ms += days * DAY
        entries = lake.catalog.whole_history(table_id)
        record = lake.catalog.table_by_id(table_id)
        found = reclaimable(lake.vacuum.preview_decisions(record, entries), _left_in(lake, entries))
        swept = lake.vacuum.vacuum(record, VacuumRequest()).deleted
        if days == 3:
            assert found == Reclaimable()
            in_no_snapshot = swept.size_bytes
        else:
            assert found.snapshots > 5
            assert found.min_bytes == found.max_bytes == swept.size_bytes - in_no_snapshot


def _left_in(lake: Lake, entries: Sequence[HistoryEntry]) -> Callable[[Version, Version], Tally]:
    pointers = {each.seq: each.pointer for each in entries}
    warehouse = lake.fresh_warehouse()

    def left(first: Version, second: Version) -> Tally:
        gone = warehouse.objects_left(pointers[first.seq], pointers[second.seq])
        return Tally(objects=gone.objects, size_bytes=gone.size_bytes)

    return left
