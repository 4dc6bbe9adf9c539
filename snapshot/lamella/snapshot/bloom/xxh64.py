"""XXH64 with seed 0, the hash of Parquet's bloom filters: one byte string at a time, or arrays of numbers at once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_STRIPE_BYTES: Final = 32


def xxh64(data: bytes) -> int:
    """The hash of a byte string, 0 <= hash < 2**64."""
    rest = len(data) % _STRIPE_BYTES
    if len(data) >= _STRIPE_BYTES:
        lanes = [_P1 + _P2 & _MASK, _P2, 0, -_P1 & _MASK]
        words = np.frombuffer(data, dtype="<u8", count=(len(data) - rest) // 8).tolist()
        for at, word in enumerate(words):
            lanes[at & 3] = _round(lanes[at & 3], word)
        total = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            total = ((total ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        total = _P5
    total = (total + len(data)) & _MASK
    tail = data[len(data) - rest :]
    while len(tail) >= 8:
        total = (_rotated(total ^ _round(0, int.from_bytes(tail[:8], "little")), 27) * _P1 + _P4) & _MASK
        tail = tail[8:]
    if len(tail) >= 4:
        total = (_rotated(total ^ (int.from_bytes(tail[:4], "little") * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        tail = tail[4:]
    for byte in tail:
        total = (_rotated(total ^ (byte * _P5 & _MASK), 11) * _P1) & _MASK
    total = ((total ^ (total >> 33)) * _P2) & _MASK
    total = ((total ^ (total >> 29)) * _P3) & _MASK
    return total ^ (total >> 32)


def xxh64_numbers(numbers: npt.NDArray[Any]) -> Hashes:
    """The hashes of numbers as 4 or 8 little-endian bytes each (the width of the array's type)."""
    width = numbers.dtype.itemsize
    if width not in (4, 8):
        raise ValueError(f"numbers of {width} bytes")
    words = np.ascontiguousarray(numbers).view(f"u{width}").astype(np.uint64)
    with np.errstate(over="ignore"):  # 64-bit arithmetic wraps on purpose
        total = np.full(len(words), (_P5 + width) & _MASK, dtype=np.uint64)
        if width == 8:
            lane = _rotated_all(words * np.uint64(_P2), 31) * np.uint64(_P1)
            total = _rotated_all(total ^ lane, 27) * np.uint64(_P1) + np.uint64(_P4)
        else:
            total = _rotated_all(total ^ (words * np.uint64(_P1)), 23) * np.uint64(_P2) + np.uint64(_P3)
        total = (total ^ (total >> np.uint64(33))) * np.uint64(_P2)
        total = (total ^ (total >> np.uint64(29))) * np.uint64(_P3)
        return np.asarray(total ^ (total >> np.uint64(32)))


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK


def _rotated_all(values: Hashes, by: int) -> Hashes:
    return np.asarray((values << np.uint64(by)) | (values >> np.uint64(64 - by)))
