"""Collects the distinct values of columns of Arrow into sketches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.schema import DataType
from lamella.snapshot.sketch.hashes import Words, hashes_of_texts, hashes_of_words
from lamella.snapshot.sketch.hll import LG_K, NARROW_DIGITS, Sketch, compact, family_of, library

#: Number of values that decide whether a column is repetitive.
_LOOK: Final = 4096
#: Values whose hashes are computed together: they fit into a cache of the processor.
_AT_ONCE: Final = 1 << 14
#: Registers that hold a number once the library does not list values any more.
_DENSE: Final = 1 << (LG_K - 2)
_BITS: Final = 64
_ALL_BITS: Final = (1 << _BITS) - 1
#: The largest number in a register.
_MAX_NUMBER: Final = 63
_WORD_BYTES: Final = 8
#: Represents the empty string, which the library does not count.
_EMPTY: Final = "\0empty"


class Sketcher:
    """Collects the values of one column, batch by batch."""

    def __init__(self, dtype: DataType) -> None:
        """Raises ValueError for a type without a family."""
        family = family_of(dtype)
        if family is None:
            raise ValueError(f"distinct values of type {dtype} are not counted")
        self._dtype = dtype
        self._family = family
        self._hll = library().hll_sketch(LG_K, library().tgt_hll_type.HLL_8)
        self._registers = _Registers()
        self._usable = True

    def add(self, values: pa.Array | pa.ChunkedArray) -> None:
        """Add values, in an Arrow type that holds the column's."""
        if not self._usable:
            return
        values = _without_repeats(values.drop_null())
        if self._dtype.is_text:
            self._add_texts(values)
        elif self._dtype.order == "bytes":
            self.update(item.hex() or _EMPTY for item in values.to_pylist())
        elif self._dtype.name == "decimal" and self._dtype.precision > NARROW_DIGITS:
            self.update(values.cast(pa.string()).to_pylist())
        else:
            self._add_words(_words(self._dtype, values))

    def _add_words(self, words: npt.NDArray[Any]) -> None:
        for start in range(0, len(words), _AT_ONCE):
            some = words[start : start + _AT_ONCE]
            self.update(some[self._registers.changed_by(*hashes_of_words(some))].tolist())

    def _add_texts(self, values: Any) -> None:
        try:
            texts = values.cast(pa.large_string())
        except pa.ArrowInvalid:
            self._usable = False
            return
        is_empty = pc.equal(pc.binary_length(texts), 0)
        if pc.any(is_empty).as_py():
            self.update([_EMPTY])
            texts = texts.filter(pc.invert(is_empty))
        joined = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        for start in range(0, len(joined), _AT_ONCE):
            some = joined[start : start + _AT_ONCE]
            changed = self._registers.changed_by(*hashes_of_texts(*_text_bytes(some)))
            try:
                self.update(some.filter(pa.array(changed)).to_pylist())
            except UnicodeDecodeError:
                self._usable = False
                return

    def update(self, items: Iterable[Any]) -> None:
        """Pass values to the library, in the form in which it counts them."""
        deque(map(self._hll.update, items), maxlen=0)  # the fastest loop there is

    def sketch(self) -> Sketch | None:
        """Returns the sketch; None if a value could not be counted (text that is not UTF-8)."""
        return Sketch(self._family, compact(self._hll)) if self._usable else None


class _Registers:
    """The registers of a sketch: they tell which values of a batch can change it.

    The others need not be passed to the library, and the sketch is the same without them, bit for bit. It has an
    estimate that depends on the order of its changes, so those that change it are passed in their order.
    """

    def __init__(self) -> None:
        self._values = np.zeros(1 << LG_K, dtype=np.uint8)
        #: By register, the largest second half of a hash that changes it.
        self._limits = np.full(1 << LG_K, _ALL_BITS, dtype=np.uint64)
        self._is_dense = False

    def changed_by(self, first: Words, second: Words) -> npt.NDArray[np.bool_]:
        """Returns which values, by their hashes, may change the sketch, and notes what they change."""
        at = (first & np.uint64((1 << LG_K) - 1)).astype(np.intp)
        changed = second <= self._limits[at]
        found = np.flatnonzero(changed)
        np.maximum.at(self._values, at[found], np.minimum(_BITS + 1 - _bit_lengths(second[found]), _MAX_NUMBER))
        self._limits = np.uint64(_ALL_BITS) >> self._values.astype(np.uint64)
        if not self._is_dense:
            # A sketch of few values lists them all, whatever registers they would have.
            self._is_dense = int(np.count_nonzero(self._values)) >= _DENSE
            return np.ones(len(at), dtype=np.bool_)
        return changed


def _bit_lengths(words: Words) -> npt.NDArray[np.uint8]:
    # As floats they would be rounded up to the next power of two if all of their highest bits were set.
    return np.frexp((words & ~(words >> np.uint64(1))).astype(np.float64))[1].astype(np.uint8)


def _without_repeats(values: Any) -> Any:
    if len(pc.unique(values[:_LOOK])) * 2 < min(len(values), _LOOK):
        return pc.unique(values)  # cheaper than counting each value of a repetitive column
    return values


def _words(dtype: DataType, values: Any) -> npt.NDArray[Any]:
    """Returns values as numbers of 64 bits: integers, or floats of which equal ones have equal bits."""
    if dtype.name == "decimal":
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        return np.concatenate([np.zeros(0, np.int64), *map(_low_words, chunks)])
    if dtype.is_float:
        doubles = np.array(_numbers(values.cast(pa.float64())))
        doubles[np.isnan(doubles)] = np.nan
        return doubles + 0.0  # neither zero is negative
    if dtype.name == "boolean":
        values = values.cast(pa.int8())
    elif dtype.name in ("date", "time", "timestamp", "timestamp_ntz"):
        is_narrow = dtype.name == "date" or (dtype.name == "time" and dtype.unit == "ms")
        values = values.cast(pa.int32() if is_narrow else pa.int64())
    numbers = _numbers(values)
    return numbers.view(np.int64) if dtype.name == "uint64" else numbers.astype(np.int64, copy=False)


def _numbers(values: Any) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = (
        values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    )
    return found


def _text_bytes(texts: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Returns the bytes of large texts without nulls, and where each begins and the last one ends."""
    _, offsets, data = texts.buffers()
    starts = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    own = np.frombuffer(data, dtype=np.uint8)[starts[0] : starts[-1]]
    return np.concatenate([own, np.zeros(_WORD_BYTES, np.uint8)]), starts - starts[0]


def _low_words(chunk: Any) -> Any:
    """Returns the unscaled values of few digits: the low one of two words each."""
    words = np.frombuffer(chunk.buffers()[1], dtype=np.int64)
    return words[2 * chunk.offset : 2 * (chunk.offset + len(chunk)) : 2]
