"""The hashes of many values at once, as the DataSketches library computes them one by one.

That is MurmurHash3 (x64, 128 bits) with the library's seed. A sketch is given the values that change it, and by these
hashes most others are left out; so a mistake here would show as a sketch that differs from the library's own.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

#: Words of 64 bits.
Words = npt.NDArray[np.uint64]

_SEED: Final = np.uint64(9001)
_C1: Final = np.uint64(0x87C37B91114253D5)
_C2: Final = np.uint64(0x4CF5AD432745937F)
_MIX_1: Final = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_ADD_1: Final = np.uint64(0x52DCE729)
_ADD_2: Final = np.uint64(0x38495AB5)
_BLOCK: Final = 16
_WORD: Final = 8


def hashes_of_words(values: npt.NDArray[Any]) -> tuple[Words, Words]:
    """Returns both halves of the hash of each value of 64 bits (integers, or floats in their one form)."""
    first = np.full(len(values), _SEED, dtype=np.uint64)
    np.bitwise_xor(first, _scattered_1(values.view(np.uint64)), out=first)
    return _finished(first, np.full(len(values), _SEED, dtype=np.uint64), np.uint64(_WORD))


def hashes_of_texts(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> tuple[Words, Words]:
    """Returns both halves of the hash of each text: those between two neighbours of ``starts`` in ``data``.

    ``data`` has at least 8 more bytes behind the last text.
    """
    # A word may begin at any byte.
    words = np.ndarray((len(data) - _WORD + 1,), dtype="<u8", buffer=data, strides=(1,))
    lengths = np.diff(starts)
    blocks = lengths // _BLOCK
    max_blocks = int(blocks.max()) if len(blocks) else 0
    # Those that have a further block come first. Small numbers of few bits are sorted faster.
    order = np.argsort((max_blocks - blocks).astype(np.uint16 if max_blocks < 1 << 16 else np.int64), kind="stable")
    at, lengths, blocks = starts[:-1][order], lengths[order], blocks[order]
    first = np.full(len(at), _SEED, dtype=np.uint64)
    second = first.copy()
    for number in range(max_blocks):
        count = int(np.searchsorted(-blocks, -number, side="left"))
        here = at[:count] + number * _BLOCK
        one, other = first[:count], second[:count]
        np.bitwise_xor(one, _scattered_1(words[here]), out=one)
        np.add(_rotated(one, 27), other, out=one)
        np.add(np.multiply(one, np.uint64(5), out=one), _ADD_1, out=one)
        np.bitwise_xor(other, _scattered_2(words[here + _WORD]), out=other)
        np.add(_rotated(other, 31), one, out=other)
        np.add(np.multiply(other, np.uint64(5), out=other), _ADD_2, out=other)
    tails = at + blocks * _BLOCK
    left = lengths - blocks * _BLOCK
    last = len(words) - 1
    np.bitwise_xor(second, _scattered_2(words[np.minimum(tails + _WORD, last)] & _MASKS[left - _WORD]), out=second)
    np.bitwise_xor(first, _scattered_1(words[tails] & _MASKS[left]), out=first)
    one, other = _finished(first, second, lengths.astype(np.uint64))
    found = np.empty_like(one), np.empty_like(other)
    found[0][order], found[1][order] = one, other
    return found


#: By the number of bytes that count of a word: from 0 to 15, and at the end, for indices from -8 to -1, none.
_MASKS: Final = np.array([(1 << 8 * min(count, _WORD)) - 1 for count in range(_BLOCK)] + [0] * _WORD, dtype=np.uint64)


def _scattered_1(words: Words) -> Words:
    return np.multiply(_rotated(np.multiply(words, _C1), 31), _C2)


def _scattered_2(words: Words) -> Words:
    return np.multiply(_rotated(np.multiply(words, _C2), 33), _C1)


def _rotated(words: Words, bits: int) -> Words:
    """Returns the words turned to the left, in their place."""
    low = np.right_shift(words, np.uint64(64 - bits))
    np.left_shift(words, np.uint64(bits), out=words)
    return np.bitwise_or(words, low, out=words)


def _finished(first: Words, second: Words, length: Words | np.uint64) -> tuple[Words, Words]:
    np.bitwise_xor(first, length, out=first)
    np.bitwise_xor(second, length, out=second)
    np.add(first, second, out=first)
    np.add(second, first, out=second)
    _mix(first)
    _mix(second)
    np.add(first, second, out=first)
    np.add(second, first, out=second)
    return first, second


def _mix(words: Words) -> None:
    moved = np.empty_like(words)
    for factor in (_MIX_1, _MIX_2):
        np.bitwise_xor(words, np.right_shift(words, np.uint64(33), out=moved), out=words)
        np.multiply(words, factor, out=words)
    np.bitwise_xor(words, np.right_shift(words, np.uint64(33), out=moved), out=words)
