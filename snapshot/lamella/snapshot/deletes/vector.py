"""Deletion vectors: sets of row positions as compressed bitmaps (Roaring).

The bytes are those of ``deletion-vector-v1`` of Iceberg's Puffin specification: the length of what follows without the
checksum (4 bytes, big-endian), a magic number, the bitmap, and a CRC-32 of magic number and bitmap (big-endian). Delta
Lake keeps the same bytes in its files of deletion vectors; a vector that is inside its log lacks length and checksum.

The bitmap has 64-bit positions in the portable form of the Roaring specification. Positions count all rows of a file
from 0, whether deleted or not.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from base64 import b85decode, b85encode
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from lamella.snapshot.errors import CorruptDeletes

#: Ascending positions of rows.
Positions = npt.NDArray[np.int64]

#: Begins a bitmap in Iceberg's and Delta's files.
BITMAP_HEADER: Final = b"\xd1\xd3\x39\x64"
_LENGTH: Final = struct.Struct(">I")
#: Bytes of the length and the checksum.
VECTOR_FRAME_BYTES: Final = 2 * _LENGTH.size


def encode_vector(positions: Positions) -> bytes:
    """Returns a vector of ascending positions."""
    bitmap = BitMap64(array("Q", np.ascontiguousarray(positions, dtype=np.uint64).tobytes()))
    bitmap.run_optimize()
    return framed_bitmap(BITMAP_HEADER + bytes(bitmap.serialize()))


def framed_bitmap(body: bytes) -> bytes:
    """Returns a magic number and a bitmap as a vector, with their length and checksum."""
    return _LENGTH.pack(len(body)) + body + _LENGTH.pack(zlib.crc32(body))


def decode_vector(data: bytes, row_count: int, *, location: str) -> Positions:
    """Returns the positions of a vector over ``row_count`` rows.

    Raises:
        CorruptDeletes: it is damaged, or has a position that no row has.
    """
    if len(data) < VECTOR_FRAME_BYTES + len(BITMAP_HEADER):
        raise _corrupt(location, f"it has {len(data)} bytes")
    (length,) = _LENGTH.unpack_from(data)
    if length != len(data) - VECTOR_FRAME_BYTES:
        raise _corrupt(location, f"it states a length of {length} bytes, but has {len(data) - VECTOR_FRAME_BYTES}")
    body = data[_LENGTH.size : -_LENGTH.size]
    (checksum,) = _LENGTH.unpack(data[-_LENGTH.size :])
    if zlib.crc32(body) != checksum:
        raise _corrupt(location, "its checksum does not match")
    return decode_bitmap(body, row_count, location=location)


#: Z85 (ZeroMQ), in which Delta writes bytes as text, has other characters than Python's Base85.
_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_FROM_Z85: Final = str.maketrans(_Z85, _B85)
_TO_Z85: Final = str.maketrans(_B85, _Z85)
#: Bytes that five characters stand for.
_Z85_BYTES: Final = 4


def decode_z85(text: str) -> bytes:
    """Returns the bytes of a text in Z85. Raises ValueError if it is not."""
    if not set(text) <= set(_Z85) or len(text) % 5:
        raise ValueError("not Base85")
    return b85decode(text.translate(_FROM_Z85))


def inline_vector(data: bytes) -> tuple[str, int]:
    """Returns a vector as Delta's log has it: text, and how many of its bytes count (Z85 has multiples of four)."""
    body = data[_LENGTH.size : -_LENGTH.size]
    padded = body + bytes(-len(body) % _Z85_BYTES)
    return b85encode(padded).decode("ascii").translate(_TO_Z85), len(body)


def decode_inline_vector(text: str, size_bytes: int) -> bytes:
    """Returns such a vector with its length and checksum. Raises ValueError if it has another size or is no Z85."""
    data = decode_z85(text)
    if not 0 <= size_bytes <= len(data):
        raise ValueError(f"{size_bytes} bytes are stated, and there are {len(data)}")
    return framed_bitmap(data[:size_bytes])


def decode_bitmap(data: bytes, row_count: int, *, location: str) -> Positions:
    """Returns the positions of a magic number and a bitmap, a vector without length and checksum; raises as
    :func:`decode_vector`."""
    if not data.startswith(BITMAP_HEADER):
        raise _corrupt(location, f"it begins with {data[:4].hex()}, not {BITMAP_HEADER.hex()}")
    body = data[len(BITMAP_HEADER) :]
    try:
        bitmap = BitMap64.deserialize(body)
    except ValueError as error:
        raise _corrupt(location, "its bitmap cannot be decoded") from error
    # A few bytes can stand for billions of positions, so nothing is expanded before this check.
    if len(bitmap) > row_count or (len(bitmap) and bitmap.max() >= row_count):
        raise _corrupt(location, f"it deletes rows that a block of {row_count} rows does not have")
    positions = np.frombuffer(bitmap.to_array(), dtype=np.uint64).astype(np.int64)
    # The library does not check the order inside of a bitmap.
    if len(positions) != len(bitmap) or (np.diff(positions) <= 0).any():
        raise _corrupt(location, "its positions do not ascend")
    if len(positions) and not 0 <= positions[0] <= positions[-1] < row_count:
        raise _corrupt(location, f"it deletes rows that a block of {row_count} rows does not have")
    return positions


def union(parts: Sequence[Positions]) -> Positions:
    """Returns the positions that any of the parts has."""
    if len(parts) == 1:
        return parts[0]
    return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *parts]))


def remaining(positions: Positions, start: int, count: int) -> npt.NDArray[np.bool_] | None:
    """Returns which of ``count`` rows from ``start`` on are not deleted; None: all of them."""
    begin, end = np.searchsorted(positions, [start, start + count])
    if begin == end:
        return None
    left = np.ones(count, dtype=bool)
    left[positions[begin:end] - start] = False
    return left


def _corrupt(location: str, problem: str) -> CorruptDeletes:
    return CorruptDeletes(f"the deletion vector in {location} is damaged: {problem}", location=location)
