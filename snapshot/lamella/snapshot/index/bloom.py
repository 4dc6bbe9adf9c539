"""Bloom filter indexes: equality and IN over columns whose values are spread over the table.

They prove that a block does not have a value. They contain nothing about nulls and NaN. Blocks whose files have Bloom
filters can be indexed without reading rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.bloom.plain_encoding import hashes_in, type_of
from lamella.snapshot.bloom.split_block import SLOT_BYTES, Hashes, false_positives, keys_per_slot, slots_for
from lamella.snapshot.expression.bound import BoundTest, Comparison, Membership
from lamella.snapshot.function.base import Vector
from lamella.snapshot.index import stacked_filters
from lamella.snapshot.index.file_filters import read_filters, shrunk
from lamella.snapshot.index.kind import (
    PART_ENTRIES,
    Builder,
    Expected,
    Option,
    PossibleOutcomes,
    Probe,
    Profile,
    checked,
)
from lamella.snapshot.index.part import Part, ascending
from lamella.snapshot.index.stacked_filters import has_keys, value_keys, vector_keys
from lamella.snapshot.index.widening import can_serve, narrowed
from lamella.snapshot.parquet.footer import Footer
from lamella.snapshot.schema import DataType, parse_type
from lamella.snapshot.stats.bound import Value
from lamella.snapshot.storage.store import Store

#: Filters with more slots than this have the requested rate, however they are rounded.
_ROUNDED_SLOTS: Final = 200
#: Bytes per block in a part besides its filter.
_BLOCK_BYTES: Final = 20


def expected(profile: Profile, rate: float, above_bytes: int) -> Expected:
    """Returns the requested false positive rate; for layer "segment" that of the filter above the blocks' filters,
    unless it would be too large."""
    counts = np.maximum(np.round(profile.distinct), 0).astype(np.int64)
    different, numbers = np.unique(counts, return_inverse=True)
    slots = np.where(different > 0, np.maximum(np.round(different / keys_per_slot(rate)), 1), 0).astype(np.int64)
    rates = np.full(len(different), rate)
    few = slots <= _ROUNDED_SLOTS
    rates[few] = [
        false_positives(count / max(number, 1))
        for count, number in zip(different[few].tolist(), slots[few].tolist(), strict=True)
    ]
    if profile.layer == "block":
        own_bytes = float(slots[numbers].sum() * SLOT_BYTES) + len(profile) * _BLOCK_BYTES
        chances = rates[numbers]
        above, more_bytes = _above(profile, rate, above_bytes)
        return Expected(chances, own_bytes + more_bytes, "", chances * above)
    fits = slots * SLOT_BYTES <= above_bytes
    reason = "" if fits.all() else "the filter above the blocks would be too large in some segments"
    return Expected(np.where(fits, rates, 1.0)[numbers], float((slots * fits)[numbers].sum() * SLOT_BYTES), reason)


def _above(profile: Profile, rate: float, max_bytes: int) -> tuple[float, float]:
    """Returns the rate of the filters above all blocks of a part, and their total bytes; 1 and 0 if they are too
    large."""
    parts = math.ceil(max(len(profile), 1) / PART_ENTRIES)
    count = round(min(profile.total, float(profile.distinct.sum()) / parts))
    slots = slots_for(count, rate)
    if not count or slots * SLOT_BYTES > max_bytes:
        return 1.0, 0.0
    return false_positives(count / slots), float(parts * slots * SLOT_BYTES)


#: Options of all kinds that stack filters.
FILTER_OPTIONS: Final = {
    "false_positives": Option(
        0.01, minimum=1e-9, maximum=0.5, text="false positive rate: how often a block without the value is read"
    ),
    "above_bytes": Option(
        1 << 20, minimum=0, maximum=1 << 30, text="maximum bytes of a filter over all blocks of a part"
    ),
}


class BloomKind:
    """The index kind ``bloom``: split block filters over all scalar types except boolean."""

    name = "bloom"
    text = "equality and IN on values that are spread over the table: proves that a block does not have a value"
    known_options: Mapping[str, Option] = FILTER_OPTIONS

    def options(self, dtype: DataType, given: Mapping[str, Any]) -> dict[str, Any]:
        """Reads the options ``false_positives``, ``above_bytes``."""
        return checked(self.name, FILTER_OPTIONS, given, dtype, fits=has_keys(dtype))

    def answers(self, test: BoundTest, options: Mapping[str, Any]) -> str | None:  # noqa: ARG002  # all are alike
        """Accepts equality with a value, and IN."""
        return None if look_up_values(test) is not None else "only = and IN test whether a value exists"

    def builder(self, dtype: DataType, options: Mapping[str, Any]) -> Builder:
        """Returns a builder of parts."""
        return BloomBuilder(dtype, options)

    def probe(self, part: Part) -> Probe:
        """Returns a probe of a part."""
        return BloomProbe(part)

    def taken(
        self, parts: list[tuple[Part, npt.NDArray[np.int64]]]
    ) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Returns the blocks of several parts as one part."""
        return stacked_filters.taken(parts)

    def expected(self, profile: Profile, options: Mapping[str, Any]) -> Expected:
        """Estimates with the false positive rate of the options, and the size that the distinct values need for it."""
        return expected(profile, options["false_positives"], options["above_bytes"])


