"""The metadata file of a table that is exported as Iceberg: each export's is made of the one before it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import NotExpressible
from lamella.snapshot.iceberg.metadata import MAIN, NAME_MAPPING, mapping_of, require_types
from lamella.snapshot.iceberg.types import schema_json
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.schema import Schema

#: In the summary of each snapshot: which one it is here, the schemas of its files, of which columns it has statistics.
SNAPSHOT: Final = "lamella.snapshot-id"
SCHEMAS: Final = "lamella.schema-ids"
COLUMNS: Final = "lamella.statistics"
#: Metadata files before the current one that are kept.
KEPT_VERSIONS: Final = 100
#: What may differ between two metadata files that say the same of the table.
_OF_THE_FILE: Final = ("last-updated-ms", "metadata-log")


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot as it is to be exported. ``number``: its id in Iceberg, which is its number in the table's history.

    ``columns``: of which statistics are given, as :data:`COLUMNS` says it.
    """

    snapshot: Snapshot
    number: int
    columns: str


def check_readable(snapshot: Snapshot) -> None:
    """Raise NotExpressible when Iceberg's readers cannot read the snapshot's columns, or blocks of older schemas."""
    schema_json(snapshot.schema)
    require_types(snapshot.schema, written_with(snapshot))
    mapping_of(snapshot.schema, written_with(snapshot))


def written_with(snapshot: Snapshot) -> tuple[Schema, ...]:
    """The schemas that a snapshot's blocks were written with, the newest first."""
    used = set(snapshot.schema_ids_in_use)
    return tuple(schema for schema in reversed(snapshot.history) if schema.schema_id in used)


def is_exported(previous: Mapping[str, Any] | None, exported: Exported) -> bool:
    """Whether a metadata file has the snapshot, with such statistics."""
    found = _entry(previous, exported.number)
    said = None if found is None else (_lamella_id(found), found["summary"].get(COLUMNS))
    return said == (exported.snapshot.snapshot_id, exported.columns)


def current_list(previous: Mapping[str, Any] | None) -> str | None:
    """Where the manifest list of a metadata file's current snapshot is; None: there is none."""
    found = None if previous is None else _entry(previous, previous["current-snapshot-id"])
    return None if found is None else str(found["manifest-list"])


def next_sequence(previous: Mapping[str, Any] | None) -> int:
    """The sequence number of a snapshot that is added."""
    return 1 if previous is None else int(previous["last-sequence-number"]) + 1


def parent_of(previous: Mapping[str, Any] | None, *, only_adds: bool) -> int | None:
    """The parent of a snapshot that is added.

    Only one that adds to the current snapshot has a parent: readers of what came and went between two snapshots look
    for files that are marked as deleted, which no segment's manifest has. Without a parent they refuse.
    """
    if previous is None or not only_adds:
        return None
    return None if current_list(previous) is None else int(previous["current-snapshot-id"])


def entry(
    exported: Exported, manifest_list: str, *, sequence_number: int, parent: int | None, only_adds: bool
) -> dict[str, Any]:
    """A snapshot's entry in a metadata file. ``only_adds``: every file of the current one is in it too."""
    snapshot, total = exported.snapshot, exported.snapshot.summary
    found: dict[str, Any] = {
        "snapshot-id": exported.number,
        "sequence-number": sequence_number,
        "timestamp-ms": snapshot.timestamp_ms,
        "manifest-list": manifest_list,
        "schema-id": snapshot.schema.schema_id,
        "summary": {
            "operation": "append" if only_adds else "overwrite",
            "total-records": str(total.row_count),
            "total-data-files": str(total.block_count),
            "total-files-size": str(total.compressed_byte_size),
            "total-delete-files": "0",
            SNAPSHOT: snapshot.snapshot_id,
            SCHEMAS: ",".join(map(str, snapshot.schema_ids_in_use)),
            COLUMNS: exported.columns,
        },
    }
    return found if parent is None else found | {"parent-snapshot-id": parent}


