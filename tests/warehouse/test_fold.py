"""Several change sets on one base: the same as one after another, as far as each can be made."""

from __future__ import annotations

from random import Random

import pytest

from lamella.snapshot.commit import Applied, Request, apply_changes
from lamella.snapshot.errors import CommitConflict, DuplicateBlock, LamellaError, SchemaConflict


def one_after_another(base: dict[str, str], requests: list[Request]) -> tuple[dict[str, str], list[type]]:
    """A plain dict of location to segment, changed by each request that can be made; and what became of each."""
    table, fresh, kinds = dict(base), set[str](), list[type]()
    for request in requests:
        locations = [location for location, _ in request.added]
        wrong = set(request.removed).difference(table)
        if request.stale is not None:
            wrong.update(fresh.union(request.stale).intersection(request.removed))
        if wrong:
            kinds.append(CommitConflict)
        elif len(set(locations)) < len(locations) or set(locations).difference(request.removed).intersection(table):
            kinds.append(DuplicateBlock)
        else:
            for location in request.removed:
                del table[location]
            table.update(request.added)
            fresh.update(locations)
            kinds.append(Applied)
    return table, kinds


@pytest.mark.parametrize("seed", range(300))
@pytest.mark.few(60)
def test_many_change_sets_are_as_good_as_one_after_another(seed: int) -> None:
    """What lands, what does not, and which blocks are left in which segment, are those of a plain model."""
    rng = Random(seed)
    names = [f"b{number}" for number in range(rng.choice([3, 8, 20]))]
    base = {name: f"s{rng.randint(0, 3)}" for name in names if rng.random() < 0.6}
    requests = []
    for number in range(rng.randint(1, 6)):
        removed = rng.sample(names, rng.randint(0, 3))
        stale = frozenset(rng.sample(names, 1)) if rng.random() < 0.3 else None
        added = [(rng.choice(names), f"new{number}") for _ in range(rng.randint(0, 2))]
        requests.append(Request(added=added, removed=removed, stale=stale))
    table, kinds = one_after_another(base, requests)
    applied_changes = apply_changes(base, requests, known_schemas=[0], snapshot_id="base")
    assert [type(outcome) for outcome in applied_changes.outcomes] == kinds
    left = set(base.items())
    for request, outcome in zip(requests, applied_changes.outcomes, strict=True):
        if isinstance(outcome, Applied):
            left.update(request.added)
            assert (outcome.added, outcome.removed) == (len(request.added), len(request.removed))
    left -= {(location, segment) for segment, locations in applied_changes.removals.items() for location in locations}
    assert left == set(table.items())


def test_each_refused_change_set_says_why() -> None:
    """The error names the blocks, and leaves the others alone."""
    applied_changes = apply_changes(
        {"a": "s", "b": "s"},
        [
            Request(added=[("c", "n1")], removed=["a"]),
            Request(added=[("d", "n2")], removed=["b", "a"]),
            Request(added=[("c", "n3"), ("b", "n3")], removed=[]),
            Request(added=[], removed=["b"], stale=frozenset("b")),
            Request(added=[], removed=["c"], stale=frozenset()),
            Request(added=[("e", "n4")], removed=[], schema_ids=frozenset({0, 7})),
            Request(added=[("b", "n5")], removed=["b"]),
        ],
        known_schemas=[0],
        snapshot_id="base",
    )
    codes = [each.code if isinstance(each, LamellaError) else None for each in applied_changes.outcomes]
    conflict, doubled = CommitConflict.code, DuplicateBlock.code
    assert codes == [None, conflict, doubled, conflict, conflict, SchemaConflict.code, None]
    details = [each.details for each in applied_changes.outcomes if isinstance(each, LamellaError)]
    assert [each.get("blocks") for each in details] == [["a"], ["b", "c"], ["b"], ["c"], None]
    assert applied_changes.removals == {"s": {"a", "b"}}
