"""The interface of object storage, and probes of a store's capabilities."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, Protocol, runtime_checkable

import msgspec

from lamella.snapshot.errors import AlreadyExists, StoreError

# The port to object storage. Everything above it sees locations, bytes and ``ObjectStat``, never a file system.
#
# A location is a whole URL with nothing escaped: ``file:///a b/x.parquet``, ``s3://bucket/key%20with percent``,
# ``memory://x``. What a user may type (``/a/b``, ``file:/a/b``, ``s3a://...``) is brought to that form by
# ``snapshot.storage.location.parse``.
#
# Error rules, the same for every store:
#
# - The object is not there, or is a folder: ``snapshot.errors.ObjectNotFound``.
# - ``put`` onto something that is there: ``snapshot.errors.AlreadyExists``, and nothing has changed.
# - A location that cannot be read as one: ``snapshot.errors.InvalidRequest``.
# - Anything else that storage did or refused: ``snapshot.errors.StoreError``; a put that ended so may
#   have left its object behind, or not.


class ObjectStat(msgspec.Struct, frozen=True, kw_only=True):
    """An object's current state in the store.

    ``content_id`` changes when the bytes are replaced: the store's etag, or ``"<size>-<modified, ns>"`` without one.
    """

    location: str
    size_bytes: int
    content_id: str


class ListedObject(ObjectStat, frozen=True, kw_only=True):
    """An object in a listing; ``modified_ms`` is the store's own modification time (Unix, UTC)."""

    modified_ms: int


class Store(Protocol):
    """Reads and create-only writes of whole objects. Implementations may be used from several threads."""

    def read(self, location: str) -> bytes:
        """Returns all bytes of an object."""
        ...

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Returns ``length`` bytes from ``start``; fewer (possibly none) if the object ends before."""
        ...

    def stat(self, location: str) -> ObjectStat:
        """Returns size and content id of an object, from the store itself without a cache."""
        ...

    def put(self, location: str, data: bytes) -> ObjectStat:
        """Create an object: a reader sees nothing or all of it, and of two writers at most one succeeds."""
        ...

    def expand(self, url: str, *, plain: bool = False) -> list[str]:
        """Returns the data files that a URL names, as sorted locations.

        A file stands for itself, whatever its name. A folder stands for the ``*.parquet`` files below it, at any depth,
        without hidden ones (a part of the path that starts with ``.``, or with ``_`` and contains no ``=``: Spark's
        rule). A glob (``*``, ``?``, ``[...]`` within one part of the path, ``**`` across parts) stands for the files
        and folders that match it. On S3, a path that ends in a slash is a folder, also where an object has that key.

        ``plain``: refuse folders that are another format's table, in which some files may no longer count.

        Raises:
            ObjectNotFound: nothing is there, or no data file.
            OtherTableFormat: a file is part of such a table; only with ``plain``.
        """
        ...

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:
        """Yields every object below a folder, including hidden ones, sorted by location; nothing if there is no such
        folder.

        A folder ends at a slash, whether written or not: listing ``t`` never shows the content of ``t-2``.
        ``start_after``: only objects that sort after this location (which need not exist). Stores that list in pages
        fetch them as needed, so concurrent changes may be visible or not.
        """
        ...

    def delete(self, location: str) -> None:
        """Remove an object; a missing object is not an error."""
        ...

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Remove objects, many per request if the store can; a missing object is not an error.

        Returns:
            The reason for each location that may still exist. The others are deleted.

        Raises:
            InvalidRequest: an invalid location; nothing was removed.
        """
        ...


@runtime_checkable
class MappableStore(Protocol):
    """A store some of whose objects are local files, which can be mapped instead of being read."""

    def local_path(self, location: str) -> str | None:
        """Returns the path of such an object, whether it exists or not; None for others.

        A mapped object may be deleted, but must not be changed in place, which no store does.
        """
        ...


@runtime_checkable
class EndReadingStore(Store, Protocol):
    """A store that reads the end of some objects in one request, whatever their sizes."""

    def reads_ends(self, location: str) -> bool:
        """Returns whether :meth:`read_end` can be asked for an object."""
        ...

    def read_end(self, location: str, length: int) -> tuple[ObjectStat, bytes]:
        """Returns the last ``length`` bytes of an object (all of a shorter one), and the stat of the very version that
        they are from.
        """
        ...


