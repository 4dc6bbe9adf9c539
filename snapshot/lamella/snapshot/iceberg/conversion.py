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
from lamella.snapshot.iceberg.table_metadata import Json
from lamella.snapshot.iceberg.types import schema_json
from lamella.snapshot.manifest import DELETES, Block, Snapshot
from lamella.snapshot.schema import Column
from lamella.snapshot.source import FIELDS

_SEQUENCE_NUMBER: Final = 1


class FirstManifests(msgspec.Struct, frozen=True):
    """The manifests of a segment's blocks, and the columns of their partition specs."""

    listed: Sequence[ListedManifest]
    partition_columns: Collection[tuple[int, ...]]


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
    for column in _values(head.schema.columns):
        if not column.nullable:
            raise NotExpressible(
                f"column {column.name!r} is required, and Lamella does not write Iceberg tables with required columns:"
                " make it nullable first (lamella schema nullable)",
                column=column.name,
            )


def write_manifests(
    head: Snapshot, blocks: Sequence[Block], number: int, put: Callable[[bytes], str]
) -> FirstManifests:
    """Write the manifests of a segment's blocks. ``number``: the snapshot's id in Iceberg.

    ``put`` stores a file, and returns its location.

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
    return FirstManifests(listed, specs)


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

    Its only schema is the current one: the name mapping has the names in older files.
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
    properties = {**own, NAME_MAPPING: found["properties"][NAME_MAPPING]}
    return {**found, "schemas": [schema_json(head.schema)], "properties": properties}


def column_properties(head: Snapshot) -> dict[str, str]:
    """Returns the property of the table which says that its columns have the same ids in Iceberg.

    Which schema of Iceberg is which of the table is left to be compared, since the types may differ.
    """
    fields = {column.id: column.id for column in _columns(head.schema.columns)}
    return {FIELDS: msgspec.json.encode(fields).decode()}


def _values(columns: Iterable[Column]) -> Iterator[Column]:
    """Yield the columns that could have nulls: all but the keys of maps."""
    for column in columns:
        yield column
        yield from _values(column.fields[1:] if column.dtype.name == "map" else column.fields)


def _columns(columns: Iterable[Column]) -> Iterator[Column]:
    for column in columns:
        yield column
        yield from _columns(column.fields)
