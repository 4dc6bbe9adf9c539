"""Schema changes, and their meaning for files that were written before.

A column is identified by its id. A rename or a move keeps the id, so statistics and values stay with the column. The id
of a dropped column is never reused, so a column that is added later under the same name starts empty. A file is read
with the names that the table had when the file was added (:func:`physical_names`).

Changes are values; :func:`evolve` applies them in order and returns the next schema, or raises an error that names the
column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from lamella.snapshot.errors import InvalidRequest, InvalidSchema, LimitExceeded, UnknownColumn
from lamella.snapshot.near_names import did_you_mean
from lamella.snapshot.schema.column import (
    MAX_COLUMNS,
    Check,
    Column,
    ConstraintCondition,
    ConstraintName,
    Schema,
    ZoneName,
    canonical_default,
    path_parts,
)
from lamella.snapshot.schema.shredding import read_shredding, with_shredding
from lamella.snapshot.schema.types import (
    PER_SECOND,
    DataType,
    allows_all,
    canonical_type,
    parse_type,
    text_length,
    widens,
)

#: The most CHECK constraints of a table.
MAX_CHECKS = 100

#: The path of a column: a dotted path (a name that contains dots is tried first), or the names one by one. The parts of
#: a list and a map are called ``element``, ``key`` and ``value``. Case is ignored.
Path = str | tuple[str, ...]


class _Change(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="change"
):
    """One change; the member ``change`` is its tag."""


class AddColumn(_Change, frozen=True, kw_only=True, tag="add"):
    """A new column, or with ``parent`` a new field of that struct.

    ``fields`` are the parts of a nested type. ``default``: the value of rows that were written without the column (as
    text, see docs/schema.md), which writers also use where they have no value of their own; without it such rows are
    null, so the column must be nullable. The column is added at the end, ``first``, or ``after`` a sibling.
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
    """Removes a column from the table. Files keep its values, which are never read again."""

    column: Path


class RenameColumn(_Change, frozen=True, kw_only=True, tag="rename"):
    """Renames a column; ``name`` is the last part only."""

    column: Path
    name: str


class WidenColumn(_Change, frozen=True, kw_only=True, tag="widen"):
    """Changes a type to one that contains every value of the old one: see
    :func:`lamella.snapshot.schema.evolution.can_widen`, and for the length of text
    :func:`lamella.snapshot.schema.types.allows_all`."""

    column: Path
    type: str


class MoveColumn(_Change, frozen=True, kw_only=True, tag="move"):
    """Moves a column among its siblings: ``first``, or ``after`` one of them."""

    column: Path
    first: bool = False
    after: str | None = None


class SetNullable(_Change, frozen=True, kw_only=True, tag="set-nullable"):
    """Allows nulls in a required column, or forbids them. They can be forbidden only if the statistics of the table
    prove that no row has one (:func:`lamella.snapshot.commit.constraints.require_no_nulls`)."""

    column: Path
    nullable: bool


class SetDefault(_Change, frozen=True, kw_only=True, tag="set-default"):
    """Changes what writers put into rows that come without a column of the top level; None: nothing. Rows that exist
    stay as they are."""

    column: Path
    default: str | None


class SetDoc(_Change, frozen=True, kw_only=True, tag="set-doc"):
    """Changes a comment; None removes it."""

    column: Path
    doc: str | None


class SetShredding(_Change, frozen=True, kw_only=True, tag="set-shredding"):
    """Changes the shredded fields of all variants (as text, see docs/schema.md); files stay as they are.

    A field that keeps its path and type keeps its statistics.
    """

    shredding: Annotated[str, Meta(max_length=65_536)]


class AddCheck(_Change, frozen=True, kw_only=True, tag="add-check"):
    """A new CHECK constraint; see :class:`~lamella.snapshot.schema.Check`."""

    name: ConstraintName
    condition: ConstraintCondition
    time_zone: ZoneName = "UTC"


class DropCheck(_Change, frozen=True, kw_only=True, tag="drop-check"):
    """Removes a CHECK constraint."""

    name: ConstraintName


