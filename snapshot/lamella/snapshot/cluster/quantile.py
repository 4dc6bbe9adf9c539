"""Values of a column as numbers that say where among all rows they stand: what curves are made of.

From a sample of the rows, numbers from 0 to ``2 ** bits - 1`` in the column's order: ascending, NaN above all numbers,
-0.0 equal to 0.0, text by its UTF-8 bytes, nulls last. A number is about ``2 ** bits`` times the part of the rows that
come before, with half of those that are equal: so a column of few values uses all bits too, and each value gets as much
of the range as it has rows. Equal values always get the same number, and a greater value never gets a lesser one.
Different values may share one: who sorts by these numbers breaks ties by the values.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamella.snapshot.cluster.values import Ordered, ordered, restored
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema import DataType, parse_type

#: Different values of a sample that are remembered at most.
MOST_CUTS: Final = 1 << 16
_META: Final = b"lamella.quantiles"


class Quantiles(msgspec.Struct, frozen=True, eq=False):
    """Where the values of a column stand. :meth:`packed` and :func:`unpacked` take it to another process.

    ``cuts``: some of the sample's values, ascending, each once. ``at``: the number of each; ``between``: of values
    before the first cut, between any two neighbours, and behind the last (one more than there are cuts). ``of_null``:
    the number of nulls.
    """

    dtype: DataType
    bits: int
    cuts: Ordered
    at: Any
    between: Any
    of_null: int

    def places(self, values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint64]:
        """The number of each value.

        Raises:
            TypeError: the array does not hold values of the column's type.
        """
        if isinstance(values, pa.ChunkedArray):
            parts = [self.places(chunk) for chunk in values.chunks]
            return np.concatenate([np.zeros(0, dtype=np.uint64), *parts])
        given, valid = ordered(values, self.dtype)
        left, is_cut = given.found_in(self.cuts)
        found = self.between[left]
        found[is_cut] = self.at[left[is_cut]]
        found[~valid] = self.of_null
        return np.asarray(found)

    def packed(self) -> bytes:
        """As bytes."""
        meta = {"dtype": str(self.dtype), "bits": self.bits, "above": int(self.between[-1]), "null": self.of_null}
        columns = {**self.cuts.columns(), "at": pa.array(self.at), "before": pa.array(self.between[:-1])}
        table = pa.table(columns).replace_schema_metadata({_META: msgspec.json.encode(meta)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())


def unpacked(data: bytes) -> Quantiles:
    """What :meth:`Quantiles.packed` wrote."""
    table = pa.ipc.open_stream(data).read_all().combine_chunks()
    meta = msgspec.json.decode(table.schema.metadata[_META])
    dtype = parse_type(meta["dtype"])
    before = table.column("before").to_numpy()
    between = np.concatenate([before, np.array([meta["above"]], dtype=np.uint64)])
    at = table.column("at").to_numpy()
    return Quantiles(dtype, meta["bits"], restored(table, dtype), at, between, meta["null"])


def quantiles(sample: pa.Array | pa.ChunkedArray, dtype: DataType, bits: int) -> Quantiles:
    """Where values stand, by a sample of the rows, nulls among them; the more, the finer, up to about 2 ** bits.

    Raises:
        InvalidRequest: values of the type have no order.
        TypeError: the array does not hold values of the type.
        ValueError: not 1 <= bits <= 32.
    """
    if not 1 <= bits <= 32:
        raise ValueError(f"a column has 1 to 32 bits, not {bits}")
    if dtype.order is None:
        raise InvalidRequest(f"values of {dtype} have no order")
    if isinstance(sample, pa.ChunkedArray):
        sample = pa.concat_arrays(sample.chunks) if sample.num_chunks else pa.array([], sample.type)
    total, nulls = len(sample), sample.null_count
    given, _ = ordered(sample.drop_null(), dtype)
    values = given.sorted()
    starts = np.flatnonzero(values.starts())
    stops = np.append(starts[1:], total - nulls)[: len(starts)]
    chosen = _spread_out(starts, stops, min(MOST_CUTS, 1 << bits))
    left, right = starts[chosen].astype(np.float64), stops[chosen].astype(np.float64)
    inner = (np.append(0.0, right) + np.append(left, float(total - nulls))) / 2
    return Quantiles(
        dtype,
        bits,
        values.take(starts[chosen]),
        _numbers((left + right) / 2, total, bits),
        _numbers(inner, total, bits),
        int(_numbers(np.array([total - nulls / 2]), total, bits)[0]),
    )


def _spread_out(starts: Any, stops: Any, most: int) -> Any:
    """Which different values to remember: those that every so many rows of the sample fall on."""
    if len(starts) <= most:
        return np.arange(len(starts))
    targets = (np.arange(most) + 0.5) * (stops[-1] / most)
    return np.unique(np.searchsorted(stops, targets, side="right"))


def _numbers(ranks: Any, total: int, bits: int) -> npt.NDArray[np.uint64]:
    """Ranks among the rows of the sample, as numbers of so many bits."""
    if not total:
        return np.full(len(ranks), (1 << bits) - 1, dtype=np.uint64)
    numbers = np.minimum(np.floor(ranks / total * (1 << bits)), (1 << bits) - 1)
    return np.asarray(numbers, dtype=np.uint64)
