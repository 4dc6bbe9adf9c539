"""Computes the schema changes that bring a table's columns to those of its source while preserving column identity.

The columns of a source with field ids are followed by id. Iceberg lists every schema that it had, so that a file of any
of them is read by the names it was written with. A Delta table with column mapping has two names for a column, one of
which is in the files: each of its schemas becomes two, one with the names in the files and one with the other names.

In a source that matches columns by name (Delta), a column is the same as long as its name stays and its old type widens
to the new one; otherwise it is a new column, and every file is read again under the new schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from lamella.snapshot.errors import InvalidSchema
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.column import default_value
from lamella.snapshot.schema.evolution import (
    AddColumn,
    AllowExtraColumns,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    Versioned,
    WidenColumn,
    can_widen,
    evolve,
)
from lamella.snapshot.source.state import FIELDS, SCHEMAS, SourceSchema, SourceState

_IDS: Final = msgspec.json.Decoder(dict[int, int])


#: A change that a source can make.
Change = SchemaChange | AllowExtraColumns


class Evolution(msgspec.Struct, frozen=True, kw_only=True):
    """``steps``: the changes of each new schema. ``history``: the table's schemas after them, the current one last.

    ``schema_of``: the table's schema id by the source's (empty: all files have the current one). ``properties``: those
    that change with it. ``rereads``: files that are in the table have to be read again.
    """

    steps: tuple[tuple[Change, ...], ...] = ()
    history: tuple[Schema, ...]
    schema_of: Mapping[int, int] = {}
    properties: dict[str, str] = {}
    rereads: bool = False


def first_columns(state: SourceState) -> tuple[Column, ...]:
    """Returns the initial columns of a table of this source, without ids: those of its first schema, or if the names in
    its files are others, those of the current one."""
    return nullable_columns(_first(state).columns)


def _first(state: SourceState) -> SourceSchema:
    return state.schemas[0 if state.in_files is None else -1]


def nullable_columns(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Returns columns without ids that are all nullable, including nested ones; a map's keys stay as they are."""
    return tuple(_bare(column) for column in columns)


def first_properties(state: SourceState, schema: Schema) -> dict[str, str]:
    """Returns the properties that record the source's columns; ``schema`` is made of :func:`first_columns`."""
    first = _first(state)
    if not any(column.id for column in first.columns):
        return {}
    fields = _numbers(first.columns, schema.columns)
    return {FIELDS: _json(fields), SCHEMAS: _json({first.schema_id: schema.schema_id})}


def evolution(table: Versioned, properties: Mapping[str, str], state: SourceState) -> Evolution:
    """Returns what must happen to a table's schema before it takes the files of ``state``.

    Raises:
        InvalidSchema: a change that a table's columns cannot follow; the message names the column.
    """
    if not state.schemas:
        return Evolution(history=table.history)
    if any(column.id for column in state.schemas[-1].columns):
        return _by_number(table, properties, state)
    return _by_name(table, properties, state.schemas[-1])


def _by_name(table: Versioned, properties: Mapping[str, str], wanted: SourceSchema) -> Evolution:
    current = table.history[-1]
    target = _named(current.columns, wanted.columns)
    changes: tuple[Change, ...] = (*schema_changes(current.columns, target), *_allowing(wanted, current))
    # A source that stopped to number its columns may later number them in another way.
    numbers = {name: "{}" for name in (FIELDS, SCHEMAS) if properties.get(name, "{}") != "{}"}
    if not changes:
        return Evolution(history=table.history, properties=numbers)
    taken = {column.name.lower() for schema in table.history for column in schema.columns}
    rereads = any(
        isinstance(change, DropColumn)
        or (isinstance(change, AddColumn) and (change.parent is not None or change.name.lower() in taken))
        for change in changes
    )
    schema = evolve(current, changes, history=table.history)
    return Evolution(steps=(changes,), history=(*table.history, schema), properties=numbers, rereads=rereads)


