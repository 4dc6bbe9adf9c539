"""A file of the cache: some buffers, each on a multiple of 64 bytes, under one checksum.

::

    8 bytes  LAMCACHE        4 bytes  CRC-32 of all that follows it      4 bytes  number of buffers n
    8 bytes  size of the file        32 bytes  SHA-256 of the key        8 bytes  zero
    n lengths (uint64), zeros up to a multiple of 64; each buffer, zeros up to a multiple of 64

Numbers are little-endian; what is in the buffers is as the machine has it, since such a file never leaves it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from lamella.snapshot.cache.port import Buffer, Views

ALIGNMENT_BYTES: Final = 64

_MAGIC: Final = b"LAMCACHE"
_HEAD: Final = struct.Struct("<8sIIQ32s8x")
_SUMMED_FROM: Final = 12  # magic and checksum stand before it
_EMPTY: Final = memoryview(b"")


class Damaged(Exception):
    """A file that is not as it was written; only the cache itself sees this."""


def read_only(buffer: Buffer) -> memoryview:
    """The bytes of a contiguous buffer of the machine's own numbers; raises TypeError or ValueError for another."""
    view = memoryview(buffer)  # type: ignore[arg-type]  # NumPy's types call an array a buffer from Python 3.12 on
    if not view.nbytes:
        return _EMPTY
    return view.cast("B").toreadonly()


def pack(digest: bytes, buffers: Views) -> list[memoryview]:
    """The parts of a file, in their order; ``digest`` is the SHA-256 of the key."""
    lengths = struct.pack(f"<{len(buffers)}Q", *(view.nbytes for view in buffers))
    parts = [_EMPTY, memoryview(lengths), _padding(_HEAD.size + len(lengths))]
    for view in buffers:
        parts += (view, _padding(view.nbytes))
    size_bytes = _HEAD.size + sum(part.nbytes for part in parts)
    parts[0] = memoryview(_HEAD.pack(_MAGIC, 0, len(buffers), size_bytes, digest))
    checksum = zlib.crc32(parts[0][_SUMMED_FROM:])
    for part in parts[1:]:
        checksum = zlib.crc32(part, checksum)
    parts[0] = memoryview(_HEAD.pack(_MAGIC, checksum, len(buffers), size_bytes, digest))
    return parts


def check(file: memoryview, digest: bytes) -> None:
    """Raise Damaged unless ``file`` is what :func:`pack` made for that key."""
    if file.nbytes < _HEAD.size:
        raise Damaged("shorter than its head")
    magic, checksum, count, size_bytes, found = _HEAD.unpack_from(file)
    if magic != _MAGIC or size_bytes != file.nbytes or found != digest:
        raise Damaged("not the file of that key, or cut")
    if zlib.crc32(file[_SUMMED_FROM:]) != checksum:
        raise Damaged("the checksum is another")
    if _HEAD.size + 8 * count > file.nbytes:
        raise Damaged("more buffers than there is room for")


def views(file: memoryview) -> Views:
    """The buffers of a file that was checked."""
    count = _HEAD.unpack_from(file)[2]
    lengths: Sequence[int] = np.frombuffer(file, dtype="<u8", count=count, offset=_HEAD.size).tolist()
    found = []
    start = _aligned(_HEAD.size + 8 * count)
    for length in lengths:
        found.append(file[start : start + length])
        start = _aligned(start + length)
    return tuple(found)


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _padding(size_bytes: int) -> memoryview:
    return memoryview(bytes(_aligned(size_bytes) - size_bytes))
