"""An answer that is still to come, since the change waits for its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future

import msgspec

from lamella.service.idempotency import Sealed
from lamella.snapshot.errors import LamellaError, Unavailable


class Pending(msgspec.Struct, frozen=True):
    """``again``: what to do when the answer is an error: raise it, or wait for something else. It may block."""

    answered: Future[Sealed]
    again: Callable[[LamellaError], Pending] | None = None

    def wait(self) -> Sealed:
        """The answer, in a thread that has nothing else to do; raises what it fails with."""
        pending = self
        while True:
            try:
                return pending.answered.result()
            except LamellaError as error:
                if pending.again is None:
                    raise
                pending = pending.again(error)


def finished(sealed: Sealed) -> Pending:
    """An answer that is there."""
    answered: Future[Sealed] = Future()
    answered.set_result(sealed)
    return Pending(answered)


async def answer_of(future: Future[Sealed], timeout_s: float) -> Sealed:
    """The answer, waited for in an event loop.

    Raises:
        Unavailable: nobody began to work on it within the time, and nobody will.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.wrap_future(future)
    except TimeoutError as error:
        if future.cancelled():
            raise Unavailable("the table's queue did not come to this request in time", retry_after_s=1) from error
    return await asyncio.wrap_future(future)  # it was begun, so its outcome counts