def _by_number(table: Versioned, properties: Mapping[str, str], state: SourceState) -> Evolution:
    fields = _IDS.decode(properties.get(FIELDS, "{}"))
    schemas = _IDS.decode(properties.get(SCHEMAS, "{}"))
    history = table.history
    # A source that began to number its columns: until now their names, which the files have, told them apart.
    rereads = not fields
    if not fields:
        first = state.schemas[0].columns
        fields = _common(first, _named(history[-1].columns, first))
    steps: list[tuple[Change, ...]] = []
    last = state.schemas[-1]
    for version in state.schemas:
        known = schemas.get(version.schema_id)
        if known is not None and _is_followed(history, known, version, is_last=version is last):
            continue
        current = history[-1]
        if state.in_files is not None:
            retyped = _retyped(_mapped(version.columns, fields), current)
            fields = {theirs: own for theirs, own in fields.items() if own not in retyped}
            rereads = rereads or bool(retyped)
        present = {column.id for column in _walk(current.columns)}
        for column in _walk(version.columns):
            if column.id in fields and fields[column.id] not in present:
                raise InvalidSchema(
                    f"column {column.name!r} was dropped and added again with its old values, which a table cannot "
                    "follow: create the table again"
                    "",
                    column=column.name,
                )
        changes: tuple[Change, ...] = schema_changes(current.columns, _mapped(version.columns, fields))
        changes = (*changes, *_allowing(version, current))
        if changes:
            history = (*history, evolve(current, changes, history=history))
            steps.append(changes)
        fields = {**fields, **_numbers(version.columns, history[-1].columns)}
        schemas = {**schemas, version.schema_id: _id(history)}
    given = {FIELDS: _json(fields), SCHEMAS: _json(schemas)}
    changed = {name: text for name, text in given.items() if properties.get(name) != text}
    return Evolution(steps=tuple(steps), history=history, schema_of=schemas, properties=changed, rereads=rereads)


def _is_followed(history: tuple[Schema, ...], known: int, version: SourceSchema, *, is_last: bool) -> bool:
    """Returns whether the table's schema ``known`` still stands for the source's, and is the current one if that is."""
    if is_last and known != _id(history):
        return False
    schema = next((schema for schema in history if schema.schema_id == known), None)
    return schema is not None and not _allowing(version, schema)


def _allowing(version: SourceSchema, schema: Schema) -> tuple[AllowExtraColumns, ...]:
    """Returns what must change so that files may have the columns that the source's files may have."""
    if version.extra_columns and not schema.extra_columns:
        return (AllowExtraColumns(),)
    if not set(version.ignored_columns) <= set(schema.ignored_columns):
        return (AllowExtraColumns(version.ignored_columns),)
    return ()


def _retyped(wanted: Sequence[Column], current: Schema) -> set[int]:
    """Returns the ids of columns whose types cannot become the wanted ones; with new ids, they are read anew."""
    then = {column.id: column for column in _walk(current.columns)}
    return {column.id for column in _walk(wanted) if column.id in then and not _follows(then[column.id], column)}


def schema_changes(old: Sequence[Column], new: Sequence[Column]) -> tuple[SchemaChange, ...]:
    """Returns the changes that turn ``old`` into ``new``; columns with equal ids are the same, and id 0 is a new one.

    Nullability is ignored: all columns are nullable.

    Raises:
        InvalidSchema: a type that cannot become the other one.
    """
    return tuple(_level(old, new, ()))


def _level(old: Sequence[Column], new: Sequence[Column], above: tuple[str, ...]) -> list[SchemaChange]:
    remaining = {column.id: column for column in new if column.id}
    before = {column.id: column for column in old}
    # Dropped columns are renamed first and dropped last, since a level must not be empty in between.
    going = {c.id: _temporary_name(c.name, old, new) for c in old if c.id not in remaining}
    renames = [(c.name, remaining[c.id].name if c.id in remaining else going[c.id]) for c in old]
    changes = _renamed(renames, above)
    for column in new:
        here = (*above, column.name)
        if column.id not in before:
            changes.append(
                AddColumn(
                    name=column.name,
                    type=column.type,
                    fields=column.fields,
                    default=column.default,
                    parent=above or None,
                )
            )
            continue
        then = before[column.id]
        if then.dtype.is_nested or column.dtype.is_nested:
            if then.dtype.name != column.dtype.name:
                raise InvalidSchema(
                    f"column {'.'.join(here)!r} was {then.type} and is now {column.type}", column=column.name
                )
            changes += _level(then.fields, column.fields, here)
        elif then.dtype != column.dtype:
            if not can_widen(then.dtype, column.dtype):
                raise _cannot_become(here, then, column)
            changes.append(WidenColumn(column=here, type=str(column.dtype)))
        if not _has_same_default(then, column):
            raise InvalidSchema(
                f"column {'.'.join(here)!r} had the default {then.default!r} and now has {column.default!r}: create the"
                " table again",
                column=column.name,
            )
    changes += (DropColumn(column=(*above, name)) for name in going.values())
    return changes + _moves(old, new, above)


def _has_same_default(then: Column, now: Column) -> bool:
    if then.default is None or now.default is None:
        return then.default == now.default
    try:
        return default_value(now.dtype, then.default) == default_value(now.dtype, now.default)
    except InvalidSchema:
        return False


def _temporary_name(name: str, old: Sequence[Column], new: Sequence[Column]) -> str:
    """Returns a name for a column that is about to be dropped: its own, unless another column needs it."""
    wanted = {column.name.lower() for column in new}
    taken = wanted | {column.name.lower() for column in old}
    if name.lower() not in wanted:
        return name
    return next(free for number in range(len(taken) + 1) if (free := f"_gone_{number}_{name}").lower() not in taken)


