"""Whether a part that was built for one type serves another, after a column was widened.

A column's type may be widened (:func:`lamella.snapshot.schema.evolution.can_widen`), and the blocks that were indexed
before keep their files and so their keys. What a part holds are values of the *built* type; it is asked about values of
the *asked* type. A part serves when every value of the built type is just one value of the asked type, in the same
order, so that the values go over one by one, both ways:

========================= ========================= ==================================================
built                     asked                     a value of the built type becomes
========================= ========================= ==================================================
int8 .. int64             a wider signed one        itself
uint8 .. uint64           a wider unsigned one,     itself
                          or a wider signed one
float16, float32          a wider float             itself
decimal(p,s)              decimal(q,t), t >= s,     itself times 10^(t-s)
                          q - t >= p - s
time, timestamp           the same of a finer unit  itself times a power of ten
string, enum, json        each other                itself
fixed, uuid, bson, binary binary                    itself
========================= ========================= ==================================================

Times of a coarser unit, which files may have against their table, are rounded and never served.

All kinds of Lamella follow this table: those that hash hash values of the built type, so what is asked for is brought
down (:func:`narrowed`), where values that the built type lacks are in no row; those that keep values bring these up
(:func:`widened`). It says nothing of terms that are computed: a function of a widened column may have other values
although its type is the same (a cast to text, say), so there the types of the columns must be the same too.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np

from lamella.snapshot.columnar.zones import is_wide, number_dtype
from lamella.snapshot.function.base import Vector
from lamella.snapshot.schema import DataType
from lamella.snapshot.schema.evolution import can_widen
from lamella.snapshot.schema.types import PER_SECOND
from lamella.snapshot.stats.bound import Value

_SHORT_FLOATS: Final = {16: "<e", 32: "<f"}


_LIMITS: Final = {"int": (-(1 << 63), (1 << 63) - 1), "uint": (0, (1 << 64) - 1)}


def can_serve(built: DataType, asked: DataType) -> bool:
    """True when a part over a term that had the type ``built`` can be asked about values of ``asked``."""
    return built == asked or (built.order is not None and asked.order is not None and can_widen(built, asked))


def factor(built: DataType, asked: DataType) -> int:
    """By what a value of the built type is multiplied to be one of the asked type."""
    if built.name == "decimal":
        return int(10 ** (asked.scale - built.scale))
    if built.name in ("time", "timestamp", "timestamp_ntz"):
        return PER_SECOND[asked.unit] // PER_SECOND[built.unit]
    return 1


def narrowed(built: DataType, asked: DataType, values: Sequence[Value]) -> list[Value]:
    """Those values of the asked type that the built type has, as that has them; no row of the part has the others.

    NaN is not among them. Only for types that :func:`can_serve`.
    """
    if asked.order == "bytes":
        return [value for value in values if isinstance(value, bytes)]
    if asked.order == "float":
        return [float(value) for value in values if _is_float(built, float(value))]
    times = factor(built, asked)
    low, high = built.int_range
    found: list[Value] = []
    for value in values:
        whole, rest = divmod(int(value), times)
        if not rest and low <= whole <= high:
            found.append(whole)
    return found


def widened(values: Vector, built: DataType, asked: DataType) -> Vector | None:
    """Values of the built type as such of the asked type; None when one is beyond it, so that reading it would fail.

    Only for types that :func:`can_serve`.
    """
    if built == asked or asked.order in ("bytes", "float"):
        return values
    kind = np.dtype(object) if is_wide(asked) else number_dtype(asked)
    times = factor(built, asked)
    if times == 1:
        return Vector(values.values.astype(kind), values.valid)
    scaled = values.values.astype(object) * times
    limits = asked.int_range if asked.order == "decimal" else _LIMITS[asked.order or "int"]
    if len(scaled) and not (limits[0] <= scaled.min() and scaled.max() <= limits[1]):
        return None
    return Vector(scaled.astype(kind), values.valid)


def _is_float(built: DataType, value: float) -> bool:
    """Whether a number is one of the built type's."""
    code = _SHORT_FLOATS.get(built.bits)
    if code is None or value in (np.inf, -np.inf):
        return value == value
    try:
        return bool(struct.unpack(code, struct.pack(code, value))[0] == value)
    except OverflowError:
        return False
