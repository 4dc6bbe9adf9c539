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

from collections.abc import Iterator
from typing import Protocol

import msgspec


class ObjectStat(msgspec.Struct, frozen=True, kw_only=True):
    """An object as the store has it now.

    ``content_id`` changes when the bytes are replaced: the store's etag, or ``"<size>-<modified, ns>"`` without one.
    """

    location: str
    size_bytes: int
    content_id: str


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

    def expand(self, url: str) -> list[str]:
        """The data files that a URL names, as sorted locations.

        A file is itself, whatever its name. A folder stands for the ``*.parquet`` files below it, at any depth,
        without hidden ones (a part of the path that starts with ``.``, or with ``_`` and holds no ``=``: Spark's
        rule). A glob (``*``, ``?``, ``[...]`` within one part of the path, ``**`` across parts) stands for the files
        and folders that match it.

        Raises:
            ObjectNotFound: nothing is there, or no data file.
        """
        ...

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        """Every object below a folder, hidden ones too, sorted by location; nothing when there is no such folder."""
        ...

    def delete(self, location: str) -> None:
        """Remove an object; one that is not there is no error."""
        ...
