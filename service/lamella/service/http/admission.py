"""Admits requests to their handlers: limits the body, waits for a slot, sets the deadline.

It runs after access control, since slots are shared among principals. Health probes and metrics skip it, so that a busy
process still answers them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lamella.service.access.principal import actor_of
from lamella.service.config.settings import Settings
from lamella.service.http.concurrency import ConcurrencyLimit
from lamella.service.process.deadline import begin_change, begin_read, end, requested_s
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import BodyTooLarge, InvalidRequest, LimitExceeded, Overloaded, Unavailable
from lamella.snapshot.near_names import near_member


class BodyReader:
    """Limits the memory of bodies that arrive in parts: ``max_bytes``, and half of that for one ``owner`` if
    ``shared``.

    Belongs to one event loop. A single body may be larger. Bodies that are complete when they are read are not counted:
    the server holds at most 64 KiB of each connection and its last read, which is up to 256 KiB.
    """

    def __init__(self, *, max_bytes: int, shared: bool, metrics: Metrics) -> None:
        self._max_bytes = max_bytes
        self._own_bytes = max_bytes // 2 if shared else max_bytes
        self._body_bytes = 0
        self._bytes_by_owner: Counter[str] = Counter()
        self._metrics = metrics.limits

    async def read(self, request: Request, owner: str, limit_bytes: int) -> int:
        """Read a body; ``request.body()`` returns it from then on.

        Returns:
            The bytes that count for it until :meth:`forget`.

        Raises:
            BodyTooLarge: more than ``limit_bytes``.
            ClientDisconnect: the client disconnected before the end.
            Overloaded: other bodies take too much memory.
        """
        message = await request.receive()
        body = message.get("body", b"")
        if len(body) > limit_bytes:
            raise too_large(limit_bytes)
        if message["type"] != "http.request":
            raise ClientDisconnect
        if not message.get("more_body", False):
            request._body = bytes(body)  # Starlette reads it from there
            return 0
        parts = [body]
        size_bytes = len(body)
        self._check(owner, 0, size_bytes)
        self._count(owner, size_bytes)
        try:
            while message.get("more_body", False):
                message = await request.receive()
                if message["type"] != "http.request":
                    raise ClientDisconnect
                part = message.get("body", b"")
                if size_bytes + len(part) > limit_bytes:
                    raise too_large(limit_bytes)
                self._check(owner, size_bytes, len(part))
                parts.append(part)
                size_bytes += len(part)
                self._count(owner, len(part))
        except BaseException:
            self.forget(owner, size_bytes)
            raise
        request._body = b"".join(parts)
        return size_bytes

    def forget(self, owner: str, size_bytes: int) -> None:
        """Release the memory of a body."""
        if size_bytes:
            self._count(owner, -size_bytes)
            if not self._bytes_by_owner[owner]:
                del self._bytes_by_owner[owner]

    def _count(self, owner: str, size_bytes: int) -> None:
        self._body_bytes += size_bytes
        self._bytes_by_owner[owner] += size_bytes
        self._metrics.body_bytes.set(self._body_bytes)

    def _check(self, owner: str, own_bytes: int, more_bytes: int) -> None:
        if self._body_bytes == own_bytes:
            return
        is_over = self._body_bytes + more_bytes > self._max_bytes
        if is_over or (
            self._bytes_by_owner[owner] > own_bytes and self._bytes_by_owner[owner] + more_bytes > self._own_bytes
        ):
            self._metrics.refused.labels("body", "bytes").inc()
            raise Overloaded(
                "the bodies of the current requests are too large together", retry_after_s=1, limit="bytes"
            )


def too_large(limit_bytes: int) -> BodyTooLarge:
    """Return the error for a body above the limit."""
    return BodyTooLarge(f"the body is larger than {limit_bytes} bytes", limit_bytes=limit_bytes, limit="body_bytes")


class BodyLimitMiddleware:
    """Answers 413 to a body of more than ``limit_bytes``.

    A request with ``Content-Length`` is answered before it reaches a route. A chunked one is stopped at the limit:
    reading it raises :class:`BodyTooLarge` in the route. At most the limit is ever in memory. ``refuse`` makes the
    answer.
    """

    def __init__(self, app: ASGIApp, *, limit_bytes: int, refuse: Callable[[Request, Exception], Response]) -> None:
        self._app = app
        self._limit_bytes = limit_bytes
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced, in_chunks = b"", False
        for name, value in scope["headers"]:
            if name == b"content-length":
                announced = value
            elif name == b"transfer-encoding":
                in_chunks = True
        if announced.isdigit():
            if int(announced) > self._limit_bytes:
                await self._refuse(Request(scope), self._too_large())(scope, receive, send)
                return
            if not in_chunks:  # the server passes on no more than Content-Length
                await self._app(scope, receive, send)
                return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limit_bytes:
                raise self._too_large()
            return message

        await self._app(scope, counted, send)

    def _too_large(self) -> BodyTooLarge:
        return too_large(self._limit_bytes)


#: Most values in a body. Small values take up to thirty times their text in memory; this limits that.
MAX_VALUES: Final = 4_000_000
#: The same for a body whose values stay text at first, such as the blocks of a commit.
MAX_RAW_VALUES: Final = 16_000_000

_T = TypeVar("_T")
_TOO_LONG: Final = re.compile(r"Expected `(?P<kind>\w+)` of length <= (?P<maximum>\d+)")
_UNITS: Final = {"str": "characters", "bytes": "bytes"}
_ERROR_PATH: Final = re.compile(r"(?P<message>.*) - at (?P<key>`key` in )?`\$(?P<path>.*)`", re.DOTALL)


def read_json(
    decoder: msgspec.json.Decoder[_T],
    data: bytes | msgspec.Raw,
    *,
    root: str = "$",
    max_values: int = MAX_VALUES,
) -> _T:
    """Decode ``data`` with ``decoder``; ``root`` is the JSON path of ``data`` in the request.

    Raises:
        InvalidRequest: not JSON, or not of that type; then ``details.path`` is the JSON path of the error.
        LimitExceeded: nested too deeply, more than ``max_values`` values, or a member that is too long.
    """
    if len(data) > max_values and _separators(data) > max_values:
        raise LimitExceeded(f"the body has more than {max_values} values", limit="json_values", maximum=max_values)
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        found = _ERROR_PATH.fullmatch(str(error))
        message, path = (found["message"], root + found["path"]) if found else (str(error), root)
        where = f"a key of {path}" if found and found["key"] else path
        too_long = _TOO_LONG.fullmatch(message)
        if too_long is not None:
            text = f"{where} has more than {too_long['maximum']} {_UNITS.get(too_long['kind'], 'entries')}"
            raise LimitExceeded(text, limit="length", maximum=int(too_long["maximum"]), path=path) from error
        near = near_member(error, decoder.type, data)
        raise InvalidRequest(f"{message} at {where}", path=path, **near) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise LimitExceeded("the body is nested too deeply", limit="depth", path=root) from error


def _separators(data: bytes | msgspec.Raw) -> int:
    """Return an upper bound of the number of values: each comes first in its container, or after a comma."""
    text = bytes(data)
    return text.count(b",") + text.count(b"[") + text.count(b"{")


Handler = Callable[[Request], Awaitable[Response]]

#: Larger requests are not parsed on the event loop.
QUICK_BODY_BYTES: Final = 2_048
#: Largest body of operations that need no large one.
SMALL_BODY_BYTES: Final = 1 << 20


class Admission:
    """Admits requests. Belongs to one event loop."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        is_shared = settings.auth  # without authentication all requests are one principal's
        self._reads = ConcurrencyLimit(
            "read",
            at_once=settings.requests_at_once,
            waiting=settings.requests_waiting,
            wait_s=settings.request_wait_s,
            shared=is_shared,
            metrics=metrics,
        )
        self._wide = ConcurrencyLimit(
            "wide",
            at_once=settings.wide_prunes_at_once,
            waiting=settings.requests_waiting,
            wait_s=None,  # the length of the line is limited by cost
            shared=is_shared,
            metrics=metrics,
            max_cost=settings.wide_prunes_tests,
        )
        self._changes = ConcurrencyLimit(
            "change",
            at_once=settings.changes_at_once,
            waiting=0,
            wait_s=settings.request_wait_s,
            shared=is_shared,
            metrics=metrics,
        )
        self._bodies = BodyReader(max_bytes=settings.body_memory_bytes, shared=is_shared, metrics=metrics)
        self._max_body_bytes = settings.max_body_bytes
        self._deadline_s = settings.request_deadline_s
        self._deadline_exceeded = metrics.limits.deadline_exceeded

    def reading(self, request: Request) -> AbstractAsyncContextManager[None]:
        """Take a slot for a read request. Raises as :meth:`admitted`."""
        return self._reads.slot(actor_of(request))

    def check_testing(self, request: Request, block_tests: int) -> None:
        """Raise Overloaded if :meth:`testing` would."""
        self._wide.check_cost(actor_of(request), block_tests)

    def testing(self, request: Request, block_tests: int) -> AbstractAsyncContextManager[None]:
        """Take a slot for a request that tests so many blocks. Raises as :meth:`admitted`."""
        return self._wide.slot(actor_of(request), block_tests)

    def admitted(
        self, handler: Handler, *, changes: bool, has_body: bool, is_large: bool, takes_slot: bool = True
    ) -> Handler:
        """Return a handler that runs once there is a slot for its request, with the body read.

        ``takes_slot`` False: the handler takes a slot itself (:meth:`reading`, :meth:`testing`), unless it can answer
        at once on the event loop.

        Authentication comes before this. The request is given up at its deadline, unless it ``changes`` something:
        work that has begun in a thread runs on, and its result is dropped. The slot is released before the answer is
        sent, so slow clients hold none.

        Raises, in addition to the handler's errors: BodyTooLarge, InvalidRequest: the body, or the client's timeout
        header. Overloaded: too many requests. Unavailable: the deadline has passed.
        """
        slots, bodies, deadline_exceeded = (
            self._changes if changes else self._reads,
            self._bodies,
            self._deadline_exceeded,
        )
        max_bytes = self._max_body_bytes if is_large else min(SMALL_BODY_BYTES, self._max_body_bytes)
        deadline_s = self._deadline_s

        async def admitted(request: Request) -> Response:
            owner = actor_of(request)
            waits_s = requested_s(request.scope)
            read_bytes = 0
            if has_body:
                announced_bytes = _announced_bytes(request)
                if not is_large and announced_bytes is not None and announced_bytes > max_bytes:
                    raise too_large(max_bytes)
                # A small body is read at once, even if there is no slot now.
                if takes_slot or announced_bytes is None or announced_bytes > QUICK_BODY_BYTES:
                    slots.check(owner)
                read_bytes = await bodies.read(request, owner, max_bytes)
            try:
                if changes:
                    begin_change(waits_s)
                else:
                    begin_read(deadline_s, waits_s)
                if not takes_slot:
                    return await handler(request)
                if not slots.take(owner):
                    await slots.wait(owner)
                try:
                    return await handler(request)
                finally:
                    slots.give_back(owner)
            except Unavailable as error:
                if error.details.get("reason") == "deadline":
                    deadline_exceeded.inc()
                raise
            finally:
                end()
                bodies.forget(owner, read_bytes)

        return admitted


def _announced_bytes(request: Request) -> int | None:
    """Return the length of the body by its header; None without a valid one."""
    for name, value in request.scope["headers"]:
        if name == b"content-length":
            return int(value[:19]) if value.isdigit() else None  # of so many digits any number is too large
    return None
