"""Large answers: made as they are taken, cut off where they fail, so many at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lamella.client import AsyncLamella, Lamella
from lamella.client.http import RetryPolicy
from lamella.service.http.negotiation import compressor
from lamella.service.http.routing import DirectMiddleware, RouteFactory, ServedOperation
from lamella.service.http.streaming import PIECE_BYTES, LargeAnswers, Pieces, StreamedResponse
from lamella.service.telemetry.logs import make_log
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.concurrency import wait_until
from lamella.snapshot.errors import Overloaded, StoreError, Unavailable
from lamella.snapshot.wire.operation import BY_REQUEST, PUBLIC, Nothing, Operation
from support.loopback import on_loopback


class Chunks:
    """Chunks of one piece each, counted as they are made; ``fails_at``: which of them cannot be made."""

    def __init__(self, count: int, fails_at: int | None = None) -> None:
        self.made = 0
        self.closed = False
        self._count = count
        self._fails_at = fails_at

    def __iter__(self) -> Iterator[bytes]:
        try:
            for number in range(self._count):
                if number == self._fails_at:
                    raise StoreError("the store failed")
                self.made += 1
                yield bytes([number]) * PIECE_BYTES
        finally:
            self.closed = True


def large(at_once: int = 1, waiting: int = 0, stall_s: float = 30.0, *, shared: bool = False) -> LargeAnswers:
    """The limits of one service."""
    return LargeAnswers(at_once=at_once, waiting=waiting, stall_s=stall_s, shared=shared, metrics=Metrics())


def cut(limits: LargeAnswers, reason: str) -> float:
    """How many answers were cut for that reason."""
    return float(limits.metrics.answers_cut.labels(reason)._value.get())


async def serve(
    chunks: Chunks,
    limits: LargeAnswers,
    send: Callable[[dict[str, Any]], Awaitable[None]],
    gone: asyncio.Event | None = None,
) -> None:
    """Send the chunks as an ASGI server would have it."""
    gone = gone if gone is not None else asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    response = StreamedResponse(Pieces(iter(chunks), None), limits, await limits.turn("a"), {}, "application/json")
    await response({"type": "http"}, receive, send)  # type: ignore[arg-type]  # a server of the test's own


def test_an_answer_is_sent_whole_and_without_a_length() -> None:
    """All bytes, then the end."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    chunks, limits = Chunks(5), large()
    asyncio.run(serve(chunks, limits, send))
    assert b"content-length" not in dict(sent[0]["headers"])
    assert [message["body"][:1] for message in sent[1:]] == [b"\0", b"\1", b"\2", b"\3", b"\4", b""]
    assert [message["more_body"] for message in sent[1:]] == [True] * 5 + [False]
    assert [cut(limits, reason) for reason in ("failed", "client", "stalled")] == [0, 0, 0]


