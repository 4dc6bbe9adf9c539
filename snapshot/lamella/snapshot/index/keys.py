"""Key indexes: find the blocks that have a value exactly, for look-ups of single rows by a nearly unique column.

A part has one record per value and block: the value's hash, and the block. Records are sorted by hash, so those of one
value are contiguous; the hash of every n-th record is a *fence*. A look-up reads the fences once, and one range of
records per value. Only values with equal hashes are confused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.bloom.split_block import Hashes
from lamella.snapshot.expression.bound import BoundTest
from lamella.snapshot.function.base import Vector
from lamella.snapshot.index.bloom import look_up_values
from lamella.snapshot.index.kind import Builder, Expected, Option, PossibleOutcomes, Probe, Profile, checked, same
from lamella.snapshot.index.part import Part, ascending
from lamella.snapshot.index.stacked_filters import has_keys, value_keys, vector_keys
from lamella.snapshot.index.widening import can_serve, narrowed
from lamella.snapshot.schema import DataType, parse_type

_OPTIONS: Final = {
    "records": Option(1024, minimum=16, maximum=1 << 16, text="records between two fences, which one look-up reads"),
}
_SHORTS: Final = 4  # 16-bit numbers per hash
#: One record: a hash, and the number of a block.
_RECORD_BYTES: Final = 10
_NARROW: Final = 1 << 16  # up to this many blocks need one more such number, otherwise two
_Array = npt.NDArray[Any]


class KeysKind:
    """The index kind ``keys``: all scalar types except boolean. Ten bytes per distinct value of each block."""

    name = "keys"
    text = "equality and IN on values that rarely repeat, such as ids: finds exactly the blocks that have them"
    known_options: Mapping[str, Option] = _OPTIONS

    def options(self, dtype: DataType, given: Mapping[str, Any]) -> dict[str, Any]:
        """Reads the option ``records``."""
        return checked(self.name, _OPTIONS, given, dtype, fits=has_keys(dtype))

    def answers(self, test: BoundTest, options: Mapping[str, Any]) -> str | None:  # noqa: ARG002  # all are alike
        """Accepts equality with a value, and IN."""
        return None if look_up_values(test) is not None else "only = and IN test whether a value exists"

    def builder(self, dtype: DataType, options: Mapping[str, Any]) -> Builder:
        """Returns a builder of parts."""
        return KeysBuilder(dtype, options)

    def probe(self, part: Part) -> Probe:
        """Returns a probe of a part."""
        return KeysProbe(part)

    def taken(
        self, parts: list[tuple[Part, npt.NDArray[np.int64]]]
    ) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Returns the blocks of several parts as one part."""
        hashes: list[Hashes] = []
        blocks: list[npt.NDArray[np.int64]] = []
        first = 0
        for part, rows in parts:
            new_row = np.full(part.header.block_count, -1, dtype=np.int64)
            new_row[rows] = np.arange(first, first + len(rows))
            keys, of = _unpacked(part.whole("records"))
            is_taken = new_row[of] >= 0
            hashes.append(keys[is_taken])
            blocks.append(new_row[of[is_taken]])
            first += len(rows)
        step = int(parts[0][0].header.options["records"])
        return sections_of(np.concatenate(hashes), np.concatenate(blocks), first, step), {}

    def expected(self, profile: Profile, options: Mapping[str, Any]) -> Expected:  # noqa: ARG002  # all are alike
        """Estimates exact answers, and ten bytes per value of each block."""
        return same(profile, 0.0, float(_RECORD_BYTES * profile.distinct.sum()))


class KeysBuilder:
    """Collects the distinct values of each block."""

    def __init__(self, dtype: DataType, options: Mapping[str, Any]) -> None:
        self._dtype = dtype
        self._step: int = options["records"]
        self._new: list[Hashes] = []
        self._blocks: list[Hashes] = []

    def add(self, values: Vector) -> None:
        """Add rows of the current block."""
        self._new.append(vector_keys(self._dtype, values))

    def end_block(self) -> None:
        """Store the block's keys."""
        self._blocks.append(ascending(np.concatenate([np.zeros(0, dtype=np.uint64), *self._new])))
        self._new = []

    def sections(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Returns the records of all blocks."""
        counts = [len(keys) for keys in self._blocks]
        hashes = np.concatenate([np.zeros(0, dtype=np.uint64), *self._blocks])
        return sections_of(hashes, np.repeat(np.arange(len(counts)), counts), len(counts), self._step), {}


class KeysProbe:
    """Looks values up in the records."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._dtype = parse_type(part.header.dtype)
        self._step = int(part.header.options["records"])

    def possible_outcomes(self, test: BoundTest, rows: npt.NDArray[np.int64]) -> PossibleOutcomes | None:
        """Proves that no row of any other block equals a value."""
        values = look_up_values(test)
        if values is None or test.term is None or not can_serve(self._dtype, test.term.dtype):
            return None
        has = np.zeros(self._part.header.block_count, dtype=bool)
        keys = ascending(value_keys(self._dtype, narrowed(self._dtype, test.term.dtype, values)))
        if len(keys):
            for blocks in self._found(keys):
                has[blocks] = True
        return PossibleOutcomes(has[rows])

    def _found(self, keys: Hashes) -> list[npt.NDArray[np.int64]]:
        """Yields the blocks that have some of the keys, ascending within each range."""
        fences = self._part.whole("fences")
        count = self._part.shape("records")[0]
        # A key's records begin after the last fence below it, and end before the first one above it.
        first = np.maximum(np.searchsorted(fences, keys, side="left") - 1, 0) * self._step
        last = np.minimum(np.searchsorted(fences, keys, side="right") * self._step, count)
        spans: list[tuple[int, int]] = []
        for start, stop in zip(first.tolist(), last.tolist(), strict=True):
            if spans and start <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(stop, spans[-1][1]))
            elif start < stop:
                spans.append((start, stop))
        found = []
        for records in self._part.ranges("records", spans):
            hashes, blocks = _unpacked(records)
            at = np.minimum(np.searchsorted(keys, hashes), len(keys) - 1)
            found.append(blocks[keys[at] == hashes])
        return found


def sections_of(hashes: Hashes, blocks: npt.NDArray[np.int64], block_count: int, step: int) -> dict[str, _Array]:
    """Returns records of hashes and their blocks, sorted by hash, with fences."""
    order = np.argsort(hashes)
    hashes, blocks = hashes[order], blocks[order]
    shorts = _SHORTS + (1 if block_count <= _NARROW else 2)
    records = np.zeros((len(hashes), shorts), dtype="<u2")
    records[:, :_SHORTS] = hashes.astype("<u8").view("<u2").reshape(-1, _SHORTS)
    records[:, _SHORTS:] = blocks.astype("<u4").view("<u2").reshape(-1, 2)[:, : shorts - _SHORTS]
    return {"fences": hashes[::step], "records": records}


def _unpacked(records: _Array) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """Returns the hashes of records, and their blocks."""
    hashes = np.ascontiguousarray(records[:, :_SHORTS]).view("<u8").reshape(-1)
    blocks = records[:, _SHORTS].astype(np.int64)
    if records.shape[1] > _SHORTS + 1:
        blocks |= records[:, _SHORTS + 1].astype(np.int64) << 16
    return hashes, blocks
