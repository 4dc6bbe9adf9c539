"""The store that fails on purpose: each fault does what it says, when it is its turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lamella.snapshot.errors import StoreError
from lamella.snapshot.storage import FsspecStore
from support.faulty_store import Chance, Fault, FaultyStore, How, Script

ROOT = "memory://faulty"


@pytest.fixture
def store() -> FsspecStore:
    """An empty store."""
    inner = FsspecStore()
    for found in list(inner.list(ROOT)):
        inner.delete(found.location)
    return inner


@pytest.mark.parametrize(
    ("how", "left"), [("before", None), ("after", b"12"), ("partial", b"1"), ("full", None), ("denied", None)]
)
def test_a_put_that_fails_leaves_what_its_kind_says(store: FsspecStore, how: How, left: bytes | None) -> None:
    """Nothing, everything or half; and it is written down."""
    faulty = FaultyStore(store, Script([Fault(how=how, operation="put")]))
    with pytest.raises(StoreError):
        faulty.put(f"{ROOT}/x", b"12")
    assert [store.read(found.location) for found in store.list(ROOT)] == ([] if left is None else [left])
    assert faulty.happened == [("put", f"{ROOT}/x", how)]


def test_only_the_calls_that_a_script_names_fail(store: FsspecStore) -> None:
    """By operation, place and number; everything else goes through."""
    faulty = FaultyStore(store, Script([Fault(how="before", operation="put", within="/b", nth=2, times=2)]))
    for name in ("a1", "b1", "a2"):
        faulty.put(f"{ROOT}/{name}", b"x")
    for name in ("b2", "b3"):
        with pytest.raises(StoreError):
            faulty.put(f"{ROOT}/{name}", b"x")
    faulty.put(f"{ROOT}/b4", b"x")
    names = [found.location.rpartition("/")[2] for found in faulty.list(ROOT)]
    assert names == ["a1", "a2", "b1", "b4"]


def test_a_stale_listing_is_that_of_the_last_time(store: FsspecStore) -> None:
    """Nothing at first; then without what came, and with what went."""
    faulty = FaultyStore(store, Script([Fault(how="stale", operation="list", nth=1), Fault(how="stale", nth=5)]))
    store.put(f"{ROOT}/a", b"x")
    assert list(faulty.list(ROOT)) == []
    assert len(list(faulty.list(ROOT))) == 1
    faulty.put(f"{ROOT}/b", b"x")
    faulty.delete(f"{ROOT}/a")
    assert [found.location for found in faulty.list(ROOT)] == [f"{ROOT}/a"]
    assert [found.location for found in faulty.list(ROOT)] == [f"{ROOT}/b"]


@pytest.mark.parametrize(
    "call", [lambda s: s.read(f"{ROOT}/x"), lambda s: s.read_range(f"{ROOT}/x", 0, 4)], ids=["read", "read_range"]
)
def test_a_partial_read_gives_half_as_if_it_were_all(store: FsspecStore, call: Callable[[FaultyStore], bytes]) -> None:
    """No error: whoever reads has to notice."""
    store.put(f"{ROOT}/x", b"1234")
    faulty = FaultyStore(store, Script([Fault(how="partial")]))
    assert call(faulty) == b"12"
    assert call(faulty) == b"1234"


def test_a_partial_deletion_says_what_may_be_left(store: FsspecStore) -> None:
    """Half is gone, the rest has a reason."""
    locations = [f"{ROOT}/{name}" for name in "abcd"]
    for location in locations:
        store.put(location, b"x")
    faulty = FaultyStore(store, Script([Fault(how="partial", operation="delete_many")]))
    assert set(faulty.delete_many(locations)) == set(locations[2:])
    assert [found.location for found in store.list(ROOT)] == locations[2:]


def test_chance_is_the_same_for_the_same_seed(store: FsspecStore) -> None:
    """And leaves alone the operations that it is not for; slow calls wait and succeed."""
    waited: list[float] = []

    def run(seed: int) -> list[str]:
        chance = Chance(seed, {"slow": 0.3, "before": 0.3}, operations=["stat"], delay_s=0.5)
        faulty = FaultyStore(store, chance, sleep=waited.append)
        for _ in range(50):
            faulty.read(f"{ROOT}/x")
            try:
                faulty.stat(f"{ROOT}/x")
            except StoreError:
                continue
        return [how for _, _, how in faulty.happened]

    store.put(f"{ROOT}/x", b"x")
    assert run(1) == run(1) != run(2)
    assert set(run(1)) == {"slow", "before"}
    assert set(waited) == {0.5}
