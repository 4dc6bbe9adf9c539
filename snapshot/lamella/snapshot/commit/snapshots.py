"""Builds the next snapshot after a change or a rollback, and the summaries of its layers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from lamella.snapshot.cluster.extent import BlockTarget
from lamella.snapshot.cluster.key import key_texts, renamed_key
from lamella.snapshot.commit.constraints import require_checks, require_no_nulls
from lamella.snapshot.errors import LimitExceeded, SchemaConflict
from lamella.snapshot.index.definition import redefined
from lamella.snapshot.manifest import (
    FORMAT_VERSION,
    Block,
    ClusterKind,
    GroupRef,
    ObjectRef,
    RowChange,
    SegmentRef,
    Snapshot,
    Summary,
    TableIndex,
    few_constant_columns,
    merge_constant_columns,
)
from lamella.snapshot.manifest.block_arrays import BlockSequence
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import (
    AllowExtraColumns,
    ReplaceColumns,
    SchemaChange,
    Versioned,
    evolve,
    schema_at,
)
from lamella.snapshot.source import restored_properties
from lamella.snapshot.stats.column import (
    MAX_INT64,
    ColumnStats,
    merge_column,
    merge_columns,
    seen_with,
    with_deleted_rows,
)
from lamella.snapshot.stats.column_arrays import ColumnArrays, total
from lamella.snapshot.wire.commit import SchemaUpdate

_TARGET: Final = BlockTarget()

_Ref = TypeVar("_Ref", SegmentRef, GroupRef)


def is_perfect(block: Block) -> bool:
    """Returns whether compaction would leave the block alone, with the default target sizes of jobs."""
    return _TARGET.is_perfect_block(block.row_count, block.file_size)


def seen_blocks(table: Versioned, blocks: Sequence[Block]) -> list[Block]:
    """Returns the blocks with their statistics in terms of the current schema; raises InvalidSchema for an unknown
    one."""
    current = table.history[-1]
    return [
        block
        if block.written_with == current.schema_id
        else msgspec.structs.replace(
            block,
            col_stats=dict(seen_with(schema_at(table, block.written_with), current, block.row_count, block.col_stats)),
        )
        for block in blocks
    ]


def seen_refs(table: Versioned, refs: Sequence[_Ref]) -> list[_Ref]:
    """Returns segments or groups with their summaries in terms of the current schema; raises InvalidSchema for an
    unknown one."""
    current = table.history[-1]
    return [
        ref
        if ref.schema_id == current.schema_id
        else msgspec.structs.replace(ref, summary=seen_summary(schema_at(table, ref.schema_id), current, ref.summary))
        for ref in refs
    ]


def seen_summary(written: Schema, wanted: Schema, summary: Summary) -> Summary:
    """Returns a summary in terms of a later schema than its own."""
    stats = dict(seen_with(written, wanted, summary.row_count, summary.col_stats))
    if summary.deletes_count:  # a default is no value of a row if all rows may be deleted
        before = written.by_id()
        live_row_count = summary.live_row_count
        stats = {
            column_id: each if column_id in before else with_deleted_rows(each, live_row_count)
            for column_id, each in stats.items()
        }
    return msgspec.structs.replace(summary, col_stats=stats)


def summarize_blocks(schema: Schema, blocks: Sequence[Block]) -> Summary:
    """Returns the summary of a segment, from blocks whose statistics are in terms of ``schema``; raises LimitExceeded
    as :func:`summarize`."""
    types = {leaf.id: leaf.dtype for leaf in schema.leaves_with_statistics()}
    return Summary(
        row_count=_counted("rows", sum(b.row_count for b in blocks)),
        block_count=len(blocks),
        perfect_block_count=sum(is_perfect(b) for b in blocks),
        uncompressed_byte_size=_size(b.block_size for b in blocks),
        compressed_byte_size=_counted("bytes", sum(b.file_size for b in blocks)),
        index_size=_size(b.bloom_filter_index_size for b in blocks),
        col_stats=merge_columns(types, ((b.row_count, b.live_stats) for b in blocks)),
        by_name_count=sum(b.by_name for b in blocks),
        constants_count=sum(bool(b.constants) for b in blocks),
        deletes_count=sum(bool(b.deletes) for b in blocks),
        deleted_row_count=_deleted((b.row_count, b.live_row_count) for b in blocks),
        constant_columns=few_constant_columns({tuple(sorted(b.constants)) for b in blocks if b.constants}),
    )


def summarize_block_arrays(schema: Schema, blocks: BlockSequence) -> Summary:
    """Returns the summary of a segment as :func:`summarize_blocks`, of a compact sequence of plain blocks."""
    rows, sizes = blocks.row_counts, blocks.file_sizes
    merged: dict[int, ColumnStats] = {}
    for leaf in schema.leaves_with_statistics():
        of_leaf = blocks.column(leaf.id)
        if isinstance(of_leaf, ColumnArrays):
            merged[leaf.id] = of_leaf.merged()
        else:
            merged[leaf.id] = merge_column(leaf.dtype, rows, of_leaf)
    return Summary(
        row_count=_counted("rows", sum(rows)),
        block_count=len(blocks),
        perfect_block_count=sum(map(_TARGET.is_perfect_block, rows, sizes)),
        uncompressed_byte_size=_size(total(part.block_sizes) for part in blocks.parts),
        compressed_byte_size=_counted("bytes", sum(sizes)),
        index_size=_size(part.bloom_bytes() for part in blocks.parts),
        col_stats=merged,
        by_name_count=sum(part.by_name_count() for part in blocks.parts),
    )


def summarize(schema: Schema, parts: Sequence[Summary]) -> Summary:
    """Merges summaries in terms of ``schema``; bounds become narrower again after a removal.

    Raises:
        LimitExceeded: the rows, or the bytes of the files, are more than 64 bits can count.
    """
    types = {leaf.id: leaf.dtype for leaf in schema.leaves_with_statistics()}
    return Summary(
        row_count=_counted("rows", sum(p.row_count for p in parts)),
        block_count=sum(p.block_count for p in parts),
        perfect_block_count=sum(p.perfect_block_count for p in parts),
        uncompressed_byte_size=_size(p.uncompressed_byte_size for p in parts),
        compressed_byte_size=_counted("bytes", sum(p.compressed_byte_size for p in parts)),
        index_size=_size(p.index_size for p in parts),
        col_stats=merge_columns(types, ((p.row_count, p.col_stats) for p in parts)),
        by_name_count=sum(p.by_name_count for p in parts),
        constants_count=sum(p.constants_count for p in parts),
        deletes_count=sum(p.deletes_count for p in parts),
        deleted_row_count=_deleted((p.row_count, p.live_row_count) for p in parts),
        constant_columns=merge_constant_columns(parts),
    )


def _deleted(counts: Iterable[tuple[int, int | None]]) -> int | None:
    """Returns the number of deleted rows, None if one is unknown; ``counts``: rows, and those of them that are left."""
    total = 0
    for row_count, live in counts:
        if live is None:
            return None
        total += row_count - live
    return total


def _size(sizes: Iterable[int]) -> int:
    """Returns the sum, cut to 64 bits, of sizes that are only informative: a writer or a footer may claim any."""
    return min(sum(sizes), MAX_INT64)


def _counted(unit: str, total: int) -> int:
    if total > MAX_INT64:
        text = f"the table's blocks would have {total} {unit} together; the limit is {MAX_INT64}"
        raise LimitExceeded(text, limit=f"table_{unit}", maximum=MAX_INT64)
    return total


#: The operation of a snapshot that changes the cluster key.
CLUSTER: Final = "cluster"


def empty_snapshot(
    *,
    snapshot_id: str,
    table_id: str,
    schema: Schema,
    cluster_key: Sequence[str],
    cluster_kind: ClusterKind = "linear",
    properties: Mapping[str, str],
    now_ms: int,
) -> Snapshot:
    """The first snapshot of a table."""
    return Snapshot(
        format_version=FORMAT_VERSION,
        snapshot_id=snapshot_id,
        table_id=table_id,
        timestamp_ms=now_ms,
        timestamp=iso(now_ms),
        prev_snapshot_id=None,
        schema=schema,
        summary=Summary(),
        segments=(),
        cluster_key_meta=(0, tuple(cluster_key)) if cluster_key else None,
        cluster_kind=_recorded(cluster_kind),
        operation="create",
        properties=dict(properties),
        row_changes=(),
    )


def next_snapshot(
    base: Snapshot,
    *,
    snapshot_id: str,
    groups: Sequence[GroupRef],
    segments: Sequence[SegmentRef],
    appended: Sequence[SegmentRef] | None,
    operation: str,
    row_changes: Sequence[RowChange],
    properties: Mapping[str, str],
    removed_properties: Collection[str] = (),
    prev_manifest: ObjectRef | None = None,
    now_ms: int,
) -> Snapshot:
    """Returns the snapshot after ``base`` that consists of ``groups`` and ``segments``.

    ``appended``: the segments added to the blocks of ``base`` if nothing was removed, however segments were merged at
    the same time; the bounds of a summary merge like those of children, so an append need not read the existing ones.
    None: something was removed, and the summary is recomputed from all of them. ``properties`` are merged into the old
    ones, without ``removed_properties``.

    Timestamps never decrease along the chain, whatever the clock says.
    """
    looked_at: list[Summary] = [] if appended is None else [base.summary]
    if appended is None:
        looked_at += (ref.summary for ref in seen_refs(base, groups))
    looked_at += (ref.summary for ref in seen_refs(base, segments if appended is None else appended))
    return _following(
        base,
        snapshot_id=snapshot_id,
        now_ms=now_ms,
        summary=summarize(base.schema, looked_at),
        segments=tuple(segments),
        groups=tuple(groups),
        block_schema_ids=schema_ids(groups, segments) if len(base.history) > 1 else msgspec.UNSET,
        operation=operation,
        row_changes=tuple(sorted(set(row_changes))),
        properties={
            **{name: text for name, text in base.properties.items() if name not in removed_properties},
            **properties,
        },
        prev_manifest=prev_manifest,
    )


def evolved_snapshot(
    base: Snapshot,
    changes: Sequence[SchemaChange | ReplaceColumns | AllowExtraColumns],
    *,
    snapshot_id: str,
    now_ms: int,
    base_schema_id: int | None,
    prev_manifest: ObjectRef | None = None,
) -> Snapshot:
    """Returns ``base`` with a changed schema and the same segments, none of which is rewritten.

    Raises:
        SchemaConflict: ``base_schema_id`` is given and differs from the schema id of ``base``.
        UnknownColumn, InvalidSchema, InvalidRequest: invalid changes; see
            :func:`lamella.snapshot.schema.evolution.evolve`.
        NotProven: a column becomes required, and rows may be null in it.
        InvalidFilter, FilterTypeMismatch, FilterNotEvaluable: the condition of a new constraint cannot be decided for
            each row.
    """
    if base_schema_id is not None and base_schema_id != base.schema.schema_id:
        raise SchemaConflict(
            f"the table has schema {base.schema.schema_id} now, not {base_schema_id}",
            schema_id=base.schema.schema_id,
            snapshot_id=base.snapshot_id,
        )
    schema = evolve(base.schema, changes, history=base.history)
    if not any(isinstance(change, ReplaceColumns) for change in changes):  # otherwise no row stays
        require_no_nulls(base, schema)
    require_checks(base.schema, schema)
    key = base.cluster_key_meta
    following = _following(
        base,
        snapshot_id=snapshot_id,
        now_ms=now_ms,
        schema=schema,
        schemas=base.history,
        summary=seen_summary(base.schema, schema, base.summary),
        block_schema_ids=schema_ids(base.groups, base.segments),
        cluster_key_meta=key and (key[0], renamed_key(base.schema, schema, key[1])),
        operation="schema",
        prev_manifest=prev_manifest,
    )
    indexes = tuple(redefined(index, following) for index in following.skip_indexes)
    return msgspec.structs.replace(following, indexes=indexes or msgspec.UNSET)


def seen_with_changes(base: Snapshot, changes: Sequence[SchemaChange | AllowExtraColumns]) -> Snapshot:
    """Returns a snapshot as it would be with a changed schema. It is no other snapshot: it keeps its id and its
    predecessor.

    Raises:
        UnknownColumn, InvalidSchema, InvalidRequest: invalid changes.
    """
    return _same_snapshot(base, evolved_snapshot(base, changes, **_nowhere(base), base_schema_id=None))


def seen_with_columns_of(base: Snapshot, other: Snapshot) -> Snapshot:
    """Returns a snapshot of a branch as it would be with the columns and the cluster key of another one, as
    :func:`seen_with_changes`.

    Raises:
        SchemaConflict: the columns of ``other`` do not continue those of ``base``.
    """
    if other.history[: len(base.history)] != base.history:
        raise SchemaConflict(
            "the columns of the branch are not those that the table has or had",
            schema_id=other.schema.schema_id,
            snapshot_id=base.snapshot_id,
        )
    seen = msgspec.structs.replace(
        base,
        schema=other.schema,
        schemas=other.schemas,
        summary=seen_summary(base.schema, other.schema, base.summary),
        block_schema_ids=msgspec.UNSET if len(other.history) == 1 else schema_ids(base.groups, base.segments),
        cluster_key_meta=other.cluster_key_meta,
        cluster_kind=other.cluster_kind,
        last_cluster_key_id=other.last_cluster_key_id,
    )
    indexes = tuple(redefined(index, seen) for index in seen.skip_indexes)
    return msgspec.structs.replace(seen, indexes=indexes or msgspec.UNSET)


def seen_with_update(base: Snapshot, update: SchemaUpdate | None) -> Snapshot:
    """Returns a snapshot as :meth:`seen_with_changes` does, with what is left to make of an update.

    Raises:
        SchemaConflict: others changed the columns in another way.
        UnknownColumn, InvalidSchema, InvalidRequest: an invalid change, or a cluster key of no such columns.
    """
    if update is None:
        return base
    seen = base
    key = None if update.cluster_key is msgspec.UNSET else update.cluster_key
    if _is_pending(base, update):
        if key is not None:  # columns of the old key may be gone
            seen = _same_snapshot(base, clustered_snapshot(seen, (), "linear", **_nowhere(base)))
        if update.changes:
            evolved = evolved_snapshot(seen, update.changes, **_nowhere(base), base_schema_id=None)
            seen = _same_snapshot(base, evolved)
    if key is None:
        return seen
    columns = key_texts(seen.schema, key.columns)
    before = base.cluster_key
    if before is not None and (before.columns, before.kind) == (columns, key.kind):
        return msgspec.structs.replace(
            seen,
            cluster_key_meta=base.cluster_key_meta,
            cluster_kind=base.cluster_kind,
            last_cluster_key_id=base.last_cluster_key_id,
        )
    return _same_snapshot(base, clustered_snapshot(seen, columns, key.kind, **_nowhere(base)))


def _nowhere(base: Snapshot) -> dict[str, Any]:
    return {"snapshot_id": base.snapshot_id, "now_ms": base.timestamp_ms}


def _same_snapshot(base: Snapshot, following: Snapshot) -> Snapshot:
    """Returns what would follow a snapshot under its own id: the next snapshot must follow it, and not one that was
    never written."""
    return msgspec.structs.replace(
        following,
        timestamp_ms=base.timestamp_ms,
        prev_snapshot_id=base.prev_snapshot_id,
        prev_manifest=base.prev_manifest,
    )


def _is_pending(base: Snapshot, update: SchemaUpdate) -> bool:
    """Returns whether the changes are left to make: not if others have made the same ones. Raises SchemaConflict."""
    current = base.schema.schema_id
    if update.base_schema_id == current:
        return True
    known = [schema for schema in base.history if schema.schema_id <= update.base_schema_id]
    if known and known[-1].schema_id == update.base_schema_id and not update.replaces_columns:
        wanted = evolve(known[-1], update.changes, history=known)
        if wanted.schema_id == update.schema_id and wanted in base.history:
            return False
    raise SchemaConflict(
        f"others changed the columns: the table has schema {current} now, and the commit changes schema"
        f" {update.base_schema_id}. Nothing was done; write the rows again",
        schema_id=current,
        snapshot_id=base.snapshot_id,
    )


def indexed_snapshot(
    base: Snapshot,
    indexes: Sequence[TableIndex],
    *,
    snapshot_id: str,
    operation: str,
    now_ms: int,
    prev_manifest: ObjectRef | None = None,
) -> Snapshot:
    """Returns ``base`` with other skip indexes: the same blocks and columns, nothing rewritten."""
    return _following(
        base,
        snapshot_id=snapshot_id,
        now_ms=now_ms,
        indexes=tuple(indexes) or msgspec.UNSET,
        operation=operation,
        prev_manifest=prev_manifest,
    )


def clustered_snapshot(
    base: Snapshot,
    columns: Sequence[str],
    kind: ClusterKind,
    *,
    snapshot_id: str,
    now_ms: int,
    prev_manifest: ObjectRef | None = None,
) -> Snapshot:
    """Returns ``base`` with another cluster key (no ``columns``: without one); its blocks stay as they are.

    A new key gets an id that no key of the table had before. The same key of the same kind keeps its id.
    """
    before = base.cluster_key
    max_id = base.max_cluster_key_id
    if before is not None and (before.columns, before.kind) == (tuple(columns), kind):
        meta, last = base.cluster_key_meta, base.last_cluster_key_id
    elif columns:
        meta, last = (max_id + 1, tuple(columns)), msgspec.UNSET
    else:
        meta, last = None, max_id if max_id >= 0 else msgspec.UNSET
    return _following(
        base,
        snapshot_id=snapshot_id,
        now_ms=now_ms,
        cluster_key_meta=meta,
        cluster_kind=_recorded(kind) if columns else msgspec.UNSET,
        last_cluster_key_id=last,
        operation=CLUSTER,
        prev_manifest=prev_manifest,
    )


def schema_ids(groups: Iterable[GroupRef], segments: Iterable[SegmentRef]) -> tuple[int, ...]:
    """Returns the schemas that blocks were written with, ascending."""
    found = {each for ref in segments for each in (ref.block_schema_ids or (ref.schema_id,))}
    return tuple(sorted(found.union(*(group.block_schema_ids for group in groups))))


def _following(base: Snapshot, *, snapshot_id: str, now_ms: int, **changed: Any) -> Snapshot:
    timestamp_ms = max(now_ms, base.timestamp_ms + 1)
    return msgspec.structs.replace(
        base,
        format_version=FORMAT_VERSION,
        snapshot_id=snapshot_id,
        timestamp_ms=timestamp_ms,
        timestamp=iso(timestamp_ms),
        prev_snapshot_id=base.snapshot_id,
        sidecar=None,
        **{"row_changes": (), **changed},
    )


def _recorded(kind: ClusterKind) -> ClusterKind | msgspec.UnsetType:
    return msgspec.UNSET if kind == "linear" else kind


def iso(at_ms: int) -> str:
    """Formats Unix milliseconds as ISO 8601 in UTC."""
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# A rollback: a new snapshot after the current one, with the blocks of an older one.
#
# The chain continues: no snapshot in between leaves the history, nor does its schema. An older schema returns as a new
# one with the same columns, and column ids continue after the highest that was ever assigned. So a column that is added
# later is never confused with one that existed in between.

ROLLBACK = "rollback"


def restored_schema(base: Snapshot, target: Snapshot) -> Schema:
    """Returns the schema that follows that of ``base`` when the table is rolled back to ``target``, an earlier
    snapshot.

    Raises:
        InvalidSchema: ``target`` is not an earlier snapshot: ``base`` does not know its schema.
    """
    schema_at(base, target.schema.schema_id)
    if (target.schema.columns, target.schema.checks) == (base.schema.columns, base.schema.checks):
        return base.schema
    return msgspec.structs.replace(
        target.schema,
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
    """Returns the snapshot after ``base`` with the blocks, columns and cluster key of ``target``, an earlier one.

    Properties are settings of the table and stay those of ``base``, except for what they say about the files and
    columns of a source (:func:`restored_properties`). Segments and groups are those of ``target``, none of them
    rewritten. Timestamps never decrease along the chain, whatever the clock says.

    Raises:
        InvalidSchema: ``target`` is not an earlier snapshot of the table.
    """
    schema = restored_schema(base, target)
    schemas = base.schemas if schema is base.schema else base.history
    timestamp_ms = max(now_ms, base.timestamp_ms + 1)
    own = -1 if target.cluster_key_meta is None else target.cluster_key_meta[0]
    last = base.max_cluster_key_id
    return msgspec.structs.replace(
        target,
        format_version=FORMAT_VERSION,
        snapshot_id=snapshot_id,
        timestamp_ms=timestamp_ms,
        timestamp=iso(timestamp_ms),
        prev_snapshot_id=base.snapshot_id,
        prev_manifest=prev_manifest,
        schema=schema,
        schemas=schemas,
        summary=seen_summary(target.schema, schema, target.summary),
        block_schema_ids=msgspec.UNSET if schemas is msgspec.UNSET else schema_ids(target.groups, target.segments),
        operation=ROLLBACK,
        properties=restored_properties(base.properties, target.properties),
        # No later key may reuse the id of a reverted key, because blocks may have been written for that.
        last_cluster_key_id=last if last > own else msgspec.UNSET,
        # The content of indexes is true of a block whenever it returns.
        indexes=base.indexes,
        row_changes=("overwrite",),
        sidecar=None,
    )
