"""The definition of an index, and whether a part that was built for one type can serve another."""

from __future__ import annotations

import re
import uuid
from collections.abc import Hashable, Mapping
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import InvalidRequest, LamellaError, UnknownColumn
from lamella.snapshot.expression import read_filter
from lamella.snapshot.expression.bind_terms import TermBinder
from lamella.snapshot.expression.bound import BoundTerm, ConstantTerm, leaves_in
from lamella.snapshot.expression.coerce import Unusable
from lamella.snapshot.expression.nodes import Call, Cast, IsNull, Ref, Term
from lamella.snapshot.expression.spark_casts import zone
from lamella.snapshot.expression.text import term_sql, term_text
from lamella.snapshot.index.registry import kind_named
from lamella.snapshot.manifest import TableIndex
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.schema.evolution import Versioned, schema_at

#: Index names are identifiers, as in SQL.
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def defined(
    *,
    index_id: str,
    name: str,
    kind: str,
    expression: str,
    options: Mapping[str, Any],
    schema: Schema,
    time_zone: str = "UTC",
    now_ms: int,
) -> TableIndex:
    """Returns a new index over a term of ``schema``; ``time_zone`` applies to functions that depend on one.

    Raises:
        InvalidRequest: the name is not an identifier, the kind is unknown or does not fit the type, an option is
            unknown; the expression has no columns, repeated ones, or cannot be computed exactly.
        InvalidFilter, UnknownColumn: the expression is invalid.
    """
    if NAME.fullmatch(name) is None:
        raise InvalidRequest(f"{name!r} is not a valid index name: use letters, digits and _", name=name)
    if zone(time_zone) is None:
        raise InvalidRequest(f"there is no time zone {time_zone!r}", time_zone=time_zone)
    term = term_of(expression, schema, time_zone)
    return TableIndex(
        index_id=index_id,
        name=name,
        kind=kind,
        expression=expression,
        dtype=str(term.dtype),
        created_ms=now_ms,
        schema_id=schema.schema_id,
        options=kind_named(kind).options(term.dtype, options),
        time_zone=time_zone,
    )


def term_of(expression: str, schema: Schema, time_zone: str = "UTC") -> BoundTerm:
    """Binds an expression to a schema; raises as :func:`defined`."""
    read = read_filter(f"({expression}) IS NULL", time_zone=time_zone)
    if not isinstance(read, IsNull):
        raise InvalidRequest(f"{expression!r} is not an expression with a value for each row", expression=expression)
    term = TermBinder(schema.without_shredding(), time_zone, case_sensitive=False).bind(read.term)
    if isinstance(term, Unusable):
        raise InvalidRequest(f"{expression}: {term.reason}", expression=expression)
    if isinstance(term, ConstantTerm) or not leaves_in(term):
        raise InvalidRequest(f"{expression} does not refer to a column", expression=expression)
    repeated = [leaf.name for leaf in leaves_in(term) if leaf.repeated]
    if repeated:
        raise InvalidRequest(f"{repeated[0]} can have several values in a row", expression=expression)
    return term


def term_in(index: TableIndex, table: Versioned) -> BoundTerm | None:
    """Returns the term of an index in terms of a table's current schema; None if it cannot be used there.

    Columns are those of the schema in which the index was defined, whatever their names are now. The index cannot be
    used if one of them was dropped, or if one has another type and the term is a function, whose values may then
    differ.
    """
    try:
        term = term_of(index.expression, schema_at(table, index.schema_id), index.time_zone)
    except LamellaError:  # of a schema that the table does not know, or a function of a newer release
        return None
    now = table.history[-1].by_id()
    if isinstance(term, Leaf):
        return now.get(term.id)
    columns = leaves_in(term)
    return term if all(leaf.id in now and now[leaf.id].dtype == leaf.dtype for leaf in columns) else None


def redefined(index: TableIndex, table: Versioned) -> TableIndex:
    """Returns an index after the schema of its table has changed.

    A function of columns whose types changed may have other values, so nothing known about the old ones applies. Such
    an index starts empty, over the same columns with their current names and types. All others stay as they are,
    including an index that the new types do not support, which is no longer used.
    """
    new = table.history[-1]
    now = new.by_id()
    try:
        old = schema_at(table, index.schema_id)
        columns = leaves_in(term_of(index.expression, old, index.time_zone))
        if all(leaf.id not in now or now[leaf.id].dtype == leaf.dtype for leaf in columns):
            return index
        if isinstance(term_of(index.expression, old, index.time_zone), Leaf):
            return index  # its parts record which type they were built for
        read = read_filter(f"({index.expression}) IS NULL", time_zone=index.time_zone)
        if not isinstance(read, IsNull):
            return index
        expression = term_sql(renamed_term(read.term, old, new))
        term = term_of(expression, new, index.time_zone)
        options = kind_named(index.kind).options(term.dtype, index.options)
    except LamellaError:
        return index
    return msgspec.structs.replace(
        index,
        # Parts that are being built for the old types must not be added to it.
        index_id=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{index.index_id} {new.schema_id}")),
        expression=expression,
        dtype=str(term.dtype),
        schema_id=new.schema_id,
        options=options,
        directories=(),
    )


def expression_of(term: Term, schema: Schema, time_zone: str) -> str:
    """Returns the SQL of a term, without backticks around its names where these are not needed."""
    exact, plain = term_sql(term), term_text(term)
    try:
        is_same = term_key(term_of(plain, schema, time_zone)) == term_key(term_of(exact, schema, time_zone))
    except InvalidRequest:
        return exact
    return plain if is_same else exact


def renamed_term(term: Term, old: Schema, new: Schema) -> Term:
    """Returns a term over ``old`` with the column names of ``new``."""
    match term:
        case Ref(path):
            leaf = new.by_id().get(old.leaf(path).id)
            if leaf is None:
                raise UnknownColumn(f"column {path!r} was dropped", column=path)
            return Ref(leaf.reference)
        case Cast(inner, target):
            return Cast(renamed_term(inner, old, new), target)
        case Call(function, arguments):
            return Call(function, tuple(renamed_term(argument, old, new) for argument in arguments))
        case _:
            return term


def term_key(term: BoundTerm) -> Hashable:
    """Returns a key that is equal for terms that are the same function of the same columns, whatever their spelling.

    Columns are compared by id, so a rename changes nothing. Types are not part of the key: see
    :func:`lamella.snapshot.index.widening.can_serve`.
    """
    if isinstance(term, Leaf):
        return ("column", term.id)
    if isinstance(term, ConstantTerm):
        return ("value", term.value, str(term.dtype))
    return ("call", term.function, tuple(term_key(argument) for argument in term.arguments))
