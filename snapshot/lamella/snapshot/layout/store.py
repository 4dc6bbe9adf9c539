"""The port to object storage. Everything above it sees locations, bytes and :class:`ObjectStat`, never a file system.

A location is a whole URL with nothing escaped: ``file:///a b/x.parquet``, ``s3://bucket/key%20with percent``,
``memory://x``. What a user may type (``/a/b``, ``file:/a/b``, ``s3a://...``) is brought to that form by
:func:`lamella.snapshot.layout.location.parse`.

Error rules, the same for every store:

- The object is not there, or is a folder: :class:`~lamella.snapshot.errors.ObjectNotFound`.
- ``put`` onto something that is there: :class:`~lamella.snapshot.errors.AlreadyExists`, and nothing has changed.
- A location that cannot be read as one: :class:`~lamella.snapshot.errors.InvalidRequest`.
- Anything else that storage did or refused: :class:`~lamella.snapshot.errors.StoreError`; a put that ended so may
  have left its object behind, or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import msgspec


class ObjectStat(msgspec.Struct, frozen=True, kw_only=True):
    """An object as the store has it now.

    ``content_id`` changes when the bytes are replaced: the store's etag, or ``"<size>-<modified, ns>"`` without one.
    """

    location: str
    size_bytes: int
    content_id: str


class ListedObject(ObjectStat, frozen=True, kw_only=True):
    """An object as a listing shows it; ``modified_ms`` is the store's own time of its last change (Unix, UTC)."""

    modified_ms: int


class Store(Protocol):
    """Reads and create-only writes of whole objects. Implementations may be used from several threads."""

    def read(self, location: str) -> bytes:
        """All bytes of an object."""
        ...

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """``length`` bytes from ``start``; fewer (perhaps none) when the object ends before."""
        ...

    def stat(self, location: str) -> ObjectStat:
        """Size and content id of an object, asked of the store itself: no cache stands between."""
        ...

    def put(self, location: str, data: bytes) -> ObjectStat:
        """Create an object: a reader sees nothing or all of it, and of two writers at most one succeeds."""
        ...

    def expand(self, url: str, *, plain: bool = False) -> list[str]:
        """The data files that a URL names, as sorted locations.

        A file is itself, whatever its name. A folder stands for the ``*.parquet`` files below it, at any depth,
        without hidden ones (a part of the path that starts with ``.``, or with ``_`` and holds no ``=``: Spark's
        rule). A glob (``*``, ``?``, ``[...]`` within one part of the path, ``**`` across parts) stands for the files
        and folders that match it.

        ``plain``: refuse folders that are another format's table, in which files may be that no longer count.

        Raises:
            ObjectNotFound: nothing is there, or no data file.
            OtherTableFormat: a file is part of such a table; only with ``plain``.
        """
        ...

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:
        """Every object below a folder, hidden ones too, sorted by location; nothing when there is no such folder.

        A folder ends at a slash, given or not: listing ``t`` never shows what is in ``t-2``. ``start_after``: only
        what sorts behind this location (which need not be there). Stores that list in pages fetch them as needed, so
        what changes meanwhile may be seen or not.
        """
        ...

    def delete(self, location: str) -> None:
        """Remove an object; one that is not there is no error."""
        ...

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Remove objects, many in one request where the store can; one that is not there is no error.

        Returns:
            The reason for each location that may still be there. The others are gone.

        Raises:
            InvalidRequest: a location that cannot be read as one; nothing was removed.
        """
        ...


@runtime_checkable
class MappableStore(Protocol):
    """A store some of whose objects are files of this machine, which can be mapped instead of being read."""

    def local_path(self, location: str) -> str | None:
        """The path of such an object, whether it is there or not; None for others.

        An object that is mapped may be deleted, but it must not be changed in place, which no store does.
        """
        ...


@runtime_checkable
class ReplacingStore(Store, Protocol):
    """A store that can also put an object in the place of another."""

    def replace(self, location: str, data: bytes) -> None:
        """Create or replace an object: a reader sees what was there before, or all of this."""
        ...


class SignedUrls(msgspec.Struct, frozen=True, kw_only=True):
    """URLs in the order of what they were asked for; all hold until ``expires_ms`` (Unix, UTC), by the store's clock.

    Who has one can read that object, so they belong into no log and no cache.
    """

    urls: tuple[str, ...]
    expires_ms: int

    def __repr__(self) -> str:
        return f"SignedUrls({len(self.urls)} urls, expires_ms={self.expires_ms})"


@runtime_checkable
class SigningStore(Protocol):
    """A store that can give somebody without credentials of its own the right to read some objects for a time."""

    def sign(self, locations: Sequence[str], expires_s: int) -> SignedUrls:
        """URLs that answer a GET of exactly these objects, with or without a range, whether they are there or not.

        Raises:
            NotSignable: a location of a protocol that has no such URLs, or without credentials.
            StoreError: the credentials cannot be had.
        """
        ...
