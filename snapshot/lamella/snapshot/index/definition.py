"""What an index is over, and whether a part that was built for one type serves another."""

from __future__ import annotations

import re
import uuid
from collections.abc import Hashable, Mapping
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import InvalidRequest, LamellaError, UnknownColumn
from lamella.snapshot.expression import read_filter
from lamella.snapshot.expression.bind_terms import TermBinder
from lamella.snapshot.expression.bound import BoundTerm, Held, leaves_in
from lamella.snapshot.expression.coerce import Unusable
from lamella.snapshot.expression.nodes import Call, Cast, IsNull, Ref, Term
from lamella.snapshot.expression.spark_casts import zone
from lamella.snapshot.expression.text import term_sql
from lamella.snapshot.index.registry import kind_named
from lamella.snapshot.manifest import TableIndex
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.schema.evolution import Versioned, schema_at

#: Index names: a word, as in SQL.
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
    """A new index over a term of ``schema``; ``time_zone`` is that of functions that have one.

    Raises:
        InvalidRequest: the name is no word, the kind is not known or does not fit, an option that it does not have; the
            expression has no columns, repeated ones, or cannot be computed exactly.
        InvalidFilter, UnknownColumn: the expression.
    """
    if NAME.fullmatch(name) is None:
        raise InvalidRequest(f"{name!r} is no name for an index: a word of letters, digits and _", name=name)
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
    """The term of an expression in terms of a schema; raises as :func:`defined`."""
    read = read_filter(f"({expression}) IS NULL", time_zone=time_zone)
    if not isinstance(read, IsNull):
        raise InvalidRequest(f"{expression!r} is no expression that has a value in each row", expression=expression)
    term = TermBinder(schema, time_zone, case_sensitive=False).bind(read.term)
    if isinstance(term, Unusable):
        raise InvalidRequest(f"{expression}: {term.reason}", expression=expression)
    if isinstance(term, Held) or not leaves_in(term):
        raise InvalidRequest(f"{expression} names no column", expression=expression)
    repeated = [leaf.name for leaf in leaves_in(term) if leaf.repeated]
    if repeated:
        raise InvalidRequest(f"{repeated[0]} can hold several values in a row", expression=expression)
    return term


def term_in(index: TableIndex, table: Versioned) -> BoundTerm | None:
    """The term of an index in terms of a table's current schema; None when it cannot be used there.

    Columns are those of the schema that the index was defined by, whatever they are called now. It cannot be used when
    one of them is gone, or has another type now and the term is a function, which may have other values then.
    """
    try:
        term = term_of(index.expression, schema_at(table, index.schema_id), index.time_zone)
    except LamellaError:  # of a schema that the table does not know, or a function that a newer release brought
        return None
    now = table.history[-1].by_id()
    if isinstance(term, Leaf):
        return now.get(term.id)
    columns = leaves_in(term)
    return term if all(leaf.id in now and now[leaf.id].dtype == leaf.dtype for leaf in columns) else None


def redefined(index: TableIndex, table: Versioned) -> TableIndex:
    """The index of a table whose schema has changed just now.

    A function of columns that have other types now may have other values, so that nothing holds of what is known of the
    old ones: such an index begins anew, over the same columns as they are called and typed now. All others stay what
    they are, also one that the new types do not allow, which is not used any more.
    """
    new = table.history[-1]
    now = new.by_id()
    try:
        old = schema_at(table, index.schema_id)
        columns = leaves_in(term_of(index.expression, old, index.time_zone))
        if all(leaf.id not in now or now[leaf.id].dtype == leaf.dtype for leaf in columns):
            return index
        if isinstance(term_of(index.expression, old, index.time_zone), Leaf):
            return index  # its parts say which type they were built for
        read = read_filter(f"({index.expression}) IS NULL", time_zone=index.time_zone)
        if not isinstance(read, IsNull):
            return index
        expression = term_sql(_renamed(read.term, old, new))
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


def _renamed(term: Term, old: Schema, new: Schema) -> Term:
    """A term over ``old`` with its columns as ``new`` calls them."""
    match term:
        case Ref(path):
            leaf = new.by_id().get(old.leaf(path).id)
            if leaf is None:
                raise UnknownColumn(f"column {path!r} is gone", column=path)
            return Ref(leaf.reference)
        case Cast(inner, target):
            return Cast(_renamed(inner, old, new), target)
        case Call(function, arguments):
            return Call(function, tuple(_renamed(argument, old, new) for argument in arguments))
        case _:
            return term


def term_key(term: BoundTerm) -> Hashable:
    """What two terms share that are the same function of the same columns, however they are spelled.

    Columns count by their ids, so a rename changes nothing. Types are not part of it: see
    :func:`lamella.snapshot.index.widening.can_serve`.
    """
    if isinstance(term, Leaf):
        return ("column", term.id)
    if isinstance(term, Held):
        return ("value", term.value, str(term.dtype))
    return ("call", term.function, tuple(term_key(argument) for argument in term.arguments))
