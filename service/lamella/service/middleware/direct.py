"""The shortest way to the routes that are asked most: by the parts of the path, not by one route after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from lamella.service.api import Handler, Operation


class _Target(msgspec.Struct, frozen=True):
    fixed: tuple[tuple[int, str], ...]
    named: tuple[tuple[int, str], ...]
    handler: Handler


class DirectMiddleware:
    """Hands requests for ``targets`` to their handlers, and all others on to ``app``, which has the same routes.

    ``targets``: operations, each with its handler, which must answer every error itself. ``failed`` is told of an
    answer that could not be sent to its end, whose error then goes on to the server, which cuts the connection.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        targets: Iterable[tuple[Operation, Handler]],
        failed: Callable[[Request, Exception], object],
    ) -> None:
        self._app = app
        self._failed = failed
        self._targets: dict[tuple[str, int, str], _Target] = {}
        for operation, handler in targets:
            parts = operation.path.split("/")
            fixed = tuple((i, part) for i, part in enumerate(parts) if not part.startswith("{"))
            named = tuple((i, part[1:-1]) for i, part in enumerate(parts) if part.startswith("{"))
            self._targets[operation.method, len(parts), parts[-1]] = _Target(fixed, named, handler)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = self._target(scope) if scope["type"] == "http" and not scope.get("root_path") else None
        if target is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await target.handler(request)
            await response(scope, receive, send)
        except ClientDisconnect:
            raise
        except Exception as error:
            self._failed(request, error)
            raise

    def _target(self, scope: Scope) -> _Target | None:
        """Where the request goes, with the named parts of its path in the scope."""
        parts = scope["path"].split("/")
        target = self._targets.get((scope["method"], len(parts), parts[-1]))
        if target is None:
            return None
        for i, part in target.fixed:
            if parts[i] != part:
                return None
        given = {name: parts[i] for i, name in target.named}
        if not all(given.values()):
            return None
        scope["path_params"] = given
        return target
