"""A table of Lamella as the first state of a table that Iceberg clients commit to. Needs ``lamella[iceberg]``.

Its files stay where they are. New are manifests that list them, a manifest list and a metadata file, all with the
table's own column ids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from lamella.snapshot.delete_policy import DELETE_MODE
from lamella.snapshot.errors import NotExpressible
from lamella.snapshot.iceberg.export import (
    Exported,
    ListedManifest,
    check_readable,
    entry,
    list_bytes,
    manifests_of,
    next_metadata,
    written_with,
)
from lamella.snapshot.iceberg.metadata import NAME_MAPPING, require_named
from lamella.snapshot.iceberg.table_metadata import Json, required_fields
from lamella.snapshot.iceberg.types import schema_json
from lamella.snapshot.manifest import DELETES, Block, Snapshot
from lamella.snapshot.schema import Column
from lamella.snapshot.schema.evolution import SetNullable
from lamella.snapshot.source import FIELDS, SCHEMAS

_SEQUENCE_NUMBER: Final = 1


class FirstManifests(msgspec.Struct, frozen=True):
    """The manifests of a segment's blocks, and the columns of their partition specs.

    ``has_ids``: all files are known to have the field ids of the table.
    """

    listed: Sequence[ListedManifest]
    partition_columns: Collection[tuple[int, ...]]
    has_ids: bool


def require_convertible(head: Snapshot) -> None:
    """Raise NotExpressible, which names the cause, if Iceberg clients could not read a snapshot, or if their commits
    would not obey what the table guarantees."""
    require_named(head)
    check_readable(head)
    if head.summary.deletes_count:
        raise NotExpressible(
            "the table has deleted rows, for which its Iceberg metadata would need format version 3: rewrite their"
            " blocks first (lamella purge --min-deleted-share 0)",
            features=[DELETES],
        )
    if head.schema.checks:
        name = head.schema.checks[0].name
        raise NotExpressible(f"Iceberg clients would not obey the constraint {name!r}: drop it first", constraint=name)
    unproven = required_fields(_schema(head)).unproven
    if unproven is not None:
        raise NotExpressible(
            f"column {unproven!r} is required, and no statistics would tell whether Iceberg clients write nulls there:"
            " make it nullable first (lamella schema nullable)",
            column=unproven,
        )


def write_manifests(
    head: Snapshot, blocks: Sequence[Block], number: int, put: Callable[[bytes], str], *, own_folder: str
) -> FirstManifests:
    """Write the manifests of a segment's blocks. ``number``: the snapshot's id in Iceberg.

    ``put`` stores a file, and returns its location. ``own_folder``: of blocks that Lamella's writers wrote, which have
    the table's field ids.

    Raises:
        NotExpressible: a constant has no form in Iceberg.
        ManifestError: statistics or a constant do not match a column's type.
    """
    listed, specs = [], set()
    for made in manifests_of(blocks, head.schema, written_with(head), None, {}):
        specs.add(made.partition_columns)
        listed.append(
            ListedManifest(
                location=put(made.data),
                size_bytes=len(made.data),
                added_by=number,
                sequence_number=_SEQUENCE_NUMBER,
                file_count=made.file_count,
                row_count=made.row_count,
                spec_id=made.spec_id,
                partitions=made.partitions,
            )
        )
    return FirstManifests(listed, specs, all(block.location.startswith(f"{own_folder}/") for block in blocks))


def first_metadata(
    head: Snapshot,
    manifests: Iterable[FirstManifests],
    number: int,
    put: Callable[[bytes], str],
    *,
    location: str,
    now_ms: int,
) -> Json:
    """Returns the metadata of a table with one snapshot, whose manifest list is written by ``put``.

    It has the schemas of older files, too, by which they are read if a client brings them back, and a name mapping if
    files may lack field ids.
    """
    manifests = list(manifests)
    listed = [each for found in manifests for each in found.listed]
    manifest_list = put(list_bytes(listed, snapshot=number, parent=None, sequence_number=_SEQUENCE_NUMBER))
    exported = Exported(snapshot=head, number=number, columns="")
    found = next_metadata(
        None,
        None,
        exported,
        entry(exported, manifest_list, listed, sequence_number=_SEQUENCE_NUMBER, parent=None, only_adds=True),
        partition_columns={columns for found in manifests for columns in found.partition_columns},
        location=location,
        alive=(),
        tags={},
        now_ms=now_ms,
    )
    own = {key: text for key, text in head.properties.items() if not key.startswith("lamella.") and key != DELETE_MODE}
    mapping = {} if all(each.has_ids for each in manifests) else {NAME_MAPPING: found["properties"][NAME_MAPPING]}
    properties = {**own, **mapping}
    older = [each for each in found["schemas"] if each["schema-id"] != head.schema.schema_id]
    return {**found, "schemas": [*older, _schema(head)], "properties": properties}


def nullable_columns(head: Snapshot) -> tuple[SetNullable, ...]:
    """Returns the changes that make all columns nullable, which they are in tables of Iceberg clients: what is required
    there is checked by the metadata's schema, which clients change."""
    return tuple(
        SetNullable(column=path, nullable=True) for path, column in _placed(head.schema.columns) if not column.nullable
    )


def _schema(head: Snapshot) -> Json:
    """Returns the table's schema in Iceberg's form, with its required columns."""
    found = schema_json(head.schema)
    return {**found, "fields": _required(found["fields"], head.schema.columns)}


def _required(fields: Iterable[Json], columns: Iterable[Column]) -> list[Json]:
    made = []
    for field, column in zip(fields, columns, strict=True):
        kind = field["type"]
        if column.dtype.name == "struct":
            kind = {**kind, "fields": _required(kind["fields"], column.fields)}
        elif column.dtype.name == "list":
            (element,) = _required([{"type": kind["element"]}], column.fields)
            kind = {**kind, "element": element["type"], "element-required": element["required"]}
        elif column.dtype.name == "map":
            key, value = _required([{"type": kind["key"]}, {"type": kind["value"]}], column.fields)
            kind = {**kind, "key": key["type"], "value": value["type"], "value-required": value["required"]}
        made.append({**field, "type": kind, "required": not column.nullable})
    return made


def column_properties(head: Snapshot) -> dict[str, str]:
    """Returns the properties of the table which say that its columns and schemas have the same ids in Iceberg.

    The current schema is left to be compared, since its types may differ; nobody writes files with older ones.
    """
    fields = {column.id: column.id for schema in head.history for column in _columns(schema.columns)}
    schemas = {schema.schema_id: schema.schema_id for schema in head.history[:-1]}
    return {FIELDS: msgspec.json.encode(fields).decode(), SCHEMAS: msgspec.json.encode(schemas).decode()}


def _placed(columns: Iterable[Column], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Column]]:
    """Yield the columns that could have nulls, with their paths: all but the keys of maps."""
    for column in columns:
        here = (*above, column.name)
        yield here, column
        if column.dtype.name == "map":
            yield from _placed(column.fields[1:], here)
        else:
            yield from _placed(column.fields, here)


def _columns(columns: Iterable[Column]) -> Iterator[Column]:
    for column in columns:
        yield column
        yield from _columns(column.fields)
