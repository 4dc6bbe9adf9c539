"""Where the service is: its base URL, taken apart and checked once."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

import msgspec

from lamella.snapshot.errors import InvalidRequest


class Address(msgspec.Struct, frozen=True):
    """A service's base URL; ``path`` is what stands before ``/v1`` (empty, or ``/prefix`` behind a proxy)."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def parse_address(url: str) -> Address:
    """Read a base URL such as ``http://127.0.0.1:8181`` or ``https://lake.example.com/lamella``.

    Raises:
        InvalidRequest: another scheme, no host, a port that is none, or a user, query or fragment.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidRequest(f"{url!r} is not a URL: {error}", url=url) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest(f"{url!r} is not the URL of a service; it looks like http://127.0.0.1:8181", url=url)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidRequest("the URL of a service has no user, query or fragment; pass a token by `token`")
    if any(ord(c) <= 32 or ord(c) > 126 for c in parts.hostname + parts.path):
        raise InvalidRequest(f"{url!r} has characters that must be percent-encoded", url=url)
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    return Address(scheme, parts.hostname, port or (443 if scheme == "https" else 80), parts.path.rstrip("/"))
