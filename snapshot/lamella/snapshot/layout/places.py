"""Which places of the store a table may use: its own folder, and what lies below the prefixes that it is given.

A prefix ends at a slash, given or not, so ``s3://b/sales`` never covers ``s3://b/sales-secret``. What a location means
must not depend on who reads it: stores that are folders underneath take ``..`` for the folder above, some programs take
``%2e`` for a dot, some file systems take ``A`` for ``a``. So a location is allowed only if every such reading of it is,
while a prefix is compared letter by letter. Everything is decided by the text; nothing here asks the store.

A link of a file system is followed by it, not here: who can make links in a place can give away what they lead to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, Protocol
from urllib.parse import unquote

from lamella.snapshot.errors import InvalidRequest, LocationRefused
from lamella.snapshot.layout.location import Location, parse
from lamella.snapshot.layout.selection import glob_root, has_magic

#: How often a name may be percent-encoded; one that is so more often is nobody's honest name.
_MOST_ENCODED: Final = 3
_SLASHES: Final = re.compile("/+")


class Places(Protocol):
    """Says of locations whether a table may use them."""

    def allows(self, location: str) -> bool:
        """True for an object that may be used; raises InvalidRequest for what is no location."""
        ...

    def require(self, location: str) -> None:
        """Raise LocationRefused for an object that may not be used."""
        ...

    def require_all_below(self, url: str) -> None:
        """Raise LocationRefused unless whatever a URL can stand for (see ``Store.expand``) lies in allowed places."""
        ...


class Anywhere:
    """No rules."""

    def allows(self, location: str) -> bool:  # noqa: ARG002  # the port's signature
        """True."""
        return True

    def require(self, location: str) -> None:
        """Return."""

    def require_all_below(self, url: str) -> None:
        """Return."""


class AllowedPlaces:
    """The rules of one table. ``own`` is its folder, None when it has none yet.

    ``warehouse`` is the folder of all tables: but for ``own`` nothing in it is allowed, whatever the prefixes say.
    """

    def __init__(self, warehouse: str, own: str | None, prefixes: Iterable[str] = ()) -> None:
        self._warehouse = _loosely(_folder(warehouse))
        self._own = None if own is None else str(_folder(own))
        self._prefixes = tuple(str(_folder(prefix)) for prefix in prefixes)

    def allows(self, location: str) -> bool:
        """True for an object that may be used; raises InvalidRequest for what is no location."""
        at = parse(location)
        if self._own is not None and _is_below(self._own, str(at)):
            return True
        return any(_is_below(prefix, str(at)) for prefix in self._prefixes) and not _is_inside(self._warehouse, at)

    def require(self, location: str) -> None:
        """Raise LocationRefused for an object that may not be used."""
        if not self.allows(location):
            raise _refused(location)

    def require_all_below(self, url: str) -> None:
        """Raise LocationRefused unless whatever a URL can stand for (see ``Store.expand``) lies in allowed places."""
        at = parse(url)
        if not self._allows_folder(at):
            raise _refused(url)
        if has_magic(at.path):
            root = glob_root(at.path)
            if not root.strip("/") or not self._allows_folder(Location(at.scheme, root)):
                raise _refused(url)

    def _allows_folder(self, at: Location) -> bool:
        folder = _folder_of(at)
        text = str(folder)
        if self._own is not None and (text == self._own or _is_below(self._own, text)):
            return True
        if not any(text == prefix or _is_below(prefix, text) for prefix in self._prefixes):
            return False
        # A folder around the warehouse has all tables in it.
        scheme, root = self._warehouse
        around = any(scheme == of and root.startswith(path) for of, path in _loose(folder))
        return not around and not _is_inside(self._warehouse, folder)


def check_prefix(prefix: str, warehouse: str) -> None:
    """Raise InvalidRequest for a text that makes no prefix of allowed places."""
    at = parse(prefix)
    if has_magic(at.path):
        raise InvalidRequest(f"{prefix!r} is a glob; an allowed place is a folder with all below", place=prefix)
    if any(_climbs(reading) for reading in _readings(at.path) or ("..",)):
        raise InvalidRequest(f"{prefix!r} has a part '.' or '..', or is encoded too often", place=prefix)
    if _is_inside(_loosely(_folder(warehouse)), at):
        raise InvalidRequest(
            f"{prefix!r} is in the warehouse {warehouse}, where tables have their own folders; use another place",
            place=prefix,
        )


def _refused(location: str) -> LocationRefused:
    return LocationRefused(f"{location} is not among the places that this table may use", location=location)


def _folder(text: str) -> Location:
    return _folder_of(parse(text))


def _folder_of(at: Location) -> Location:
    return Location(at.scheme, at.path.rstrip("/") + "/")


def _is_inside(root: tuple[str, str], at: Location) -> bool:
    """Whether a place is in a folder, or is it, in any reading."""
    return any(scheme == root[0] and path.startswith(root[1]) for scheme, path in _loose(_folder_of(at)))


def _is_below(folder: str, location: str) -> bool:
    """Whether a location is in a folder, letter by letter, and stays in there however the rest of it is read."""
    if not location.startswith(folder):
        return False
    readings = _readings(location[len(folder) :])
    return bool(readings) and all(reading.strip("/") and not _climbs(reading) for reading in readings)


def _climbs(path: str) -> bool:
    return "." in path and any(part in (".", "..") for part in path.split("/"))


def _readings(text: str) -> list[str]:
    """The text as it stands, and as programs read it that decode percent signs; empty: there is no end to it."""
    found = [text]
    while "%" in found[-1]:
        decoded = unquote(found[-1])
        if decoded == found[-1]:
            break
        if len(found) > _MOST_ENCODED:
            return []
        found.append(decoded)
    return found


def _loose(at: Location) -> Iterator[tuple[str, str]]:
    """The scheme and path in every reading, so that what may be the same place is the same text."""
    for path in _readings(at.path):
        yield _loosely(Location(at.scheme, path))


def _loosely(at: Location) -> tuple[str, str]:
    return at.scheme, _SLASHES.sub("/", at.path).casefold()
