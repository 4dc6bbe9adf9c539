"""What a filter asks, as a digest: the same for filters that mean the same by their form, whatever their spelling.

The digest is made of the filter as it was read, not as it is bound for statistics, since only that says everything
about a row: patterns, literals with the way they were written, functions. Columns stand in it by id, type and default.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from lamella.snapshot.errors import UnknownColumn
from lamella.snapshot.expression.nodes import And, Constant, Or, Place, Predicate, Ref, Unknown
from lamella.snapshot.schema import Schema

DIGEST_BYTES: Final = 16
#: Counts up when what readers make of a filter changes, so that nothing from before is believed.
_VERSION: Final = 2


def questions(
    predicate: Predicate, schema: Schema, *, time_zone: str = "UTC", case_sensitive: bool = False
) -> tuple[bytes, ...]:
    """The digests under which an answer helps: of the filter as a whole, and of each predicate that it needs.

    Empty when there is none: parts that no reader decides exactly have no digest.
    """
    parts = [predicate, *(_flat(predicate, And) if isinstance(predicate, And) else ())]
    found = (digest_of(part, schema, time_zone=time_zone, case_sensitive=case_sensitive) for part in parts)
    return tuple(dict.fromkeys(digest for digest in found if digest is not None))


def digest_of(
    predicate: Predicate, schema: Schema, *, time_zone: str = "UTC", case_sensitive: bool = False
) -> bytes | None:
    """What names a predicate over the columns of a schema; None for one that is constant, or not decided exactly."""
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
    """A node as nested tuples: its kind, then its members."""
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
    members = (value for value in msgspec.structs.astuple(node) if not isinstance(value, Place))
    return (type(node).__name__, *(_member(value, schema, case_sensitive) for value in members))


def _member(value: object, schema: Schema, case_sensitive: bool) -> object:
    if isinstance(value, msgspec.Struct):
        return _form(value, schema, case_sensitive)
    if isinstance(value, tuple):
        return ("list", *(_member(each, schema, case_sensitive) for each in value))
    return value


def _flat(node: And | Or, kind: type[And] | type[Or]) -> list[Predicate]:
    """The children, those of children of the same kind instead of them."""
    return [each for child in node.children for each in (_flat(child, kind) if isinstance(child, kind) else (child,))]


def _written(value: object) -> bytes:
    """One text for each value; types that compare equal (``1``, ``1.0``, ``True``) are told apart."""
    if isinstance(value, tuple):
        return b"(" + b",".join(_written(each) for each in value) + b")"
    if isinstance(value, float):
        text = value.hex()  # zeros of either sign differ, which costs an answer and never gives a wrong one
    elif isinstance(value, bytes):
        text = value.hex()
    elif value is None or isinstance(value, bool | int | str):
        text = str(value)
    else:
        raise _NotExact
    raw = text.encode("utf-8", "surrogatepass")
    return f"{type(value).__name__}{len(raw)}:".encode() + raw
