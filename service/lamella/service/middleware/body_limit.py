"""A limit on the size of request bodies, whether they say their length or come in chunks."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lamella.service.bodies import too_large
from lamella.snapshot.errors import BodyTooLarge


class BodyLimitMiddleware:
    """Answers 413 to a body of more than ``limit_bytes``.

    A request that announces its size is answered before it reaches a route. One in chunks is stopped where it passes
    the limit: reading it raises :class:`BodyTooLarge` in the route. No more than the limit is ever held in memory.
    ``refuse`` makes the answer.
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
            if not in_chunks:  # the server hands on no more than what was announced
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
