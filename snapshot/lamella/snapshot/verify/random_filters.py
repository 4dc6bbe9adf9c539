"""Random filters whose literals are values of a block, or lie beside them: those that statistics are wrong about."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random
from typing import Any, Final

from lamella.snapshot.expression import Predicate
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.function.vector import Vector
from lamella.snapshot.rows.vectors import vector_of
from lamella.snapshot.schema import DataType, Leaf
from lamella.snapshot.schema.types import PER_SECOND
from lamella.snapshot.verify.sampled_rows import Rows

_OPERATORS: Final[tuple[n.Operator, ...]] = ("lt", "le", "gt", "ge", "eq", "ne")
_DAYS: Final = ((dt.date.min - dt.date(1970, 1, 1)).days, (dt.date.max - dt.date(1970, 1, 1)).days)


class RandomFilters:
    """Draws filters over some rows."""

    def __init__(self, rows: Rows, rng: Random) -> None:
        self._rows = rows
        self._rng = rng
        self._vectors: dict[int, Vector] = {}

    def draw(self, depth: int = 2) -> Predicate:
        """A filter of at most so many connectives within one another."""
        rng = self._rng
        if depth and rng.random() < 0.35:
            kind = rng.choice(["and", "or", "not", "is true"])
            if kind == "not":
                return n.Not(self.draw(depth - 1))
            if kind == "is true":
                return rng.choice((n.IsTrue, n.IsUnknown))(self.draw(depth - 1))
            parts = tuple(self.draw(depth - 1) for _ in range(2))
            return n.And(parts) if kind == "and" else n.Or(parts)
        return self._test(rng.choice(self._rows.leaves))

    def _test(self, leaf: Leaf) -> Predicate:
        rng, ref = self._rng, n.Ref(leaf.reference)
        kinds = ["compare", "compare", "compare", "in", "null safe", "null"]
        kinds += ["nan"] if leaf.dtype.is_float else []
        kinds += ["prefix"] if leaf.dtype.is_text else []
        kind = rng.choice(kinds)
        literal = self._literal(leaf)
        if literal is None or kind == "null":
            return n.IsNull(ref)
        if kind == "nan":
            return n.IsNan(ref)
        if kind == "prefix":
            return n.StartsWith(ref, n.Literal("string", str(literal.value)[: rng.randint(0, 4)]))
        if kind == "null safe":
            return n.NullSafeEqual(ref, rng.choice([literal, literal, n.Literal("null")]))
        if kind == "in":
            others = [self._literal(leaf) for _ in range(rng.randint(0, 3))]
            listed = (literal, *(other for other in others if other is not None))
            return n.In(ref, (*listed, n.Literal("null")) if rng.random() < 0.2 else listed)
        return n.Compare(rng.choice(_OPERATORS), ref, literal)

    def _literal(self, leaf: Leaf) -> n.Literal | None:
        """A value of a row, or one beside it; None where there is none, or none that a filter can name."""
        vector = self._vectors.get(leaf.id)
        if vector is None:
            vector = self._vectors[leaf.id] = vector_of(self._rows.columns[leaf.id], leaf.dtype)
        if not self._rows.count:
            return None
        row = self._rng.randrange(self._rows.count)
        if not vector.valid[row]:
            return None
        value = vector.values[row].as_py() if vector.is_bytes else vector.values[row]
        return literal_of(leaf.dtype, value, self._rng.choice([0, 0, 0, -1, 1]))


def literal_of(dtype: DataType, value: Any, beside: int) -> n.Literal | None:
    """A value of a type's order as a literal; ``beside``: the next one below or above, where there is such a thing."""
    if dtype.name == "boolean":
        return n.Literal("boolean", bool(value))
    if dtype.is_float:
        return n.Literal("double", float(value) + beside / 2)
    if dtype.is_integer:
        return n.Literal("integer", int(value) + beside)
    if dtype.name == "decimal":
        number = Decimal(int(value) + beside)
        sign, digits, _ = number.as_tuple()
        return n.Literal("decimal", format(Decimal((sign, digits, -dtype.scale)), "f"))
    if dtype.name == "date":
        day = int(value) + beside
        return n.Literal("date", day) if _DAYS[0] <= day <= _DAYS[1] else None
    if dtype.name in ("timestamp", "timestamp_ntz"):
        micros = int(value) * 1_000_000 // PER_SECOND[dtype.unit] + beside
        kind: Any = dtype.name
        return n.Literal(kind, micros) if _DAYS[0] < micros // 86_400_000_000 < _DAYS[1] else None
    if dtype.is_text:
        try:
            return n.Literal("string", bytes(value).decode("utf-8"))
        except UnicodeDecodeError:
            return None
    return n.Literal("binary", bytes(value)) if dtype.order == "bytes" else None  # a time can be named by none
