"""Affix indexes: the beginnings and endings of a block's texts, as two sets of a few characters each.

They answer patterns with fixed text at either end, also where minimum and maximum say little. If a block has more
distinct beginnings (endings) than the limit, or texts that are not UTF-8, only its nulls are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.expression.bound import BoundTest, Comparison, Membership, Prefix
from lamella.snapshot.function.base import Vector, text_of
from lamella.snapshot.index.kind import Builder, Expected, Option, PossibleOutcomes, Probe, Profile, checked
from lamella.snapshot.index.part import Part
from lamella.snapshot.index.value_set import Sets, sections_of
from lamella.snapshot.index.widening import can_serve
from lamella.snapshot.schema import DataType, parse_type

Side = Literal["prefix", "suffix"]
SIDES: Final[tuple[Side, Side]] = ("prefix", "suffix")
_OPTIONS: Final = {
    "prefix_chars": Option(4, minimum=0, maximum=32, text="characters at the beginning; 0: none"),
    "suffix_chars": Option(4, minimum=0, maximum=32, text="characters at the end; 0: none"),
    "values": Option(
        256, minimum=1, maximum=1 << 16, text="maximum number of beginnings, and of endings, to store for a block"
    ),
}
NULL: Final = 1
#: The beginnings (endings) of the block are unknown.
UNKNOWN: Final[dict[Side, int]] = {"prefix": 2, "suffix": 4}
_BINARY: Final = parse_type("binary")

#: The text that a value must begin and end with (either may be empty), and whether the value is no longer than that.
Ends = tuple[str, str, bool]


class AffixKind:
    """The index kind ``affix``: beginnings and endings of texts."""

    name = "affix"
    text = "LIKE 'x%', '%x' and 'x%y', and equality, on text with few distinct beginnings or endings in a block"
    known_options: Mapping[str, Option] = _OPTIONS

    def options(self, dtype: DataType, given: Mapping[str, Any]) -> dict[str, Any]:
        """Reads the options ``prefix_chars``, ``suffix_chars``, ``values``."""
        return checked(self.name, _OPTIONS, given, dtype, fits=dtype.is_text)

    def answers(self, test: BoundTest, options: Mapping[str, Any]) -> str | None:
        """Accepts patterns and texts with a beginning or an ending that the index stores."""
        found = _required_ends(test)
        if found is None:
            return "only LIKE, = and IN test how text begins or ends"
        has_side = options["prefix_chars"] > 0, options["suffix_chars"] > 0
        helps = all((start and has_side[0]) or (end and has_side[1]) for start, end, _ in found)
        return None if found and helps else "the pattern has no fixed text at an end that the index stores"

    def builder(self, dtype: DataType, options: Mapping[str, Any]) -> Builder:  # noqa: ARG002  # text is text
        """Returns a builder of parts."""
        return AffixBuilder(options)

    def probe(self, part: Part) -> Probe:
        """Returns a probe of a part."""
        return AffixProbe(part)

    def taken(
        self, parts: list[tuple[Part, npt.NDArray[np.int64]]]
    ) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Returns the blocks of several parts as one part."""
        sections = {"flags": np.concatenate([part.whole("flags")[rows] for part, rows in parts])}
        for side in SIDES:
            sets = [values for part, rows in parts for values in Sets(part, side, _BINARY).lists(rows)]
            sections |= sections_of(side, _BINARY, sets)
        return sections, {}

    def expected(self, profile: Profile, options: Mapping[str, Any]) -> Expected:  # noqa: ARG002  # nothing is known
        """Returns no estimate: manifests contain no endings, and only two beginnings."""
        return Expected(reason="manifests do not have the beginnings and endings of text; use a sample of blocks")


