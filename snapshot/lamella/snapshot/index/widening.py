"""Decides whether a part that was built for one type can serve another, after a column was widened.

A column's type may be widened (:func:`lamella.snapshot.schema.evolution.can_widen`), and the blocks that were indexed
before keep their files and so their keys. A part contains values of the *built* type; queries have values of the
*asked* type. A part can serve a query if every value of the built type corresponds to exactly one value of the asked
type, in the same order, so that values convert both ways:

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

A part built over times of a finer unit is never used for a coarser one: files may have such times, which are rounded.
Nor is one built over a column that changed its kind since (an integer that became a double).

All kinds of Lamella follow this table. Kinds that hash values hash those of the built type, so the values of a query
are converted down (:func:`narrowed`); values that the built type lacks occur in no row. Kinds that store values convert
them up (:func:`widened`). The table does not apply to computed terms: a function of a widened column may have other
values although its type is the same (for example a cast to text), so there the types of the columns must be the same
too.
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
from lamella.snapshot.schema.types import changes_kind, factor
from lamella.snapshot.stats.bound import Value

_SHORT_FLOATS: Final = {16: "<e", 32: "<f"}


_LIMITS: Final = {"int": (-(1 << 63), (1 << 63) - 1), "uint": (0, (1 << 64) - 1)}


def can_serve(built: DataType, query_type: DataType) -> bool:
    """Returns whether a part over a term of type ``built`` can answer queries with values of type ``query_type``."""
    if built == query_type:
        return True
    if built.order is None or query_type.order is None or changes_kind(built, query_type):
        return False
    return can_widen(built, query_type)


def narrowed(built: DataType, query_type: DataType, values: Sequence[Value]) -> list[Value]:
    """Returns those values of the asked type that the built type has, converted; no row of the part has the others.

    NaN is not among them. Only for types accepted by :func:`can_serve`.
    """
    if query_type.order == "bytes":
        return [value for value in values if isinstance(value, bytes)]
    if query_type.order == "float":
        return [float(value) for value in values if _is_float(built, float(value))]
    times = factor(built, query_type)
    low, high = built.int_range
    found: list[Value] = []
    for value in values:
        whole, rest = divmod(int(value), times)
        if not rest and low <= whole <= high:
            found.append(whole)
    return found


def widened(values: Vector, built: DataType, query_type: DataType) -> Vector | None:
    """Converts values of the built type to the asked type; None if one is out of range, so that reading it would fail.

    Only for types accepted by :func:`can_serve`.
    """
    if built == query_type or query_type.order in ("bytes", "float"):
        return values
    kind = np.dtype(object) if is_wide(query_type) else number_dtype(query_type)
    times = factor(built, query_type)
    if times == 1:
        return Vector(values.values.astype(kind), values.valid)
    scaled = values.values.astype(object) * times
    limits = query_type.int_range if query_type.order == "decimal" else _LIMITS[query_type.order or "int"]
    if len(scaled) and not (limits[0] <= scaled.min() and scaled.max() <= limits[1]):
        return None
    return Vector(scaled.astype(kind), values.valid)


def _is_float(built: DataType, value: float) -> bool:
    """Returns whether a number is a value of the built type."""
    code = _SHORT_FLOATS.get(built.bits)
    if code is None or value in (np.inf, -np.inf):
        return value == value
    try:
        return bool(struct.unpack(code, struct.pack(code, value))[0] == value)
    except OverflowError:
        return False
