"""A rollback as a value: the snapshot after the current one that has an older one's blocks.

The chain goes on: nothing that came in between leaves the history, least of all its schemas. An older schema comes
back as a new one with the same columns, whose ids go on behind all that were ever given; so a column that is added
later is never taken for one that was there in between.
"""

from __future__ import annotations

import msgspec

from lamella.snapshot.commit.snapshots import iso, schema_ids
from lamella.snapshot.commit.summaries import seen_summary
from lamella.snapshot.manifest import SNAPSHOT_FORMAT, ObjectRef, Snapshot
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import schema_at

OPERATION = "rollback"


def restored_schema(base: Snapshot, target: Snapshot) -> Schema:
    """The schema that ``base`` is followed by when it is rolled back to ``target``, an earlier snapshot of the table.

    Raises:
        InvalidSchema: ``target`` is no earlier snapshot: ``base`` does not know its schema.
    """
    schema_at(base, target.schema.schema_id)
    if target.schema.columns == base.schema.columns:
        return base.schema
    return Schema(
        columns=target.schema.columns,
        schema_id=max(schema.schema_id for schema in base.history) + 1,
        last_column_id=max(schema.last_column_id for schema in base.history),
    )


def rolled_back_snapshot(
    base: Snapshot,
    target: Snapshot,
    *,
    snapshot_id: str,
    now_ms: int,
    prev_manifest: ObjectRef | None = None,
) -> Snapshot:
    """The snapshot after ``base`` with the blocks, columns and cluster key of ``target``, an earlier one.

    Properties are settings of the table and stay those of ``base``. Segments and groups are ``target``'s own, none of
    them written again. Time never runs backwards along the chain, whatever the clock says.

    Raises:
        InvalidSchema: ``target`` is no earlier snapshot of the table.
    """
    schema = restored_schema(base, target)
    schemas = base.schemas if schema is base.schema else base.history
    timestamp_ms = max(now_ms, base.timestamp_ms + 1)
    own = -1 if target.cluster_key_meta is None else target.cluster_key_meta[0]
    last = base.greatest_cluster_key_id
    return msgspec.structs.replace(
        target,
        format_version=SNAPSHOT_FORMAT,
        snapshot_id=snapshot_id,
        timestamp_ms=timestamp_ms,
        timestamp=iso(timestamp_ms),
        prev_snapshot_id=base.snapshot_id,
        prev_manifest=prev_manifest,
        schema=schema,
        schemas=schemas,
        summary=seen_summary(target.schema, schema, target.summary),
        block_schema_ids=msgspec.UNSET if schemas is msgspec.UNSET else schema_ids(target.groups, target.segments),
        operation=OPERATION,
        properties=base.properties,
        # No key that comes later gets the id of one that is taken back: blocks may have been written for that.
        last_cluster_key_id=last if last > own else msgspec.UNSET,
        # What they know of a block is true wherever it comes back.
        indexes=base.indexes,
        companion=None,
    )
