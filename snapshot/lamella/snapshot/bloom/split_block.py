"""Parquet's split block Bloom filter: XXH64, the size for a false positive rate, and the filter itself.

There are no false negatives: an inserted key is always found.
"""

from __future__ import annotations

import base64
import binascii
import math
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.errors import InvalidRequest

Hashes = npt.NDArray[np.uint64]

_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_STRIPE_BYTES: Final = 32


def xxh64(data: bytes) -> int:
    """Returns the hash of a byte string, 0 <= hash < 2**64."""
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
    """Returns the hashes of numbers as 4 or 8 little-endian bytes each (the width of the array's type)."""
    width = numbers.dtype.itemsize
    if width not in (4, 8):
        raise ValueError(f"numbers of {width} bytes are not supported")
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


# The size of a split block filter for a false positive rate.
#
# A block of 32 bytes (a *slot*) with k keys matches another key if each of its eight words has the one bit of that key
# set. The probability is (1 - (31/32)^k)^8. The number of keys in a slot is Poisson distributed; the usual formula
# ignores that, which makes filters too small.

_WORDS: Final = 8
_WORD_BITS: Final = 32
SLOT_BYTES: Final = 32


def false_positives(keys_per_slot: float) -> float:
    """Returns the expected false positive rate for a mean number of keys per slot."""
    if keys_per_slot <= 0:
        return 0.0
    spread = 12 * math.sqrt(keys_per_slot) + 12
    first, last = max(0, int(keys_per_slot - spread)), int(keys_per_slot + spread)
    total = 0.0
    for keys in range(first, last + 1):
        chance = math.exp(keys * math.log(keys_per_slot) - keys_per_slot - math.lgamma(keys + 1))
        total += chance * (1 - (1 - 1 / _WORD_BITS) ** keys) ** _WORDS
    return min(total, 1.0)


@cache
def keys_per_slot(rate: float) -> float:
    """Returns the mean number of keys per slot for a false positive rate, 0 < rate < 1."""
    low, high = 1e-9, 1e4
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if false_positives(middle) < rate else (low, middle)
    return low


def slots_for(keys: int, rate: float) -> int:
    """Returns the number of slots of a filter for this many distinct keys, at least one."""
    return max(1, math.ceil(keys / keys_per_slot(rate)))


_BLOCK_BYTES: Final = 32
_SALT: Final = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], dtype=np.uint32
)
#: Largest filter that is read or built, as in Parquet.
MAX_BYTES: Final = 128 << 20


class SplitBlockBloom:
    """A filter over hashes. ``words``: (blocks, 8) array of uint32; the number of blocks is a power of two."""

    def __init__(self, words: npt.NDArray[np.uint32]) -> None:
        self.words = words

    @classmethod
    def sized(cls, keys: int, false_positives: float = 0.01) -> SplitBlockBloom:
        """Returns an empty filter for this many distinct keys."""
        bits = -8 * max(keys, 1) / math.log(1 - false_positives ** (1 / _WORDS))
        blocks = 1 << max(0, math.ceil(math.log2(bits / 8 / _BLOCK_BYTES)))
        return cls(np.zeros((min(blocks, MAX_BYTES // _BLOCK_BYTES), _WORDS), dtype=np.uint32))

    @classmethod
    def from_bytes(cls, data: bytes) -> SplitBlockBloom:
        """Reads a Parquet bitset.

        Raises:
            InvalidRequest: the size is not a power of two of 32-byte blocks, or too large.
        """
        blocks = len(data) // _BLOCK_BYTES
        if len(data) % _BLOCK_BYTES or not blocks or blocks & (blocks - 1) or len(data) > MAX_BYTES:
            raise InvalidRequest(
                f"a bloom filter has a power of two of {_BLOCK_BYTES}-byte blocks, at most {MAX_BYTES} bytes; "
                f"this one has {len(data)} bytes"
            )
        return cls(np.frombuffer(data, dtype="<u4").reshape(blocks, _WORDS).astype(np.uint32))

    @classmethod
    def from_base64(cls, text: str) -> SplitBlockBloom:
        """Reads a Parquet bitset from base64; raises InvalidRequest."""
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidRequest("a bloom filter must be base64") from error
        return cls.from_bytes(data)

    def insert(self, hashes: Hashes) -> None:
        """Insert keys."""
        blocks = self._blocks(hashes)
        masks = masks_of(hashes)
        for word in range(_WORDS):
            np.bitwise_or.at(self.words[:, word], blocks, masks[:, word])

    def contains(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Returns which keys may have been inserted."""
        masks = masks_of(hashes)
        return np.asarray(((self.words[self._blocks(hashes)] & masks) == masks).all(axis=1))

    def to_bytes(self) -> bytes:
        """Returns the Parquet bitset."""
        return self.words.astype("<u4").tobytes()

    def to_base64(self) -> str:
        """Returns the Parquet bitset as base64."""
        return base64.b64encode(self.to_bytes()).decode()

    def _blocks(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        upper = hashes >> np.uint64(32)
        return ((upper * np.uint64(len(self.words))) >> np.uint64(32)).astype(np.int64)


def masks_of(hashes: Hashes) -> npt.NDArray[np.uint32]:
    """Returns the eight words of each key, each with one bit set."""
    lower = (hashes & np.uint64(0xFFFF_FFFF)).astype(np.uint32)
    with np.errstate(over="ignore"):  # 32-bit arithmetic wraps on purpose
        bits = (lower[:, None] * _SALT[None, :]) >> np.uint32(27)
    return np.asarray(np.uint32(1) << bits)
