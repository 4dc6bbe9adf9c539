"""One snapshot: its manifest, what that says of its segments, its companion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lamella.snapshot.errors import InvalidSchema, ManifestError
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import GroupRef, SegmentRef, Snapshot, SnapshotPointer
from lamella.snapshot.replaced import ReplacedSet
from lamella.snapshot.schema.evolution import schema_at
from lamella.snapshot.stats.projection import seen_with
from lamella.snapshot.verify.checks import found
from lamella.snapshot.verify.companions import check_companion, snapshot_companion
from lamella.snapshot.verify.layers import Child, Problem, count_problems, layer_problems
from lamella.snapshot.verify.reading import Note, read_manifest
from lamella.snapshot.verify.segment import known_schemas, summary_problems


def check_snapshot(
    store: Store, table_id: str, pointer: SnapshotPointer, snapshot: Snapshot, note: Note, *, repair: bool = False
) -> None:
    """What is wrong with a snapshot whose manifest could be read; its segments' own manifests are not opened."""
    at = pointer.manifest.location
    if (snapshot.snapshot_id, snapshot.timestamp_ms) != (pointer.snapshot_id, pointer.timestamp_ms):
        message = f"the manifest is of {snapshot.snapshot_id} at {snapshot.timestamp_ms} ms"
        note(found("pointer_differs", message, at=at))
    if snapshot.companion != pointer.companion:
        note(found("pointer_differs", "the manifest names another companion than the catalog", at=at))
    if snapshot.table_id != table_id:
        note(found("manifest_identity", f"it is of table {snapshot.table_id}, not {table_id}", at=at))
    for problem in _problems(snapshot):
        column = None
        if problem.column_id is not None:
            column = snapshot.schema.by_id()[problem.column_id].name
        note(found(problem.code, problem.message, at=at, segment_id=problem.child, column=column))
    for files in snapshot.replaced:
        read_manifest(store, files.object, ReplacedSet.read, note)
    check_companion(store, pointer.companion, lambda: snapshot_companion(snapshot), note, repair=repair)


def _problems(snapshot: Snapshot) -> Iterator[Problem]:
    refs: tuple[SegmentRef | GroupRef, ...] = (*snapshot.groups, *snapshot.segments)
    schemas = known_schemas(snapshot)
    if len(schemas) != len(snapshot.history):
        yield Problem("schema_ids_differ", "two schemas of the table have the same id")
    known = []
    for ref in refs:
        if ref.schema_id in schemas:
            known.append(ref)
        else:
            message = f"the table never had a schema with id {ref.schema_id}"
            yield Problem("schema_unknown", message, None, _name(ref))
    yield from _schema_ids(snapshot, refs)
    yield from count_problems(snapshot.summary, [ref.summary for ref in refs])
    yield from summary_problems(snapshot.schema.leaves(), snapshot.summary)
    if len(known) != len(refs):
        return
    types = {leaf.id: leaf.dtype for leaf in snapshot.schema.leaves()}
    try:
        children = [_child(snapshot, ref) for ref in refs]
    except (ManifestError, InvalidSchema):
        return  # a summary that cannot be read is reported where it stands
    yield from layer_problems(types, snapshot.summary.col_stats, children)


def _name(ref: SegmentRef | GroupRef) -> str:
    return ref.segment_id if isinstance(ref, SegmentRef) else ref.group_id


def _child(snapshot: Snapshot, ref: SegmentRef | GroupRef) -> Child:
    """An entry in terms of the snapshot's own schema."""
    rows = ref.summary.row_count
    written = schema_at(snapshot, ref.schema_id)
    return Child(_name(ref), rows, seen_with(written, snapshot.schema, rows, ref.summary.col_stats))


def _schema_ids(snapshot: Snapshot, refs: Sequence[SegmentRef | GroupRef]) -> Iterator[Problem]:
    used = tuple(sorted({each for ref in refs for each in (ref.block_schema_ids or (ref.schema_id,))}))
    if used and used != tuple(snapshot.schema_ids_in_use):
        message = f"segments have blocks of schemas {list(used)}, and {list(snapshot.schema_ids_in_use)} is recorded"
        yield Problem("schema_ids_differ", message)