class AffixBuilder:
    """Collects the distinct beginnings and endings of each block, up to a limit."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._chars: dict[Side, int] = {"prefix": options["prefix_chars"], "suffix": options["suffix_chars"]}
        self._max_values: int = options["values"]
        self._flags: list[int] = []
        self._sets: dict[Side, list[list[bytes]]] = {"prefix": [], "suffix": []}
        self._start_block()

    def add(self, values: Vector) -> None:
        """Add rows of the current block."""
        if not values.valid.all():
            self._bits |= NULL
        distinct = pc.unique(values.values.filter(pa.array(values.valid)))
        text, broken = text_of(Vector(distinct, np.ones(len(distinct), dtype=bool)))
        for side in SIDES:
            if broken.any():
                self._bits |= UNKNOWN[side]
            if self._bits & UNKNOWN[side]:
                continue
            self._seen[side].update(pc.unique(_affixes(text, side, self._chars[side])).to_pylist())
            if len(self._seen[side]) > self._max_values:
                self._bits |= UNKNOWN[side]

    def end_block(self) -> None:
        """Store the block's sets."""
        for side in SIDES:
            known = not self._bits & UNKNOWN[side]
            self._sets[side].append(sorted(text.encode() for text in self._seen[side]) if known else [])
        self._flags.append(self._bits)
        self._start_block()

    def sections(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Returns the sets of all blocks."""
        sections: dict[str, npt.NDArray[Any]] = {"flags": np.array(self._flags, dtype=np.uint8)}
        for side in SIDES:
            sections |= sections_of(side, _BINARY, self._sets[side])
        return sections, {}

    def _start_block(self) -> None:
        self._bits = 0
        self._seen: dict[Side, set[str]] = {"prefix": set(), "suffix": set()}
        for side in SIDES:
            if not self._chars[side]:
                self._bits |= UNKNOWN[side]


class AffixProbe:
    """Compares beginnings and endings."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._dtype = parse_type(part.header.dtype)
        options = part.header.options
        self._chars: dict[Side, int] = {"prefix": options["prefix_chars"], "suffix": options["suffix_chars"]}
        self._sets = {side: Sets(part, side, _BINARY) for side in SIDES}

    def possible_outcomes(self, test: BoundTest, rows: npt.NDArray[np.int64]) -> PossibleOutcomes | None:
        """Proves that no row matches a pattern if none of the beginnings, or none of the endings, fits it."""
        ends = _required_ends(test)
        if ends is None or test.term is None or not can_serve(self._dtype, test.term.dtype):
            return None
        true = np.zeros(len(rows), dtype=bool)
        for start, end, exact in ends:
            true |= self._may_fit("prefix", start, exact, rows) & self._may_fit("suffix", end, exact, rows)
        null = (self._part.whole("flags")[rows] & NULL) != 0
        if isinstance(test, Membership) and test.has_null:
            return PossibleOutcomes(true)
        return PossibleOutcomes(true, self._may_not_begin(test, rows), null)

    def _may_fit(self, side: Side, fixed: str, exact: bool, rows: npt.NDArray[np.int64]) -> Mask:
        """Returns where some text may begin (end) with ``fixed``."""
        chosen = self._sets[side].of(rows)
        count = self._chars[side]
        shown = ((fixed[:count] if side == "prefix" else fixed[-count:]) if count else "").encode()
        if exact:
            fits = pc.equal(chosen.values.values, pa.scalar(shown, pa.large_binary()))
        else:
            fits = (pc.starts_with if side == "prefix" else pc.ends_with)(chosen.values.values, shown)
        return self._unknown(side, rows) | chosen.having(_mask(fits))

    def _may_not_begin(self, test: BoundTest, rows: npt.NDArray[np.int64]) -> Mask | bool:
        """Returns where some text may not begin with a prefix that decides the predicate; stored prefixes may be
        shorter."""
        if not isinstance(test, Prefix) or not test.whole:
            return True
        chosen = self._sets["prefix"].of(rows)
        others = ~_mask(pc.starts_with(chosen.values.values, test.prefix))
        return self._unknown("prefix", rows) | chosen.having(others)

    def _unknown(self, side: Side, rows: npt.NDArray[np.int64]) -> Mask:
        return np.asarray((self._part.whole("flags")[rows] & UNKNOWN[side]) != 0)


def _affixes(text: Any, side: Side, count: int) -> Any:
    if side == "prefix":
        return pc.utf8_slice_codeunits(text, 0, count)
    return pc.utf8_slice_codeunits(text, -count)


def _required_ends(test: BoundTest) -> list[Ends] | None:
    """Returns the alternatives of beginnings and endings, one of which a row must have for the test to be true."""
    match test:
        case Comparison(_, "eq", value, _):
            return _texts([value])
        case Membership(_, values, _, _, _):
            return _texts(list(values))
        case Prefix(_, prefix, True, _, _):
            found = _texts([prefix])
            return None if found is None else [(start, "", False) for start, *_ in found]
        case Prefix(_, _, False, _, parts):
            first, last = parts[0], parts[-1]
            return [(first if isinstance(first, str) else "", last if isinstance(last, str) else "", False)]
        case _:
            return None


def _texts(values: list[Any]) -> list[Ends] | None:
    try:
        return [(value.decode("utf-8"), value.decode("utf-8"), True) for value in values]
    except UnicodeDecodeError:  # no text has such a value; blocks with other bytes are always read
        return None


def _mask(array: Any) -> Mask:
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype(bool)
