"""Keys that Spark gathers from the small side of a join, as filters of Lamella's language.

A runtime filter is ``IN`` over thousands of literals. Reading them one by one costs a py4j call each (16 s for
20,000), so they come over in one: as text where that is exact, pickled where not.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from lamella.client.spark.gateway import CONNECTOR, SQL, Gateway
from lamella.client.spark.literal import FALSE, Inexpressible, literal, unknown
from lamella.snapshot.schema import Column, DataType, Schema
from lamella.snapshot.schema.spark_types import spark_type_name

_SEPARATOR: Final = ";"
# Values whose text in Spark's LiteralValue is exact and cannot hold the separator.
_TEXT_IS_EXACT: Final = ("byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz", "decimal", "boolean")


def prunable_columns(schema: Schema, names: Sequence[str]) -> list[str]:
    """Those of ``names`` for which join keys can be sent exactly: no floats (NaN, -0.0), no binary, nothing nested."""
    by_name = {column.name.lower(): column for column in schema.columns}
    found = [by_name.get(name.lower()) for name in names]
    return [column.name for column in found if column is not None and _key_type(column) is not None]


def join_filter(gateway: Gateway, schema: Schema, predicate: Any, max_keys: int) -> dict[str, Any]:
    """The tree of one V2 predicate; unknown when it is anything but ``column IN (values of the column's type)``."""
    text = str(predicate.name())
    try:
        children = predicate.children()
        if text != "IN" or len(children) < 1:
            raise Inexpressible("not a list of join keys")
        path = list(children[0].fieldNames())
        column = next((c for c in schema.columns if [c.name.lower()] == [part.lower() for part in path]), None)
        spark_type = _key_type(column) if column is not None else None
        if column is None or spark_type is None:
            raise Inexpressible("join keys on a column that they cannot be sent for")
        values = _values(gateway, predicate, children, spark_type)
        return _in_or_range(column.name, column.dtype, spark_type, values, max_keys)
    except Inexpressible as reason:
        return unknown(text, str(reason))


def _key_type(column: Column) -> str | None:
    if column.fields or column.dtype.is_float or column.dtype.is_text:
        return "string" if column.dtype.is_text and not column.fields else None
    name = spark_type_name(column.dtype)
    return name if name is not None and name.partition("(")[0] in _TEXT_IS_EXACT else None


def _values(gateway: Gateway, predicate: Any, children: Any, spark_type: str) -> list[Any]:
    count = len(children) - 1
    if count == 0:
        return []
    if spark_type != "string":
        wrap = gateway.scala_object("scala.collection.immutable.ArraySeq").unsafeWrapArray
        texts = str(wrap(children).drop(1).mkString(_SEPARATOR)).split(_SEPARATOR)
        if len(texts) != count:
            raise Inexpressible("join keys that cannot be told apart")
        try:
            return [None if text == "null" else _parsed(spark_type, text) for text in texts]
        except (ValueError, ArithmeticError) as error:
            raise Inexpressible("join keys of another type than the column") from error
    to_v1 = gateway.scala_object(SQL + "internal.connector.PredicateUtils").toV1
    filters = to_v1(gateway.array(CONNECTOR + "expressions.filter.Predicate", [predicate]))
    if len(filters) != 1:
        raise Inexpressible("join keys that Spark itself cannot convert")
    pickled = gateway.java_class("net.razorvine.pickle.Pickler")().dumps(filters[0].values())
    values = list(pickle.loads(pickled))  # noqa: S301  # from our own driver's JVM
    if len(values) != count or not all(value is None or isinstance(value, str) for value in values):
        raise Inexpressible("join keys that are not strings")
    return values


def _parsed(spark_type: str, text: str) -> Any:
    if spark_type == "boolean":
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    return Decimal(text) if spark_type.startswith("decimal") else int(text)


def _in_or_range(name: str, dtype: DataType, spark_type: str, values: list[Any], max_keys: int) -> dict[str, Any]:
    # A key that is null joins nothing.
    keys = sorted({value for value in values if value is not None}, key=_order(spark_type))
    if not keys:
        return FALSE
    if len(keys) <= max_keys:
        literals = [literal(dtype, spark_type, key) for key in keys]
        return {"type": "in", "term": name, "values": literals}
    low, high = literal(dtype, spark_type, keys[0]), literal(dtype, spark_type, keys[-1])
    return {
        "type": "and",
        "children": [
            {"type": "gt-eq", "term": name, "value": low},
            {"type": "lt-eq", "term": name, "value": high},
        ],
    }


def _order(spark_type: str) -> Any:
    # Strings compare as UTF-8 bytes, in Spark and in the service.
    return (lambda text: text.encode("utf-8", "surrogatepass")) if spark_type == "string" else None