class ReplaceColumns(_Change, frozen=True, kw_only=True, tag="replace"):
    """Other columns in place of all, without constraints. One with the name and type of an earlier column is that
    column.

    Only a commit that removes all blocks can make this change, since no row has values of the new columns.
    """

    columns: Annotated[tuple[Column, ...], Meta(max_length=MAX_COLUMNS)]


class AllowExtraColumns(msgspec.Struct, frozen=True):
    """From now on, files may have columns that the schema does not list. Only a source makes this change.

    ``names``: only top-level columns with these names.
    """

    names: tuple[str, ...] = ()


SchemaChange = (
    AddColumn
    | DropColumn
    | RenameColumn
    | WidenColumn
    | MoveColumn
    | SetNullable
    | SetDefault
    | SetDoc
    | SetShredding
    | AddCheck
    | DropCheck
)


class Versioned(Protocol):
    """An object that knows all schemas of a table: a snapshot, its head, a table's info."""

    @property
    def history(self) -> tuple[Schema, ...]:
        """Returns every schema that blocks may have been written with, the current one last."""


def evolve(
    schema: Schema,
    changes: Sequence[SchemaChange | ReplaceColumns | AllowExtraColumns],
    *,
    history: Sequence[Schema] = (),
) -> Schema:
    """Returns ``schema`` with the changes applied in order, with an id that none of ``history`` has.

    Raises:
        UnknownColumn: a path that matches no column, or two.
        InvalidSchema: a change that does not apply to the column, which the message names, or to a type that it had in
            ``history``: files may still have values of that type.
        InvalidRequest: no changes, or none with an effect.
        LimitExceeded: too many columns.
    """
    if not changes:
        raise InvalidRequest("there are no changes")
    known = [schema, *history]
    last_column_id = max(each.last_column_id for each in known)
    columns, extra_columns, ignored_columns = schema.columns, schema.extra_columns, schema.ignored_columns
    checks = schema.checks
    for change in changes:
        if isinstance(change, AllowExtraColumns):
            extra_columns = extra_columns or not change.names
            ignored_columns = tuple(sorted({*ignored_columns, *change.names}))
        elif isinstance(change, AddCheck):
            checks = _with_check(checks, change)
        elif isinstance(change, DropCheck):
            checks = _without_check(checks, change.name)
        elif isinstance(change, ReplaceColumns):
            checks = ()
            columns = Schema.assign(_replaced(columns, change.columns), last_column_id=last_column_id).columns
            last_column_id = max(last_column_id, *(column.id for column in _all(columns)))
        elif isinstance(change, AddColumn):
            added = Schema.assign([_added(change)], last_column_id=last_column_id)
            columns, last_column_id = _with_added(columns, change, added.columns[0]), added.last_column_id
        elif isinstance(change, SetShredding):
            shredded = with_shredding(columns, read_shredding(change.shredding))
            columns = Schema.assign(shredded, last_column_id=last_column_id).columns
            last_column_id = max(last_column_id, *(column.id for column in _all(columns)))
        else:
            columns = _applied(columns, change)
    columns = Schema.assign(columns, last_column_id=last_column_id).columns
    _require_readable_files(schema, columns, history)
    others = extra_columns, ignored_columns, checks
    if (columns, others) == (schema.columns, (schema.extra_columns, schema.ignored_columns, schema.checks)):
        raise InvalidRequest("the changes leave the schema as it is")
    schema_id = max(each.schema_id for each in known) + 1
    return Schema(
        columns=columns,
        schema_id=schema_id,
        last_column_id=last_column_id,
        extra_columns=extra_columns,
        ignored_columns=ignored_columns,
        checks=checks,
    )


def _with_check(checks: tuple[Check, ...], change: AddCheck) -> tuple[Check, ...]:
    if not change.name:
        raise InvalidSchema("a constraint needs a name")
    if any(check.name.lower() == change.name.lower() for check in checks):
        raise InvalidSchema(f"there is already a constraint {change.name!r}", constraint=change.name)
    if len(checks) == MAX_CHECKS:
        raise LimitExceeded(f"a table has at most {MAX_CHECKS} constraints", limit="constraints", maximum=MAX_CHECKS)
    return (*checks, Check(name=change.name, condition=change.condition, time_zone=change.time_zone))


