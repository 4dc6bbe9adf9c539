"""HyperLogLog sketches of Apache DataSketches, in the format that Spark's ``hll_*`` functions read too.

This module decides which values are equal: nulls do not count, NaN is one value, either zero is zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import ManifestError
from lamella.snapshot.schema import DataType

#: 1,024 registers: a relative standard error of 3 %, at most 560 bytes.
LG_K: Final = 10
#: Manifests store 64 bits; the registers of a forged sketch can claim more.
_MAX_ESTIMATE: Final = (1 << 63) - 1
NARROW_DIGITS: Final = 18


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
        return f"decimal{'' if dtype.precision <= NARROW_DIGITS else ' wide'}({dtype.scale})"
    if dtype.order == "bytes":
        return "text" if dtype.is_text else "bytes"
    if dtype.name in ("time", "timestamp", "timestamp_ntz"):
        return f"{dtype.name.partition('_')[0]}({dtype.unit})"
    return dtype.name if dtype.name in ("boolean", "date") else "integer"


def united(sketches: Iterable[Sketch]) -> Sketch | None:
    """Returns the union of sketches; None if there are none, or if they are of several families.

    Raises:
        ManifestError: one of them cannot be read.
    """
    union, families = library().hll_union(LG_K), set()
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
        found = library().hll_sketch.deserialize(sketch.data)
    except (ValueError, IndexError, RuntimeError, MemoryError) as error:
        raise ManifestError(f"a sketch cannot be read: {error}") from error
    if found.lg_config_k != LG_K:
        raise ManifestError(f"a sketch has 2^{found.lg_config_k} registers, not 2^{LG_K}")
    if not 0 <= found.get_estimate() < math.inf:  # sketches store it
        raise ManifestError("a sketch has no estimate")
    return found


def compact(hll: Any) -> bytes:
    """Returns a sketch of the library as it is stored."""
    union = library().hll_union(LG_K)
    union.update(hll)
    return _compact_union(union)


def _compact_union(union: Any) -> bytes:
    return bytes(union.get_result(library().tgt_hll_type.HLL_4).serialize_compact())


def library() -> Any:
    """Loads DataSketches, which only writers and commits of sketches need."""
    import datasketches  # type: ignore[import-untyped]  # ships no type information

    return datasketches
