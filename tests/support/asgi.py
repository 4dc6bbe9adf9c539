"""Requests to an application without a server or sockets: what is left is what the application itself does."""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp, Message


async def ask(app: ASGIApp, method: str, path: str, body: bytes = b"", *, key: str | None = None) -> tuple[int, bytes]:
    """The status and body of an answer; ``key``: an API key to show."""
    status = 0
    parts: list[bytes] = []
    given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return given.pop() if given else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if key is not None:
        headers.append((b"authorization", b"Bearer " + key.encode()))
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    await app(scope, receive, send)
    return status, b"".join(parts)
