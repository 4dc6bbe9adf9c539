"""Iceberg filters decided row by row as three kinds of clients do, and random filters as clients write them.

Rows hold values in their type's order (see ``lamella.snapshot.schema.types``). Nothing is shared with the reading of
filters or with pruning.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
import struct
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from random import Random
from typing import Any, Final, Literal

from lamella.snapshot.schema import DataType, Schema

#: SQL on rows (Spark); Iceberg's own evaluators (Java); Arrow's kernels (pyiceberg).
Client = Literal["sql", "iceberg", "arrow"]
CLIENTS: Final[tuple[Client, ...]] = ("sql", "iceberg", "arrow")
_NOT: Final = {
    **{"lt": "gt-eq", "gt-eq": "lt", "gt": "lt-eq", "lt-eq": "gt", "eq": "not-eq", "not-eq": "eq"},
    **{"in": "not-in", "not-in": "in", "is-null": "not-null", "not-null": "is-null"},
    **{"is-nan": "not-nan", "not-nan": "is-nan"},
    **{"starts-with": "not-starts-with", "not-starts-with": "starts-with"},
}
_COMPARE: Final = {
    **{"lt": operator.lt, "lt-eq": operator.le, "gt": operator.gt, "gt-eq": operator.ge},
    **{"eq": operator.eq, "not-eq": operator.ne},
}
_FLOAT_MAX: Final = float.fromhex("0x1.fffffep+127")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def matches(client: Client, tree: Any, row: Mapping[str, Any], types: Mapping[str, DataType]) -> bool:
    """Whether a client that filters by this tree keeps a row."""
    if isinstance(tree, bool):
        return tree
    kind = tree["type"]
    if kind == "not":
        return matches(client, _opposite(tree["child"]), row, types)
    if kind in ("and", "or"):
        sides = [matches(client, tree[side], row, types) for side in ("left", "right")]
        return all(sides) if kind == "and" else any(sides)
    name = tree.get("term", tree.get("left", tree.get("child")))
    name = name["name"] if isinstance(name, dict) else name
    cell, dtype = row[name], types[name]
    if kind in ("is-null", "not-null"):
        return (cell is None) is (kind == "is-null")
    if kind == "not-nan" and cell is None and client == "arrow":
        return False
    if kind in ("is-nan", "not-nan"):
        return (isinstance(cell, float) and math.isnan(cell)) is (kind == "is-nan")
    if client != "sql" and kind in _COMPARE and (beyond := _beyond(value_of(_value(tree), dtype), dtype)):
        return kind in (("lt", "lt-eq", "not-eq") if beyond > 0 else ("gt", "gt-eq", "not-eq"))
    if cell is None:
        return kind in ("not-eq", "not-in", "not-starts-with") and client == "iceberg"
    if kind in ("starts-with", "not-starts-with"):
        return cell.startswith(_value(tree).encode()) is (kind == "starts-with")
    if kind in ("in", "not-in"):
        values = tree["values"] if "values" in tree else tree["right"]["values"]
        found = any(_equals(client, cell, value_of(each, dtype), dtype) for each in values)
        return found is (kind == "in")
    return _compares(client, kind, cell, value_of(_value(tree), dtype), dtype)


def _value(tree: Mapping[str, Any]) -> Any:
    value = tree["value"] if "value" in tree else tree["right"]
    return value["value"] if isinstance(value, dict) else value


def _opposite(tree: Any) -> Any:
    if isinstance(tree, bool):
        return not tree
    kind = tree["type"]
    if kind == "not":
        return tree["child"]
    if kind in ("and", "or"):
        other = "or" if kind == "and" else "and"
        return {"type": other, "left": _opposite(tree["left"]), "right": _opposite(tree["right"])}
    return {**tree, "type": _NOT[kind]}


def _equals(client: Client, cell: Any, value: Any, dtype: DataType) -> bool:
    """As one of a list: there, Arrow finds NaN."""
    if dtype.is_float and math.isnan(cell) and math.isnan(value):
        return True
    return _compares(client, "eq", cell, value, dtype)


def _compares(client: Client, kind: str, cell: Any, value: Any, dtype: DataType) -> bool:
    if not dtype.is_float:
        return bool(_COMPARE[kind](cell, value))
    if client != "sql" and dtype.bits < 64:
        value = _single(value)
    if math.isnan(cell) or math.isnan(value):
        if client == "arrow":
            return kind == "not-eq"
        return bool(_COMPARE[kind](math.isnan(cell), math.isnan(value)))  # the greatest, and equal to itself
    if client == "iceberg" and cell == value == 0:
        return bool(_COMPARE[kind](math.copysign(1, cell), math.copysign(1, value)))
    return bool(_COMPARE[kind](cell, value))


def _beyond(value: Any, dtype: DataType) -> int:
    """1 for a number above the type's greatest, -1 for one below the least, 0 for others."""
    if dtype.is_integer:
        maximum = 2**31 - 1 if dtype.bits < 64 else 2**63 - 1
        return 1 if value > maximum else -1 if value < -maximum - 1 else 0
    if dtype.name == "float32" and math.isfinite(value) and abs(value) > _FLOAT_MAX:
        return 1 if value > 0 else -1
    return 0


