"""A table's history as Iceberg table metadata, of format version 2, or 3 if the table has deletion vectors.

The id of a snapshot is its number in the table's history, which is also its sequence number. Branches repeat these
numbers, so a snapshot of a branch has 62 bits of its own id, which are random, above all numbers: no id ever stands for
two snapshots. The manifest lists named in the metadata do not exist: clients that plan without the service use an
export instead.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import NotExpressible
from lamella.snapshot.iceberg.partitions import columns_in, is_text_in_json, specs_json
from lamella.snapshot.iceberg.types import name_mapping, schema_json
from lamella.snapshot.manifest import CONSTANTS, DELETES, Snapshot
from lamella.snapshot.parquet.iceberg_readers import reads_as
from lamella.snapshot.schema import Schema

MAIN: Final = "main"
NAME_MAPPING: Final = "schema.name-mapping.default"
#: The member of a snapshot's summary in an export that is its Lamella id.
SNAPSHOT: Final = "lamella.snapshot-id"
_NO_BRANCHES: Final[Mapping[str, int]] = {}
_NO_HEADS: Final[Mapping[int, Snapshot]] = {}
_ORDER: Final = {"order-id": 0, "fields": []}
_DELETES: Final = frozenset({"delete", "remove"})
#: The ids of snapshots of branches begin here.
FIRST_OF_BRANCHES: Final = 1 << 62
_RANDOM: Final = FIRST_OF_BRANCHES - 1
_VARIANT: Final = 1 << 63


def branch_snapshot_id(snapshot_id: str) -> int:
    """Returns the Iceberg id of a snapshot of a branch."""
    return FIRST_OF_BRANCHES | uuid.UUID(snapshot_id).int & _RANDOM


def ending_of(number: int) -> str:
    """Returns how the id of the snapshot with such an Iceberg id ends: all but its time, and bits that all ids have."""
    digits = f"{_VARIANT | number & _RANDOM:016x}"
    return f"{digits[:4]}-{digits[4:]}"


class PastSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot's entry in the metadata. ``number``: its id. ``parent``: that of the previous one, None if it is not
    there. ``sequence``: its number in the history of the table or branch."""

    number: int
    parent: int | None
    sequence: int
    timestamp_ms: int
    operation: str
    row_count: int
    block_count: int
    file_size_bytes: int
    schema_id: int


def readable_schemas(head: Snapshot) -> dict[int, Schema] | None:
    """Returns the schemas that snapshots of the table can be read with, by id; None if only the current snapshot can be
    read.

    This is the case if files of earlier snapshots may call two columns by one name. Schemas without an Iceberg form are
    left out.

    Raises:
        NotExpressible: the current snapshot cannot be read.
    """
    schema_json(head.schema)
    require_named(head)
    in_use = [schema for schema in head.history if schema.schema_id in head.schema_ids_in_use]
    require_types(head.schema, in_use)
    try:
        mapping_of(head.schema, head.history)
    except NotExpressible:
        mapping_of(head.schema, in_use)
        return None
    found = {head.schema.schema_id: head.schema}
    for at, schema in enumerate(head.history[:-1]):
        try:
            schema_json(schema)
            require_types(schema, head.history[:at])
        except NotExpressible:
            continue
        found[schema.schema_id] = schema
    return found


def constant_columns(head: Snapshot) -> frozenset[tuple[int, ...]]:
    """Returns the columns of the partition specs that the snapshot's blocks with constants have.

    Raises:
        NotExpressible: they are not known.
    """
    known = head.summary.constant_columns
    if head.summary.constants_count and not known:
        raise NotExpressible(
            "the table has constants in too many different sets of columns, or an earlier release wrote it: compact it",
            features=[CONSTANTS],
        )
    return frozenset(columns_in(head.schema, columns) for columns in known)


def is_pyiceberg(user_agent: str) -> bool:
    """Return whether a client names itself as pyiceberg does."""
    return user_agent.startswith("PyIceberg/")


def described_constants(head: Snapshot, others: Iterable[Snapshot]) -> frozenset[tuple[int, ...]]:
    """Returns the columns of the partition specs in the metadata of a table: those of its current snapshot, and of the
    current ones of its branches, as far as they are known.

    Raises NotExpressible as :func:`constant_columns`, of the first.
    """
    found = constant_columns(head)
    for each in others:
        with suppress(NotExpressible):  # an error of those who read that branch
            found |= {columns_in(head.schema, columns) for columns in constant_columns(each)}
    return found


