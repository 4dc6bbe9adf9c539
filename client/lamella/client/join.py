"""Join keys for :meth:`lamella.client.http.Table.prune`, in the smallest form that still prunes.

::

    keys = (row.customer for row in small_side)
    pruned = lake.table("shop.orders").prune(join=join_keys(info.schema, "customer", keys))

Few keys are sent as a list. More keys are sent as the ranges between their widest gaps, with a bloom filter that also
prunes blocks with few distinct keys. Null keys match nothing and are dropped.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import uuid
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

import numpy as np

from lamella.snapshot.bloom import SplitBlockBloom, key_bytes, key_hashes
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import bind
from lamella.snapshot.expression.bound import Membership
from lamella.snapshot.expression.coerce import literal_of
from lamella.snapshot.expression.nodes import In, Literal, Ref
from lamella.snapshot.expression.text import tree_of
from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.wire import JoinKeys

#: Maximum number of distinct keys sent as a list.
MAX_VALUES: Final = 10_000
#: Number of ranges that replace more keys.
MAX_RANGES: Final = 1_000
#: Maximum size of a bloom filter: base64 adds a third, and the service limits request bodies.
MAX_BLOOM_BYTES: Final = 8 << 20

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def join_keys(
    schema: Schema,
    column: str,
    keys: Iterable[Any],
    *,
    max_values: int = MAX_VALUES,
    max_ranges: int = MAX_RANGES,
    false_positives: float = 0.01,
) -> JoinKeys:
    """Return the keys of the other side of a join on ``column``.

    ``keys``: Python values as a DataFrame has them: numbers, text, bytes, ``Decimal``, ``date``, ``datetime`` (aware
    for ``timestamp``, naive for ``timestamp_ntz``), ``UUID``; None is skipped. Text is compared by its bytes.

    Raises:
        UnknownColumn: no such column.
        InvalidRequest: a nested column, or a key that is not a value of the column's type.

    Example:
        >>> keys = join_keys(table.info().schema, "id", [3, 4, 14, None])
        >>> table.prune(join=keys).block_count
        2
    """
    leaf = schema.leaf(column)
    literals = [_literal(leaf, key) for key in set(keys) if key is not None]
    if len(literals) <= max_values:
        return JoinKeys(column=column, values=_spelled(literals))
    values = _in_order(schema, leaf, literals)
    nan = [literal for literal in literals if isinstance(literal.value, float) and math.isnan(literal.value)]
    cuts = _widest_gaps(leaf.dtype, values, max_ranges - len(nan[:1]))
    ends = [0, *cuts, len(values)]
    ranges = [(values[start], values[end - 1]) for start, end in pairwise(ends) if end > start]
    spelled = [tuple(_spelled([_of_order(leaf, low), _of_order(leaf, high)])) for low, high in ranges]
    spelled += [tuple(_spelled([one, one])) for one in nan[:1]]
    return JoinKeys(
        column=column,
        ranges=tuple((low, high) for low, high in spelled),
        bloom=_bloom(leaf.dtype, values, false_positives),
    )


def _spelled(literals: Sequence[Literal]) -> tuple[Any, ...]:
    if not literals:
        return ()
    tree: Any = tree_of(In(Ref("key"), tuple(literals)))
    return tuple(tree["values"])


def _literal(leaf: Leaf, key: Any) -> Literal:
    dtype = leaf.dtype
    if isinstance(key, np.generic):
        key = key.item()
    if getattr(key, "nanosecond", 0):  # a Timestamp of pandas, which is a datetime
        raise InvalidRequest(f"{key!r} has nanoseconds; keys have microseconds", column=leaf.name)
    literal = _typed(dtype, key)
    if literal is None:
        raise InvalidRequest(f"{key!r} is not a value of type {dtype}", column=leaf.name)
    return literal


def _typed(dtype: DataType, key: Any) -> Literal | None:
    if dtype.name == "boolean":
        return Literal("boolean", key) if isinstance(key, bool) else None
    if dtype.is_integer:
        return Literal("integer", key) if isinstance(key, int) and not isinstance(key, bool) else None
    if dtype.is_float:
        return Literal("double", float(key)) if isinstance(key, int | float) else None
    if dtype.name == "decimal":
        exact = isinstance(key, Decimal | int) and not isinstance(key, bool) and Decimal(key).is_finite()
        return Literal("decimal", format(Decimal(key), "f")) if exact else None
    if dtype.name == "date":
        plain = isinstance(key, dt.date) and not isinstance(key, dt.datetime)
        return Literal("date", (key - _EPOCH.date()).days) if plain else None
    if dtype.name in ("timestamp", "timestamp_ntz"):
        if not isinstance(key, dt.datetime) or (key.tzinfo is None) == (dtype.name == "timestamp"):
            return None
        instant = key if key.tzinfo is not None else key.replace(tzinfo=dt.UTC)
        micros = (instant - _EPOCH) // dt.timedelta(microseconds=1)
        return Literal("timestamp" if dtype.name == "timestamp" else "timestamp_ntz", micros)
    if dtype.is_text:
        return Literal("string", key) if isinstance(key, str) else None
    if dtype.name == "uuid" and isinstance(key, uuid.UUID):
        return Literal("binary", key.bytes)
    return Literal("binary", bytes(key)) if dtype.order == "bytes" and isinstance(key, bytes | bytearray) else None


def _in_order(schema: Schema, leaf: Leaf, literals: Sequence[Literal]) -> tuple[Any, ...]:
    """Return the keys as distinct ascending values of the column's order; values outside the column's type are left
    out."""
    bound = bind(In(Ref(leaf.name), tuple(literals)), schema)
    if not isinstance(bound, Membership):
        raise InvalidRequest(f"keys of a column of type {leaf.dtype} have no ranges", column=leaf.name)
    return bound.values


def _of_order(leaf: Leaf, value: Any) -> Literal:
    """Return a value of the column's order as a literal."""
    literal = literal_of(leaf.dtype, value)
    if literal is None:
        raise InvalidRequest(f"keys of a column of type {leaf.dtype} have no ranges", column=leaf.name)
    return literal


def _widest_gaps(dtype: DataType, values: Sequence[Any], ranges: int) -> list[int]:
    """Return where to cut ascending values so that the widest gaps fall between the ranges."""
    wanted = min(ranges, len(values)) - 1
    if wanted < 1:
        return []
    positions = [_position(dtype, value) for value in values]
    gaps = np.array([float(after - before) for before, after in pairwise(positions)])
    return sorted((np.argpartition(-gaps, wanted - 1)[:wanted] + 1).tolist())


def _position(dtype: DataType, value: Any) -> Any:
    """Return a number that grows with the value, to measure gaps."""
    if isinstance(value, bytes):
        return int.from_bytes(value[:16].ljust(16, b"\0"), "big")
    if dtype.is_float:
        return max(min(value, 1e300), -1e300)
    return value


def _bloom(dtype: DataType, values: Sequence[Any], false_positives: float) -> str | None:
    if key_bytes(dtype) is None:
        return None
    bloom = SplitBlockBloom.sized(len(values), false_positives)
    if bloom.words.nbytes > MAX_BLOOM_BYTES:
        return None
    bloom.insert(key_hashes(dtype, values))
    return base64.b64encode(bloom.to_bytes()).decode()