def _without_check(checks: tuple[Check, ...], name: str) -> tuple[Check, ...]:
    left = tuple(check for check in checks if check.name.lower() != name.lower())
    if left == checks:
        raise InvalidSchema(f"there is no constraint {name!r}", constraint=name)
    return left


def _require_readable_files(schema: Schema, columns: tuple[Column, ...], history: Sequence[Schema]) -> None:
    """Raise InvalidSchema if files that the columns of ``schema`` can read have a type that ``columns`` cannot.

    Two changes in a row may be valid although both together are not: uint32 to int64, and int64 to decimal.
    """
    before = schema.by_id()
    for leaf in Schema.assign(columns, last_column_id=schema.last_column_id).leaves():
        now = before.get(leaf.id)
        if now is None or now.dtype == leaf.dtype:
            continue
        for each in history:
            written = each.by_id().get(leaf.id)
            if written is not None and can_widen(written.dtype, now.dtype) and not can_widen(written.dtype, leaf.dtype):
                raise InvalidSchema(
                    f"column {now.name!r} was {written.dtype}, and files with that type cannot be read as {leaf.dtype}",
                    column=now.name,
                )


def can_widen(source: DataType, target: DataType) -> bool:
    """Returns whether a column of type ``source`` may become one of type ``target``.

    Every value must be one of the new type, with the same meaning: as :func:`widens`, but times only to a finer unit.
    """
    if source.name == target.name and source.name in ("time", "timestamp", "timestamp_ntz"):
        return PER_SECOND[target.unit] >= PER_SECOND[source.unit]
    return not source.is_nested and widens(source, target)


def can_read_as(written: Schema, wanted: Schema) -> bool:
    """Returns whether every file of one schema of a table can be read with the columns of another.

    This is always true for a later schema, as long as changes only add, widen and so on. After a rollback the current
    schema may not fit a file of the time in between: a column was widened, dropped or made nullable.
    """
    before = written.by_id()
    for leaf in wanted.leaves():
        old = before.get(leaf.id)
        if old is None:
            fits = leaf.id > written.last_column_id  # added later, and not dropped before
        else:
            same = old.dtype == leaf.dtype or can_widen(old.dtype, leaf.dtype)
            fits = same and (leaf.nullable or not old.nullable)
        if not fits:
            return False
    return True


def meets(written: Schema, wanted: Schema) -> bool:
    """Returns whether rows that a writer checked by one schema of a table satisfy what another one requires of them.

    Not if a column has become required since then, so that the rows may be null in it, with a constraint that the
    writer did not know, or with text that may be too long.
    """
    lengths = wanted.text_lengths.items()
    return (
        set(wanted.checks) <= set(written.checks)
        and wanted.required_ids
        <= written.required_ids | {each for each in wanted.required_ids if each > written.last_column_id}
        and all(
            each > written.last_column_id or allows_all(length, written.text_lengths.get(each))
            for each, length in lengths
        )
    )


def schema_at(table: Versioned, schema_id: int) -> Schema:
    """Returns the schema with an id; raises InvalidSchema if the table never had it."""
    for schema in table.history:
        if schema.schema_id == schema_id:
            return schema
    raise InvalidSchema(f"the table never had a schema with id {schema_id}", schema_id=schema_id)


def physical_names(table: Versioned, block_schema_id: int) -> dict[int, tuple[str, ...]]:
    """Returns column id -> path of the column inside blocks written with that schema, including structs and lists.

    Names are spelled as the table spelled them then; a file may differ in case. A column that is missing here is not in
    the blocks, whatever a column of its name there contains: its rows are null, or have its default. A column that is
    present here may still be absent from a file, with the same meaning.

    Raises:
        InvalidSchema: the table never had that schema.
    """
    return dict(schema_at(table, block_schema_id).paths())


_Siblings = tuple[Column, ...]


