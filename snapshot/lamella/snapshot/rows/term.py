"""The values of terms in the rows at hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from lamella.snapshot.expression.bound import BoundTerm, Derived, Held
from lamella.snapshot.function.vector import Vector, constant_vector
from lamella.snapshot.rows.vectors import vector_of
from lamella.snapshot.schema import Leaf


class RowTerms:
    """Some rows, whose ``columns`` are Arrow arrays by column id; each term is computed once."""

    def __init__(self, columns: Mapping[int, Any], count: int) -> None:
        self.count = count
        self._columns = columns
        self._vectors: dict[BoundTerm, Vector] = {}

    def vector(self, term: BoundTerm) -> Vector:
        """A term's values."""
        found = self._vectors.get(term)
        if found is None:
            found = self._vectors[term] = self._made(term)
        return found

    def _made(self, term: BoundTerm) -> Vector:
        match term:
            case Leaf():
                return vector_of(self._columns[term.id], term.dtype)
            case Held(value, dtype, _):
                return constant_vector(dtype, value, self.count)
            case Derived(function, arguments, _, _):
                return function.rows(*(self.vector(argument) for argument in arguments))
            case _:
                assert_never(term)
