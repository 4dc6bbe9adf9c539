"""What a listener is told of a store's calls; that the store behaves as before is in test_store_behaviour.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.errors import AlreadyExists, InvalidRequest, ObjectNotFound, StoreError
from lamella.snapshot.storage import FsspecStore, MappableStore
from lamella.snapshot.storage.observed import ObservedStore
from support.call_log import CallLog
from support.faulty_store import Fault, FaultyStore, Script


@pytest.fixture
def call_log() -> CallLog:
    """Who listens."""
    return CallLog()


def test_each_call_is_reported_once_with_its_bytes(tmp_path: Path, call_log: CallLog) -> None:
    """Every operation of the port, in the order in which they ended."""
    store, root = ObservedStore(FsspecStore(), call_log), f"file://{tmp_path}/t"
    store.put(f"{root}/a.parquet", b"12345")
    assert store.read(f"{root}/a.parquet") == b"12345"
    assert store.read_range(f"{root}/a.parquet", 3, 10) == b"45"
    stat = store.stat(f"{root}/a.parquet")
    assert store.stat_many([stat.location]) == {stat.location: stat}
    read_bytes = sum(len(data) for _, data in store.read_cached_ends([stat.location], 3).values())
    assert read_bytes in (0, 3)  # not every file system says what is in memory
    store.expand(root)
    assert len(list(store.list(root))) == 1
    store.delete(f"{root}/a.parquet")
    assert store.delete_many([f"{root}/a.parquet"]) == {}
    assert call_log.calls == [
        ("put", "ok", 0, 5),
        ("read", "ok", 5, 0),
        ("read_range", "ok", 2, 0),
        ("stat", "ok", 0, 0),
        ("stat_many", "ok", 0, 0),
        ("read_cached_ends", "ok", read_bytes, 0),
        ("expand", "ok", 0, 0),
        ("list", "ok", 0, 0),
        ("delete", "ok", 0, 0),
        ("delete_many", "ok", 0, 0),
    ]
    assert all(took_s >= 0 for took_s in call_log.took_s)


def test_how_a_call_ended_is_reported_in_a_few_words(tmp_path: Path, call_log: CallLog) -> None:
    """What is not there, what is there already, what is no location, and all else that fails; never where."""
    faulty = FaultyStore(FsspecStore(), Script([Fault(how="denied", operation="read", nth=2)]))
    store, location = ObservedStore(faulty, call_log), f"file://{tmp_path}/x"
    with pytest.raises(ObjectNotFound):
        store.read(location)
    with pytest.raises(StoreError):
        store.read(location)
    store.put(location, b"x")
    with pytest.raises(AlreadyExists):
        store.put(location, b"y")
    with pytest.raises(InvalidRequest):
        store.stat("ftp://x")
    faulty.faults = Script([Fault(how="before")])
    assert store.delete_many([location]) == {location: "the request failed"}
    assert [call[:2] for call in call_log.calls] == [
        ("read", "absent"),
        ("read", "failed"),
        ("put", "ok"),
        ("put", "exists"),
        ("stat", "refused"),
        ("delete_many", "failed"),
    ]


@given(st.integers(0, 8), st.integers(0, 8))
def test_a_listing_is_reported_when_it_ends(objects: int, taken: int) -> None:
    """Once, and as left when not all of it was wanted; one that nobody began asked for nothing."""
    call_log, inner = CallLog(), FsspecStore()
    root = f"memory://listed{objects}"
    inner.delete_many([stat.location for stat in inner.list(root)])
    for number in range(objects):
        inner.put(f"{root}/{number}", b"")
    listing = ObservedStore(inner, call_log).list(root)
    got = [next(listing) for _ in range(min(taken, objects))]
    listing.close()  # type: ignore[attr-defined]  # it is a generator
    assert len(got) == min(taken, objects)
    assert [call[:2] for call in call_log.calls] == ([("list", "left")] if got else [])
    assert len(list(ObservedStore(inner, call_log).list(root))) == objects
    assert call_log.calls[-1][:2] == ("list", "ok")


def test_a_listing_that_fails_is_reported_as_failed(call_log: CallLog) -> None:
    """At its beginning, which is the caller's, as well as behind some objects."""
    faulty = FaultyStore(FsspecStore(), Script([Fault(how="before", operation="list")]))
    with pytest.raises(StoreError):
        list(ObservedStore(faulty, call_log).list("memory://x"))
    with pytest.raises(InvalidRequest):
        ObservedStore(FsspecStore(), call_log).list("memory://x", start_after="file:///y")
    assert [call[:2] for call in call_log.calls] == [("list", "failed"), ("list", "refused")]


def test_it_can_do_what_the_store_can_do(tmp_path: Path, call_log: CallLog) -> None:
    """Files are mapped only through a store that knows their paths, and that is no call of object storage."""
    mappable = ObservedStore(FsspecStore(), call_log)
    assert isinstance(mappable, MappableStore)
    assert mappable.local_path(f"file://{tmp_path}/x") == f"{tmp_path}/x"
    assert not isinstance(ObservedStore(FaultyStore(FsspecStore()), call_log), MappableStore)
    assert call_log.calls == []
