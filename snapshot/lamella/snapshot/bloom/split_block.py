"""Parquet's split block bloom filter (BloomFilter.md of parquet-format): 32-byte blocks, one bit set in each word.

No false negatives: a key that was put in is always found.
"""

from __future__ import annotations

import base64
import binascii
import math
from typing import Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.bloom.xxh64 import Hashes
from lamella.snapshot.errors import InvalidRequest

_WORDS: Final = 8
_BLOCK_BYTES: Final = 32
_SALT: Final = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], dtype=np.uint32
)
#: Largest filter that is read or built: Parquet's own limit.
MAX_BYTES: Final = 128 << 20


class SplitBlockBloom:
    """A filter over hashes. ``words``: (blocks, 8) array of uint32; the number of blocks is a power of two."""

    def __init__(self, words: npt.NDArray[np.uint32]) -> None:
        self.words = words

    @classmethod
    def sized(cls, keys: int, false_positives: float = 0.01) -> SplitBlockBloom:
        """An empty filter for so many distinct keys."""
        bits = -8 * max(keys, 1) / math.log(1 - false_positives ** (1 / _WORDS))
        blocks = 1 << max(0, math.ceil(math.log2(bits / 8 / _BLOCK_BYTES)))
        return cls(np.zeros((min(blocks, MAX_BYTES // _BLOCK_BYTES), _WORDS), dtype=np.uint32))

    @classmethod
    def from_bytes(cls, data: bytes) -> SplitBlockBloom:
        """The filter of a Parquet bitset.

        Raises:
            InvalidRequest: not a power of two of 32-byte blocks, or too large.
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
        """The filter of a Parquet bitset as base64; raises InvalidRequest."""
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidRequest("a bloom filter is base64") from error
        return cls.from_bytes(data)

    def insert(self, hashes: Hashes) -> None:
        """Put keys in."""
        blocks = self._blocks(hashes)
        masks = masks_of(hashes)
        for word in range(_WORDS):
            np.bitwise_or.at(self.words[:, word], blocks, masks[:, word])

    def contains(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Which keys may have been put in."""
        masks = masks_of(hashes)
        return np.asarray(((self.words[self._blocks(hashes)] & masks) == masks).all(axis=1))

    def to_bytes(self) -> bytes:
        """Parquet's bitset."""
        return self.words.astype("<u4").tobytes()

    def to_base64(self) -> str:
        """Parquet's bitset as base64."""
        return base64.b64encode(self.to_bytes()).decode()

    def _blocks(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        upper = hashes >> np.uint64(32)
        return ((upper * np.uint64(len(self.words))) >> np.uint64(32)).astype(np.int64)


def masks_of(hashes: Hashes) -> npt.NDArray[np.uint32]:
    """The eight words in each of which a key has one bit."""
    lower = (hashes & np.uint64(0xFFFF_FFFF)).astype(np.uint32)
    with np.errstate(over="ignore"):  # 32-bit arithmetic wraps on purpose
        places = (lower[:, None] * _SALT[None, :]) >> np.uint32(27)
    return np.asarray(np.uint32(1) << places)