def _cannot_become(path: tuple[str, ...], then: Column, now: Column) -> InvalidSchema:
    name = ".".join(path)
    return InvalidSchema(f"column {name!r} was {then.type} and is now {now.type}: create the table again", column=name)


def _renamed(names: Sequence[tuple[str, str]], above: tuple[str, ...]) -> list[SchemaChange]:
    """Returns renames in an order in which no name is used twice; a cycle goes through an unused name."""
    waiting = [(was, name) for was, name in names if was != name]
    present = {was.lower() for was, _ in names}
    changes: list[SchemaChange] = []
    while waiting:
        free = next((pair for pair in waiting if pair[1].lower() not in present - {pair[0].lower()}), None)
        was, name = free if free is not None else waiting[0]
        target = name if free is not None else f"_{len(changes)}_{was}"
        changes.append(RenameColumn(column=(*above, was), name=target))
        present = present - {was.lower()} | {target.lower()}
        waiting = [pair for pair in waiting if pair[0] != was]
        if free is None:
            waiting.append((target, name))
    return changes


def _moves(old: Sequence[Column], new: Sequence[Column], above: tuple[str, ...]) -> list[SchemaChange]:
    """Returns moves that bring columns in order, after dropped ones are removed and new ones are at the end."""
    remaining = {column.id for column in new if column.id}
    names = {column.id: column.name for column in new if column.id}
    known = {column.id for column in old}
    order = [names[c.id] for c in old if c.id in remaining] + [c.name for c in new if c.id not in known]
    changes: list[SchemaChange] = []
    for position, column in enumerate(new):
        if order[position] == column.name:
            continue
        order.remove(column.name)
        order.insert(position, column.name)
        after = None if position == 0 else new[position - 1].name
        changes.append(MoveColumn(column=(*above, column.name), first=position == 0, after=after))
    return changes


def _named(current: Sequence[Column], wanted: Sequence[Column]) -> tuple[Column, ...]:
    """Returns the wanted columns with the ids of the table's columns of the same names."""
    by_name = {column.name.lower(): column for column in current}

    def same(column: Column) -> Column:
        then = by_name.get(column.name.lower())
        if then is None or not _follows(then, column):
            return _bare(column)
        return msgspec.structs.replace(column, id=then.id, fields=_named(then.fields, column.fields))

    return tuple(same(column) for column in wanted)


def _follows(then: Column, now: Column) -> bool:
    if then.dtype.is_nested or now.dtype.is_nested:
        if then.dtype.name != now.dtype.name:
            return False
        inside = then.dtype.name in ("list", "map")
        return not inside or all(_follows(*pair) for pair in zip(then.fields, now.fields, strict=True))
    return then.dtype == now.dtype or can_widen(then.dtype, now.dtype)


def _mapped(columns: Sequence[Column], ids: Mapping[int, int]) -> tuple[Column, ...]:
    def same(column: Column) -> Column:
        return (
            _bare(column)
            if column.id not in ids
            else msgspec.structs.replace(column, id=ids[column.id], fields=_mapped(column.fields, ids))
        )

    return tuple(same(column) for column in columns)


def _numbers(theirs: Sequence[Column], ours: Sequence[Column]) -> dict[int, int]:
    """Returns the table's id of each of the source's columns; ``ours`` are the same columns by name."""
    by_name = {column.name: column for column in ours}
    found: dict[int, int] = {}
    for column in theirs:
        own = by_name[column.name]
        found[column.id] = own.id
        found |= _numbers(column.fields, own.fields)
    return found


def _common(theirs: Sequence[Column], ours: Sequence[Column]) -> dict[int, int]:
    """Returns the table's id of those of the source's columns that the table has; ``ours`` are the same columns, with
    the table's ids or 0."""
    found: dict[int, int] = {}
    for column, own in zip(theirs, ours, strict=True):
        if own.id:
            found[column.id] = own.id
            found |= _common(column.fields, own.fields)
    return found


def _walk(columns: Sequence[Column]) -> list[Column]:
    return [each for column in columns for each in (column, *_walk(column.fields))]


def _bare(column: Column) -> Column:
    """Returns the column without ids, and nullable."""
    fields = tuple(_bare(field) for field in column.fields)
    if column.dtype.name == "map" and fields:
        key = msgspec.structs.replace(fields[0], nullable=column.fields[0].nullable)
        fields = (key, *fields[1:])
    return msgspec.structs.replace(column, id=0, nullable=True, fields=fields)


def _id(history: Sequence[Schema]) -> int:
    return history[-1].schema_id


def _json(ids: Mapping[int, int]) -> str:
    return msgspec.json.encode({str(key): ids[key] for key in sorted(ids)}).decode()
