"""Value set indexes: all values of blocks that have few distinct ones.

Every predicate over the term is answered exactly, by evaluating it on each value of the dictionary as a reader
evaluates rows. If a block has more values than the limit, only its nulls and NaN are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.expression.bound import Anything, BoundTest, Comparison, Membership, NanTest, NonNull, NullTest
from lamella.snapshot.function.base import Vector, constant_vector
from lamella.snapshot.index.kind import (
    Builder,
    Expected,
    Option,
    PossibleOutcomes,
    Probe,
    Profile,
    checked,
    dictionary_bytes,
)
from lamella.snapshot.index.part import (
    Part,
    any_by_row,
    ascending,
    distinct,
    has_nan,
    listed,
    loaded,
    picked,
    spans_of,
    stored,
    vector,
)
from lamella.snapshot.index.widening import can_serve, widened
from lamella.snapshot.row_filter import truth_of
from lamella.snapshot.schema import DataType, parse_type

_Array = npt.NDArray[Any]


def sections_of(name: str, dtype: DataType, sets: Sequence[Sequence[Any]]) -> dict[str, _Array]:
    """Returns the sections of sets of values, in the order of their blocks."""
    dictionary = sorted(set().union(*sets))
    codes = {value: code for code, value in enumerate(dictionary)}
    offsets = np.zeros(len(sets) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in sets], out=offsets[1:])
    narrow = np.uint16 if len(dictionary) <= 1 << 16 else np.uint32
    return {
        f"{name}.offsets": offsets,
        f"{name}.codes": np.fromiter((codes[value] for each in sets for value in each), narrow, int(offsets[-1])),
        **stored(f"{name}.values", dtype, dictionary),
    }


class Sets:
    """The sets of a part; sections are read once."""

    def __init__(self, part: Part, name: str, dtype: DataType) -> None:
        self._part = part
        self._name = name
        self._dtype = dtype
        self._values: Vector | None = None

    def of(self, rows: npt.NDArray[np.int64]) -> ChosenSets:
        """Returns the sets of the blocks ``rows`` (ascending)."""
        offsets = self._part.whole(f"{self._name}.offsets")
        codes = self._part.ranges(f"{self._name}.codes", spans_of(offsets, rows))
        every = np.concatenate([np.zeros(0, dtype=np.uint32), *codes])
        used = ascending(every)
        if self._values is None:
            self._values = loaded(self._part, f"{self._name}.values", self._dtype)
        new_index = np.zeros(len(self._values), dtype=np.int64)
        new_index[used] = np.arange(len(used))
        return ChosenSets(picked(self._values, used.astype(np.int64)), new_index[every], offsets, rows)

    def lists(self, rows: npt.NDArray[np.int64]) -> list[list[Any]]:
        """Returns the sets of blocks in any order, as lists."""
        values = listed(loaded(self._part, f"{self._name}.values", self._dtype))
        offsets = self._part.whole(f"{self._name}.offsets").tolist()
        codes = self._part.whole(f"{self._name}.codes").tolist()
        return [[values[code] for code in codes[offsets[row] : offsets[row + 1]]] for row in rows.tolist()]


class ChosenSets:
    """Some of the sets; ``values`` are all values that occur in them."""

    def __init__(self, values: Vector, indexes: _Array, offsets: _Array, rows: npt.NDArray[np.int64]) -> None:
        self.values = values
        self._indexes = indexes
        self._offsets = offsets
        self._rows = rows

    def having(self, hits: Mask) -> Mask:
        """Returns per block whether its set contains one of the ``values`` that are hit."""
        return any_by_row(hits[self._indexes], self._offsets, self._rows)


_OPTIONS: Final = {
    "values": Option(256, minimum=1, maximum=1 << 20, text="maximum number of values to store for a block"),
    "bytes": Option(8 << 10, minimum=16, maximum=1 << 24, text="maximum bytes of the values of a block"),
}
#: Typical size of an index into a dictionary.
_CODE_BYTES: Final = 2
NULL: Final = 1
NAN: Final = 2
#: The block has more values than the limit.
OVERFLOW: Final = 4


class ValueSetKind:
    """The index kind ``value_set``: all scalar types including boolean; every predicate over the term."""

    name = "value_set"
    text = "any predicate on columns with few distinct values in each block: evaluated for each value"
    known_options: Mapping[str, Option] = _OPTIONS

    def options(self, dtype: DataType, given: Mapping[str, Any]) -> dict[str, Any]:
        """Reads the options ``values``, ``bytes``."""
        return checked(self.name, _OPTIONS, given, dtype, fits=dtype.order is not None)

    def answers(self, test: BoundTest, options: Mapping[str, Any]) -> str | None:  # noqa: ARG002  # all are alike
        """Accepts every predicate that a reader can evaluate."""
        return test.reason if isinstance(test, Anything) else None

    def builder(self, dtype: DataType, options: Mapping[str, Any]) -> Builder:
        """Returns a builder of parts."""
        return ValueSetBuilder(dtype, options)

    def probe(self, part: Part) -> Probe:
        """Returns a probe of a part."""
        return ValueSetProbe(part)

    def taken(
        self, parts: list[tuple[Part, npt.NDArray[np.int64]]]
    ) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Returns the blocks of several parts as one part."""
        dtype = parse_type(parts[0][0].header.dtype)
        sets = [values for part, rows in parts for values in Sets(part, "set", dtype).lists(rows)]
        flags = np.concatenate([part.whole("flags")[rows] for part, rows in parts])
        return {"flags": flags, **sections_of("set", dtype, sets)}, {}

    def expected(self, profile: Profile, options: Mapping[str, Any]) -> Expected:
        """Estimates exact answers for blocks within the limit, none for the others."""
        if profile.layer == "segment":
            return Expected(reason="value sets are stored for blocks only, not for higher layers")
        max_values = float(options["values"])
        if profile.dtype.order == "bytes":
            max_values = min(max_values, options["bytes"] / max(profile.value_bytes, 1.0))
        fits = profile.distinct <= max_values
        size_bytes = dictionary_bytes(profile, float(profile.distinct[fits].sum()), _CODE_BYTES) + len(profile)
        return Expected(np.where(fits, 0.0, 1.0), size_bytes)