@runtime_checkable
class CachedEndStore(Store, Protocol):
    """A store with files that the system may have in memory, so that reading them does not wait."""

    def read_cached_ends(self, locations: Sequence[str], length: int) -> dict[str, tuple[ObjectStat, bytes]]:
        """Returns the stats and last ``length`` bytes (all of a shorter one) of files, up to the first of them for
        which the system would wait.

        A stat is that of the file which the bytes are from, as of a moment before they were read. Nothing is wrong with
        a location that is missing here: :meth:`Store.stat` and :meth:`Store.read_range` know.
        """
        ...


@runtime_checkable
class BatchStatStore(Protocol):
    """A store that asks for the stats of some objects together, because one by one they cost more."""

    def stat_many(self, locations: Sequence[str]) -> dict[str, ObjectStat]:
        """Returns stats by location as written, from the store itself without a cache.

        A location that is missing here may exist all the same: :meth:`Store.stat` knows, or says what is wrong.
        """
        ...


@runtime_checkable
class ReplacingStore(Store, Protocol):
    """A store that can also replace objects."""

    def replace(self, location: str, data: bytes) -> None:
        """Create or replace an object: a reader sees the old content or all of the new."""
        ...


class SignedUrls(msgspec.Struct, frozen=True, kw_only=True):
    """URLs in the order of the request; all are valid until ``expires_ms`` (Unix, UTC), by the store's clock.

    Anyone with a URL can read that object, so URLs must not be logged or cached.
    """

    urls: tuple[str, ...]
    expires_ms: int

    def __repr__(self) -> str:
        return f"SignedUrls({len(self.urls)} urls, expires_ms={self.expires_ms})"


@runtime_checkable
class SigningStore(Protocol):
    """A store that can grant clients without own credentials temporary read access to some objects."""

    def sign(self, locations: Sequence[str], expires_s: int) -> SignedUrls:
        """Returns URLs that answer a GET of exactly these objects, with or without a range, whether they exist or not.

        Raises:
            NotSignable: a location of a scheme without such URLs, or no credentials.
            StoreError: the credentials are unavailable.
        """
        ...


# Probes of a store: does it keep the first of two puts, and does it accept a put now?
#
# Some S3 servers ignore ``If-None-Match`` and silently replace the object. On such a server two writers can lose each
# other's work, so a service should refuse to start on it.

#: The size of a small manifest: a nearly full disk accepts less.
_WRITTEN_BYTES: Final = 64 << 10


def check_create_only(store: Store, folder: str) -> None:
    """Put a small object below ``folder`` twice, and remove it again.

    Raises:
        StoreError: the second put was not refused as AlreadyExists, or the store failed otherwise.
        InvalidRequest: ``folder`` is not a location.
    """
    location = f"{folder.rstrip('/')}/_probe/{uuid.uuid4().hex}"
    store.put(location, b"first")
    try:
        store.put(location, b"second")
    except AlreadyExists:
        return
    finally:
        store.delete(location)
    raise StoreError(
        f"{folder}: this store lets a second writer overwrite an object; commits could be lost", location=folder
    )


def check_write(store: Store, folder: str) -> None:
    """Put an object of the size of a small manifest below ``folder``, and remove it again.

    Raises:
        StoreError: the store is full, refuses writes, or failed otherwise.
    """
    location = f"{folder.rstrip('/')}/_probe/{uuid.uuid4().hex}"
    store.put(location, bytes(_WRITTEN_BYTES))
    store.delete(location)


# Which files may be mapped into memory: those of a local file system.
#
# On a network file system, a mapped file that another machine deletes can no longer be read, and the system kills a
# process that tries.

_MOUNTS: Final = "/proc/self/mounts"
_OF_THIS_MACHINE: Final = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}
)
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


@lru_cache(maxsize=1024)
def is_mappable(folder: str) -> bool:
    """Returns whether the folder is on a file system that is known to be local; False if that is unknown."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    real = os.path.realpath(folder)
    found, kind = "", ""
    for line in lines:
        _, at, this, *_ = line.split(" ")
        at = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), at)
        # Of two mounts at one path the later one is visible.
        if len(at) >= len(found) and (real == at or real.startswith(at.rstrip("/") + "/")):
            found, kind = at, this
    return kind in _OF_THIS_MACHINE
