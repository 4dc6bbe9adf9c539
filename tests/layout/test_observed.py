"""What a listener is told of a store's calls; that the store behaves as before is in test_store_behaviour.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.errors import AlreadyExists, InvalidRequest, ObjectNotFound, StoreError
from lamella.snapshot.storage import FsspecStore, MappableStore
from lamella.snapshot.storage.observed import ObservedStore
from support.faulty_store import Fault, FaultyStore, Script
from support.told import Told


@pytest.fixture
def told() -> Told:
    """Who listens."""
    return Told()


def test_each_call_is_told_once_with_its_bytes(tmp_path: Path, told: Told) -> None:
    """Every operation of the port, in the order in which they ended."""
    store, root = ObservedStore(FsspecStore(), told), f"file://{tmp_path}/t"
    store.put(f"{root}/a.parquet", b"12345")
    assert store.read(f"{root}/a.parquet") == b"12345"
    assert store.read_range(f"{root}/a.parquet", 3, 10) == b"45"
    store.stat(f"{root}/a.parquet")
    store.expand(root)
    assert len(list(store.list(root))) == 1
    store.delete(f"{root}/a.parquet")
    assert store.delete_many([f"{root}/a.parquet"]) == {}
    assert told.calls == [
        ("put", "ok", 0, 5),
        ("read", "ok", 5, 0),
        ("read_range", "ok", 2, 0),
        ("stat", "ok", 0, 0),
        ("expand", "ok", 0, 0),
        ("list", "ok", 0, 0),
        ("delete", "ok", 0, 0),
        ("delete_many", "ok", 0, 0),
    ]
    assert all(took_s >= 0 for took_s in told.took_s)


def test_how_a_call_ended_is_told_in_a_few_words(tmp_path: Path, told: Told) -> None:
    """What is not there, what is there already, what is no location, and all else that fails; never where."""
    faulty = FaultyStore(FsspecStore(), Script([Fault(how="denied", operation="read", nth=2)]))
    store, place = ObservedStore(faulty, told), f"file://{tmp_path}/x"
    with pytest.raises(ObjectNotFound):
        store.read(place)
    with pytest.raises(StoreError):
        store.read(place)
    store.put(place, b"x")
    with pytest.raises(AlreadyExists):
        store.put(place, b"y")
    with pytest.raises(InvalidRequest):
        store.stat("ftp://x")
    faulty.faults = Script([Fault(how="before")])
    assert store.delete_many([place]) == {place: "the request failed"}
    assert [call[:2] for call in told.calls] == [
        ("read", "absent"),
        ("read", "failed"),
        ("put", "ok"),
        ("put", "exists"),
        ("stat", "refused"),
        ("delete_many", "failed"),
    ]


@given(st.integers(0, 8), st.integers(0, 8))
def test_a_listing_is_told_when_it_ends(objects: int, taken: int) -> None:
    """Once, and as left when not all of it was wanted; one that nobody began asked for nothing."""
    told, inner = Told(), FsspecStore()
    root = f"memory://listed{objects}"
    inner.delete_many([stat.location for stat in inner.list(root)])
    for number in range(objects):
        inner.put(f"{root}/{number}", b"")
    listing = ObservedStore(inner, told).list(root)
    got = [next(listing) for _ in range(min(taken, objects))]
    listing.close()  # type: ignore[attr-defined]  # it is a generator
    assert len(got) == min(taken, objects)
    assert [call[:2] for call in told.calls] == ([("list", "left")] if got else [])
    assert len(list(ObservedStore(inner, told).list(root))) == objects
    assert told.calls[-1][:2] == ("list", "ok")


def test_a_listing_that_fails_is_told_as_failed(told: Told) -> None:
    """At its beginning, which is the caller's, as well as behind some objects."""
    faulty = FaultyStore(FsspecStore(), Script([Fault(how="before", operation="list")]))
    with pytest.raises(StoreError):
        list(ObservedStore(faulty, told).list("memory://x"))
    with pytest.raises(InvalidRequest):
        ObservedStore(FsspecStore(), told).list("memory://x", start_after="file:///y")
    assert [call[:2] for call in told.calls] == [("list", "failed"), ("list", "refused")]


def test_it_can_do_what_the_store_can_do(tmp_path: Path, told: Told) -> None:
    """Files are mapped only through a store that knows their paths, and that is no call of object storage."""
    mappable = ObservedStore(FsspecStore(), told)
    assert isinstance(mappable, MappableStore)
    assert mappable.local_path(f"file://{tmp_path}/x") == f"{tmp_path}/x"
    assert not isinstance(ObservedStore(FaultyStore(FsspecStore()), told), MappableStore)
    assert told.calls == []