def _applied(
    columns: _Siblings,
    change: DropColumn | RenameColumn | WidenColumn | MoveColumn | SetNullable | SetDefault | SetDoc,
) -> _Siblings:
    match change:
        case DropColumn(column=path):
            return _edit(columns, path, _drop)
        case RenameColumn(column=path, name=name):
            return _edit(columns, path, lambda siblings, at: _replace(siblings, at, _renamed(siblings[at], name)))
        case WidenColumn(column=path, type=text):
            return _edit(columns, path, lambda siblings, at: _replace(siblings, at, _widened(siblings[at], text)))
        case MoveColumn(column=path, first=first, after=after):
            return _edit(columns, path, lambda siblings, at: _moved(siblings, at, first, after))
        case SetNullable(column=path, nullable=nullable):
            return _edit(
                columns,
                path,
                lambda siblings, at: _replace(siblings, at, msgspec.structs.replace(siblings[at], nullable=nullable)),
            )
        case SetDefault(column=path, default=default):
            return _edit(
                columns,
                path,
                lambda siblings, at: _replace(
                    siblings, at, msgspec.structs.replace(siblings[at], write_default=default)
                ),
            )
        case SetDoc(column=path, doc=doc):
            return _edit(
                columns,
                path,
                lambda siblings, at: _replace(siblings, at, msgspec.structs.replace(siblings[at], doc=doc)),
            )


def _added(change: AddColumn) -> Column:
    """Returns the column that a change adds, without an id."""
    if not change.nullable and change.default is None:
        raise InvalidSchema(
            f"column {change.name!r} needs a default or must be nullable: old rows have no value", column=change.name
        )
    if change.default is not None and change.parent is not None:
        raise InvalidSchema(f"column {change.name!r}: only columns of the top level can have a default")
    if any(_has_id(field) for field in change.fields):
        raise InvalidSchema(f"column {change.name!r}: the table assigns the ids", column=change.name)
    return Column(
        name=change.name,
        type=change.type,
        nullable=change.nullable,
        fields=change.fields,
        doc=change.doc,
        default=change.default,
    )


def _with_added(columns: _Siblings, change: AddColumn, added: Column) -> _Siblings:
    def insert(siblings: _Siblings) -> _Siblings:
        _refuse_existing(siblings, change.name)
        if not (change.first or change.after):
            return (*siblings, added)
        return _placed(siblings, added, change.first, change.after)

    if change.parent is None:
        return insert(columns)

    def inside(siblings: _Siblings, at: int) -> _Siblings:
        parent = siblings[at]
        if parent.dtype.name != "struct":
            raise InvalidSchema(f"column {parent.name!r} is not a struct, so it has no fields", column=parent.name)
        return _replace(siblings, at, msgspec.structs.replace(parent, fields=insert(parent.fields)))

    return _edit(columns, change.parent, inside)


def _replaced(before: _Siblings, columns: _Siblings) -> _Siblings:
    """Returns new columns with the ids of those of the same name and type, and without one otherwise."""
    found = {column.name.lower(): column for column in before}
    made = []
    for column in columns:
        if _has_id(column):
            raise InvalidSchema(f"column {column.name!r}: the table assigns the ids", column=column.name)
        same = found.get(column.name.lower())
        if same is None or same.dtype != column.dtype:
            made.append(column)
        elif column.dtype.name == "variant":  # no file is left with the shredded fields of before
            made.append(msgspec.structs.replace(column, id=same.id))
        else:
            made.append(msgspec.structs.replace(column, id=same.id, fields=_replaced(same.fields, column.fields)))
    return tuple(made)


def _all(columns: _Siblings) -> list[Column]:
    return [each for column in columns for each in (column, *_all(column.fields))]


def _drop(siblings: _Siblings, at: int) -> _Siblings:
    if len(siblings) == 1:
        raise InvalidSchema(f"column {siblings[at].name!r} is the last column and cannot be dropped")
    return siblings[:at] + siblings[at + 1 :]


def _renamed(column: Column, name: str) -> Column:
    return msgspec.structs.replace(column, name=name)


def _widened(column: Column, text: str) -> Column:
    target = parse_type(text)
    if not can_widen(column.dtype, target) or not allows_all(text_length(text), column.text_length):
        raise InvalidSchema(
            f"column {column.name!r} of type {column.type} cannot become {canonical_type(text)}", column=column.name
        )
    default = column.default and canonical_default(target, column.default, column.name)
    return msgspec.structs.replace(column, type=canonical_type(text), default=default)  # assign spells write_default


