"""Questions to ask of a store: does it keep the first of two puts, and does it take a put now?

Some S3 servers ignore ``If-None-Match`` and replace the object without a word. On such a server two writers can lose
each other's work, so a service should refuse to start on it.
"""

from __future__ import annotations

import uuid
from typing import Final

from lamella.snapshot.errors import AlreadyExists, StoreError
from lamella.snapshot.layout.store import Store

#: As large as a small manifest: a disk that is all but full takes less.
_WRITTEN_BYTES: Final = 64 << 10


def check_create_only(store: Store, folder: str) -> None:
    """Put a small object below ``folder`` twice, and remove it again.

    Raises:
        StoreError: the second put was not refused as AlreadyExists, or the store failed otherwise.
        InvalidRequest: ``folder`` is no location.
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
        f"{folder}: this store lets a second writer replace an object; commits would be lost on it", location=folder
    )


def check_write(store: Store, folder: str) -> None:
    """Put an object below ``folder`` as large as a small manifest, and remove it again.

    Raises:
        StoreError: the store is full, lets nobody write, or failed otherwise.
    """
    location = f"{folder.rstrip('/')}/_probe/{uuid.uuid4().hex}"
    store.put(location, bytes(_WRITTEN_BYTES))
    store.delete(location)
