"""By which names a service may be asked for, while it asks nobody who they are.

A web page can have a name of its own point to a loopback address, and then read what is served there ("DNS rebinding").
A browser says that name in ``Host``, so a service that lets everyone on the machine do everything takes only names that
nobody out there can give: addresses, and names without a dot, such as ``localhost``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from lamella.snapshot.errors import PermissionDenied

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_FOREIGN: Final = frozenset({"cross-site", "same-site"})


class Hosts:
    """``allowed``: names beside addresses and those without a dot; without any and ``check_all``, all are taken."""

    def __init__(self, allowed: Sequence[str], *, check_all: bool) -> None:
        self._allowed = frozenset(name.lower() for name in allowed)
        self._is_on = check_all or bool(allowed)
        self._seen: set[str] = set()

    def check(self, request: HTTPConnection) -> None:
        """Raises PermissionDenied for another name."""
        if not self._is_on:
            return
        given = request.headers.get("host", "")
        if given in self._seen:
            return
        name = given.rpartition(":")[0] if _has_port(given) else given
        if not self._is_ours(name.lower()):
            raise PermissionDenied(
                "this service is not asked for by that name; its operator can allow it (allowed_hosts)", reason="host"
            )
        if len(self._seen) < 100:
            self._seen.add(given)

    def _is_ours(self, name: str) -> bool:
        return name in self._allowed or _is_plain(name) or _is_address(name)


def refuse_foreign(request: HTTPConnection) -> None:
    """Raises PermissionDenied for a change that a page of another site has a browser ask for.

    It can do so without asking first, as long as the request has no body of a kind that forms cannot send.
    """
    if request.scope["method"] in _READS:
        return
    headers = request.headers
    origin = headers.get("origin")
    is_foreign = headers.get("sec-fetch-site") in _FOREIGN
    if is_foreign or (origin is not None and urlsplit(origin).netloc != headers.get("host", "")):
        raise PermissionDenied("a page of another site asked for this", reason="origin")


def _is_plain(name: str) -> bool:
    return "." not in name and ":" not in name


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _has_port(given: str) -> bool:
    return given.rpartition(":")[2].isdigit() and (given.count(":") == 1 or "]:" in given)
