"""The distinct bounds of entries, in order, and sums over the ranges between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import BytesKeys, Keys, NumberKeys, Ranks, WideKeys, joined_keys


def ranked(low: Keys, high: Keys) -> tuple[Points, Ranks, Ranks]:
    """Returns the distinct bounds in order, and the rank of each low and each high among them; there may be more of
    one side than of the other.

    Exact for every type; the two float zeros count as one.

    Raises:
        TypeError: the two sides have different orders.
    """
    keys = joined_keys([low, high])
    if isinstance(keys, NumberKeys):
        _, first, numbers = np.unique(keys.array, return_index=True, return_inverse=True)
    elif isinstance(keys, WideKeys):
        first, numbers = _of_limbs(keys)
    else:
        first, numbers = _of_texts(keys)
    lows = len(Points(low))
    return Points(keys.take(first)), numbers[:lows].astype(np.int64), numbers[lows:].astype(np.int64)


class Points:
    """Distinct values of one type in their order."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys

    def __len__(self) -> int:
        keys = self.keys
        if isinstance(keys, NumberKeys):
            return len(keys.array)
        return len(keys.high) if isinstance(keys, WideKeys) else len(self._texts().prefix)

    def array(self) -> Any:
        """Returns the values as an array: numbers (decimals of more than 18 digits as the nearest floats), or byte
        strings as objects."""
        keys = self.keys
        if isinstance(keys, NumberKeys):
            return keys.array
        if isinstance(keys, WideKeys):
            return keys.high * 2.0**64 + keys.low
        found = np.empty(len(self), dtype=object)
        texts = self._texts()
        found[:] = [texts.at(index) for index in range(len(self))]
        return found

    def _texts(self) -> BytesKeys:
        if not isinstance(self.keys, BytesKeys):
            raise TypeError(f"{type(self.keys).__name__} has no text")
        return self.keys


def spread(elements: int, first: Ranks, last: Ranks, weight: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Returns for each element the sum of the weights of the ranges that contain it, ends included."""
    begins = np.bincount(first, weight, minlength=elements + 1)
    ends = np.bincount(last + 1, weight, minlength=elements + 1)
    return np.asarray(np.cumsum(begins - ends)[:-1])


def _of_limbs(keys: WideKeys) -> tuple[Ranks, Ranks]:
    order = np.lexsort((keys.low, keys.high))
    high, low = keys.high[order], keys.low[order]
    return _numbered(order, (high[1:] != high[:-1]) | (low[1:] != low[:-1]))


def _of_texts(keys: Keys) -> tuple[Ranks, Ranks]:
    if not isinstance(keys, BytesKeys):
        raise TypeError(f"{type(keys).__name__} have an unknown order")
    count = len(keys.offsets) - 1
    offsets = np.ascontiguousarray(keys.offsets, dtype=np.int64)
    texts = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(keys.data)]
    )
    order = pc.sort_indices(texts).to_numpy().astype(np.int64)
    ascending = texts.take(pa.array(order))
    differs = pc.not_equal(ascending.slice(1), ascending.slice(0, max(count - 1, 0)))
    return _numbered(order, differs.to_numpy(zero_copy_only=False))


def _numbered(order: Ranks, differs: Any) -> tuple[Ranks, Ranks]:
    """Returns the index where each distinct value first occurs, and the rank of the value at each index."""
    if not len(order):
        return order, order
    starts = np.concatenate([[True], differs])
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(starts) - 1
    return order[starts], numbers
