"""Block keys: 128 bits that identify a block by its content, independent of its position.

The first half is a hash of the location alone. The second half is a hash of everything by which a manifest can tell one
file from another: location, size, number of rows, content id, hash of the footer, the schema under which it was
registered, and the values of columns that it does not hold. A file that is replaced in place keeps the first half and
gets another second half. So nothing known about the old file is applied to the new one, and a cache of the old one can
detect the replacement. Blocks keep their keys when segments are merged, grouped or rewritten.

Deleted rows are not part of a key: indexes and statistics are about all rows of a file, and remain valid. Whatever is
known only of the rows that are left must not be kept under a key, since a rollback brings rows back.

Guarantee: blocks that differ in one of these have different keys, except with probability 2**-64. Blocks that agree in
all of them are treated as the same. How much that distinguishes depends on the store's content id: an etag changes with
the bytes; a local file's content id is its size and modification time in nanoseconds. A local file that is replaced by
another one of the same size, with the same number of rows, exactly the same footer and a modification time set to that
of the old file has the same key. (Its inode or status change time would differ, but a warehouse that is copied to
another disk gets new ones, and all of its blocks would be unknown.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.errors import ManifestError
from lamella.snapshot.manifest.block_arrays import BlockSequence
from lamella.snapshot.manifest.structs import DeleteFile
from lamella.snapshot.stats import Bound
from lamella.snapshot.stats.constant import Constants

#: (n, 2) array of uint64: the two halves of each key, that of the location first.
BlockKeys = npt.NDArray[np.uint64]
#: Bytes of a key as stored or sent: both halves, little-endian.
KEY_BYTES: Final = 16


class Identity(msgspec.Struct, frozen=True):
    """The members of a block that its key is computed from, and its deleted rows."""

    location: str
    row_count: int
    file_size: int
    content_id: str | None = None
    footer_sha256: str | None = None
    schema_id: int | None = None
    constants: dict[int, Bound | None] = {}
    deletes: tuple[DeleteFile, ...] = ()


class _Segment(msgspec.Struct):
    blocks: tuple[Identity, ...]


_SEGMENT: Final = msgspec.json.Decoder(_Segment)
_ENCODER: Final = msgspec.json.Encoder()


class Identified(Protocol):
    """A block, or an :class:`Identity`."""

    @property
    def location(self) -> str: ...  # see Block
    @property
    def row_count(self) -> int: ...
    @property
    def file_size(self) -> int: ...
    @property
    def content_id(self) -> str | None: ...
    @property
    def footer_sha256(self) -> str | None: ...
    @property
    def schema_id(self) -> int | None: ...
    @property
    def constants(self) -> Constants: ...


def identities(manifest: bytes, location: str) -> tuple[Identity, ...]:
    """Returns the identities of the blocks in a segment's manifest without decoding the rest of it; raises
    ManifestError."""
    try:
        return _SEGMENT.decode(manifest).blocks
    except msgspec.DecodeError as error:
        raise ManifestError(f"{location} is damaged: {error}", location=location) from error


def block_keys(blocks: Iterable[Identified]) -> BlockKeys:
    """Returns the keys of blocks."""
    return keys_of(b"".join(_digest(block) for block in blocks))


def block_keys_of(blocks: BlockSequence) -> BlockKeys:
    """Returns the keys of blocks without constants, as :func:`block_keys`."""
    blake2b = hashlib.blake2b
    digests: list[bytes] = []
    for location, file_size, row_count, content_id, footer_sha256, schema_id in zip(
        blocks.locations,
        map(str, blocks.file_sizes),
        map(str, blocks.row_counts),
        blocks.content_ids,
        blocks.footer_hashes,
        blocks.schema_ids,
        strict=True,
    ):
        content = "" if content_id is None else "=" + content_id
        footer = "" if footer_sha256 is None else "=" + footer_sha256
        schema = str(schema_id) if schema_id else ""
        lengths = f"{len(location)},{len(file_size)},{len(row_count)},{len(content)},{len(footer)}"
        if schema:
            lengths += f",{len(schema)}"
        text = f"{lengths}:{location}{file_size}{row_count}{content}{footer}{schema}"
        digests += (
            blake2b(location.encode("utf-8", "surrogatepass"), digest_size=8).digest(),
            blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(),
        )
    return keys_of(b"".join(digests))


def keys_of(raw: bytes) -> BlockKeys:
    """Returns keys from their bytes, whose number is a multiple of :data:`KEY_BYTES`."""
    return np.frombuffer(raw, dtype="<u8").reshape(-1, 2).astype(np.uint64)


def bytes_of(keys: BlockKeys) -> bytes:
    """Returns the concatenated bytes of keys."""
    return np.ascontiguousarray(keys).astype("<u8").tobytes()


def no_keys() -> BlockKeys:
    """Returns an empty array of keys."""
    return np.zeros((0, 2), dtype=np.uint64)


def are_among(keys: BlockKeys, others: BlockKeys) -> npt.NDArray[np.bool_]:
    """Returns for each key whether it is one of ``others``."""
    both = np.concatenate([others, keys])
    order = np.lexsort((both[:, 1], both[:, 0]))
    begins = np.ones(len(both), dtype=bool)
    begins[1:] = (both[order[1:]] != both[order[:-1]]).any(axis=1)
    group = np.empty(len(both), dtype=np.int64)
    group[order] = np.cumsum(begins) - 1
    found = np.zeros(len(both), dtype=bool)
    found[group[: len(others)]] = True
    return found[group[len(others) :]]


def _digest(block: Identified) -> bytes:
    parts = (
        block.location,
        str(block.file_size),
        str(block.row_count),
        "" if block.content_id is None else "=" + block.content_id,
        "" if block.footer_sha256 is None else "=" + block.footer_sha256,
        # The same file, registered again under other columns, has other values in a column of an old name.
        *((str(block.schema_id),) if block.schema_id else ()),
        *((_ENCODER.encode(dict(sorted(block.constants.items()))).decode(),) if block.constants else ()),
    )
    # The lengths come first, so that no two lists of parts give the same text.
    text = ",".join(str(len(part)) for part in parts) + ":" + "".join(parts)
    return _hash(block.location) + _hash(text)


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
