"""The rows of a table for which a merge condition can be true, as a filter that selects the blocks to read.

Uses only top-level conjuncts, and only sound ones: conditions on the table's columns alone, and equalities with a
source column of the same type, whose values are then read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lamella.client.join import MAX_VALUES, join_keys
from lamella.snapshot.errors import InvalidFilter, LamellaError
from lamella.snapshot.expression import read_filter
from lamella.snapshot.expression.sql_parse import parsed
from lamella.snapshot.expression.text import tree_of
from lamella.snapshot.schema import Column, Leaf, Schema, quoted, quoted_path
from lamella.snapshot.schema.spark_types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_WHOLE_NUMBERS: Final = frozenset({"tinyint", "smallint", "int", "bigint"})


class Candidates(msgspec.Struct, frozen=True):
    """``filter``: a JSON tree that is true for every row for which the condition can be true; None: any row."""

    filter: Any

    @classmethod
    def of(
        cls, schema: Schema, on: str, target: str, source: str, frame: DataFrame | None, *, whole: bool = False
    ) -> Candidates:
        """``target``, ``source``: the aliases; without a ``frame`` all columns are the table's. ``whole``: select every
        row."""
        parts = [] if whole else [_tree(schema, each, target, source, frame) for each in _conjuncts(on)]
        known = [part for part in parts if part is not None]
        if not known:
            return cls(None)
        tree = known[0]
        for part in known[1:]:
            tree = {"type": "and", "left": tree, "right": part}
        return cls(tree)


def named_columns(on: str, schema: Schema) -> list[str]:
    """Return the top-level table columns that a condition may name; all columns when this cannot be determined."""
    every = [column.name for column in schema.columns]
    try:
        tree = sqlglot.parse_one(on, dialect="spark")
    except SqlglotError:
        return every
    names = {part.name.lower() for column in tree.find_all(exp.Column) for part in column.parts}
    names |= {each.name.lower() for each in tree.find_all(exp.Identifier)}
    if tree.find(exp.Star):
        return every
    return [name for name in every if name.lower() in names]


def _conjuncts(on: str) -> Sequence[exp.Expr]:
    try:
        tree, _ = parsed(on)
    except (InvalidFilter, RecursionError):
        return ()
    return list(tree.flatten()) if isinstance(tree, exp.And) else [tree]


def _tree(schema: Schema, node: exp.Expr, target: str, source: str, frame: DataFrame | None) -> Any:
    node = node.unnest()
    if frame is None:
        return _own(node, None)
    if isinstance(node, exp.EQ):
        for mine, other in ((node.left, node.right), (node.right, node.left)):
            path, key = _path(mine, target), _path(other, source)
            if path is not None and key is not None:
                return _keys(schema, path, key, frame)
    columns = list(node.find_all(exp.Column))
    if columns and all(_path(column, target) is not None for column in columns):
        return _own(node, target)
    return None


def _own(node: exp.Expr, alias: str | None) -> Any:
    """Return a condition on the table's columns alone as a tree; None: it cannot be parsed."""

    def stripped(each: exp.Expr) -> exp.Expr:
        if alias is None or not isinstance(each, exp.Column):
            return each
        return (
            exp.Dot.build([part.copy() for part in each.parts[1:]])
            if len(each.parts) > 2
            else exp.column(each.parts[-1].copy())
        )

    try:
        return tree_of(read_filter(node.transform(stripped).sql(dialect="spark")))
    except (LamellaError, SqlglotError):
        return None


def _path(node: exp.Expr, alias: str) -> list[str] | None:
    """Return the names after the alias."""
    if not isinstance(node, exp.Column) or len(node.parts) < 2 or node.parts[0].name.lower() != alias.lower():
        return None
    return [part.name for part in node.parts[1:]]


def _keys(schema: Schema, path: Sequence[str], key: Sequence[str], frame: DataFrame) -> Any:
    """Return ``column IN (the source's keys)``, or their range when there are many; None: nothing can be inferred."""
    from pyspark.sql import functions as F

    if len(path) != 1 or len(key) != 1:
        return None
    try:
        leaf = schema.leaf(quoted_path(path[:1]))
    except LamellaError:
        return None
    fields = [field for field in frame.schema.fields if field.name.lower() == key[0].lower()]
    if len(fields) != 1 or not _same(leaf, schema, fields[0].dataType.simpleString()):
        return None
    values = frame.select(F.col(quoted(fields[0].name)).alias("key")).where("key IS NOT NULL")
    try:
        found = [row[0] for row in values.distinct().limit(MAX_VALUES + 1).collect()]
        if not found:
            return False
        if len(found) <= MAX_VALUES:
            return {
                "type": "in",
                "term": leaf.reference,
                "values": list(join_keys(schema, leaf.reference, found).values or ()),
            }
        if leaf.dtype.is_float:
            return None
        low, high = values.agg(F.min("key"), F.max("key")).collect()[0]
        ends = [join_keys(schema, leaf.reference, [end]).values or () for end in (low, high)]
    except LamellaError:
        return None
    (minimum,), (maximum,) = ends
    return {
        "type": "and",
        "left": {"type": "gt-eq", "term": leaf.reference, "value": minimum},
        "right": {"type": "lt-eq", "term": leaf.reference, "value": maximum},
    }


def _same(leaf: Leaf, schema: Schema, spark: str) -> bool:
    """Whether Spark compares the two without a cast, or both as integers."""
    column = next((each for each in schema.columns if each.name == leaf.path[0]), None)
    if column is None or leaf.dtype.name in ("timestamp", "timestamp_ntz", "time"):
        return False  # Spark's Python values of these depend on the reading process
    own = _spark_name(column)
    return own == spark or (own in _WHOLE_NUMBERS and spark in _WHOLE_NUMBERS)


def _spark_name(column: Column) -> str | None:
    names = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
    shown = msgspec.json.decode(spark_schema(Schema.assign([column])).readable)["fields"]
    if not shown or not isinstance(shown[0]["type"], str):
        return None
    return names.get(shown[0]["type"], shown[0]["type"])
