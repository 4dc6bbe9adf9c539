"""The n-grams of texts, runs of n characters, as keys of filters.

Characters are code points. Folded, a character stands for what its upper case folds to in Unicode's full case folding,
whatever is around it, so that a part of a text folds to a part of what the text folds to, and folding ``lower(text)``
or ``upper(text)`` is folding the text. What folds to what is known from Python's tables, and these are of one version
of Unicode: a later one has letters, and other cases of old ones, that an earlier one does not know. Only of ASCII it is
the same in all of them.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.bloom.xxh64 import Hashes, xxh64_numbers
from lamella.snapshot.function.vector import Vector, text_of
from lamella.snapshot.index.values import ascending, picked

_Points = npt.NDArray[np.uint32]
#: An odd number: a gram of n characters is a polynomial in it, modulo 2^64.
_BASE: Final = np.uint64(0x9E3779B97F4A7C15)
#: Texts are taken to pieces so many characters at a time, to bound the memory that it takes.
_CHARACTERS_AT_ONCE: Final = 1 << 20
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")


def gram_keys(texts: Vector, size: int, *, folded: bool) -> tuple[Hashes, bool]:
    """The distinct keys of the grams of some texts, and whether all of the texts are UTF-8; nulls have none."""
    distinct = pc.unique(texts.values.filter(pa.array(texts.valid)))
    vector = Vector(distinct, np.ones(len(distinct), dtype=bool))
    text, broken = text_of(vector)
    if broken.any():
        text, _ = text_of(picked(vector, np.flatnonzero(~broken)))
    found: list[Hashes] = []
    lengths = np.cumsum(pc.utf8_length(text).to_numpy(zero_copy_only=False).astype(np.int64))
    start = 0
    while start < len(text):
        done = int(lengths[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(lengths, done + _CHARACTERS_AT_ONCE, side="right")))
        found.append(_grams(*_points(text.slice(start, stop - start), folded=folded), size))
        start = stop
    return xxh64_numbers(ascending(np.concatenate([np.zeros(0, dtype=np.uint64), *found]))), not broken.any()


def keys_in(text: str, size: int, *, folded: bool) -> Hashes:
    """The distinct keys of one text's grams, in the order in which they first occur."""
    points, ends = _points(pa.array([text], pa.large_string()), folded=folded)
    grams = _grams(points, ends, size, ordered=True)
    _, first = np.unique(grams, return_index=True)
    return xxh64_numbers(grams[np.sort(first)])


def _points(text: Any, *, folded: bool) -> tuple[_Points, npt.NDArray[np.int64]]:
    """The code points of texts, one text after another, and where each ends."""
    joined = "".join(text.to_pylist())
    points = np.frombuffer(joined.encode("utf-32-le"), dtype="<u4")
    ends = np.cumsum(pc.utf8_length(text).to_numpy(zero_copy_only=False).astype(np.int64))
    if not folded or not len(points):
        return points, ends
    used = ascending(points)
    places = np.searchsorted(used, points)
    forms = [folded_character(chr(point)) for point in used.tolist()]
    counts = np.array([len(form) for form in forms], dtype=np.int64)[places]
    flat = np.frombuffer("".join(forms).encode("utf-32-le"), dtype="<u4")
    starts = np.concatenate([[0], np.cumsum([len(form) for form in forms])])[:-1]
    behind = np.concatenate([[0], np.cumsum(counts)])
    # Character i of the folded text is one of the form that belongs to it.
    within = np.arange(behind[-1]) - np.repeat(behind[:-1], counts)
    return flat[np.repeat(starts[places], counts) + within], behind[ends]


def folding_version() -> str:
    """What the folding of characters goes by: two Pythons with the same fold alike."""
    return unicodedata.unidata_version


def folding_alike(text: str) -> list[str]:
    """The pieces of a text that every version folds alike."""
    return [piece for piece in _NOT_ASCII.split(text) if piece]


def folded_character(character: str) -> str:
    """What a character folds to: one character, or a few."""
    return character.upper().casefold()


def _grams(points: _Points, ends: npt.NDArray[np.int64], size: int, *, ordered: bool = False) -> Hashes:
    """The grams of texts as numbers, none that reaches over a text's end; distinct ones, or as they come."""
    count = len(points) - size + 1
    if count <= 0:
        return np.zeros(0, dtype=np.uint64)
    grams = np.zeros(count, dtype=np.uint64)
    with np.errstate(over="ignore"):  # 64-bit arithmetic wraps on purpose
        for at in range(size):
            grams = grams * _BASE + (points[at : at + count].astype(np.uint64) + np.uint64(1))
    # A gram that begins within size - 1 characters before an end reaches over it.
    inside = np.ones(len(points) + size, dtype=bool)
    for back in range(1, size):
        before = ends - back
        inside[before[before >= 0]] = False
    kept = grams[inside[:count]]
    return kept if ordered else ascending(kept)
