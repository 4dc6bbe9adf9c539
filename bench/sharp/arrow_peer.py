"""pyarrow's dataset: a file is kept when the filter and the footer's statistics leave one of its row groups."""

from __future__ import annotations

import operator
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sharp.blocks import Blocks
from sharp.filters import (
    And,
    Between,
    Columns,
    Compare,
    Constant,
    Filter,
    In,
    Like,
    Not,
    Null,
    NullSafe,
    Or,
    StartsWith,
    Text,
)
from sharp.planner import Plan

_OPERATORS: Final = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class ArrowPlanner:
    """``ParquetFileFragment.split_by_row_group`` over a dataset of the files."""

    name = "pyarrow"

    def __init__(self, blocks: Blocks) -> None:
        self._dataset = ds.dataset([str(path) for path in blocks.files])
        self._schema = self._dataset.schema
        self._fragments = list(self._dataset.get_fragments())

    def plan(self, node: Filter) -> Plan | None:
        """Return the files kept by statistics; pyarrow never reports that every row matches."""
        expression = self._expression(node)
        if expression is None:
            return None
        try:
            selected = [
                bool(fragment.split_by_row_group(expression, schema=self._schema)) for fragment in self._fragments
            ]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # it has no such comparison
            return None
        return Plan(np.array(selected), np.zeros(len(selected), dtype=bool))

    def _expression(self, node: Filter) -> Any:
        match node:
            case And(parts) | Or(parts):
                found = [self._expression(part) for part in parts]
                if any(part is None for part in found):
                    return None
                join = operator.and_ if isinstance(node, And) else operator.or_
                whole = found[0]
                for part in found[1:]:
                    whole = join(whole, part)
                return whole
            case Not(part):
                inner = self._expression(part)
                return None if inner is None else ~inner
            case Text() | NullSafe():
                return None
            case Columns(left, op, right):
                return _OPERATORS[op](pc.field(left), pc.field(right))
            case _:
                return self._atom(node)

    def _atom(self, node: Filter) -> Any:
        match node:
            case Compare(column, op, value):
                return _OPERATORS[op](pc.field(column), self._scalar(column, value))
            case Between(column, low, high):
                field = pc.field(column)
                return (field >= self._scalar(column, low)) & (field <= self._scalar(column, high))
            case In(column, values, negated):
                listed = pa.array([self._scalar(column, value).as_py() for value in values], self._type(column))
                inside = pc.field(column).isin(listed)
                # isin is false for null, NOT IN is null: the rows that a NOT IN selects are those not null and outside.
                return ~inside & pc.field(column).is_valid() if negated else inside
            case Null(column, negated):
                return pc.field(column).is_valid() if negated else pc.field(column).is_null()
            case Like(column, pattern, negated):
                like = pc.match_like(pc.field(column), pattern)
                return ~like if negated else like
            case StartsWith(column, prefix):
                return pc.starts_with(pc.field(column), prefix)
        raise AssertionError(node)

    def _type(self, column: str) -> pa.DataType:
        return self._schema.field(column).type

    def _scalar(self, column: str, value: Constant) -> pa.Scalar:
        dtype = self._type(column)
        if isinstance(value, int) and pa.types.is_decimal(dtype):
            value = Decimal(value)
        if isinstance(value, float) and not pa.types.is_floating(dtype):
            return pa.scalar(value)
        try:
            return pa.scalar(value, dtype)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # finer than the column's type: Arrow brings the two together
            return pa.scalar(value)
