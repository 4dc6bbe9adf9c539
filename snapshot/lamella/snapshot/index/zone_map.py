"""Zone maps as indexes: of expressions, and of columns whose files have no statistics.

For each block a part has flags (whether a row may be null, NaN, or another value) and the ranges of its values: none
(``nulls``), one from minimum to maximum (``minmax``), or a few with gaps between them (``ranges``). A predicate may
have for a block's rows any outcome that it may have for one of its ranges, for null, or for NaN.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import Keys, NumberKeys, filled
from lamella.snapshot.columnar.zones import (
    HIGH_KNOWN,
    LOW_KNOWN,
    MAY_NAN,
    MAY_NULL,
    MAY_NUMBER,
    NULLS_KNOWN,
    Zones,
    is_wide,
    keys_of,
)
from lamella.snapshot.expression.bound import Anything, BoundTest, NanTest, NonNull, NullTest
from lamella.snapshot.function.base import Vector
from lamella.snapshot.index.kind import Builder, Expected, Option, PossibleOutcomes, Probe, Profile, checked, same
from lamella.snapshot.index.part import Part, any_by_row, extent, has_nan, listed, loaded, spans_of, stored
from lamella.snapshot.index.widening import can_serve, widened
from lamella.snapshot.prune.evaluate import zones_outcome
from lamella.snapshot.schema import DataType, parse_type
from lamella.snapshot.stats.bound import MAX_BOUND_BYTES, upper_prefix
from lamella.snapshot.stats.ranges import MAX_RANGES, Range, RangeFinder, has_ranges

_RANGES: Final = {
    "ranges": Option(MAX_RANGES, minimum=2, maximum=MAX_RANGES, text="maximum number of ranges of a block")
}
#: Flags of a block, and the index of its first range.
_FLAG_BYTES: Final = 9
_Array = npt.NDArray[Any]


class ZonalKind(ABC):
    """The common base of the three zone map kinds."""

    name = ""
    text = ""
    known_options: Mapping[str, Option] = {}

    def options(self, dtype: DataType, given: Mapping[str, Any]) -> dict[str, Any]:
        """Reads the options of the kind."""
        return checked(self.name, self.known_options, given, dtype, fits=self._fits(dtype))

    def answers(self, test: BoundTest, options: Mapping[str, Any]) -> str | None:  # noqa: ARG002  # all are alike
        """Accepts every predicate that zone maps can answer."""
        return test.reason if isinstance(test, Anything) else None

    def builder(self, dtype: DataType, options: Mapping[str, Any]) -> Builder:
        """Returns a builder of parts."""
        return ZonalBuilder(dtype, self._max_ranges(options))

    def probe(self, part: Part) -> Probe:
        """Returns a probe of a part."""
        return ZonalProbe(part, has_bounds=self._max_ranges(part.header.options) > 0)

    def taken(
        self, parts: list[tuple[Part, npt.NDArray[np.int64]]]
    ) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Returns the blocks of several parts as one part."""
        dtype = parse_type(parts[0][0].header.dtype)
        flags: list[int] = []
        ranges: list[list[Range]] = []
        for part, rows in parts:
            offsets = part.whole("offsets").tolist()
            low, high = (listed(loaded(part, side, dtype)) for side in ("low", "high"))
            every = list(zip(low, high, strict=True))
            flags += part.whole("flags")[rows].tolist()
            ranges += [every[offsets[row] : offsets[row + 1]] for row in rows.tolist()]
        return sections_of(dtype, flags, ranges), {}

    def expected(self, profile: Profile, options: Mapping[str, Any]) -> Expected:
        """Estimates no gain over the manifests' own bounds if they exist; otherwise unknown."""
        limit = self._max_ranges(options)
        per_block = _FLAG_BYTES + 2 * limit * profile.value_bytes
        if profile.layer == "segment":
            return Expected(reason="ranges are stored for blocks only, not for higher layers")
        if limit > 1:
            return Expected(None, len(profile) * per_block, "manifests do not have the gaps between values")
        if limit == 0:
            return same(profile, 1.0, len(profile) * per_block, "it does not test values")
        if not profile.is_bounded.all():
            return Expected(None, len(profile) * per_block, "the manifests lack bounds of some blocks")
        return same(profile, 1.0, len(profile) * per_block, "the manifests have these bounds already")

    def _fits(self, dtype: DataType) -> bool:
        return dtype.order is not None

    @abstractmethod
    def _max_ranges(self, options: Mapping[str, Any]) -> int:
        """Returns the maximum number of ranges per block; 0: not even minimum and maximum."""


class MinMaxKind(ZonalKind):
    """The index kind ``minmax``: minimum and maximum, for all types with an order."""

    name = "minmax"
    text = "comparisons of expressions, and of columns without statistics in their files"

    def _max_ranges(self, options: Mapping[str, Any]) -> int:  # noqa: ARG002
        return 1