class ValueSetBuilder:
    """Collects the distinct values of each block, up to a limit."""

    def __init__(self, dtype: DataType, options: Mapping[str, Any]) -> None:
        self._dtype = dtype
        self._max_values: int = options["values"]
        self._max_bytes: int = options["bytes"]
        self._sets: list[list[Any]] = []
        self._flags: list[int] = []
        self._seen: set[Any] = set()
        self._bits = 0

    def add(self, values: Vector) -> None:
        """Add rows of the current block."""
        if not values.valid.all():
            self._bits |= NULL
        if has_nan(self._dtype, values):
            self._bits |= NAN
        if self._bits & OVERFLOW:
            return
        self._seen.update(distinct(self._dtype, values))
        size = sum(map(len, self._seen)) if self._dtype.order == "bytes" else 0
        if len(self._seen) > self._max_values or size > self._max_bytes:
            self._bits |= OVERFLOW
            self._seen.clear()

    def end_block(self) -> None:
        """Store the block's set."""
        self._sets.append(sorted(self._seen))
        self._flags.append(self._bits)
        self._seen, self._bits = set(), 0

    def sections(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Returns the sets of all blocks."""
        flags = np.array(self._flags, dtype=np.uint8)
        return {"flags": flags, **sections_of("set", self._dtype, self._sets)}, {}


class ValueSetProbe:
    """Evaluates predicates on the values."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._dtype = parse_type(part.header.dtype)
        self._sets = Sets(part, "set", self._dtype)

    def possible_outcomes(self, test: BoundTest, rows: npt.NDArray[np.int64]) -> PossibleOutcomes | None:
        """Evaluates the predicate on the values of each block, on null and on NaN."""
        if isinstance(test, Anything) or test.term is None or not can_serve(self._dtype, test.term.dtype):
            return None
        chosen = self._sets.of(rows)
        values = widened(chosen.values, self._dtype, test.term.dtype)
        if values is None:
            return None
        outcomes = [chosen.having(mask) for mask in _may_be(test, values)]
        flags = self._part.whole("flags")[rows]
        for bit, special in ((NULL, None), (NAN, float("nan"))):
            where = (flags & bit) != 0
            if where.any():
                single = _may_be(test, constant_vector(test.term.dtype, special, 1))
                outcomes = [mask | (where & may[0]) for mask, may in zip(outcomes, single, strict=True)]
        beyond = (flags & OVERFLOW) != 0
        if beyond.any():
            outcomes = [mask | (beyond & may) for mask, may in zip(outcomes, _of_any_number(test), strict=True)]
        return PossibleOutcomes(*outcomes)


def _may_be(test: BoundTest, values: Vector) -> tuple[Mask, Mask, Mask]:
    """Returns where a predicate may be true, false, null; all of them where it cannot be evaluated."""
    truth = truth_of(test, values)
    if truth is None:
        raise AssertionError("such a predicate is not evaluated")
    if truth.failed is None:
        return truth.true, truth.false, truth.null
    return truth.true | truth.failed, truth.false | truth.failed, truth.null | truth.failed


def _of_any_number(test: BoundTest) -> tuple[bool, bool, bool]:
    """Returns what a predicate may be for an unknown value that is neither null nor NaN."""
    match test:
        case NullTest() | NanTest():
            return False, True, False
        case NonNull(_, value, _):
            return value, not value, False
        case Comparison(term, _, value, _) if value != value:  # NaN is greater than every number
            return _one(test, vector(term.dtype, [0.0]))
        case Membership(_, _, _, has_null, _):
            return True, not has_null, has_null
        case _:
            return True, True, False


def _one(test: BoundTest, value: Vector) -> tuple[bool, bool, bool]:
    true, false, null = _may_be(test, value)
    return bool(true[0]), bool(false[0]), bool(null[0])