def _moved(siblings: _Siblings, at: int, first: bool, after: str | None) -> _Siblings:
    column = siblings[at]
    if not (first or after):
        raise InvalidRequest(
            f"give the position of column {column.name!r}: first, or after another column", column=column.name
        )
    return _placed(siblings[:at] + siblings[at + 1 :], column, first, after)


def _placed(siblings: _Siblings, column: Column, first: bool, after: str | None) -> _Siblings:
    if first and after is not None:
        raise InvalidRequest(f"column {column.name!r} goes first or after {after!r}, not both", column=column.name)
    at = 0 if first else _index(siblings, str(after)) + 1
    return (*siblings[:at], column, *siblings[at:])


def _edit(columns: _Siblings, path: Path, change: Callable[[_Siblings, int], _Siblings]) -> _Siblings:
    """Returns ``columns`` with the change applied among the siblings of the column at ``path``."""
    quoted = path_parts(path) if isinstance(path, str) and "`" in path else None
    found = _positions(columns, path if quoted is None else quoted)
    if not found:
        near = did_you_mean(_text(path), [column.name for column in columns])
        raise UnknownColumn(f"there is no column {_text(path)!r}", column=_text(path), **near)
    if isinstance(path, str):  # the full name is tried before the same name as a path
        found = [position for position in found if len(position) == 1] or found
    if len(found) > 1:
        raise UnknownColumn(f"column {_text(path)!r} is ambiguous", column=_text(path))
    return _edit_at(columns, found[0], change)


def _edit_at(columns: _Siblings, position: tuple[int, ...], change: Callable[[_Siblings, int], _Siblings]) -> _Siblings:
    at = position[0]
    if len(position) == 1:
        return change(columns, at)
    parent = columns[at]
    fields = _edit_at(parent.fields, position[1:], change)
    names = [[field.name for field in each] for each in (fields, parent.fields)]
    if parent.dtype.name != "struct" and (names[0] != names[1] or (parent.dtype.name == "map" and position[1] == 0)):
        raise InvalidSchema(
            f"column {parent.name!r}: this part of a {parent.dtype} cannot be changed", column=parent.name
        )
    return _replace(columns, at, msgspec.structs.replace(parent, fields=fields))


def _positions(columns: _Siblings, path: Path) -> list[tuple[int, ...]]:
    """Returns the positions that a path matches, as indexes level by level."""
    found: list[tuple[int, ...]] = []
    if isinstance(path, str):
        wanted = path.lower()
        for at, column in enumerate(columns):
            name = column.name.lower()
            if wanted == name:
                found.append((at,))
            elif column.fields and wanted.startswith(name + "."):
                found += [(at, *rest) for rest in _positions(column.fields, wanted[len(name) + 1 :])]
    elif path:
        wanted = path[0].lower()
        for at, column in enumerate(columns):
            if column.name.lower() == wanted:
                found += [(at,)] if len(path) == 1 else [(at, *rest) for rest in _positions(column.fields, path[1:])]
    return found


def _index(siblings: _Siblings, name: str) -> int:
    wanted = name.lower()
    for at, column in enumerate(siblings):
        if column.name.lower() == wanted:
            return at
    near = did_you_mean(name, [column.name for column in siblings])
    raise UnknownColumn(f"there is no column {name!r} to place it after", column=name, **near)


def _refuse_existing(siblings: _Siblings, name: str) -> None:
    wanted = name.lower()
    if any(column.name.lower() == wanted for column in siblings):
        raise InvalidSchema(f"there is already a column {name!r}", column=name)


def _replace(siblings: _Siblings, at: int, column: Column) -> _Siblings:
    others = siblings[:at] + siblings[at + 1 :]
    if column.name != siblings[at].name:
        _refuse_existing(others, column.name)
    return (*siblings[:at], column, *siblings[at + 1 :])


def _has_id(column: Column) -> bool:
    return bool(column.id) or any(_has_id(field) for field in column.fields)


def _text(path: Path) -> str:
    return path if isinstance(path, str) else ".".join(path)