class NullsKind(ZonalKind):
    """The index kind ``nulls``: whether there are nulls, NaN, and other values."""

    name = "nulls"
    text = "IS NULL, IS NOT NULL and isnan of expressions, and of columns without statistics in their files"

    def answers(self, test: BoundTest, options: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """Accepts only predicates that do not look at values."""
        asks = isinstance(test, NullTest | NanTest | NonNull)
        return None if asks else "only IS NULL, isnan and predicates that are equal for all values can be decided by it"

    def _max_ranges(self, options: Mapping[str, Any]) -> int:  # noqa: ARG002
        return 0


class RangesKind(ZonalKind):
    """The index kind ``ranges``: a few ranges of numbers, dates and times."""

    name = "ranges"
    text = "comparisons of columns whose values are in clusters with wide gaps, such as a distant sentinel"
    known_options: Mapping[str, Option] = _RANGES

    def _fits(self, dtype: DataType) -> bool:
        return has_ranges(dtype)

    def _max_ranges(self, options: Mapping[str, Any]) -> int:
        return int(options["ranges"])


class ZonalBuilder:
    """Collects the ranges of each block, up to a limit."""

    def __init__(self, dtype: DataType, max_ranges: int) -> None:
        self._dtype = dtype
        self._max_ranges = max_ranges
        self._flags: list[int] = []
        self._ranges: list[list[Range]] = []
        self._finder = RangeFinder(dtype, max_ranges)
        self._span: list[Any] = []
        self._bits = NULLS_KNOWN

    def add(self, values: Vector) -> None:
        """Add rows of the current block."""
        if not values.valid.all():
            self._bits |= MAY_NULL
        if has_nan(self._dtype, values):
            self._bits |= MAY_NAN
        if self._max_ranges > 1:
            numbers = values.values[values.valid]
            if self._dtype.order == "float":
                numbers = numbers[~np.isnan(numbers)]
            self._finder.add_numbers(numbers)
            self._bits |= MAY_NUMBER if len(numbers) else 0
            return
        span = extent(self._dtype, values)
        if span is not None:
            self._bits |= MAY_NUMBER
            self._span = [min([*self._span[:1], span[0]]), max([*self._span[1:], span[1]])]

    def end_block(self) -> None:
        """Store the block's ranges."""
        self._flags.append(self._bits)
        if self._max_ranges > 1:
            self._ranges.append(self._finder.found)
        else:
            self._ranges.append([_cut(*self._span)] if self._span and self._max_ranges else [])
        self._finder = RangeFinder(self._dtype, self._max_ranges)
        self._span, self._bits = [], NULLS_KNOWN

    def sections(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Returns the ranges of all blocks."""
        return sections_of(self._dtype, self._flags, self._ranges), {}


class ZonalProbe:
    """Evaluates predicates over ranges."""

    def __init__(self, part: Part, *, has_bounds: bool) -> None:
        self._part = part
        self._dtype = parse_type(part.header.dtype)
        self._has_bounds = has_bounds
        self._zones: dict[DataType, Zones | None] = {}

    def possible_outcomes(self, test: BoundTest, rows: npt.NDArray[np.int64]) -> PossibleOutcomes | None:
        """Evaluates the predicate on each range of a block, on null and on NaN."""
        if isinstance(test, Anything) or test.term is None or not can_serve(self._dtype, test.term.dtype):
            return None
        zones = self._of(test.term.dtype)
        if zones is None:
            return None
        offsets = self._part.whole("offsets")
        entries = np.concatenate([np.zeros(0, np.int64), *(np.arange(*span) for span in spans_of(offsets, rows))])
        found = zones_outcome(test, zones.take(entries)) if len(entries) else None
        masks = [np.zeros(len(rows), dtype=bool) for _ in range(3)]
        if found is not None:
            outcomes = (found.true, found.false, found.null)
            masks = [any_by_row(filled(mask, len(entries)), offsets, rows) for mask in outcomes]
        flags = self._part.whole("flags")[rows]
        for bit in (MAY_NULL, MAY_NAN) if self._has_bounds else (MAY_NULL, MAY_NAN, MAY_NUMBER):
            where = (flags & bit) != 0
            if where.any():
                single = zones_outcome(test, Zones(None, None, np.array([bit | NULLS_KNOWN], dtype=np.uint8)))
                may = [bool(filled(mask, 1)[0]) for mask in (single.true, single.false, single.null)]
                masks = [mask | (where & each) for mask, each in zip(masks, may, strict=True)]
        return PossibleOutcomes(*masks)

    def _of(self, query_type: DataType) -> Zones | None:
        """Returns the zone maps of all ranges, in the order of the asked type; None if they are out of its range."""
        if query_type not in self._zones:
            low, high = (widened(loaded(self._part, s, self._dtype), self._dtype, query_type) for s in ("low", "high"))
            if low is None or high is None:
                self._zones[query_type] = None
            else:
                flags = np.full(len(low), LOW_KNOWN | HIGH_KNOWN | MAY_NUMBER | NULLS_KNOWN, dtype=np.uint8)
                self._zones[query_type] = Zones(_keys(query_type, low), _keys(query_type, high), flags)
        return self._zones[query_type]


def sections_of(dtype: DataType, flags: Sequence[int], ranges: Sequence[Sequence[Range]]) -> dict[str, _Array]:
    """Returns the sections of ranges, block after block."""
    every = [each for block in ranges for each in block]
    offsets = np.zeros(len(ranges) + 1, dtype=np.int64)
    np.cumsum([len(block) for block in ranges], out=offsets[1:])
    return {
        "flags": np.array(flags, dtype=np.uint8),
        "offsets": offsets,
        **stored("low", dtype, [low for low, _ in every]),
        **stored("high", dtype, [high for _, high in every]),
    }


def _cut(low: Any, high: Any) -> Range:
    """Returns a range that contains these values, with short bounds."""
    if not isinstance(low, bytes):
        return low, high
    return low[:MAX_BOUND_BYTES], high if len(high) <= MAX_BOUND_BYTES else upper_prefix(high, MAX_BOUND_BYTES)


def _keys(dtype: DataType, values: Vector) -> Keys | None:
    if values.is_bytes or is_wide(dtype):
        return keys_of(dtype, listed(values))
    return NumberKeys(values.values)
