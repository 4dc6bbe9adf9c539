"""The shortest way to the routes that are asked most: by the parts of the path, not by one route after another."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from lamella.service.api import Handler, Operation


class _Target(msgspec.Struct, frozen=True):
    fixed: tuple[tuple[int, str], ...]
    named: tuple[tuple[int, str], ...]
    handler: Handler


class DirectMiddleware:
    """Hands requests for ``targets`` to their handlers, and all others on to ``app``, which has the same routes.

    ``targets``: operations, each with its handler, which must answer every error itself.
    """

    def __init__(self, app: ASGIApp, *, targets: Iterable[tuple[Operation, Handler]]) -> None:
        self._app = app
        self._targets: dict[tuple[str, int, str], _Target] = {}
        for operation, handler in targets:
            parts = operation.path.split("/")
            fixed = tuple((i, part) for i, part in enumerate(parts) if not part.startswith("{"))
            named = tuple((i, part[1:-1]) for i, part in enumerate(parts) if part.startswith("{"))
            self._targets[operation.method, len(parts), parts[-1]] = _Target(fixed, named, handler)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope.get("root_path"):
            parts = scope["path"].split("/")
            target = self._targets.get((scope["method"], len(parts), parts[-1]))
            if target is not None and all(parts[i] == part for i, part in target.fixed):
                given = {name: parts[i] for i, name in target.named}
                if all(given.values()):
                    scope["path_params"] = given
                    response = await target.handler(Request(scope, receive, send))
                    await response(scope, receive, send)
                    return
        await self._app(scope, receive, send)
