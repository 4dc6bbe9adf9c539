"""The terms of a cluster key: columns, and expressions and conditions that follow the order of one column.

Blocks are placed on a key by the bounds of their columns. These bound ``date_trunc('DAY', time)`` or ``left(name, 2)``
just as well, so the blocks of such a key can be compared. The bounds of ``id`` say nothing of ``id % 16``. A condition
is a key of false, true and null, in this order: ``deleted_at IS NULL``, ``amount > 1000``. Functions of time use UTC,
whatever the time zone of a reader is: only the layout depends on a key, no answer does.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import NumberKeys
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NULL, MAY_NUMBER, Zones, number_dtype
from lamella.snapshot.errors import InvalidRequest, InvalidSchema, LamellaError, UnknownColumn
from lamella.snapshot.expression import bind, read_filter
from lamella.snapshot.expression.bound import (
    BoundNot,
    BoundPredicate,
    BoundTerm,
    Comparison,
    ConstantTerm,
    Derived,
    NullTest,
    columns_of,
    leaves_in,
)
from lamella.snapshot.expression.nodes import IsNull, IsUnknown, Predicate, Term
from lamella.snapshot.expression.text import sql_of, text_of
from lamella.snapshot.function import calendar, integer, numeric
from lamella.snapshot.function.base import Vector
from lamella.snapshot.function.text import FirstCharacters
from lamella.snapshot.index.definition import expression_of, renamed_term, term_key, term_of
from lamella.snapshot.prune.evaluate import Lookup, evaluate, term_zones
from lamella.snapshot.row_filter import RowTerms, row_truth
from lamella.snapshot.schema import DataType, Leaf, Schema, parse_type
from lamella.snapshot.schema.arrow import leaf_type
from lamella.snapshot.stats.measure import leaf_values

#: Maximum number of terms of a cluster key.
MAX_CLUSTER_COLUMNS: Final = 16
#: Functions that never reverse the order of their one argument that is not constant, or always do.
_ORDERED: Final = (
    calendar.Wall,
    calendar.Micros,
    calendar.Day,
    calendar.StartOfDay,
    calendar.StartOfWall,
    calendar.Instant,
    calendar.StartOfInstant,
    calendar.LastDay,
    calendar.AddMonths,
    calendar.AddMonthsToWall,
    calendar.MovedInstant,
    integer.WholeDouble,
    integer.WholeQuotient,
    integer.RoundedDecimal,
    integer.RoundedDouble,
    integer.Quotient,
    numeric.Integers,
    numeric.Doubles,
    numeric.Negative,
    numeric.Whole,
    numeric.ToDouble,
    numeric.ToInteger,
    FirstCharacters,
)
_DIVISIONS: Final = (integer.Quotient, numeric.Doubles)
_BOOLEAN: Final = parse_type("boolean")


class Condition(msgspec.Struct, frozen=True, gc=False):
    """A condition as a function of its columns, which are the arguments."""

    node: BoundPredicate

    def zones(self, *arguments: Zones) -> Zones:
        """Returns the zone maps of its values: 0 for false, 1 for true."""
        count = len(arguments[0])
        known = dict(zip(columns_of(self.node), arguments, strict=True))
        found = evaluate(self.node, known.__getitem__, count).arrays(count)
        true, false, null = (np.asarray(each, dtype=bool) for each in (found.true, found.false, found.null))
        flags = (true | false) * np.uint8(LOW_KNOWN | HIGH_KNOWN | MAY_NUMBER) | null * np.uint8(MAY_NULL)
        kind = number_dtype(_BOOLEAN)
        return Zones(NumberKeys((~false).astype(kind)), NumberKeys(true.astype(kind)), flags.astype(np.uint8))

    def rows(self, *arguments: Vector) -> Vector:
        """Returns its values row by row."""
        count = len(arguments[0])
        vectors: dict[BoundTerm, Vector] = dict(zip(columns_of(self.node), arguments, strict=True))
        found = row_truth(self.node, RowTerms({}, count, vectors))
        valid = found.true | found.false
        if found.failed is not None:
            valid = valid | found.failed
        return Vector(found.true.astype(number_dtype(_BOOLEAN)), valid, found.failed, found.reason)


def key_terms(schema: Schema, key: Sequence[str], *, case_sensitive: bool = False) -> tuple[BoundTerm, ...]:
    """Returns the terms of a cluster key. Text that is the path of a column is that column, other text an expression.

    Raises:
        UnknownColumn: not a leaf column.
        InvalidFilter: not an expression either.
        InvalidRequest: named twice, without an order, inside a list or map; an expression that does not follow the
            order of one column; more than :data:`MAX_CLUSTER_COLUMNS`.
    """
    if len(key) > MAX_CLUSTER_COLUMNS:
        raise InvalidRequest(f"a cluster key has at most {MAX_CLUSTER_COLUMNS} columns, not {len(key)}")
    terms = tuple(_term(schema, each, case_sensitive=case_sensitive) for each in key)
    for term in terms:
        if term.dtype.order is None or any(leaf.repeated for leaf in leaves_in(term)):
            raise InvalidRequest(f"rows cannot be ordered by column {term.name!r} ({term.dtype})", column=term.name)
    if len({term_key(term) for term in terms}) != len(terms):
        names = [term.name for term in terms]
        raise InvalidRequest("cluster_key has a column more than once", cluster_key=names)
    return terms


def key_texts(schema: Schema, key: Sequence[str]) -> tuple[str, ...]:
    """Returns the terms of a cluster key as they are recorded, with the spelling of the schema; raises as
    :func:`key_terms`."""
    return tuple(
        term.reference if isinstance(term, Leaf) else _expression(text, schema, schema)
        for text, term in zip(key, key_terms(schema, key), strict=True)
    )


def renamed_key(old: Schema, new: Schema, key: Sequence[str]) -> tuple[str, ...]:
    """Returns the terms of a key of ``old`` under the names of ``new``.

    Raises:
        InvalidSchema: a column of the key was dropped, or an expression does not fit its new type.
    """
    found = []
    leaves = new.by_id()
    for text, term in zip(key, key_terms(old, key), strict=True):
        gone = [leaf.name for leaf in leaves_in(term) if leaf.id not in leaves]
        if gone:
            raise InvalidSchema(f"column {gone[0]!r} is part of the cluster key and cannot be dropped", column=gone[0])
        if isinstance(term, Leaf):
            found.append(leaves[term.id].reference)
            continue
        try:
            renamed = _expression(text, old, new)
            key_terms(new, (renamed,))
        except LamellaError as error:
            name = leaves_in(term)[0].name
            raise InvalidSchema(f"{text}, a part of the cluster key, would be invalid: {error}", column=name) from error
        found.append(renamed)
    return tuple(found)


def key_zones(term: BoundTerm, lookup: Lookup, count: int) -> Zones:
    """Returns the zone maps of a term over ``count`` entries, from those of its columns."""
    return lookup(term) if isinstance(term, Leaf) else term_zones(term, lookup, count)


def key_values(rows: pa.Table, term: BoundTerm) -> pa.ChunkedArray:
    """Returns the values of a term in rows, in the Arrow type of ``term.dtype``; null where an expression fails."""
    if isinstance(term, Leaf):
        return leaf_values(rows, term)
    columns = {leaf.id: leaf_values(rows, leaf) for leaf in leaves_in(term)}
    vector = RowTerms(columns, rows.num_rows).vector(term)
    valid = vector.valid if vector.failed is None else vector.valid & ~vector.failed
    return pa.chunked_array([_arrow(vector.values, np.asarray(valid), term.dtype)])


def follows_a_column(term: BoundTerm) -> bool:
    """Returns whether a term's values are in the order of one column, or in the reverse order; equal for equal
    values."""
    if isinstance(term, Leaf):
        return True
    if isinstance(term, Derived) and isinstance(term.function, Condition):
        return _divides(term.function.node)
    if not isinstance(term, Derived) or not isinstance(term.function, _ORDERED):
        return False
    varying = [at for at, argument in enumerate(term.arguments) if not isinstance(argument, ConstantTerm)]
    if len(varying) != 1 or (varying[0] > 0 and isinstance(term.function, _DIVISIONS)):
        return False
    return follows_a_column(term.arguments[varying[0]])


def _divides(node: BoundPredicate) -> bool:
    """Returns whether the rows for which a condition is true are at one end of the order of a column."""
    match node:
        case Comparison(term, op, _, _):
            return op != "eq" and follows_a_column(term)
        case NullTest(term, _):
            return follows_a_column(term)
        case BoundNot(child):
            return _divides(child)
        case _:
            return False


def _term(schema: Schema, text: str, *, case_sensitive: bool) -> BoundTerm:
    try:
        return schema.leaf(text, case_sensitive=case_sensitive)
    except UnknownColumn as unknown:
        try:
            read = _read(text)
            term = _condition(read, schema) if isinstance(read, Predicate) else term_of(text, schema)
        except InvalidRequest as error:  # of the expression
            raise (unknown if _is_name(text) else error) from None
    if not leaves_in(term):
        raise InvalidRequest(f"{text} does not refer to a column", column=text)
    if not follows_a_column(term):
        raise InvalidRequest(
            f"rows cannot be clustered by {text}: its values do not follow the order of one column, so the bounds of"
            " blocks say nothing about it; use a skip index for it",
            column=text,
        )
    return term


def _is_name(text: str) -> bool:
    return not any(sign in text for sign in "()+-*/%<=> ")


def _read(text: str) -> Term | Predicate:
    read = read_filter(f"({text}) IS NULL")
    if isinstance(read, IsNull):
        return read.term
    if isinstance(read, IsUnknown):
        return read.child
    raise InvalidRequest(f"{text!r} is not an expression with a value for each row", expression=text)


def _condition(predicate: Predicate, schema: Schema) -> Derived:
    node = bind(predicate, schema.without_shredding(), time_zone="UTC")
    return Derived(Condition(node), columns_of(node), _BOOLEAN, text_of(predicate))


def _expression(text: str, old: Schema, new: Schema) -> str:
    """Returns the text of an expression of ``old`` with the names of ``new``, plain if that is read as the same."""
    read = _read(text)
    if not isinstance(read, Predicate):
        return expression_of(renamed_term(read, old, new), new, "UTC")
    renamed = _renamed(read, old, new)
    exact, plain = sql_of(renamed), text_of(renamed)
    try:
        is_same = key_terms(new, (plain,)) == key_terms(new, (exact,))
    except InvalidRequest:
        return exact
    return plain if is_same else exact


def _renamed(predicate: Predicate, old: Schema, new: Schema) -> Predicate:
    parts: dict[str, Any] = {}
    for name in predicate.__struct_fields__:
        value = getattr(predicate, name)
        if isinstance(value, Term):
            parts[name] = renamed_term(value, old, new)
        elif isinstance(value, Predicate):
            parts[name] = _renamed(value, old, new)
    return msgspec.structs.replace(predicate, **parts)


def _arrow(values: Any, valid: Any, dtype: DataType) -> pa.Array:
    """Returns the values of a vector in the Arrow type of ``dtype``."""
    kind = leaf_type(dtype, "key")
    if not isinstance(values, np.ndarray):
        found = pc.if_else(pa.array(valid), values, pa.scalar(None, values.type))
        return found if pa.types.is_binary(kind) else found.cast(kind)
    if dtype.order == "decimal":
        exact = Context(prec=80)
        scaled = (exact.scaleb(exact.create_decimal(int(value)), -dtype.scale) for value in values)
        return pa.array([value if ok else None for value, ok in zip(scaled, valid, strict=True)], kind)
    plain = pa.array(values, mask=~valid)
    width = pa.int32() if kind.bit_width == 32 and not pa.types.is_floating(kind) else None
    if pa.types.is_temporal(kind):
        return plain.cast(width or pa.int64()).cast(kind)
    return plain.cast(kind)
