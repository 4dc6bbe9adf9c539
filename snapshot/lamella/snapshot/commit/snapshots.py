"""From one snapshot to the next, as values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from lamella.snapshot.commit.summaries import seen_refs, seen_summary, summarize
from lamella.snapshot.errors import SchemaConflict
from lamella.snapshot.index.definition import redefined
from lamella.snapshot.manifest import (
    SNAPSHOT_FORMAT,
    ClusterKind,
    GroupRef,
    ObjectRef,
    SegmentRef,
    Snapshot,
    Summary,
    TableIndex,
)
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import SchemaChange, evolve, renamed_paths

#: The operation of a snapshot with another cluster key.
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
        format_version=SNAPSHOT_FORMAT,
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
    )


def next_snapshot(
    base: Snapshot,
    *,
    snapshot_id: str,
    groups: Sequence[GroupRef],
    segments: Sequence[SegmentRef],
    appended: Sequence[SegmentRef] | None,
    operation: str,
    properties: Mapping[str, str],
    prev_manifest: ObjectRef | None = None,
    now_ms: int,
) -> Snapshot:
    """The snapshot after ``base`` that consists of ``groups`` and ``segments``.

    ``appended``: what came to the blocks of ``base`` when nothing was removed, however segments were folded
    meanwhile; bounds of a summary merge like those of children, so an append need not look at what was there. None:
    something was removed, and the summary is made again from all of them. ``properties`` are set beside the old ones.

    Time never runs backwards along the chain, whatever the clock says.
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
        properties={**base.properties, **properties},
        prev_manifest=prev_manifest,
    )


def evolved_snapshot(
    base: Snapshot,
    changes: Sequence[SchemaChange],
    *,
    snapshot_id: str,
    now_ms: int,
    base_schema_id: int | None,
    prev_manifest: ObjectRef | None = None,
) -> Snapshot:
    """``base`` under a changed schema: the same segments, none of them written again.

    Raises:
        SchemaConflict: ``base_schema_id`` is given and is not the id of the schema that ``base`` has.
        UnknownColumn, InvalidSchema, InvalidRequest: the changes; see :func:`lamella.snapshot.schema.evolution.evolve`.
    """
    if base_schema_id is not None and base_schema_id != base.schema.schema_id:
        raise SchemaConflict(
            f"the table has schema {base.schema.schema_id} now, not {base_schema_id}",
            schema_id=base.schema.schema_id,
            snapshot_id=base.snapshot_id,
        )
    schema = evolve(base.schema, changes, history=base.history)
    key = base.cluster_key_meta
    following = _following(
        base,
        snapshot_id=snapshot_id,
        now_ms=now_ms,
        schema=schema,
        schemas=base.history,
        summary=seen_summary(base.schema, schema, base.summary),
        block_schema_ids=schema_ids(base.groups, base.segments),
        cluster_key_meta=key and (key[0], renamed_paths(base.schema, schema, key[1])),
        operation="schema",
        prev_manifest=prev_manifest,
    )
    indexes = tuple(redefined(index, following) for index in following.skip_indexes)
    return msgspec.structs.replace(following, indexes=indexes or msgspec.UNSET)


def indexed_snapshot(
    base: Snapshot,
    indexes: Sequence[TableIndex],
    *,
    snapshot_id: str,
    operation: str,
    now_ms: int,
    prev_manifest: ObjectRef | None = None,
) -> Snapshot:
    """``base`` with other skip indexes: the same blocks and columns, nothing written again."""
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
    """``base`` with another cluster key (no ``columns``: with none); its blocks stay as they are.

    The key gets an id that no key of the table had before, or keeps its own when it is the same key of the same kind.
    """
    before = base.cluster_key
    greatest = base.greatest_cluster_key_id
    if before is not None and (before.columns, before.kind) == (tuple(columns), kind):
        meta, last = base.cluster_key_meta, base.last_cluster_key_id
    elif columns:
        meta, last = (greatest + 1, tuple(columns)), msgspec.UNSET
    else:
        meta, last = None, greatest if greatest >= 0 else msgspec.UNSET
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
    """The schemas that blocks were written with, ascending."""
    found = {each for ref in segments for each in (ref.block_schema_ids or (ref.schema_id,))}
    return tuple(sorted(found.union(*(group.block_schema_ids for group in groups))))


def _following(base: Snapshot, *, snapshot_id: str, now_ms: int, **changed: Any) -> Snapshot:
    timestamp_ms = max(now_ms, base.timestamp_ms + 1)
    return msgspec.structs.replace(
        base,
        format_version=SNAPSHOT_FORMAT,
        snapshot_id=snapshot_id,
        timestamp_ms=timestamp_ms,
        timestamp=iso(timestamp_ms),
        prev_snapshot_id=base.snapshot_id,
        companion=None,
        **changed,
    )


def _recorded(kind: ClusterKind) -> ClusterKind | msgspec.UnsetType:
    return msgspec.UNSET if kind == "linear" else kind


def iso(at_ms: int) -> str:
    """Unix milliseconds as ISO 8601 in UTC."""
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