def test_an_answer_that_fails_on_the_way_never_gets_its_end() -> None:
    """The error comes out, so that the server cuts the connection; the turn is given back."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def go() -> None:
        limits = large()
        with pytest.raises(StoreError):
            await serve(Chunks(5, fails_at=2), limits, send)
        assert cut(limits, "failed") == 1
        await serve(Chunks(1), limits, send)

    asyncio.run(go())
    assert [message.get("more_body") for message in sent[:3]] == [None, True, True]
    assert sent[3]["type"] == "http.response.start"


def test_an_answer_on_the_short_way_that_fails_is_reported_and_cut() -> None:
    """Its error is reported once, and goes on to the server; what was sent stays without its end."""
    limits, sent, reported = large(), [], []

    async def handler(_request: Request) -> StreamedResponse:
        pieces = Pieces(iter(Chunks(5, fails_at=2)), None)
        return StreamedResponse(pieces, limits, await limits.turn("a"), {}, "application/json")

    async def other(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise AssertionError("the short way was not taken")

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("the client never goes away")

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    operation = Operation(
        name="c", method="POST", path="/a/{b}/c", permission=PUBLIC, summary="", tag="", answer_type=Nothing
    )
    direct = DirectMiddleware(
        other,
        targets=[(operation, handler)],
        failed=lambda request, error: reported.append((request.path_params, error)),
    )
    scope = {"type": "http", "method": "POST", "path": "/a/x/c", "headers": []}
    with pytest.raises(StoreError) as caught:
        asyncio.run(direct(scope, receive, send))  # type: ignore[arg-type]  # a server of the test's own
    assert reported == [({"b": "x"}, caught.value)]
    assert [message.get("more_body") for message in sent] == [None, True, True]


@pytest.fixture
def breaking_off() -> Iterator[str]:
    """The address of a server whose every answer fails on the way."""
    limits = large()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        chunks = Pieces(iter(Chunks(5, fails_at=2)), None)
        response = StreamedResponse(chunks, limits, await limits.turn("a"), {}, "application/json")
        await response(scope, receive, send)

    with on_loopback(app, lifespan="off") as url:
        yield url


def test_no_client_takes_an_answer_that_broke_off_for_whole(breaking_off: str) -> None:
    """Both of ours say so, in the same words, after as many tries as they were told to make."""
    policy = RetryPolicy(attempts=2, base_delay_s=0.0)
    with Lamella(breaking_off, policy=policy) as lake, pytest.raises(Unavailable, match="the answer was cut off"):
        lake.table("db.t").prune()

    async def go() -> None:
        async with AsyncLamella(breaking_off, policy=policy) as lake:
            await lake.table("db.t").prune()

    with pytest.raises(Unavailable, match="the answer was cut off"):
        asyncio.run(go())


def test_no_more_is_made_than_is_taken() -> None:
    """While a client does not take a piece, the next one is not made; when it goes away, none is any more."""

    async def go() -> None:
        chunks, limits, gone, taken = Chunks(1_000), large(), asyncio.Event(), asyncio.Semaphore(3)

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.body" and not gone.is_set():
                await taken.acquire()

        serving = asyncio.ensure_future(serve(chunks, limits, send, gone))
        with anyio.fail_after(60):
            while chunks.made < 4:
                await asyncio.sleep(0.001)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert chunks.made == 4
        gone.set()
        taken.release()
        await serving
        assert chunks.made <= 6
        assert chunks.closed
        assert cut(limits, "client") == 1

    asyncio.run(go())


def test_a_client_that_takes_nothing_loses_its_turn() -> None:
    """After ``stall_s`` the answer is cut, and the next one gets the turn."""

    async def go() -> None:
        chunks, limits = Chunks(1_000), large(waiting=1, stall_s=0.05)

        async def never(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

        async def at_once(_message: dict[str, Any]) -> None:
            return

        with anyio.fail_after(60):
            await asyncio.gather(serve(chunks, limits, never), serve(Chunks(3), limits, at_once))
        assert cut(limits, "stalled") == 1
        assert chunks.closed

    asyncio.run(go())


def test_so_many_go_at_once_and_so_many_wait() -> None:
    """One more is refused, with the time to come back; turns go by the order of arrival."""

    async def go() -> None:
        limits = large(at_once=2, waiting=1)
        first, second = await limits.turn("a"), await limits.turn("a")
        third = asyncio.ensure_future(limits.turn("a"))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded) as refused:
            await limits.turn("a")
        assert (refused.value.details["retry_after_s"], refused.value.details["limit"]) == (1, "large_answers")
        assert not third.done()
        first.give_back()
        with anyio.fail_after(60):
            (await third).give_back()
        second.give_back()
        for turn in [await limits.turn("a"), await limits.turn("a")]:
            turn.give_back()

    asyncio.run(go())


def test_who_waits_for_a_turn_waits_no_longer_than_for_the_answer() -> None:
    """Then its request is late, like any other, and its place in the line is free."""

    async def go() -> None:
        limits = large(waiting=1)
        first = await limits.turn("a")
        wait_until(time.monotonic() + 0.05)
        with pytest.raises(Unavailable) as caught:
            await limits.turn("b")
        assert caught.value.details["reason"] == "deadline"
        wait_until(None)
        second = asyncio.ensure_future(limits.turn("b"))
        await asyncio.sleep(0)
        first.give_back()
        with anyio.fail_after(60):
            (await second).give_back()

    asyncio.run(go())


def test_one_principal_has_half_of_the_turns() -> None:
    """However slowly it takes them, another one's answer waits for none of them."""

    async def go() -> None:
        limits = large(at_once=4, waiting=2, shared=True)
        mine = [await limits.turn("a") for _ in range(2)]
        third = asyncio.ensure_future(limits.turn("a"))
        await asyncio.sleep(0)
        assert not third.done()
        with pytest.raises(Overloaded) as refused:
            await limits.turn("a")
        assert refused.value.details["limit"] == "share"
        with anyio.fail_after(60):
            others = [await limits.turn("b") for _ in range(2)]
            mine[0].give_back()
            (await third).give_back()
        for turn in (mine[1], *others):
            turn.give_back()

    asyncio.run(go())


def test_a_compressor_that_keeps_everything_back_ends_nothing_early() -> None:
    """Pieces are never empty but for the end, which comes once."""
    pieces = Pieces(iter([b"a" * 10] * 100), compressor("zstd"))
    found = []
    while (piece := pieces.next()) is not None:
        found.append(piece)
    assert found
    assert all(found)
    assert pieces.next() is None


@pytest.mark.parametrize("death", [ValueError("generator already executing"), KeyboardInterrupt()])
def test_an_answer_that_cannot_be_closed_gives_its_turn_back(
    monkeypatch: pytest.MonkeyPatch, death: BaseException
) -> None:
    """A thread may still be making a piece of it when the process ends the request. The next answer has its turn."""
    limits = large()

    def fails(_: Pieces) -> None:
        raise death

    async def taken(_: dict[str, Any]) -> None:
        return

    async def test() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Pieces, "close", fails)
            with pytest.raises(type(death)):
                await serve(Chunks(2), limits, taken)
        await serve(Chunks(2), limits, taken)

    asyncio.run(test())


def test_an_answer_that_must_not_leave_gives_its_turn_back() -> None:
    """Its handler forgot to decide who may have it, so an error is answered instead, and the next one has a turn."""
    limits = large()
    chunks = Chunks(2)

    async def forgets(_: Request) -> Response:
        return StreamedResponse(Pieces(iter(chunks), None), limits, await limits.turn("a"), {}, "application/json")

    class Everyone:
        """Lets everyone in."""

        async def admit(self, _: Request) -> None:
            return

    authenticator: Any = Everyone()
    admission: Any = None  # nobody asks for a place
    route_factory = RouteFactory(
        make_log("error"), limits.metrics, authenticator, admission, lambda _, handler: handler
    )
    operation = Operation(
        name="x", method="GET", path="/x", permission=BY_REQUEST, summary="", tag="", answer_type=Nothing
    )
    served = ServedOperation(operation, forgets, is_urgent=True)

    async def test() -> None:
        for _ in range(2):
            request = Request({"type": "http", "method": "GET", "path": "/x", "headers": []})
            refused = await route_factory.endpoint(served)(request)
            assert refused.status_code == 500

    asyncio.run(test())