def _single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def value_of(given: Any, dtype: DataType) -> Any:
    """A value of the wire in its type's order."""
    if dtype.name == "date" and isinstance(given, str):
        return (dt.date.fromisoformat(given) - _EPOCH.date()).days
    if dtype.name in ("timestamp", "timestamp_ntz") and isinstance(given, str):
        at = dt.datetime.fromisoformat(given)
        return (at.replace(tzinfo=at.tzinfo or dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)
    if dtype.name == "decimal":
        return int(Decimal(given).scaleb(dtype.scale))
    if dtype.is_float:
        return float(_SPECIAL.get(given, given))
    if dtype.is_text:
        return given.encode()
    if dtype.name == "uuid":
        return uuid.UUID(given).bytes
    return bytes.fromhex(given) if dtype.order == "bytes" else int(given)


def written(rng: Random, value: Any, dtype: DataType) -> Any:
    """A value as some client writes it."""
    java = rng.random() < 0.5
    if dtype.name == "date" and not java:
        return (_EPOCH + dt.timedelta(days=value)).date().isoformat()
    if dtype.name in ("timestamp", "timestamp_ntz") and not java:
        at = _EPOCH + dt.timedelta(microseconds=value)
        return (at if dtype.name == "timestamp" else at.replace(tzinfo=None)).isoformat()
    if dtype.name == "decimal":
        return str(Decimal(value).scaleb(-dtype.scale))
    if dtype.is_float and not math.isfinite(value):
        return next(text for text, each in _SPECIAL.items() if repr(each) == repr(value))
    if dtype.is_text:
        return value.decode()
    if dtype.name == "uuid":
        return str(uuid.UUID(bytes=value))
    if dtype.name == "boolean":
        return bool(value)
    return value.hex() if dtype.order == "bytes" else value


def random_filter(rng: Random, schema: Schema, seen: Mapping[str, Sequence[Any]], depth: int = 3) -> Any:
    """A tree in either spelling."""
    if depth and rng.random() < 0.6:
        kind = rng.choice(["and", "or", "not"])
        if kind == "not":
            return {"type": "not", "child": random_filter(rng, schema, seen, depth - 1)}
        left, right = (random_filter(rng, schema, seen, depth - 1) for _ in range(2))
        return {"type": kind, "left": left, "right": right}
    if rng.random() < 0.03:
        return rng.random() < 0.5
    leaf = rng.choice(schema.leaves())
    values = [value for value in seen[leaf.name] if value is not None and value == value]
    if leaf.dtype.is_integer and rng.random() < 0.1:
        values += [2**40, -(2**40), 2**70, -(2**70)]
    kinds = ["is-null", "not-null"]
    if leaf.dtype.is_float:
        kinds += ["is-nan", "not-nan"]
        values += [
            0.0,
            -0.0,
            0.1,
            *([1e300] if rng.random() < 0.1 else []),
            *([math.nan] if rng.random() < 0.3 else []),
            *([math.inf, -math.inf] if rng.random() < 0.3 else []),
        ]
    if values and leaf.dtype.order is not None:
        kinds += ["lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq"] * 2 + ["in", "not-in"]
        if leaf.dtype.is_text:
            kinds += ["starts-with", "not-starts-with"]
    kind = rng.choice(kinds)
    new = rng.random() < 0.5
    node: dict[str, Any] = {"type": kind}
    node["left" if new else "term"] = {"type": "reference", "name": leaf.name} if new else leaf.name
    if kind in ("in", "not-in"):
        chosen = [written(rng, rng.choice(values), leaf.dtype) for _ in range(rng.randint(1, 4))]
        return {**node, "values": chosen}
    if kind.endswith("starts-with"):
        return {**node, "right" if new else "value": rng.choice(values).decode()[: rng.randint(0, 3)]}
    if kind in _COMPARE:
        node["right" if new else "value"] = written(rng, rng.choice(values), leaf.dtype)
    elif new:
        node = {"type": kind, "child": node["left"]} if rng.random() < 0.5 else node
    return node
