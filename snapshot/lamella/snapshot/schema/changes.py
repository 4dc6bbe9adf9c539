"""Changes of a schema as values; as JSON they name their kind: ``{"change": "drop", "column": "a"}``."""

from __future__ import annotations

import msgspec

from lamella.snapshot.schema.column import Column

#: Where a column is: a dotted path (a name that holds dots is found first), or the names one by one. The parts of a
#: list and a map are called ``element``, ``key`` and ``value``. Letters' case does not matter.
Path = str | tuple[str, ...]


class _Change(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="change"
):
    """One change, told apart by its member ``change``."""


class AddColumn(_Change, frozen=True, kw_only=True, tag="add"):
    """A new column, or with ``parent`` a new field of that struct.

    ``fields`` are the parts of a nested type. ``default``: what rows hold that were written without the column (as
    text, see :mod:`lamella.snapshot.schema.default`), and what writers put where they have no value of their own;
    without it such rows are null, so the column must be nullable. It stands last, ``first``, or ``after`` a sibling.
    """

    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    fields: tuple[Column, ...] = ()
    doc: str | None = None
    parent: Path | None = None
    first: bool = False
    after: str | None = None


class DropColumn(_Change, frozen=True, kw_only=True, tag="drop"):
    """The column is no longer part of the table. Files keep its values, nothing reads them again."""

    column: Path


class RenameColumn(_Change, frozen=True, kw_only=True, tag="rename"):
    """Another name for a column; ``name`` is the last part only."""

    column: Path
    name: str


class WidenColumn(_Change, frozen=True, kw_only=True, tag="widen"):
    """A type that holds every value of the old one: see :func:`lamella.snapshot.schema.evolution.can_widen`."""

    column: Path
    type: str


class MoveColumn(_Change, frozen=True, kw_only=True, tag="move"):
    """Another place among its siblings: ``first``, or ``after`` one of them."""

    column: Path
    first: bool = False
    after: str | None = None


class SetNullable(_Change, frozen=True, kw_only=True, tag="set-nullable"):
    """Let a required column hold nulls. The reverse is refused: old rows may be null."""

    column: Path
    nullable: bool


class SetDoc(_Change, frozen=True, kw_only=True, tag="set-doc"):
    """Another comment; None takes it away."""

    column: Path
    doc: str | None


SchemaChange = AddColumn | DropColumn | RenameColumn | WidenColumn | MoveColumn | SetNullable | SetDoc
