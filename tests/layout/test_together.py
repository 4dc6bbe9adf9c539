"""Objects that are put together: all are there at the end of the block, and what is read inside of it is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from lamella.snapshot.errors import AlreadyExists, StoreError
from lamella.snapshot.storage import ObjectStat
from lamella.snapshot.storage.together import TogetherStore
from support.timed_store import TimedStore

WAIT_S = 60


class SlowStore(TimedStore):
    """Objects in memory; every put first does what the test says."""

    def __init__(self, before_put: Callable[[str], object]) -> None:
        super().__init__(lambda: 1)
        self._before_put = before_put

    def put(self, location: str, data: bytes) -> ObjectStat:
        """As the store does, after what happens first."""
        self._before_put(location)
        return super().put(location, data)


def test_new_objects_of_a_block_are_sent_together() -> None:
    """Four puts are under way at once: each waits here for the other three."""
    barrier = threading.Barrier(4)
    slow = SlowStore(lambda _: barrier.wait(WAIT_S))
    store = TogetherStore(slow)
    with store.together():
        for number in range(4):
            store.put_new(f"s3://b/{number}", b"%d" % number)
    assert slow.locations() == {f"s3://b/{number}" for number in range(4)}


def test_all_objects_are_there_at_the_end_of_the_block() -> None:
    """Also one that was let go of only after the block's last line."""
    go = threading.Event()
    slow = SlowStore(lambda _: go.wait(WAIT_S))
    store = TogetherStore(slow)
    with store.together():
        store.put_new("s3://b/x", b"x")
        assert slow.locations() == set()
        go.set()
    assert slow.locations() == {"s3://b/x"}


def test_what_is_read_inside_of_the_block_is_waited_for() -> None:
    """A read, a range and a stat find an object whose put was under way when they came."""
    go = threading.Event()
    slow = SlowStore(lambda _: go.wait(WAIT_S))
    store = TogetherStore(slow)
    with store.together():
        store.put_new("s3://b/x", b"0123456789")
        threading.Timer(0.05, go.set).start()
        assert store.read("s3://b/x") == b"0123456789"
        assert store.read_range("s3://b/x", 2, 3) == b"234"
        assert store.stat("s3://b/x").size_bytes == 10


def test_an_object_that_cannot_be_put_fails_the_block() -> None:
    """The caller must not go on as if it were there; the others may be there."""

    def refuse(location: str) -> None:
        if location.endswith("/bad"):
            raise StoreError("the disk is full", location=location)

    slow = SlowStore(refuse)
    store = TogetherStore(slow)
    with pytest.raises(StoreError, match="full"), store.together():  # noqa: PT012  # the end of the block raises
        store.put_new("s3://b/bad", b"x")
        store.put_new("s3://b/good", b"x")
    assert "s3://b/bad" not in slow.locations()


def test_a_block_that_fails_waits_for_what_is_under_way() -> None:
    """Its own error is the one that is raised, and nothing is put after it."""
    go = threading.Event()
    slow = SlowStore(lambda _: go.wait(WAIT_S))
    store = TogetherStore(slow)
    threading.Timer(0.05, go.set).start()
    with pytest.raises(ValueError, match="other"), store.together():  # noqa: PT012  # a put is under way
        store.put_new("s3://b/x", b"x")
        raise ValueError("other")
    assert slow.locations() == {"s3://b/x"}


def test_outside_of_a_block_and_on_a_local_disk_an_object_is_put_at_once() -> None:
    """There the call itself raises, and the next line finds the object."""
    slow = TimedStore(lambda: 1)
    store = TogetherStore(slow)
    store.put_new("s3://b/x", b"x")
    assert slow.locations() == {"s3://b/x"}
    with pytest.raises(AlreadyExists):
        store.put_new("s3://b/x", b"x")
    with store.together():
        store.put_new("file:///x", b"x")
        assert slow.locations() == {"s3://b/x", "file:///x"}
