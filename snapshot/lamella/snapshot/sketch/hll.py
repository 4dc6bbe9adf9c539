"""HyperLogLog sketches of Apache DataSketches, in the format that Spark's ``hll_*`` functions read too.

This module decides which values are equal: nulls do not count, NaN is one value, either zero is zero.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lamella.snapshot.errors import ManifestError
from lamella.snapshot.schema import DataType

if TYPE_CHECKING:
    import pyarrow as pa

#: 1,024 registers: a relative standard error of 3 %, at most 560 bytes.
LG_K: Final = 10
#: Manifests store 64 bits; the registers of a forged sketch can claim more.
_MAX_ESTIMATE: Final = (1 << 63) - 1
_NARROW_DIGITS: Final = 18
#: Number of values that decide whether a column is repetitive.
_LOOK: Final = 4096
#: Represents the empty string, which the library does not count.
_EMPTY: Final = "\0empty"


class Sketch(msgspec.Struct, frozen=True, array_like=True):
    """A serialized sketch. Only sketches of one ``family`` hash the same value equally."""

    family: str
    data: bytes


def family_of(dtype: DataType) -> str | None:
    """Returns how values of a type are hashed; None: not at all, since they have no order and hence no reliable
    equality."""
    if dtype.order is None:
        return None
    if dtype.is_float:
        return "float"
    if dtype.name == "decimal":
        return f"decimal{'' if dtype.precision <= _NARROW_DIGITS else ' wide'}({dtype.scale})"
    if dtype.order == "bytes":
        return "text" if dtype.is_text else "bytes"
    if dtype.name in ("time", "timestamp", "timestamp_ntz"):
        return f"{dtype.name.partition('_')[0]}({dtype.unit})"
    return dtype.name if dtype.name in ("boolean", "date") else "integer"


class Sketcher:
    """Collects the values of one column, batch by batch."""

    def __init__(self, dtype: DataType) -> None:
        """Raises ValueError for a type without a family."""
        family = family_of(dtype)
        if family is None:
            raise ValueError(f"distinct values of type {dtype} are not counted")
        self._dtype = dtype
        self._family = family
        library = _library()
        self._hll = library.hll_sketch(LG_K, library.tgt_hll_type.HLL_8)
        self._usable = True

    def add(self, values: pa.Array | pa.ChunkedArray) -> None:
        """Add values, in an Arrow type that holds the column's."""
        if self._usable:
            items = _items(self._dtype, values)
            if items is None:
                self._usable = False
            else:
                deque(map(self._hll.update, items), maxlen=0)  # the fastest loop there is

    def sketch(self) -> Sketch | None:
        """Returns the sketch; None if a value could not be counted (text that is not UTF-8)."""
        return Sketch(self._family, _compact(self._hll)) if self._usable else None


def _items(dtype: DataType, values: Any) -> Iterable[Any] | None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    values = values.drop_null()
    if len(pc.unique(values[:_LOOK])) * 2 < min(len(values), _LOOK):
        values = pc.unique(values)  # cheaper than counting each value of a repetitive column
    if dtype.order == "bytes":
        try:
            texts = values.cast(pa.large_string() if dtype.is_text else pa.large_binary())
        except pa.ArrowInvalid:
            return None
        items: list[Any] = texts.to_pylist()
        return [item or _EMPTY for item in (items if dtype.is_text else (item.hex() for item in items))]
    if dtype.name == "decimal":
        if dtype.precision > _NARROW_DIGITS:
            wide: list[Any] = values.cast(pa.string()).to_pylist()
            return wide
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        return [word for chunk in chunks for word in _low_words(chunk).tolist()]
    if dtype.is_float:
        doubles: list[float] = (values.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0).tolist()
        return doubles
    if dtype.name == "boolean":
        values = values.cast(pa.int8())
    elif dtype.name in ("date", "time", "timestamp", "timestamp_ntz"):
        is_narrow = dtype.name == "date" or (dtype.name == "time" and dtype.unit == "ms")
        values = values.cast(pa.int32() if is_narrow else pa.int64())
    numbers = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    integers: list[int] = (numbers.view(np.int64) if dtype.name == "uint64" else numbers).tolist()
    return integers


def _low_words(chunk: Any) -> Any:
    """Returns the unscaled values of few digits: the low one of two words each."""
    import numpy as np

    words = np.frombuffer(chunk.buffers()[1], dtype=np.int64)
    return words[2 * chunk.offset : 2 * (chunk.offset + len(chunk)) : 2]


def united(sketches: Iterable[Sketch]) -> Sketch | None:
    """Returns the union of sketches; None if there are none, or if they are of several families.

    Raises:
        ManifestError: one of them cannot be read.
    """
    union, families = _library().hll_union(LG_K), set()
    for sketch in sketches:
        families.add(sketch.family)
        union.update(_read(sketch))
    if len(families) != 1:
        return None
    return Sketch(families.pop(), _compact_union(union))


def estimate(sketch: Sketch) -> int:
    """Returns the approximate number of distinct values, cut to 64 bits; raises ManifestError."""
    count: int = round(_read(sketch).get_estimate())
    return min(count, _MAX_ESTIMATE)


def check(dtype: DataType, sketch: Sketch) -> str | None:
    """Returns what is wrong with a sketch of a column of a type, None if it is valid."""
    if sketch.family != family_of(dtype):
        return f"a sketch of family {sketch.family!r} in a column of type {dtype}"
    try:
        _read(sketch)
    except ManifestError as error:
        return error.message
    return None


def _read(sketch: Sketch) -> Any:
    try:
        found = _library().hll_sketch.deserialize(sketch.data)
    except (ValueError, IndexError, RuntimeError, MemoryError) as error:
        raise ManifestError(f"a sketch cannot be read: {error}") from error
    if found.lg_config_k != LG_K:
        raise ManifestError(f"a sketch has 2^{found.lg_config_k} registers, not 2^{LG_K}")
    if not 0 <= found.get_estimate() < math.inf:  # sketches store it
        raise ManifestError("a sketch has no estimate")
    return found


def _compact(hll: Any) -> bytes:
    union = _library().hll_union(LG_K)
    union.update(hll)
    return _compact_union(union)


def _compact_union(union: Any) -> bytes:
    return bytes(union.get_result(_library().tgt_hll_type.HLL_4).serialize_compact())


def _library() -> Any:
    """Loads DataSketches, which only writers and commits of sketches need."""
    import datasketches  # type: ignore[import-untyped]  # ships no type information

    return datasketches
