"""Reader feedback: blocks that were read and had no row for a filter.

A report is a statement of a client, not a proof, so prunes do not use it. Its key contains everything it depends on:
the meaning of the filter, the time zone, the case rule, the columns by id, type and default, and the block by its
content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from lamella.snapshot.errors import InvalidRequest, UnknownColumn
from lamella.snapshot.expression import Predicate
from lamella.snapshot.expression.nodes import And, Constant, Or, Ref, SourcePosition, Unknown
from lamella.snapshot.schema import Schema

# The digest of a filter: equal for filters that have the same meaning by their form, whatever their spelling.
#
# The digest is computed from the parsed filter, not from its bound form, since only the former says everything about a
# row: patterns, literals with their spelling, functions. Columns are included by id, type and default.

DIGEST_BYTES: Final = 16
#: Incremented when readers evaluate filters differently, so that no earlier report counts for the same filter.
_VERSION: Final = 2


def digest_of(
    predicate: Predicate, schema: Schema, *, time_zone: str = "UTC", case_sensitive: bool = False
) -> bytes | None:
    """Returns the digest of a predicate over the columns of a schema; None for one that is constant, or not decided
    exactly."""
    if isinstance(predicate, Constant):
        return None
    try:
        form = _form(predicate, schema, case_sensitive)
    except (_NotExact, UnknownColumn):
        return None
    text = _written((_VERSION, time_zone, case_sensitive, form))
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()


class _NotExact(Exception):
    """A part has no exact meaning here."""


def _form(node: object, schema: Schema, case_sensitive: bool) -> tuple[object, ...]:
    """Returns a node as nested tuples: its kind, then its members."""
    if isinstance(node, Unknown):
        raise _NotExact
    if isinstance(node, Ref):
        leaf = schema.find(node.path, case_sensitive=case_sensitive)
        if leaf is None:
            raise _NotExact
        return ("column", leaf.id, str(leaf.dtype), leaf.default, leaf.repeated)
    if isinstance(node, And | Or):
        kind = type(node)
        children = {_written(form): form for form in (_form(c, schema, case_sensitive) for c in _flat(node, kind))}
        ordered = tuple(children[text] for text in sorted(children))
        return ordered[0] if len(ordered) == 1 else (kind.__name__, *ordered)
    if not isinstance(node, msgspec.Struct):
        raise _NotExact
    members = (value for value in msgspec.structs.astuple(node) if not isinstance(value, SourcePosition))
    return (type(node).__name__, *(_member(value, schema, case_sensitive) for value in members))


def _member(value: object, schema: Schema, case_sensitive: bool) -> object:
    if isinstance(value, msgspec.Struct):
        return _form(value, schema, case_sensitive)
    if isinstance(value, tuple):
        return ("list", *(_member(each, schema, case_sensitive) for each in value))
    return value


def _flat(node: And | Or, kind: type[And] | type[Or]) -> list[Predicate]:
    """Returns the children, with children of the same kind flattened."""
    return [each for child in node.children for each in (_flat(child, kind) if isinstance(child, kind) else (child,))]


def _written(value: object) -> bytes:
    """Returns one text for each value; types that compare equal (``1``, ``1.0``, ``True``) are distinguished."""
    if isinstance(value, tuple):
        return b"(" + b",".join(_written(each) for each in value) + b")"
    if isinstance(value, float):
        text = value.hex()  # zeros of either sign differ, so their reports are kept apart
    elif isinstance(value, bytes):
        text = value.hex()
    elif value is None or isinstance(value, bool | int | str):
        text = str(value)
    else:
        raise _NotExact
    raw = text.encode("utf-8", "surrogatepass")
    return f"{type(value).__name__}{len(raw)}:".encode() + raw


#: The table property that enables reader feedback.
ENABLED: Final = "lamella.feedback.enabled"
_PREFIX: Final = "lamella.feedback."


def is_enabled(properties: Mapping[str, str]) -> bool:
    """Returns whether the table has enabled reader feedback."""
    return properties.get(ENABLED) == "true"


def check_feedback(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for an unknown feedback property, or one that is neither true nor false."""
    for name, value in properties.items():
        if name.startswith(_PREFIX) and (name != ENABLED or value not in ("true", "false")):
            raise InvalidRequest(f"{name}={value!r}: the property must be {ENABLED}, true or false", property=name)
