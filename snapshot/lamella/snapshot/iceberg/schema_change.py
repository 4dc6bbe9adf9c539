"""Changes of columns by Lamella's interfaces, as schemas of a table of Iceberg clients.

The ids of new columns are those that the table in Lamella gives them when it follows the new metadata, so both sides
have the same ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import InvalidRequest, InvalidSchema
from lamella.snapshot.iceberg.metadata import NAME_MAPPING
from lamella.snapshot.iceberg.table_metadata import WITH_ROW_IDS, Json, current_schema, ids_of
from lamella.snapshot.iceberg.types import type_name
from lamella.snapshot.schema import Column, DataType
from lamella.snapshot.schema.evolution import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    Versioned,
    WidenColumn,
    evolve,
)
from lamella.snapshot.source.evolution import nullable_columns, schema_changes

_HOSTED: Final = "this is a table of Iceberg clients"
#: Types that come back as what they were: each has one in Iceberg, whose only type here it is.
_EXACT: Final = frozenset(
    {
        *("boolean", "int32", "int64", "float32", "float64", "date", "string", "uuid", "binary", "decimal", "fixed"),
        *("time", "timestamp", "timestamp_ntz"),
    }
)
_NANOSECONDS: Final = {"timestamp": "timestamptz_ns", "timestamp_ntz": "timestamp_ns"}
#: Types that a column may become, besides decimals with more digits.
_WIDENED: Final = {"int": "long", "float": "double"}
#: Names of columns that Iceberg's readers make.
_RESERVED: Final = frozenset(
    {
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
        *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
    }
)


def updates_for(metadata: Json, table: Versioned, changes: Sequence[SchemaChange]) -> list[Json]:
    """Returns the updates of a commit that changes the columns of an Iceberg table.

    ``table``: its snapshot in Lamella, whose columns have the ids that they have in Iceberg.

    Raises:
        InvalidRequest, InvalidSchema: a change that Iceberg could not state, or that would mean something else there.
        UnknownColumn, LimitExceeded: as :func:`lamella.snapshot.schema.evolution.evolve`.
    """
    if metadata["properties"].get(NAME_MAPPING):
        raise InvalidRequest(f"{_HOSTED} with a name mapping, which changes with the columns: use one of them")
    for change in changes:
        _refuse_kind(change)
    current = table.history[-1]
    wanted = evolve(current, changes, history=table.history)
    known = set(_ids(current.columns))
    # As the table is going to see it: its own order of the changes decides about the ids.
    following = schema_changes(current.columns, _unnumbered(wanted.columns, known))
    after = evolve(current, following, history=table.history)
    new_ids = set(_ids(after.columns)) - known
    if any(number <= metadata["last-column-id"] for number in new_ids):
        raise InvalidRequest(f"{_HOSTED} that have used ids of columns which Lamella does not know: use one of them")
    schema = current_schema(metadata)
    _refuse_names(after.columns, current.columns, metadata["partition-specs"])
    gone = known - set(_ids(after.columns))
    for spec in metadata["partition-specs"]:
        for field in spec["fields"]:
            if gone.intersection(field.get("source-ids") or [field["source-id"]]):
                raise InvalidRequest(
                    f"{_HOSTED} with a partition spec that uses the column, current or not: writers need it for the"
                    " manifests of that spec",
                    partition_field=field["name"],
                )
    if gone & set(schema.get("identifier-field-ids") or ()):
        raise InvalidRequest(f"{_HOSTED}, and the column is one of its identifier fields: change these by one of them")
    fields = _Fields(metadata["format-version"], {field["id"]: field for field in _structs(schema["fields"])})
    made = {**schema, "fields": fields.of(after.columns)}
    assert set(ids_of(made)) == set(_ids(after.columns))  # noqa: S101  # ids of parts, too
    return [
        {"action": "add-schema", "schema": made, "last-column-id": max(metadata["last-column-id"], *new_ids, 0)},
        {"action": "set-current-schema", "schema-id": -1},
    ]


def _refuse_kind(change: SchemaChange) -> None:
    if isinstance(change, AddColumn):
        if not change.nullable or change.default is not None:
            raise InvalidRequest(
                f"{_HOSTED}: required columns, and columns with a default, are added by one of them", column=change.name
            )
        if change.doc is not None:
            raise InvalidRequest(f"{_HOSTED}, who write the comments of columns", column=change.name)
    elif not isinstance(change, DropColumn | RenameColumn | WidenColumn | MoveColumn):
        tag = type(change).__struct_config__.tag
        raise InvalidRequest(f"{_HOSTED}: Lamella adds, drops, renames, widens and moves columns there, and no {tag!r}")


def _refuse_names(after: Sequence[Column], before: Sequence[Column], specs: Iterable[Json]) -> None:
    """Raise InvalidSchema for a new name of the top level that means something else to Iceberg's readers."""
    names = {column.id: column.name for column in before}
    fields = [field for spec in specs for field in spec["fields"]]
    for column in after:
        if names.get(column.id) == column.name:
            continue
        if column.name in _RESERVED:
            raise InvalidSchema(f"{column.name!r} is a column that Iceberg's readers make", column=column.name)
        for field in fields:
            is_own = field["transform"] == "identity" and field.get("source-id") == column.id
            if field["name"] == column.name and not is_own:
                raise InvalidSchema(
                    f"{column.name!r} is the name of a partition field of the table", column=column.name
                )


