"""What is special to S3: conditional writes when answers get lost, and the several wordings of a conflict."""

from __future__ import annotations

import asyncio
import gc
import logging
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import ClientConnectionResetError
from aiohttp.http_writer import StreamWriter
from fsspec.asyn import get_loop, sync

from fixtures_s3 import S3Server
from lamella.snapshot.errors import AlreadyExists, ObjectNotFound, StoreError
from lamella.snapshot.storage import FsspecStore, check_create_only
from layout.faulty_proxy import BREAK_OFF, FORGET_CONDITION, LOSE_ANSWER, FaultyProxy, faulty_proxy

pytestmark = pytest.mark.s3


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    """A proxy in front of the server."""
    with faulty_proxy(s3.endpoint_url) as running:
        yield running


@pytest.fixture
def store(s3: S3Server, proxy: FaultyProxy) -> FsspecStore:
    """A store that reaches the server through the proxy, and does not wait long between tries."""
    return FsspecStore({"s3": {**s3.storage_options, "endpoint_url": proxy.url}})


@pytest.fixture
def root(s3: S3Server) -> str:
    """An empty folder."""
    return f"{s3.bucket('faults')}/{uuid.uuid4().hex}"


def test_a_lost_answer_is_not_a_conflict(store: FsspecStore, proxy: FaultyProxy, root: str) -> None:
    """When the object arrived but its answer did not, the retry meets our own object and the put has succeeded."""
    proxy.faults.append(("PUT", LOSE_ANSWER))
    put = store.put(f"{root}/x", b"data")
    assert put == store.stat(f"{root}/x")
    assert proxy.seen.count("PUT") == 2


def test_a_lost_answer_does_not_hide_a_conflict(store: FsspecStore, proxy: FaultyProxy, root: str) -> None:
    """When the answer that was lost said no, the put has failed, though the bytes are the same."""
    store.put(f"{root}/x", b"data")
    proxy.faults.append(("PUT", LOSE_ANSWER))
    with pytest.raises(AlreadyExists):
        store.put(f"{root}/x", b"data")


@pytest.mark.parametrize("answer", [(412, "PreconditionFailed"), (409, "ConditionalRequestConflict")])
def test_every_wording_of_a_conflict_is_read(
    store: FsspecStore, proxy: FaultyProxy, root: str, answer: tuple[int, str]
) -> None:
    """A 412 that does not name its condition and a 409 mean that the object is there, if it is."""
    store.put(f"{root}/x", b"first")
    proxy.faults.append(("PUT", answer))
    with pytest.raises(AlreadyExists):
        store.put(f"{root}/x", b"second")


def test_a_collision_that_left_nothing_is_tried_again(store: FsspecStore, proxy: FaultyProxy, root: str) -> None:
    """A 409 after which nothing is there does not fail the put."""
    proxy.faults.append(("PUT", (409, "ConditionalRequestConflict")))
    store.put(f"{root}/x", b"data")
    assert store.read(f"{root}/x") == b"data"


def test_a_read_back_that_fails_decides_nothing(store: FsspecStore, proxy: FaultyProxy, root: str) -> None:
    """A conflict whose cause cannot be looked at is an error, neither a success nor AlreadyExists."""
    proxy.faults += [("PUT", (412, "PreconditionFailed")), ("HEAD", (403, "AccessDenied"))]
    with pytest.raises(StoreError):
        store.put(f"{root}/x", b"data")


def test_a_server_that_forgets_conditions_is_found_out(store: FsspecStore, proxy: FaultyProxy, root: str) -> None:
    """A server that lets a second put replace the first is refused before anything is lost on it."""
    check_create_only(store, root)
    proxy.faults += [("PUT", FORGET_CONDITION), ("PUT", FORGET_CONDITION)]
    with pytest.raises(StoreError, match="second writer"):
        check_create_only(store, root)
    assert list(store.list(root)) == []


def test_an_answer_that_breaks_off_is_read_again(store: FsspecStore, proxy: FaultyProxy, root: str) -> None:
    """A body shorter than announced is never taken for the object."""
    store.put(f"{root}/x", b"0123456789" * 1000)
    proxy.faults += [("GET", BREAK_OFF), ("GET", BREAK_OFF)]
    assert store.read(f"{root}/x") == b"0123456789" * 1000


