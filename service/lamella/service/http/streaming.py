"""Answers that are sent while they are made: in threads, no faster than they are taken, and so many at a time."""

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

#: Answers of more bytes, before they are compressed, are sent in pieces.
WHOLE_BYTES: Final = 1 << 20
#: What a kept block takes in an answer at least, but for one of ranges.
MIN_BLOCK_BYTES: Final = 24
#: Bytes, before they are compressed, that are made in a thread before they are sent.
PIECE_BYTES: Final = 256 << 10

Data = bytes | memoryview
_T = TypeVar("_T")


class LargeAnswers:
    """Lets ``at_once`` answers be sent and ``waiting`` more wait for their turn. Belongs to one event loop.

    One principal has half of both at most if they are ``shared``. A client that takes nothing for ``stall_s`` loses its
    answer, so that it does not keep others waiting.
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
        """How busy the threads are that make answers."""
        return self._threads.use

    def check(self, whose: str) -> None:
        """Raises Overloaded when there is neither a turn nor room to wait for one, so that nothing is made in vain."""
        try:
            self._turns.check(whose)
        except Overloaded:
            self.metrics.large_refused.inc()
            raise

    async def turn(self, whose: str) -> Turn:
        """Wait for a turn, as long as the request has time; it lasts until it is given back.

        Raises:
            Overloaded: too many are waiting.
            Unavailable: the request's time was over before its turn came.
        """
        try:
            await self._turns.wait(whose)
        except Overloaded:
            self.metrics.large_refused.inc()
            raise
        return Turn(self._turns, whose)

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do a part of the work in a thread that takes no place of smaller requests."""
        return await self._threads.run(work)


class Turn:
    """The right to send a large answer."""

    def __init__(self, turns: ConcurrencyLimit, whose: str) -> None:
        self._turns = turns
        self._whose = whose
        self._is_over = False

    def give_back(self) -> None:
        """Let the next one have it; nothing happens the second time."""
        if not self._is_over:
            self._is_over = True
            self._turns.give_back(self._whose)


class Pieces:
    """What an iterator of chunks gives, in pieces of a good size to send, compressed if that is wanted."""

    def __init__(self, chunks: Iterator[Data], compressor: Compressor | None) -> None:
        self._chunks = chunks
        self._compressor = compressor
        self._ended = False

    def next(self) -> bytes | None:
        """The next piece, None when there is none. Raises what making it raises."""
        while not self._ended:
            piece = self._made()
            if piece:  # a compressor may keep it all for now
                return piece
        return None

    def close(self) -> None:
        """Make no more."""
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
    """Sends pieces as they come, without a ``Content-Length``.

    When making one fails, the connection is cut before the end that HTTP asks for, so that no client takes the answer
    for whole. When the client goes away, or takes nothing for too long, nothing more is made.
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
        """Make no more of it, and let the next answer have the turn, also where none of it was sent."""
        try:
            self._pieces.close()
        finally:
            self._turn.give_back()

    async def _send_pieces(self, send: Send, gone: asyncio.Future[None]) -> str | None:
        """Send all, or say why not."""
        while (piece := await self._large.run(self._pieces.next)) is not None:
            if gone.done():
                return "client"
            with anyio.move_on_after(self._large.stall_s) as patience:
                await send(_body(piece, more=True))
            if patience.cancelled_caught:
                return "stalled"
        await send(_body(b"", more=False))
        return None


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}
