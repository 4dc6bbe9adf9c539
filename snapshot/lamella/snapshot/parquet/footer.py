"""Reading a file's footer: one ranged request for its tail, and a second only when the footer is longer than that."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from lamella.snapshot.errors import (
    EncryptedParquet,
    LamellaError,
    LimitExceeded,
    NotParquet,
    TruncatedParquet,
)
from lamella.snapshot.layout.store import ObjectStat, Store
from lamella.snapshot.parquet.metadata import FileMetadata, read_metadata

#: What the first request asks for, in bytes.
TAIL_BYTES: Final = 64 << 10
#: A longer footer is refused: decoding takes time and memory in proportion. About 100,000 column chunks fit.
MAX_FOOTER_BYTES: Final = 16 << 20

_MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"


class Footer(msgspec.Struct, frozen=True, kw_only=True):
    """A file's metadata with what ties it to the file: the store's own stat, and the footer's SHA-256."""

    stat: ObjectStat
    sha256: str
    footer_size: int
    metadata: FileMetadata

    @property
    def location(self) -> str:
        """Where the file is."""
        return self.stat.location


def read_footer(store: Store, location: str, stat: ObjectStat | None = None) -> Footer:
    """Read and check the footer of the file at ``location``; ``stat`` saves asking the store again.

    The size is asked for before the bytes are read, so a file replaced in between has an outdated content id, which
    a later check notices.

    Raises:
        ObjectNotFound, StoreError: as the store says.
        NotParquet: no Parquet magic at the end, nor at the start.
        TruncatedParquet: the end is missing, or something lies outside the file.
        EncryptedParquet: the footer is encrypted.
        CorruptParquet: the footer contradicts itself.
        LimitExceeded: the footer is longer than 16 MiB.
    """
    stat = stat or store.stat(location)
    try:
        return _read(store, stat)
    except LamellaError as error:
        error.details.setdefault("location", stat.location)
        raise


def _read(store: Store, stat: ObjectStat) -> Footer:
    size = stat.size_bytes
    tail = store.read_range(stat.location, max(0, size - TAIL_BYTES), min(size, TAIL_BYTES))
    if len(tail) != min(size, TAIL_BYTES):
        raise TruncatedParquet(f"{stat.location} ends before the {size} bytes that the store gives as its size")
    magic = tail[-4:]
    if size < 12 or magic != _MAGIC:
        _refuse(store, stat, magic)
    length = int.from_bytes(tail[-8:-4], "little")
    if length > size - 12:
        raise TruncatedParquet(f"{stat.location} has a footer of {length} bytes in a file of {size}")
    if length > MAX_FOOTER_BYTES:
        raise LimitExceeded(f"{stat.location} has a footer of {length} bytes; the limit is {MAX_FOOTER_BYTES}")
    start = size - 8 - length
    if length + 8 <= len(tail):
        footer = tail[-8 - length : -8]
    else:
        footer = store.read_range(stat.location, start, length)
        if len(footer) != length:
            raise TruncatedParquet(f"{stat.location} ends before its footer does")
    try:
        metadata = read_metadata(footer, start)
    except NotParquet as error:
        raise type(error)(f"{stat.location}: {error.message}", **error.details) from error
    return Footer(stat=stat, sha256=hashlib.sha256(footer).hexdigest(), footer_size=length, metadata=metadata)


def _refuse(store: Store, stat: ObjectStat, magic: bytes) -> None:
    """Say what a file that does not end as Parquet does is."""
    if magic == _ENCRYPTED:
        raise EncryptedParquet(f"{stat.location} has an encrypted footer")
    if store.read_range(stat.location, 0, 4) == _MAGIC:
        raise TruncatedParquet(f"{stat.location} starts as a Parquet file but does not end as one")
    raise NotParquet(f"{stat.location} is not a Parquet file")
