"""Streams large answers: made in threads, no faster than the client reads, and a limited number at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import anyio
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from lamella.service.http.concurrency import ConcurrencyLimit
from lamella.service.http.negotiation import Compressor
from lamella.service.process.threads import Threads, ThreadUse
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import Overloaded

#: Answers of more bytes, before compression, are sent in pieces.
WHOLE_BYTES: Final = 1 << 20
#: Smallest size of a kept block in an answer, except for one in a range.
MIN_BLOCK_BYTES: Final = 24
#: Bytes, before compression, that a thread makes before they are sent.
PIECE_BYTES: Final = 256 << 10

Data = bytes | memoryview
_T = TypeVar("_T")


class LargeAnswers:
    """Sends ``at_once`` answers, while up to ``waiting`` more wait for a turn. Belongs to one event loop.

    If ``shared``, one principal gets at most half of both. A client that reads nothing for ``stall_s`` is disconnected,
    so that it does not block others.
    """

    def __init__(self, *, at_once: int, waiting: int, stall_s: float, shared: bool, metrics: Metrics) -> None:
        self.stall_s = stall_s
        self.metrics = metrics
        self._turns = ConcurrencyLimit(
            "answer",
            at_once=at_once,
            waiting=waiting,
            wait_s=None,
            shared=shared,
            metrics=metrics,
            what="large_answers",
        )
        self._threads = Threads(at_once)

    @property
    def thread_use(self) -> ThreadUse:
        """Return how busy the threads that make answers are."""
        return self._threads.use

    def check(self, owner: str) -> None:
        """Raise Overloaded if there is no turn and the line is full, before anything is made."""
        try:
            self._turns.check(owner)
        except Overloaded:
            self.metrics.large_refused.inc()
            raise

    async def turn(self, owner: str) -> Turn:
        """Wait for a turn until the request's deadline; it lasts until it is given back.

        Raises:
            Overloaded: too many answers are waiting.
            Unavailable: the deadline passed before its turn came.
        """
        try:
            await self._turns.wait(owner)
        except Overloaded:
            self.metrics.large_refused.inc()
            raise
        return Turn(self._turns, owner)

    async def run(self, work: Callable[[], _T]) -> _T:
        """Run a part of the work in a thread that smaller requests do not use."""
        return await self._threads.run(work)


class Turn:
    """The right to send a large answer."""

    def __init__(self, turns: ConcurrencyLimit, owner: str) -> None:
        self._turns = turns
        self._owner = owner
        self._is_over = False

    def give_back(self) -> None:
        """Pass the turn on; a second call does nothing."""
        if not self._is_over:
            self._is_over = True
            self._turns.give_back(self._owner)


class Pieces:
    """Joins the chunks of an iterator into pieces of a good size to send, and compresses them if requested."""

    def __init__(self, chunks: Iterator[Data], compressor: Compressor | None) -> None:
        self._chunks = chunks
        self._compressor = compressor
        self._ended = False

    def next(self) -> bytes | None:
        """Return the next piece; None at the end. Raises the errors of the iterator."""
        while not self._ended:
            piece = self._made()
            if piece:  # a compressor may return nothing yet
                return piece
        return None

    def close(self) -> None:
        """Close the iterator."""
        self._ended = True
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()

    def _made(self) -> bytes:
        made: list[Data] = []
        size_bytes = 0
        while size_bytes < PIECE_BYTES:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._ended = True
                break
            made.append(chunk)
            size_bytes += len(chunk)
        data = b"".join(made)
        if self._compressor is None:
            return data
        data = self._compressor.add(data)
        return data + self._compressor.end() if self._ended else data


class StreamedResponse(Response):
    """Sends pieces as they are made, without ``Content-Length``.

    If making one fails, the connection is closed before HTTP's end marker, so that no client takes the answer for
    complete. If the client disconnects, or reads nothing for too long, no more pieces are made.
    """

    def __init__(
        self, pieces: Pieces, large: LargeAnswers, turn: Turn, headers: Mapping[str, str], media_type: str
    ) -> None:
        super().__init__(headers=headers, media_type=media_type)
        del self.headers["content-length"]
        self._pieces = pieces
        self._large = large
        self._turn = turn

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        cut = "failed"
        gone: asyncio.Future[None] | None = None
        try:
            gone = asyncio.ensure_future(_disconnected(receive))
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            cut = await self._send_pieces(send, gone) or ""
        finally:
            if gone is not None:
                gone.cancel()
            self.close()
            if cut:
                self._large.metrics.answers_cut.labels(cut).inc()

    def close(self) -> None:
        """Stop, and pass the turn on, also if nothing was sent."""
        try:
            self._pieces.close()
        finally:
            self._turn.give_back()

    async def _send_pieces(self, send: Send, gone: asyncio.Future[None]) -> str | None:
        """Send all pieces; return None, or the reason for stopping."""
        while (piece := await self._large.run(self._pieces.next)) is not None:
            if gone.done():
                return "client"
            with anyio.move_on_after(self._large.stall_s) as stall_scope:
                await send(_body(piece, more=True))
            if stall_scope.cancelled_caught:
                return "stalled"
        await send(_body(b"", more=False))
        return None


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}
