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
#: The same where a second request costs next to nothing.
LOCAL_TAIL_BYTES: Final = 16 << 10
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
    return decode_footer(stat, read_footer_bytes(store, stat))


def read_footer_bytes(store: Store, stat: ObjectStat) -> bytes:
    """The footer of a file, still encoded; raises what :func:`read_footer` raises, but CorruptParquet."""
    try:
        return _read(store, stat)
    except LamellaError as error:
        error.details.setdefault("location", stat.location)
        raise


def decode_footer(stat: ObjectStat, footer: bytes) -> Footer:
    """Decode and check the bytes that stand at the end of the file; raises CorruptParquet or TruncatedParquet."""
    try:
        metadata = read_metadata(footer, stat.size_bytes - 8 - len(footer))
    except NotParquet as error:
        details = {**error.details, "location": stat.location}
        raise type(error)(f"{stat.location}: {error.message}", **details) from error
    return Footer(stat=stat, sha256=hashlib.sha256(footer).hexdigest(), footer_size=len(footer), metadata=metadata)


def _read(store: Store, stat: ObjectStat) -> bytes:
    size = stat.size_bytes
    wanted = min(size, LOCAL_TAIL_BYTES if stat.location.startswith("file:") else TAIL_BYTES)
    tail = store.read_range(stat.location, size - wanted, wanted)
    if len(tail) != wanted:
        raise TruncatedParquet(f"{stat.location} ends before the {size} bytes that the store gives as its size")
    magic = tail[-4:]
    if size < 12 or magic != _MAGIC:
        _refuse(store, stat, magic)
    length = int.from_bytes(tail[-8:-4], "little")
    if length > size - 12:
        raise TruncatedParquet(f"{stat.location} has a footer of {length} bytes in a file of {size}")
    if length > MAX_FOOTER_BYTES:
        raise LimitExceeded(
            f"{stat.location} has a footer of {length} bytes; the limit is {MAX_FOOTER_BYTES}",
            limit="footer_bytes",
            most=MAX_FOOTER_BYTES,
        )
    if length + 8 <= len(tail):
        return tail[-8 - length : -8]
    footer = store.read_range(stat.location, size - 8 - length, length)
    if len(footer) != length:
        raise TruncatedParquet(f"{stat.location} ends before its footer does")
    return footer


def _refuse(store: Store, stat: ObjectStat, magic: bytes) -> None:
    """Say what a file that does not end as Parquet does is."""
    if magic == _ENCRYPTED:
        raise EncryptedParquet(f"{stat.location} has an encrypted footer")
    if store.read_range(stat.location, 0, 4) == _MAGIC:
        raise TruncatedParquet(f"{stat.location} starts as a Parquet file but does not end as one")
    raise NotParquet(f"{stat.location} is not a Parquet file")
