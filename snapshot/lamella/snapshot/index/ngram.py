"""N-grams: LIKE with text in the middle, over columns of text.

A block whose texts lack one of the grams of a pattern's fixed text has no match. Texts that are not UTF-8 have no
characters, so a block with one of those is always read.

Folded grams are as the Unicode of the Python that built the part has them (:mod:`.grams`). A part says which that was;
under another one, and of a part that does not say, only the ASCII pieces of a pattern are looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.bloom.xxh64 import Hashes
from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.expression.bound import BoundTest, Comparison, Membership, Prefix
from lamella.snapshot.function.vector import Vector
from lamella.snapshot.index import stacked
from lamella.snapshot.index.bloom import FILTER_OPTIONS
from lamella.snapshot.index.grams import folding_alike, folding_version, gram_keys, keys_in
from lamella.snapshot.index.kind import Builder, Claim, Probe
from lamella.snapshot.index.options import Option, checked
from lamella.snapshot.index.part import Part
from lamella.snapshot.index.profile import Expected, Profile
from lamella.snapshot.index.values import ascending
from lamella.snapshot.schema import DataType

_OPTIONS: Final = {
    **FILTER_OPTIONS,
    "n": Option(3, least=1, most=16, text="characters of a gram; shorter pieces of a pattern say nothing"),
    "ignore_case": Option(
        False, text="grams of folded text, in which case does not count: a smaller index that is less sharp"
    ),
}


#: The fact of a part that says by which version characters were folded.
_FOLDING: Final = "unicode"


class NgramKind:
    """Filters over the grams of texts."""

    name = "ngram"
    text = "LIKE '%text%' over columns of text: certainly not in this block"
    known_options: Mapping[str, Option] = _OPTIONS

    def options(self, dtype: DataType, given: Mapping[str, Any]) -> dict[str, Any]:
        """``n``, ``ignore_case``, ``false_positives``, ``above_bytes``."""
        return checked(self.name, _OPTIONS, given, dtype, fits=dtype.is_text)

    def answers(self, test: BoundTest, options: Mapping[str, Any]) -> str | None:
        """Patterns and texts with a piece that is long enough."""
        found = _asked(test)
        if found is None:
            return "only LIKE, = and IN ask whether a text is there"
        n, folded = int(options["n"]), bool(options["ignore_case"])
        if found and all(_keys(runs, n, folded=folded) is not None for runs in found):
            return None
        return f"no piece of fixed text has {n} characters"

    def builder(self, dtype: DataType, options: Mapping[str, Any]) -> Builder:  # noqa: ARG002  # text is text
        """Builds a part."""
        return NgramBuilder(options)

    def probe(self, part: Part) -> Probe:
        """Answers from a part."""
        return NgramProbe(part)

    def taken(
        self, parts: list[tuple[Part, npt.NDArray[np.int64]]]
    ) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Blocks of several parts as one."""
        sections, facts = stacked.taken(parts)
        sections["broken"] = np.concatenate([part.whole("broken")[rows] for part, rows in parts])
        versions = {part.header.facts.get(_FOLDING) for part, _ in parts}
        if len(versions) == 1 and None not in versions:
            facts[_FOLDING] = versions.pop()
        return sections, facts

    def expected(self, profile: Profile, options: Mapping[str, Any]) -> Expected:  # noqa: ARG002  # nothing is known
        """Not to be told: manifests say nothing of pieces of text."""
        return Expected(reason="which pieces of text blocks have is not in manifests; a sample of blocks can tell")


class NgramBuilder:
    """Gathers the grams of each block."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._size: int = options["n"]
        self._folded: bool = options["ignore_case"]
        self._stack = stacked.StackBuilder(options["false_positives"], options["above_bytes"])
        self._broken: list[bool] = []
        self._keys: list[Hashes] = []
        self._is_text = True

    def add(self, values: Vector) -> None:
        """Some rows."""
        keys, is_text = gram_keys(values, self._size, folded=self._folded)
        self._keys.append(keys)
        self._is_text = self._is_text and is_text

    def end_block(self) -> None:
        """The block's filter."""
        self._stack.add_block(ascending(np.concatenate([np.zeros(0, dtype=np.uint64), *self._keys])))
        self._broken.append(not self._is_text)
        self._keys, self._is_text = [], True

    def sections(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """All filters."""
        sections, facts = self._stack.sections()
        if self._folded:
            facts[_FOLDING] = folding_version()
        return {"broken": np.array(self._broken, dtype=bool), **sections}, facts


class NgramProbe:
    """Looks grams up."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._stack = stacked.Stack(part)
        self._size: int = part.header.options["n"]
        self._folded: bool = part.header.options["ignore_case"]
        self._folds_alike = not self._folded or part.header.facts.get(_FOLDING) == folding_version()

    def claim(self, test: BoundTest, rows: npt.NDArray[np.int64]) -> Claim | None:
        """No row is like a pattern of which the block lacks a gram."""
        texts = _asked(test)
        if texts is None:
            return None
        found = np.asarray(self._part.whole("broken")[rows])
        for asked in texts:
            runs = asked if self._folds_alike else [piece for run in asked for piece in folding_alike(run)]
            keys = _keys(runs, self._size, folded=self._folded)
            if keys is None:
                return None
            found = found | self._having(keys, rows)
        return Claim(found)

    def _having(self, keys: Hashes, rows: npt.NDArray[np.int64]) -> Mask:
        if len(self._stack.left(keys)) < len(keys):  # no block at all has one of them
            return np.zeros(len(rows), dtype=bool)
        return self._stack.all_of(keys, rows)


def _keys(runs: list[str], size: int, *, folded: bool) -> Hashes | None:
    """The keys of all grams of pieces of text; None when there are none."""
    keys = [keys_in(run, size, folded=folded) for run in runs]
    every = np.concatenate([np.zeros(0, dtype=np.uint64), *keys])
    return every if len(every) else None


def _asked(test: BoundTest) -> list[list[str]] | None:
    """The pieces of text that a row must hold, all of those of one of these lists, for the test to be true."""
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
    except UnicodeDecodeError:  # such a value is in no text; blocks with other bytes are read anyway
        return None
