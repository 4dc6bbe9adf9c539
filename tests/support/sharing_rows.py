"""Hints of Delta Sharing decided row by row as recipients of many kinds do, and random hints as they write them.

Rows hold values in their type's order (see ``lamella.snapshot.schema.types``). Nothing is shared with the reading of
hints or with pruning.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import operator
import struct
from collections.abc import Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Any, Final

import msgspec

from lamella.snapshot.schema import DataType, Schema

#: ``("and"|"or", [trees])``, ``("not", tree)``, a :class:`NullTest` or a :class:`Compared`.
Tree = Any

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_COMPARE: Final = {
    **{"equal": operator.eq, "lessThan": operator.lt, "lessThanOrEqual": operator.le},
    **{"greaterThan": operator.gt, "greaterThanOrEqual": operator.ge},
}
_SQL: Final = {
    **{"equal": "=", "lessThan": "<", "lessThanOrEqual": "<=", "greaterThan": ">", "greaterThanOrEqual": ">="}
}
_KINDS: Final = {
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16"), "int"),
    **dict.fromkeys(("int64", "uint32"), "long"),
    **{"float32": "float", "float64": "double", "string": "string", "date": "date"},
    **{"timestamp": "timestamp", "boolean": "bool"},
}


class Compared(msgspec.Struct, frozen=True):
    """A column beside a value. ``kind``: the type that the hint says both have; ``is_cast``: not the column's own."""

    op: str
    column: str
    kind: str
    value: Any
    is_cast: bool
    is_flipped: bool


class NullTest(msgspec.Struct, frozen=True):
    """A column that is to be null; ``kind``: the type that the hint says it has."""

    column: str
    kind: str


class Recipient(msgspec.Struct, frozen=True):
    """How one decides: by SQL's three values or by two, as doubles, as singles, with ordered zeros, and so on."""

    sql: bool
    doubles: bool
    singles: bool
    ordered_zeros: bool
    nan_is_maximum: bool
    nan_is_null: bool
    milliseconds: bool
    utf16: bool


def random_recipient(rng: Random) -> Recipient:
    """Any mixture of them."""
    return Recipient(*(rng.random() < 0.5 for _ in Recipient.__struct_fields__))


def keeps(tree: Tree, row: Mapping[str, Any], types: Mapping[str, DataType], who: Recipient, rng: Random) -> bool:
    """Whether a recipient keeps a row; what it makes of a cast is anybody's guess."""
    return _truth(tree, row, types, who, rng) is True


def _truth(tree: Tree, row: Mapping[str, Any], types: Mapping[str, DataType], who: Recipient, rng: Random) -> Any:
    if isinstance(tree, Compared):
        return _compared(tree, row[tree.column], types[tree.column], who, rng)
    if isinstance(tree, NullTest):
        cell = row[tree.column]
        return cell is None or (who.nan_is_null and _is_nan(cell))
    kind, inner = tree
    if kind == "not":
        found = _truth(inner, row, types, who, rng)
        return None if found is None else not found
    parts = [_truth(each, row, types, who, rng) for each in inner]
    decisive = kind == "or"
    if decisive in parts:
        return decisive
    return None if None in parts else not decisive


def _compared(node: Compared, cell: Any, dtype: DataType, who: Recipient, rng: Random) -> Any:
    if node.is_cast:
        return rng.choice([True, False, None]) if who.sql else rng.random() < 0.5
    if cell is None or (who.nan_is_null and _is_nan(cell)):
        return None if who.sql else False
    left, right = _keys(node, cell, dtype, who)
    if _is_nan(cell):
        return node.op in ("greaterThan", "greaterThanOrEqual") and who.nan_is_maximum
    return bool(_COMPARE[node.op](left, right))


