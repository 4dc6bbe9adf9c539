"""pyiceberg: the files added to an Iceberg table in a private catalog, with the metrics it takes from their footers."""

from __future__ import annotations

import warnings
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import expressions
from pyiceberg.catalog.sql import SqlCatalog

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

ice: Any = expressions  # its classes are declared as what they are turned into, not as they are called

_OPERATORS: Final = {
    "=": ice.EqualTo,
    "<>": ice.NotEqualTo,
    "<": ice.LessThan,
    "<=": ice.LessThanOrEqual,
    ">": ice.GreaterThan,
    ">=": ice.GreaterThanOrEqual,
}


class IcebergPlanner:
    """``table.scan(row_filter).plan_files()``."""

    name = "pyiceberg"

    def __init__(self, blocks: Blocks, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        catalog = SqlCatalog("bench", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
        catalog.create_namespace("bench")
        self._schema = pq.read_schema(blocks.files[0])
        table = catalog.create_table("bench.t", schema=self._schema)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a commit that has nothing to delete
            table.add_files([str(path) for path in blocks.files])
        self._table = table
        self._number = {path.name: index for index, path in enumerate(blocks.files)}

    def plan(self, node: Filter) -> Plan | None:
        """Return the remaining files; None for predicates that Iceberg's expressions do not support."""
        expression = self._expression(node)
        if expression is None:
            return None
        selected = np.zeros(len(self._number), dtype=bool)
        for task in self._table.scan(row_filter=expression).plan_files():
            selected[self._number[Path(task.file.file_path).name]] = True
        return Plan(selected, np.zeros(len(selected), dtype=bool))

    def _expression(self, node: Filter) -> Any:
        match node:
            case And(parts) | Or(parts):
                found = [self._expression(part) for part in parts]
                if any(part is None for part in found):
                    return None
                return reduce(ice.And if isinstance(node, And) else ice.Or, found)
            case Not(part):
                inner = self._expression(part)
                return None if inner is None else ice.Not(inner)
            case Text() | Columns() | NullSafe():
                return None
            case _:
                return self._atom(node)

    def _atom(self, node: Filter) -> Any:
        match node:
            case Compare(column, op, value):
                return self._compare(column, op, value)
            case Between(column, low, high):
                sides = self._compare(column, ">=", low), self._compare(column, "<=", high)
                return None if None in sides else ice.And(*sides)
            case In(column, values, negated):
                literals = [self._literal(column, value) for value in values]
                kind = ice.NotIn if negated else ice.In
                return None if None in literals else kind(column, literals)
            case Null(column, negated):
                return (ice.NotNull if negated else ice.IsNull)(column)
            case Like(column, pattern, negated):
                prefix = pattern.removesuffix("%")
                if not pattern.endswith("%") or "%" in prefix or "_" in prefix:
                    return None
                return (ice.NotStartsWith if negated else ice.StartsWith)(column, prefix)
            case StartsWith(column, prefix):
                return ice.StartsWith(column, prefix)
        raise AssertionError(node)

    def _compare(self, column: str, op: str, value: Constant) -> Any:
        literal = self._literal(column, value)
        if literal is None:
            return None
        if isinstance(literal, float) and literal != literal:  # Iceberg says NaN with expressions of its own
            return {"=": ice.IsNaN, "<>": ice.NotNaN}[op](column) if op in ("=", "<>") else None
        return _OPERATORS[op](column, literal)

    def _literal(self, column: str, value: Constant) -> Any:
        """Return the constant in Iceberg's form for that column; None when it has no exact form."""
        dtype = self._schema.field(column).type
        if pa.types.is_decimal(dtype):
            exact = Decimal(str(value))
            scaled = exact.quantize(Decimal(1).scaleb(-dtype.scale))
            return scaled if scaled == exact else None
        if isinstance(value, Decimal | float) and pa.types.is_integer(dtype):
            return int(value) if value == int(value) else None
        return value