def next_metadata(
    previous: Mapping[str, Any] | None,
    previous_location: str | None,
    exported: Exported,
    added: Mapping[str, Any] | None,
    *,
    location: str,
    alive: Collection[str],
    tags: Mapping[str, str],
    now_ms: int,
) -> dict[str, Any]:
    """The metadata file that follows ``previous``, with the exported snapshot as the current one.

    ``added``: its entry; None: ``previous`` has it. ``alive``: ids of the snapshots of the table's history; what is not
    among them has left it, and its files may be gone. ``tags``: snapshot ids by tag.

    Raises:
        NotExpressible: see :func:`check_readable`.
    """
    snapshot, number = exported.snapshot, exported.number
    own = added if added is not None else _entry(previous, number)
    if own is None:
        raise ValueError("an entry is needed for a snapshot that was not exported before")
    kept = [each for each in _entries(previous) if each["snapshot-id"] != number and _lamella_id(each) in alive]
    mapping, kept = _mapping(snapshot, kept)
    schemas = {each["schema-id"]: each for each in ([] if previous is None else previous["schemas"])}
    entries = sorted([*kept, own], key=lambda each: int(each["sequence-number"]))
    in_use = {each["schema-id"] for each in entries}
    # Those of older files are there for readers who look for the names in a file among them, as Lamella does.
    for schema in (*written_with(snapshot), snapshot.schema):
        with suppress(NotExpressible):  # an older one may have a column that is gone
            schemas[schema.schema_id] = schema_json(schema)
            in_use.add(schema.schema_id)
    of = {_lamella_id(each): each["snapshot-id"] for each in entries}
    logged = sorted((each["timestamp-ms"], each["snapshot-id"]) for each in kept)
    before = [(at, each) for at, each in logged if at <= own["timestamp-ms"]]
    found: dict[str, Any] = {
        "format-version": 2,
        "table-uuid": snapshot.table_id,
        "location": location,
        "last-sequence-number": max(
            int(own["sequence-number"]), 0 if previous is None else int(previous["last-sequence-number"])
        ),
        "last-updated-ms": max(
            now_ms, own["timestamp-ms"], 0 if previous is None else int(previous["last-updated-ms"])
        ),
        "last-column-id": max(
            snapshot.schema.last_column_id, 0 if previous is None else int(previous["last-column-id"])
        ),
        "current-schema-id": snapshot.schema.schema_id,
        "schemas": [schemas[key] for key in sorted(in_use)],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        # The files are the table's own: no clean-up of Iceberg's may delete one.
        "properties": {NAME_MAPPING: json.dumps(mapping), "gc.enabled": "false"},
        "current-snapshot-id": number,
        "snapshots": entries,
        "snapshot-log": [
            {"timestamp-ms": at, "snapshot-id": each} for at, each in [*before, (own["timestamp-ms"], number)]
        ],
        "metadata-log": _log(previous, previous_location),
        "refs": {
            **{
                name: {"snapshot-id": of[snapshot_id], "type": "tag"}
                for name, snapshot_id in sorted(tags.items())
                if name != MAIN and snapshot_id in of
            },
            MAIN: {"snapshot-id": number, "type": "branch"},
        },
    }
    return found


def says_the_same(one: Mapping[str, Any] | None, other: Mapping[str, Any]) -> bool:
    """Whether two metadata files differ in nothing that a reader of the table sees."""
    return one is not None and all(one.get(key) == other.get(key) for key in {*one, *other} if key not in _OF_THE_FILE)


def _mapping(
    snapshot: Snapshot, kept: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[Mapping[str, Any]]]:
    """The name mapping of a snapshot and, if one is right for all, of the others; else the others go."""
    by_id = {str(schema.schema_id): schema for schema in snapshot.history}
    ids = {one for each in kept for one in str(each["summary"].get(SCHEMAS, "")).split(",") if one}
    ids |= {str(each["schema-id"]) for each in kept}
    own = written_with(snapshot)
    if ids <= set(by_id):
        others = [by_id[one] for one in sorted(ids, key=int, reverse=True)]
        try:
            return mapping_of(snapshot.schema, [*own, *others]), list(kept)
        except NotExpressible:
            pass  # a name that stood for another column then
    return mapping_of(snapshot.schema, own), []


def _log(previous: Mapping[str, Any] | None, location: str | None) -> list[dict[str, Any]]:
    if previous is None or location is None:
        return []
    log = [*previous.get("metadata-log", ()), {"timestamp-ms": previous["last-updated-ms"], "metadata-file": location}]
    return log[-KEPT_VERSIONS:]


def _entries(previous: Mapping[str, Any] | None) -> Iterable[Mapping[str, Any]]:
    return () if previous is None else previous.get("snapshots", ())


def _entry(previous: Mapping[str, Any] | None, number: int | None) -> Mapping[str, Any] | None:
    return next((each for each in _entries(previous) if each["snapshot-id"] == number), None)


def _lamella_id(each: Mapping[str, Any]) -> str | None:
    found = each.get("summary", {}).get(SNAPSHOT)
    return None if found is None else str(found)