def _keys(node: Compared, cell: Any, dtype: DataType, who: Recipient) -> tuple[Any, Any]:
    """What a recipient compares in place of a row's value and the hint's."""
    value = node.value
    if dtype.is_integer and who.doubles:
        return float(cell), float(value)
    if dtype.is_float:
        if who.singles and dtype.bits < 64:
            value = single(value)
        if who.ordered_zeros:
            return (cell, math.copysign(1, cell)), (value, math.copysign(1, value))
    if dtype.name == "timestamp":
        cell = Fraction(cell * 1_000_000, {"ms": 10**3, "us": 10**6, "ns": 10**9}[dtype.unit])
        return (cell // 1_000, value // 1_000) if who.milliseconds else (cell, value)
    if dtype.is_text and who.utf16:
        return tuple(each.decode().encode("utf-16-be", "surrogatepass") for each in (cell, value))
    return cell, value


def _is_nan(cell: Any) -> bool:
    return isinstance(cell, float) and math.isnan(cell)


def single(value: float) -> float:
    """The number of 32 bits next to it."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def random_hint(rng: Random, schema: Schema, seen: Mapping[str, Sequence[Any]], depth: int = 3) -> Tree:
    """A tree over the columns."""
    if depth and rng.random() < 0.6:
        kind = rng.choice(["and", "or", "not"])
        if kind == "not":
            return "not", random_hint(rng, schema, seen, depth - 1)
        return kind, [random_hint(rng, schema, seen, depth - 1) for _ in range(rng.randint(1, 3))]
    leaf = rng.choice(schema.leaves())
    values = [value for value in seen[leaf.name] if value is not None and _can_be_written(value, leaf.dtype)]
    own = _KINDS.get(leaf.dtype.name)
    if own is None or not values or rng.random() < 0.15:
        return NullTest(leaf.name, own or "string")
    value = rng.choice(values)
    if leaf.dtype.name == "timestamp":
        value = value * 1_000_000 // {"ms": 10**3, "us": 10**6, "ns": 10**9}[leaf.dtype.unit]
    if leaf.dtype.is_integer and rng.random() < 0.3:
        low, high = leaf.dtype.int_range
        value = min(max(value + rng.choice([-1025, -1, 1, 600]), low), high)
    elif leaf.dtype.is_float and rng.random() < 0.3:
        value = rng.choice([0.1, -0.0, 0.0, value * 1.0000001])
    is_cast = rng.random() < 0.1
    kind = rng.choice(sorted(set(_KINDS.values()) - _wider(own))) if is_cast else rng.choice(sorted(_wider(own)))
    op = "equal" if own == "bool" else rng.choice(list(_COMPARE))
    return Compared(op, leaf.name, kind, value, is_cast, rng.random() < 0.2)


def without_casts(tree: Tree, types: Mapping[str, DataType]) -> Tree:
    """The same with the columns as they are, which is all that SQL text says."""
    if isinstance(tree, Compared):
        return msgspec.structs.replace(tree, kind=_KINDS[types[tree.column].name], is_cast=False, is_flipped=False)
    if isinstance(tree, NullTest):
        return tree
    kind, inner = tree
    return kind, without_casts(inner, types) if kind == "not" else [without_casts(each, types) for each in inner]


def _wider(own: str) -> set[str]:
    return {"int": {"int", "long"}, "float": {"float", "double"}}.get(own, {own})


def _can_be_written(value: Any, dtype: DataType) -> bool:
    if dtype.is_float:
        return math.isfinite(value)
    if dtype.name == "date":
        return bool(-719_162 <= value <= 2_932_896)
    if dtype.name == "timestamp":
        return bool(abs(value) // {"ms": 10**3, "us": 10**6, "ns": 10**9}[dtype.unit] < 60_000_000_000)
    return True


def json_of(tree: Tree) -> str:
    """As recipients write it in ``jsonPredicateHints``."""
    return json.dumps(_node(tree))


def _node(tree: Tree) -> dict[str, Any]:
    if isinstance(tree, Compared):
        sides = [
            {"op": "column", "name": tree.column, "valueType": tree.kind},
            {"op": "literal", "value": written(tree.value, tree.kind), "valueType": tree.kind},
        ]
        if tree.is_flipped:
            mirrored = tree.op.replace("less", "~").replace("greater", "less").replace("~", "greater")
            return {"op": mirrored, "children": sides[::-1]}
        return {"op": tree.op, "children": sides}
    if isinstance(tree, NullTest):
        return {"op": "isNull", "children": [{"op": "column", "name": tree.column, "valueType": tree.kind}]}
    kind, inner = tree
    return {"op": kind, "children": [_node(inner)] if kind == "not" else [_node(each) for each in inner]}


def sql_of(tree: Tree) -> str:
    """As recipients write it in ``predicateHints``."""
    if isinstance(tree, Compared):
        return f"{_sql_name(tree.column)} {_SQL[tree.op]} {_sql_literal(tree)}"
    if isinstance(tree, NullTest):
        return f"{_sql_name(tree.column)} IS NULL"
    kind, inner = tree
    if kind == "not":
        return f"NOT ({sql_of(inner)})"
    return "(" + f" {kind.upper()} ".join(sql_of(each) for each in inner) + ")"


def _sql_name(column: str) -> str:
    return ".".join(f"`{part}`" for part in column.split("."))


def _sql_literal(tree: Compared) -> str:
    text = written(tree.value, tree.kind)
    if isinstance(tree.value, int | float) and not isinstance(tree.value, bool) and tree.kind not in ("date", "bool"):
        return f"TIMESTAMP '{text}'" if tree.kind == "timestamp" else text
    return text if tree.kind == "bool" else "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def written(value: Any, kind: str) -> str:
    """A value as text."""
    if isinstance(value, bytes):
        return value.decode()
    if kind == "date" and isinstance(value, int) and abs(value) < 700_000:
        return (_EPOCH + dt.timedelta(days=value)).date().isoformat()
    if kind == "timestamp" and isinstance(value, int) and abs(value) < 60_000_000_000_000_000:
        return (_EPOCH + dt.timedelta(microseconds=value)).isoformat().replace("+00:00", "Z")
    if kind == "bool":
        return "true" if value else "false"
    return repr(value)