class BloomBuilder:
    """Collects the distinct values of each block, or reads the filters of its file."""

    def __init__(self, dtype: DataType, options: Mapping[str, Any]) -> None:
        self._dtype = dtype
        self._stack = stacked_filters.StackBuilder(options["false_positives"], options["above_bytes"])
        self._keys: list[Hashes] = []

    def add(self, values: Vector) -> None:
        """Add rows of the current block."""
        self._keys.append(vector_keys(self._dtype, values))

    def end_block(self) -> None:
        """Store the block's filter."""
        keys = self._keys
        self._stack.add_block(ascending(np.concatenate(keys)) if keys else np.zeros(0, dtype=np.uint64))
        self._keys = []

    def add_file(self, store: Store, footer: Footer, leaf: int) -> str | None:
        """Add the next block from the filters in its file, shrunk as far as the false positive rate allows."""
        dtype = footer.metadata.schema.leaves[leaf].dtype
        if not can_serve(dtype, self._dtype):
            return f"the file has {dtype}, the term is {self._dtype}"
        found = read_filters(store, footer, leaf)
        if isinstance(found, str):
            return found
        rate = self._stack.rate / max(1, len(found))
        self._stack.add_filters([(domain, shrunk(words, rate)) for domain, words in found])
        return None

    def sections(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Returns the filters of all blocks."""
        return self._stack.sections()


class BloomProbe:
    """Looks values up in the filters."""

    def __init__(self, part: Part) -> None:
        self._stack = stacked_filters.Stack(part)
        self._dtype = parse_type(part.header.dtype)

    def possible_outcomes(self, test: BoundTest, rows: npt.NDArray[np.int64]) -> PossibleOutcomes | None:
        """Proves that no row equals a value that the block does not have."""
        values = look_up_values(test)
        if values is None or test.term is None or not can_serve(self._dtype, test.term.dtype):
            return None
        keys = {domain: self._keys(domain, test.term.dtype, values) for domain in self._stack.domains}
        return PossibleOutcomes(
            self._stack.any_of({domain: some for domain, some in keys.items() if some is not None}, rows)
        )

    def _keys(self, domain: str, query_type: DataType, values: list[Value]) -> Hashes | None:
        """Returns the keys of the values that rows of such a block can have; None if that is unknown."""
        if domain == stacked_filters.OURS:
            return self._stack.left(value_keys(self._dtype, narrowed(self._dtype, query_type, values)))
        dtype = type_of(domain)
        return hashes_in(domain, narrowed(dtype, query_type, values)) if can_serve(dtype, query_type) else None


def look_up_values(test: BoundTest) -> list[Value] | None:
    """Returns the values one of which a row must equal for the test to be true; None if the test has no such values."""
    match test:
        case Comparison(_, "eq", value, _) if value == value:
            return [value]
        case Membership(_, values, False, _, _):
            return list(values)
        case _:
            return None