def require_client(head: Snapshot, user_agent: str) -> None:
    """Raise NotExpressible if a client does not read the constants or the deletion vectors of the snapshot as what they
    are.

    Of a file of deletion vectors, pyiceberg (0.12) applies all, to the data files that the file's own footer names.
    """
    if not is_pyiceberg(user_agent):
        return
    if head.summary.deletes_count:
        raise NotExpressible(
            "pyiceberg would apply deletion vectors that are not in the plan: read an export of the table",
            features=[DELETES],
        )
    require_known_constants(head)


def require_known_constants(head: Snapshot) -> None:
    """Raise NotExpressible if pyiceberg does not read the constants of the snapshot as what they are.

    pyiceberg (0.12) keeps values of partitions in plans as JSON has them. A date stays text, which equals no date.
    """
    leaves = head.schema.by_id()
    columns = sorted({column for columns in constant_columns(head) for column in columns})
    name = next((leaves[column].name for column in columns if is_text_in_json(leaves[column].dtype)), None)
    if name is not None:
        raise read_as_text(name)


def read_as_text(column: str) -> NotExpressible:
    """Returns the error of :func:`require_known_constants`."""
    return NotExpressible(
        f"pyiceberg would read the values of folders in column {column!r} as text: read an export of the table",
        column=column,
    )


def require_named(head: Snapshot) -> None:
    """Raise NotExpressible unless the files are known to have the table's names and field ids, and their deleted rows
    are counted."""
    require_counted_deletes(head)
    constant_columns(head)
    count = head.summary.block_count - head.summary.by_name_count
    if count:
        raise NotExpressible(
            f"{count} files of the table spell a column name in a different case, have other column ids or types than "
            "the table, or were added without checking this, so readers that match columns by "
            "name may not find the values: rewrite them (compact)",
            files=count,
        )


def require_counted_deletes(head: Snapshot) -> None:
    """Raise NotExpressible if a block has deleted rows in several vectors, or an unknown number of them.

    A file may have one vector in Iceberg, whose entry states the number of rows; readers compare it with the vector.
    """
    if head.summary.deleted_row_count is None:
        raise NotExpressible(
            "the table has blocks with several deletion vectors, or with an unknown number of deleted rows: rewrite"
            " them (lamella purge --min-deleted-share 0)",
            features=[DELETES],
        )


def require_types(schema: Schema, written: Iterable[Schema]) -> None:
    """Raise NotExpressible if Iceberg's readers do not accept written values as values of ``schema``."""
    now = schema.by_id()
    for each in written:
        for leaf in each.leaves():
            wanted = now.get(leaf.id)
            if wanted is not None and not reads_as(leaf.dtype, wanted.dtype):
                raise NotExpressible(
                    f"column {wanted.name!r} was {leaf.dtype} and is {wanted.dtype}: Iceberg readers cannot read the "
                    "older files as this type. Rewrite them (compact)"
                    "",
                    column=wanted.name,
                )