def test_what_the_server_refuses_is_a_store_error(store: FsspecStore, proxy: FaultyProxy, root: str) -> None:
    """A refusal keeps the server's code and is not mistaken for an absent object."""
    proxy.faults.append(("HEAD", (403, "Forbidden")))
    with pytest.raises(StoreError):
        store.stat(f"{root}/x")
    proxy.faults.append(("GET", (403, "AccessDenied")))
    with pytest.raises(StoreError) as caught:
        store.read(f"{root}/x")
    assert caught.value.details["s3_code"] == "AccessDenied"


def test_a_bucket_that_is_not_there(s3: S3Server) -> None:
    """Reading from it finds nothing; writing to it is an error, not a conflict."""
    store = FsspecStore({"s3": s3.storage_options})
    with pytest.raises(ObjectNotFound):
        store.read("s3://no-such-bucket/x")
    with pytest.raises(ObjectNotFound):
        store.expand("s3://no-such-bucket/x")
    assert list(store.list("s3://no-such-bucket")) == []
    with pytest.raises(StoreError):
        store.put("s3://no-such-bucket/x", b"1")


def test_a_server_that_cannot_be_reached_is_a_store_error() -> None:
    """No answer is a StoreError, not an exception of some library."""
    store = FsspecStore(
        {
            "s3": {
                "key": "k",
                "secret": "s",
                "endpoint_url": "http://127.0.0.1:9",
                "config_kwargs": {"connect_timeout": 1, "retries": {"max_attempts": 0}},
            }
        }
    )
    with pytest.raises(StoreError):
        store.stat("s3://bucket/x")


def test_a_listing_of_many_pages_is_complete(s3: S3Server) -> None:
    """More objects than one answer holds are all listed, and folder markers are not."""
    bucket = s3.bucket("many")
    store = FsspecStore({"s3": {**s3.storage_options, "s3_additional_kwargs": {"MaxKeys": 3}}})
    for i in range(8):
        store.put(f"{bucket}/d/{i}.parquet", b"x")
    store.put(f"{bucket}/d/empty/", b"")
    assert [found.location for found in store.list(f"{bucket}/d")] == [f"{bucket}/d/{i}.parquet" for i in range(8)]
    assert len(store.expand(bucket)) == 8


def test_a_folder_with_a_marker_is_a_folder(s3: S3Server) -> None:
    """An empty object whose key ends in a slash, as consoles make it, does not stand for the files of the folder."""
    bucket = s3.bucket("marked")
    store = FsspecStore({"s3": s3.storage_options})
    store.put(f"{bucket}/d/", b"")
    with pytest.raises(ObjectNotFound):
        store.expand(f"{bucket}/d/")
    store.put(f"{bucket}/d/x.parquet", b"x")
    for url in (f"{bucket}/d/", f"{bucket}/d", f"{bucket}/d//"):
        assert store.expand(url) == [f"{bucket}/d/x.parquet"]


@pytest.mark.parametrize("step", ["drain", "write_eof"])
@pytest.mark.few(1)
def test_an_upload_that_is_aborted_is_an_error_and_nothing_else(
    s3: S3Server, root: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    """The connection ends while the body is sent: the event loop reports no lost exception beside what the put says."""
    failed = []

    async def broken(*_: Any, **__: Any) -> None:
        failed.append(step)
        raise ClientConnectionResetError("Cannot write to closing transport")

    store = FsspecStore({"s3": {**s3.storage_options, "config_kwargs": {"retries": {"max_attempts": 1}}}})
    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(StreamWriter, step, broken)
        with suppress(StoreError):  # what was sent whole may be there
            store.put(f"{root}/x", b"data")
        gc.collect()
        sync(get_loop(), asyncio.sleep, 0)
    assert failed
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_other_lost_exceptions_are_still_reported(s3: S3Server, caplog: pytest.LogCaptureFixture) -> None:
    """The event loop is that of all users of fsspec in the process."""
    store = FsspecStore({"s3": s3.storage_options})
    with pytest.raises(ObjectNotFound):
        store.stat(f"{s3.bucket('faults')}/nothing")

    async def forgotten() -> None:
        raise ConnectionResetError("somebody else's")

    async def begin() -> None:
        await asyncio.wait([asyncio.ensure_future(forgotten())])

    with caplog.at_level(logging.ERROR):
        sync(get_loop(), begin)
        gc.collect()
        sync(get_loop(), asyncio.sleep, 0)
    assert any("never retrieved" in record.getMessage() for record in caplog.records)