class _Fields:
    """Makes fields. ``known``: those of the current schema by id, whose other members stay as they are."""

    def __init__(self, version: int, known: Mapping[int, Json]) -> None:
        self._version = version
        self._known = known

    def of(self, columns: Iterable[Column]) -> list[Json]:
        """Return the fields of a struct."""
        return [self._field(column) for column in columns]

    def _field(self, column: Column) -> Json:
        before = self._known.get(column.id)
        kind = self._type(column, None if before is None else before["type"])
        if before is None:
            return {"id": column.id, "name": column.name, "required": False, "type": kind}
        return {**before, "name": column.name, "type": kind}

    def _type(self, column: Column, before: Any) -> Any:
        """Return a type; ``before``: the one that it was, None for a new column."""
        dtype = column.dtype
        if dtype.name == "struct":
            return {**(before or {"type": "struct"}), "fields": self.of(column.fields)}
        if dtype.name in ("list", "map"):
            found: Json = dict(before or {"type": dtype.name})
            for part in column.fields:
                is_key = part.name == "key"
                found[part.name] = self._type(part, None if before is None else before[part.name])
                found[f"{part.name}-id"] = part.id
                if not is_key:
                    found.setdefault(f"{part.name}-required", False)
            return found
        made = self._leaf(column)
        if before is None or before.replace(" ", "") == made.replace(" ", ""):
            return made if before is None else before
        decimals = before.startswith("decimal") and made.startswith("decimal")
        if _WIDENED.get(before) != made and not (decimals and _scale(before) == _scale(made)):
            raise InvalidSchema(f"a column of type {before} cannot become {made} in Iceberg", column=column.name)
        return made

    def _leaf(self, column: Column) -> str:
        dtype: DataType = column.dtype
        name = type_name(dtype) if dtype.name in _EXACT else None
        if dtype.name in _NANOSECONDS and dtype.unit == "ns" and self._version >= WITH_ROW_IDS:
            name = _NANOSECONDS[dtype.name]
        if name is None or (dtype.name == "string" and column.type != "string"):
            raise InvalidSchema(
                f"column {column.name!r} of type {column.type} has no exact form in format version {self._version} of"
                " Iceberg",
                column=column.name,
            )
        return name


def _scale(decimal: str) -> int:
    return int(decimal.rpartition(",")[2].rstrip(")"))


def _structs(fields: Iterable[Json]) -> Iterable[Json]:
    """Yields all fields of structs."""
    for field in fields:
        yield field
        yield from _in_type(field["type"])


def _in_type(kind: Any) -> Iterable[Json]:
    if isinstance(kind, dict):
        yield from _structs(kind.get("fields", ()))
        for part in ("element", "key", "value"):
            yield from _in_type(kind.get(part))


def _ids(columns: Iterable[Column]) -> Iterable[int]:
    for column in columns:
        yield column.id
        yield from _ids(column.fields)


def _unnumbered(columns: Iterable[Column], known: set[int]) -> tuple[Column, ...]:
    """Returns the columns without the ids of those that are new."""
    return tuple(
        msgspec.structs.replace(column, fields=_unnumbered(column.fields, known))
        if column.id in known
        else nullable_columns([column])[0]
        for column in columns
    )