def mapping_of(schema: Schema, others: Iterable[Schema]) -> list[dict[str, Any]]:
    """Returns the name mapping for files that were written with any of these schemas, of all columns of any of them."""
    every = [schema, *others]
    found: dict[int, dict[str, Any]] = {}
    covered: set[int] = set()
    for each in every:
        if each.paths().keys() <= covered:
            continue
        covered |= each.paths().keys()
        for entry in name_mapping(each, every):
            known = found.get(entry["field-id"])
            found[entry["field-id"]] = entry if known is None else _merged(known, entry)
    return list(found.values())


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Returns one entry with the fields of both."""
    below: dict[int, dict[str, Any]] = {}
    for entry in (*one.get("fields", ()), *other.get("fields", ())):
        known = below.get(entry["field-id"])
        below[entry["field-id"]] = entry if known is None else _merged(known, entry)
    return {**one, "fields": list(below.values())} if below else one


def table_metadata(
    head: Snapshot,
    past: Sequence[PastSnapshot],
    tags: Mapping[str, int],
    *,
    current: int,
    location: str,
    only_refs: bool = False,
    branches: Mapping[str, int] = _NO_BRANCHES,
    heads: Mapping[int, Snapshot] = _NO_HEADS,
) -> dict[str, Any]:
    """Returns the metadata of a table whose current snapshot is ``head``, with the number ``current``.

    ``past``: snapshots by time, the current one last, then those of branches; those that cannot be read as Iceberg are
    left out. ``tags``: the numbers of tagged snapshots. ``only_refs``: only snapshots that a ref names. ``branches``:
    the numbers of the current snapshots of other branches, which are ``heads``.

    Raises:
        NotExpressible: the current snapshot cannot be read as Iceberg.
    """
    schemas = readable_schemas(head)
    if schemas is None:
        mapping = mapping_of(head.schema, [each for each in head.history if each.schema_id in head.schema_ids_in_use])
        shown = [each for each in past if each.number == current]
        schemas = {head.schema.schema_id: head.schema}
    else:
        mapping = mapping_of(head.schema, head.history)
        shown = [each for each in past if each.schema_id in schemas]
    numbers = {each.number for each in shown}
    refs = {MAIN: {"snapshot-id": current, "type": "branch"}}
    for named, kind in ((tags, "tag"), (branches, "branch")):
        for name, number in sorted(named.items()):
            if number in numbers and name != MAIN:
                refs[name] = {"snapshot-id": number, "type": kind}
    in_refs = {ref["snapshot-id"] for ref in refs.values()}
    listed = [each for each in shown if not only_refs or each.number in in_refs]
    used = {each.schema_id for each in listed} | {head.schema.schema_id}
    of_main = [each for each in shown if each.number < FIRST_OF_BRANCHES]
    log = [{"snapshot-id": each.number, "timestamp-ms": each.timestamp_ms} for each in of_main]
    described = {**heads, current: head}
    return {
        **_format_version(described.values()),
        "table-uuid": head.table_id,
        "location": location,
        "last-sequence-number": max([current, *(each.sequence for each in listed)]),
        "last-updated-ms": head.timestamp_ms,
        "last-column-id": max(schema.last_column_id for schema in head.history),
        "schemas": [schema_json(schema) for schema_id, schema in schemas.items() if schema_id in used],
        "current-schema-id": head.schema.schema_id,
        **specs_json(head.schema, described_constants(head, heads.values())),
        "sort-orders": [_ORDER],
        "default-sort-order-id": 0,
        "properties": {**head.properties, NAME_MAPPING: msgspec.json.encode(mapping).decode()},
        "current-snapshot-id": current,
        "refs": refs,
        "snapshots": [_snapshot(each, numbers, location, described.get(each.number)) for each in listed],
        "snapshot-log": log,
        "metadata-log": [],
    }


def _format_version(heads: Iterable[Snapshot]) -> dict[str, int]:
    """Returns the version of the metadata, 3 for deletion vectors, with what that version needs. Rows have no ids, as
    those of a table that was of an earlier version before."""
    has_deletes = any(head.summary.deletes_count for head in heads)
    return {"format-version": 3, "next-row-id": 0} if has_deletes else {"format-version": 2}


def _deletes(head: Snapshot) -> dict[str, str]:
    """Returns a snapshot's totals of deleted rows; each vector counts as a file."""
    summary = head.summary
    return {
        "total-delete-files": str(summary.deletes_count),
        "total-position-deletes": str(summary.deleted_row_count),
        "total-equality-deletes": "0",
    }


def _snapshot(each: PastSnapshot, numbers: set[int], location: str, head: Snapshot | None) -> dict[str, Any]:
    """Returns a snapshot's entry. ``head``: the snapshot, if its deleted rows are known."""
    found = {
        "snapshot-id": each.number,
        "sequence-number": each.sequence,
        "timestamp-ms": each.timestamp_ms,
        "manifest-list": f"{location}/planned-by-the-service/{each.number}",
        "summary": {
            "operation": _operation(each.operation),
            "lamella.operation": each.operation,
            "total-records": str(each.row_count),
            "total-data-files": str(each.block_count),
            "total-files-size": str(each.file_size_bytes),
            **({} if head is None else _deletes(head)),
        },
        "schema-id": each.schema_id,
    }
    if each.parent in numbers:
        found["parent-snapshot-id"] = each.parent
    return found


def _operation(word: str) -> str:
    """Returns one of Iceberg's four operations. Operations of the history are free text, so nothing may depend on the
    result."""
    if word in ("append", "create"):
        return "append"
    return "delete" if word in _DELETES else "overwrite"
