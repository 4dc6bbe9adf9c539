"""Bodies of requests, read before anything else is done, so that whoever sends slowly keeps nobody waiting."""

from __future__ import annotations

from collections import Counter

from starlette.requests import ClientDisconnect, Request

from lamella.service.metrics import Metrics
from lamella.snapshot.errors import BodyTooLarge, Overloaded


class Bodies:
    """Holds ``most_bytes`` of bodies that come in parts, and half of that for one ``whose`` if it is ``shared``.

    Belongs to one event loop. A body that comes alone may have more. Those that are there as a whole when they are
    asked for are not counted: of each connection the server holds no more than 64 KiB and what it read last, which is
    up to 256 KiB.
    """

    def __init__(self, *, most_bytes: int, shared: bool, metrics: Metrics) -> None:
        self._most_bytes = most_bytes
        self._own_bytes = most_bytes // 2 if shared else most_bytes
        self._held_bytes = 0
        self._held_by: Counter[str] = Counter()
        self._metrics = metrics.limits

    async def read(self, request: Request, whose: str, limit_bytes: int) -> int:
        """Read a body, which ``request.body()`` gives from now on.

        Returns:
            The bytes that are held for it until :meth:`forget` is told of them.

        Raises:
            BodyTooLarge: more than ``limit_bytes``.
            ClientDisconnect: the client went away before its end.
            Overloaded: too much is held already.
        """
        message = await request.receive()
        body = message.get("body", b"")
        if len(body) > limit_bytes:
            raise too_large(limit_bytes)
        if message["type"] != "http.request":
            raise ClientDisconnect
        if not message.get("more_body", False):
            request._body = bytes(body)  # where Starlette itself looks for it
            return 0
        parts = [body]
        size_bytes = len(body)
        self._check(whose, 0, size_bytes)
        self._hold(whose, size_bytes)
        try:
            while message.get("more_body", False):
                message = await request.receive()
                if message["type"] != "http.request":
                    raise ClientDisconnect
                part = message.get("body", b"")
                if size_bytes + len(part) > limit_bytes:
                    raise too_large(limit_bytes)
                self._check(whose, size_bytes, len(part))
                parts.append(part)
                size_bytes += len(part)
                self._hold(whose, len(part))
        except BaseException:
            self.forget(whose, size_bytes)
            raise
        request._body = b"".join(parts)
        return size_bytes

    def forget(self, whose: str, size_bytes: int) -> None:
        """A body is not held any more."""
        if size_bytes:
            self._hold(whose, -size_bytes)
            if not self._held_by[whose]:
                del self._held_by[whose]

    def _hold(self, whose: str, size_bytes: int) -> None:
        self._held_bytes += size_bytes
        self._held_by[whose] += size_bytes
        self._metrics.body_bytes.set(self._held_bytes)

    def _check(self, whose: str, mine_bytes: int, more_bytes: int) -> None:
        if self._held_bytes == mine_bytes:
            return
        is_over = self._held_bytes + more_bytes > self._most_bytes
        if is_over or (self._held_by[whose] > mine_bytes and self._held_by[whose] + more_bytes > self._own_bytes):
            self._metrics.refused.labels("body", "bytes").inc()
            raise Overloaded("the requests that are under way are too large together", retry_after_s=1, limit="bytes")


def too_large(limit_bytes: int) -> BodyTooLarge:
    """What is said of a body that is larger than it may be."""
    return BodyTooLarge(f"the body is larger than {limit_bytes} bytes", limit_bytes=limit_bytes, limit="body_bytes")
