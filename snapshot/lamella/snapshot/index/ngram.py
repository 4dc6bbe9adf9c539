"""N-gram indexes: LIKE with text in the middle.

A block whose texts lack one of the n-grams of a pattern's fixed text has no match. Texts that are not UTF-8 have no
characters, so a block with such a text is always read.

Case folding follows the Unicode version of the Python that built the part, which the part records. Under another
version, or if the part records none, only the ASCII pieces of a pattern are looked up.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.bloom.split_block import Hashes, xxh64_numbers
from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.expression.bound import BoundTest, Comparison, Membership, Prefix
from lamella.snapshot.function.base import Vector, text_of
from lamella.snapshot.index import stacked_filters
from lamella.snapshot.index.bloom import FILTER_OPTIONS
from lamella.snapshot.index.kind import Builder, Expected, Option, PossibleOutcomes, Probe, Profile, checked
from lamella.snapshot.index.part import Part, ascending, picked
from lamella.snapshot.schema import DataType

# The n-grams of texts, runs of n characters, as keys of filters.
#
# Characters are code points. Folding replaces a character by Unicode's full case folding of its upper case, independent
# of its context. So a part of a text folds to a part of the folded text, and folding ``lower(text)`` or ``upper(text)``
# equals folding the text. The mapping comes from Python's tables, which are of one version of Unicode: a later version
# has letters, and other cases of old ones, that an earlier one lacks. Only for ASCII all versions agree.

_Points = npt.NDArray[np.uint32]
#: An odd number: an n-gram is a polynomial in it, modulo 2^64.
_BASE: Final = np.uint64(0x9E3779B97F4A7C15)
#: Maximum number of characters that are split into n-grams at once, which limits memory.
_CHARACTERS_AT_ONCE: Final = 1 << 20
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")


def gram_keys(texts: Vector, size: int, *, fold_case: bool) -> tuple[Hashes, bool]:
    """Returns the distinct keys of the n-grams of some texts, and whether all texts are UTF-8; nulls have none."""
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
        found.append(_grams(*_points(text.slice(start, stop - start), fold_case=fold_case), size))
        start = stop
    return xxh64_numbers(ascending(np.concatenate([np.zeros(0, dtype=np.uint64), *found]))), not broken.any()


def keys_in(text: str, size: int, *, fold_case: bool) -> Hashes:
    """Returns the distinct keys of one text's n-grams, in the order of their first occurrence."""
    points, ends = _points(pa.array([text], pa.large_string()), fold_case=fold_case)
    grams = _grams(points, ends, size, ordered=True)
    _, first = np.unique(grams, return_index=True)
    return xxh64_numbers(grams[np.sort(first)])


def _points(text: Any, *, fold_case: bool) -> tuple[_Points, npt.NDArray[np.int64]]:
    """Returns the code points of texts, one text after another, and the end of each."""
    joined = "".join(text.to_pylist())
    points = np.frombuffer(joined.encode("utf-32-le"), dtype="<u4")
    ends = np.cumsum(pc.utf8_length(text).to_numpy(zero_copy_only=False).astype(np.int64))
    if not fold_case or not len(points):
        return points, ends
    used = ascending(points)
    indexes = np.searchsorted(used, points)
    forms = [fold_character(chr(point)) for point in used.tolist()]
    counts = np.array([len(form) for form in forms], dtype=np.int64)[indexes]
    flat = np.frombuffer("".join(forms).encode("utf-32-le"), dtype="<u4")
    starts = np.concatenate([[0], np.cumsum([len(form) for form in forms])])[:-1]
    behind = np.concatenate([[0], np.cumsum(counts)])
    # Character i of the folded text is one of the characters that its original folds to.
    within = np.arange(behind[-1]) - np.repeat(behind[:-1], counts)
    return flat[np.repeat(starts[indexes], counts) + within], behind[ends]


def folding_version() -> str:
    """Returns the version that the case folding depends on: two Pythons with the same version fold equally."""
    return unicodedata.unidata_version


def version_independent_pieces(text: str) -> list[str]:
    """Returns the pieces of a text that every version folds equally."""
    return [piece for piece in _NOT_ASCII.split(text) if piece]


def fold_character(character: str) -> str:
    """Returns the folding of a character: one or a few characters."""
    return character.upper().casefold()


def _grams(points: _Points, ends: npt.NDArray[np.int64], size: int, *, ordered: bool = False) -> Hashes:
    """Returns the n-grams of texts as numbers, none across the end of a text; distinct, or in order of occurrence."""
    count = len(points) - size + 1
    if count <= 0:
        return np.zeros(0, dtype=np.uint64)
    grams = np.zeros(count, dtype=np.uint64)
    with np.errstate(over="ignore"):  # 64-bit arithmetic wraps on purpose
        for at in range(size):
            grams = grams * _BASE + (points[at : at + count].astype(np.uint64) + np.uint64(1))
    # An n-gram that begins within size - 1 characters before an end crosses it.
    inside = np.ones(len(points) + size, dtype=bool)
    for back in range(1, size):
        before = ends - back
        inside[before[before >= 0]] = False
    inner = grams[inside[:count]]
    return inner if ordered else ascending(inner)


_OPTIONS: Final = {
    **FILTER_OPTIONS,
    "n": Option(3, minimum=1, maximum=16, text="characters of a gram; shorter pieces of a pattern are not used"),
    "ignore_case": Option(False, text="grams of case-folded text: a smaller, less precise index"),
}


#: The fact of a part that records the version of its case folding.
_FOLDING: Final = "unicode"


class NgramKind:
    """The index kind ``ngram``: filters over the n-grams of texts."""

    name = "ngram"
    text = "LIKE '%text%' on text columns: proves that a block does not have the text"
    known_options: Mapping[str, Option] = _OPTIONS

    def options(self, dtype: DataType, given: Mapping[str, Any]) -> dict[str, Any]:
        """Reads the options ``n``, ``ignore_case``, ``false_positives``, ``above_bytes``."""
        return checked(self.name, _OPTIONS, given, dtype, fits=dtype.is_text)

    def answers(self, test: BoundTest, options: Mapping[str, Any]) -> str | None:
        """Accepts patterns and texts with a long enough piece of fixed text."""
        found = _required_pieces(test)
        if found is None:
            return "only LIKE, = and IN test whether a text exists"
        n, fold_case = int(options["n"]), bool(options["ignore_case"])
        if found and all(_keys(runs, n, fold_case=fold_case) is not None for runs in found):
            return None
        return f"no piece of fixed text has {n} characters"

    def builder(self, dtype: DataType, options: Mapping[str, Any]) -> Builder:  # noqa: ARG002  # text is text
        """Returns a builder of parts."""
        return NgramBuilder(options)

    def probe(self, part: Part) -> Probe:
        """Returns a probe of a part."""
        return NgramProbe(part)

    def taken(
        self, parts: list[tuple[Part, npt.NDArray[np.int64]]]
    ) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Returns the blocks of several parts as one part."""
        sections, facts = stacked_filters.taken(parts)
        sections["broken"] = np.concatenate([part.whole("broken")[rows] for part, rows in parts])
        versions = {part.header.facts.get(_FOLDING) for part, _ in parts}
        if len(versions) == 1 and None not in versions:
            facts[_FOLDING] = versions.pop()
        return sections, facts

    def expected(self, profile: Profile, options: Mapping[str, Any]) -> Expected:  # noqa: ARG002  # nothing is known
        """Returns no estimate: manifests contain nothing about pieces of text."""
        return Expected(reason="manifests do not have the pieces of text in blocks; use a sample of blocks")


class NgramBuilder:
    """Collects the n-grams of each block."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._size: int = options["n"]
        self._fold_case: bool = options["ignore_case"]
        self._stack = stacked_filters.StackBuilder(options["false_positives"], options["above_bytes"])
        self._broken: list[bool] = []
        self._keys: list[Hashes] = []
        self._is_text = True

    def add(self, values: Vector) -> None:
        """Add rows of the current block."""
        keys, is_text = gram_keys(values, self._size, fold_case=self._fold_case)
        self._keys.append(keys)
        self._is_text = self._is_text and is_text

    def end_block(self) -> None:
        """Store the block's filter."""
        self._stack.add_block(ascending(np.concatenate([np.zeros(0, dtype=np.uint64), *self._keys])))
        self._broken.append(not self._is_text)
        self._keys, self._is_text = [], True

    def sections(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Returns the filters of all blocks."""
        sections, facts = self._stack.sections()
        if self._fold_case:
            facts[_FOLDING] = folding_version()
        return {"broken": np.array(self._broken, dtype=bool), **sections}, facts


class NgramProbe:
    """Looks n-grams up in the filters."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._stack = stacked_filters.Stack(part)
        self._size: int = part.header.options["n"]
        self._fold_case: bool = part.header.options["ignore_case"]
        self._same_folding = not self._fold_case or part.header.facts.get(_FOLDING) == folding_version()

    def possible_outcomes(self, test: BoundTest, rows: npt.NDArray[np.int64]) -> PossibleOutcomes | None:
        """Proves that no row matches a pattern that has an n-gram which the block lacks."""
        texts = _required_pieces(test)
        if texts is None:
            return None
        found = np.asarray(self._part.whole("broken")[rows])
        for literal in texts:
            runs = (
                literal
                if self._same_folding
                else [piece for run in literal for piece in version_independent_pieces(run)]
            )
            keys = _keys(runs, self._size, fold_case=self._fold_case)
            if keys is None:
                return None
            found = found | self._having(keys, rows)
        return PossibleOutcomes(found)

    def _having(self, keys: Hashes, rows: npt.NDArray[np.int64]) -> Mask:
        if len(self._stack.left(keys)) < len(keys):  # no block has one of them
            return np.zeros(len(rows), dtype=bool)
        return self._stack.all_of(keys, rows)


def _keys(runs: list[str], size: int, *, fold_case: bool) -> Hashes | None:
    """Returns the keys of all n-grams of pieces of text; None if there are none."""
    keys = [keys_in(run, size, fold_case=fold_case) for run in runs]
    every = np.concatenate([np.zeros(0, dtype=np.uint64), *keys])
    return every if len(every) else None


def _required_pieces(test: BoundTest) -> list[list[str]] | None:
    """Returns lists of pieces of text; for the test to be true, a row must contain all pieces of one list."""
    match test:
        case Comparison(_, "eq", value, _):
            return _texts([value])
        case Membership(_, values, _, _, _):
            return _texts(list(values))
        case Prefix(_, prefix, True, _, _):
            return _texts([prefix])
        case Prefix(_, _, False, _, parts):
            return [[part for part in parts if isinstance(part, str)]]
        case _:
            return None


def _texts(values: list[Any]) -> list[list[str]] | None:
    try:
        return [[value.decode("utf-8")] for value in values]
    except UnicodeDecodeError:  # no text has such a value; blocks with other bytes are always read
        return None
