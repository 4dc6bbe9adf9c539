"""One snapshot and its history: manifests, groups, segments, and duplicate blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from lamella.snapshot import commit as commits
from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.columnar.locations import LocationIndex, hashes_of
from lamella.snapshot.errors import InvalidSchema, LamellaError, ManifestError, StoreError
from lamella.snapshot.manifest import (
    MAX_LEVEL,
    Block,
    DeleteFile,
    Group,
    GroupRef,
    Segment,
    SegmentRef,
    Snapshot,
    SnapshotPointer,
    Summary,
    decode_group,
    decode_segment,
    decode_snapshot,
    format_features,
)
from lamella.snapshot.manifest.codec import check_hash
from lamella.snapshot.manifest.replaced_files import ReplacedSet
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.schema.evolution import schema_at
from lamella.snapshot.stats import Bound, ColumnStats
from lamella.snapshot.stats.column import seen_with
from lamella.snapshot.stats.constant import constant_stats
from lamella.snapshot.storage import Store, TableLayout
from lamella.snapshot.verify.checks import found
from lamella.snapshot.verify.layers import (
    Child,
    Problem,
    check_layer_sketches,
    count_problems,
    layer_problems,
    stats_problem,
)
from lamella.snapshot.verify.reading import DAMAGE, Note, read_manifest, read_sidecar
from lamella.snapshot.verify.sidecars import (
    as_of,
    check_sidecar,
    group_sidecar,
    read_derived,
    segment_sidecar,
    snapshot_sidecar,
)


def check_segment(
    store: Store, snapshot: Snapshot, ref: SegmentRef, note: Note, *, repair: bool = False
) -> Segment | None:
    """Returns the segment, None if its manifest cannot be read. Reports problems instead of raising."""
    segment_id = ref.segment_id
    segment = read_manifest(
        store,
        ref.manifest,
        lambda data: decode_segment(data, location=ref.manifest.location),
        note,
        segment_id=segment_id,
    )
    if segment is None:
        read_sidecar(store, ref.sidecar, note, segment_id=segment_id)
        return None
    whole = segment
    for problem in _problems(snapshot, ref, whole):
        column = None if problem.column_id is None else _name(snapshot, problem.column_id)
        note(
            found(
                problem.code,
                problem.message,
                at=ref.manifest.location,
                segment_id=segment_id,
                block=problem.child,
                column=column,
            )
        )
    check_sidecar(
        store,
        ref.sidecar,
        lambda: segment_sidecar(snapshot, whole, in_parts=ref.sidecar.tail_bytes > 0),
        note,
        segment_id=segment_id,
        repair=repair,
    )
    return segment


def known_schemas(snapshot: Snapshot) -> Mapping[int, Schema]:
    """Returns the table's schemas by id."""
    return {schema.schema_id: schema for schema in snapshot.history}


def _name(snapshot: Snapshot, column_id: int) -> str:
    for schema in reversed(snapshot.history):
        leaf = schema.by_id().get(column_id)
        if leaf is not None:
            return leaf.name
    return f"#{column_id}"


def _problems(snapshot: Snapshot, ref: SegmentRef, segment: Segment) -> Iterator[Problem]:
    recorded = (ref.segment_id, ref.schema_id, ref.format_version)
    own = (segment.segment_id, segment.schema_id, segment.format_version)
    if recorded != own:
        yield Problem("manifest_identity", f"id, schema and format version are {own}, but {recorded} above")
    if segment.summary != ref.summary:
        yield Problem("summary_differs", "the segment's summary differs from the one recorded in the layer above")
    yield from _feature_problems(segment.summary.required_features, segment.required_features)
    schemas = known_schemas(snapshot)
    used = sorted({block.written_with for block in segment.blocks})
    strange = [schema_id for schema_id in dict.fromkeys([*used, segment.schema_id]) if schema_id not in schemas]
    if strange:
        yield Problem("schema_unknown", f"the table never had a schema with id {strange[0]}")
    elif tuple(used) != (ref.block_schema_ids or (ref.schema_id,)) and used:
        yield Problem("schema_ids_differ", f"blocks have schemas {used}, but {list(ref.block_schema_ids)} is recorded")
    for block in segment.blocks:
        yield from _block_problems(schemas, block)
        yield from _clustered_problems(snapshot.max_cluster_key_id, block)
    perfect = sum(commits.is_perfect(block) for block in segment.blocks)
    if segment.summary.perfect_block_count != perfect:
        yield Problem(
            "perfect_blocks", f"{segment.summary.perfect_block_count} are recorded, but this release counts {perfect}"
        )
    parts = [_summary_of(block) for block in segment.blocks]
    yield from count_problems(segment.summary, parts, of_blocks=True)
    if strange:
        return
    then = as_of(snapshot, segment.schema_id)
    schema = then.history[-1]
    yield from summary_problems(schema.leaves_with_statistics(), segment.summary)
    children = [
        Child(block.location, block.row_count, block.live_stats) for block in commits.seen_blocks(then, segment.blocks)
    ]
    types = {leaf.id: leaf.dtype for leaf in schema.leaves_with_statistics()}
    yield from layer_problems(types, segment.summary.col_stats, children)


def summary_problems(leaves: Iterable[Leaf], summary: Summary) -> Iterator[Problem]:
    """Yields what is wrong with a summary by itself."""
    has_deletes = bool(summary.deletes_count)
    for leaf in leaves:
        stats = summary.col_stats.get(leaf.id)
        problem = None if stats is None else stats_problem(leaf, stats, summary.row_count, has_deletes=has_deletes)
        if problem is not None:
            yield Problem("stats_invalid", problem, leaf.id)


def _block_problems(schemas: Mapping[int, Schema], block: Block) -> Iterator[Problem]:
    for name in ("row_count", "file_size", "block_size"):
        if getattr(block, name) < 0:
            yield Problem("block_counts", f"{name} is {getattr(block, name)}", None, block.location)
    groups = block.row_group_row_counts
    if groups and sum(groups) != block.row_count:
        message = f"its row groups have {sum(groups)} rows, but its recorded row count is {block.row_count}"
        yield Problem("block_counts", message, None, block.location)
    if groups and any(len(metas) != len(groups) for metas in block.col_metas.values()):
        message = f"a column does not have one chunk for each of {len(groups)} row groups"
        yield Problem("block_counts", message, None, block.location)
    schema = schemas.get(block.written_with)
    if schema is None:
        return
    leaves = schema.by_id()
    for column_id, stats in block.col_stats.items():
        leaf = leaves.get(column_id)
        problem = _strange(leaf, stats, block)
        if problem is not None:
            yield Problem("stats_invalid", problem, column_id, block.location)

    for column_id, constant in block.constants.items():
        problem = _constant_problem(leaves.get(column_id), constant, block)
        if problem is not None:
            yield Problem("constants_invalid", problem, column_id, block.location)
    for entry in block.deletes:
        problem = _deletes_problem(entry, block)
        if problem is not None:
            yield Problem("deletes_invalid", problem, None, block.location)


def _constant_problem(leaf: Leaf | None, constant: Bound | None, block: Block) -> str | None:
    if leaf is None:
        return "the schema that the block was written with has no such column"
    if leaf.id in block.col_metas:
        return "the file has the column"
    try:
        expected = constant_stats(leaf.dtype, constant, block.row_count)
    except ManifestError as error:
        return error.message
    if block.col_stats.get(leaf.id) != expected:
        return "the statistics of the column are not those of its constant"
    return None


def _deletes_problem(entry: DeleteFile, block: Block) -> str | None:
    if entry.offset < 0 or entry.length < 1:
        return f"it has {entry.length} bytes from {entry.offset} on"
    if entry.cardinality is not None and not 0 <= entry.cardinality < block.row_count:
        return f"it deletes {entry.cardinality} of {block.row_count} rows; a block without rows leaves the table"
    return None


def _feature_problems(required: Iterable[str], listed: Iterable[str]) -> Iterator[Problem]:
    missing = sorted(set(required).difference(listed))
    if missing:
        yield Problem("features_missing", f"the blocks require {', '.join(missing)}, which the manifest does not list")


def _clustered_problems(last_key_id: int, block: Block) -> Iterator[Problem]:
    stats = block.cluster_stats
    if stats is None:
        return
    if not 0 <= stats.key_id <= last_key_id:
        message = f"the table never had a cluster key with the id {stats.key_id}"
        yield Problem("block_clustered", message, None, block.location)
    if not 0 <= stats.level <= MAX_LEVEL:
        yield Problem("block_clustered", f"its level is {stats.level}", None, block.location)


def _strange(leaf: Leaf | None, stats: ColumnStats, block: Block) -> str | None:
    if leaf is None:
        return "the schema that the block was written with has no such column"
    return stats_problem(leaf, stats, block.row_count)


def _summary_of(block: Block) -> Summary:
    return Summary(
        row_count=block.row_count,
        block_count=1,
        uncompressed_byte_size=block.block_size,
        compressed_byte_size=block.file_size,
        index_size=block.bloom_filter_index_size,
        by_name_count=int(block.by_name),
        constants_count=int(bool(block.constants)),
        deletes_count=int(bool(block.deletes)),
        deleted_row_count=None if (live := block.live_row_count) is None else block.row_count - live,
        constant_columns=(tuple(sorted(block.constants)),) if block.constants else (),
    )


def check_duplicates(store: Store, refs: Sequence[SegmentRef], note: Note) -> None:
    """Find duplicate locations in the segments; a segment that cannot be read is left out."""
    hashes = [hashes_of(_locations(store, ref, note)) for ref in refs]
    every = np.sort(np.concatenate([np.empty(0, np.uint64), *hashes]))
    doubled = np.unique(every[1:][every[1:] == every[:-1]])
    if not len(doubled):
        return
    holders: dict[str, list[str]] = {}
    for ref, own in zip(refs, hashes, strict=True):
        if np.isin(own, doubled).any():
            for location, hit in zip(_locations(store, ref, note), np.isin(own, doubled).tolist(), strict=True):
                if hit:
                    holders.setdefault(location, []).append(ref.segment_id)
    where = {ref.segment_id: ref for ref in refs}
    for location, segment_ids in holders.items():
        if len(segment_ids) > 1:
            message = f"it is in the table {len(segment_ids)} times, first in segment {segment_ids[0]}"
            last = where[segment_ids[-1]]
            note(
                found(
                    "block_duplicate",
                    message,
                    at=last.manifest.location,
                    segment_id=last.segment_id,
                    block=location,
                )
            )


def read_locations(store: Store, ref: SegmentRef) -> list[str]:
    """Returns the locations of a segment's blocks: from its sidecar, or if that is damaged from its manifest.

    Raises:
        ManifestError, ObjectNotFound, StoreError: neither can be read.
    """
    try:
        data = store.read(ref.sidecar.location)
        check_hash(data, ref.sidecar.sha256, ref.sidecar.location)
        return Sidecar(data).texts("location")
    except LamellaError:
        manifest = ref.manifest
        segment = decode_segment(store.read(manifest.location), sha256=manifest.sha256, location=manifest.location)
        return [block.location for block in segment.blocks]


def _locations(store: Store, ref: SegmentRef, note: Note) -> list[str]:
    try:
        return read_locations(store, ref)
    except StoreError as error:  # it may have existed when the segment was checked
        note(found("unreachable", error.message, at=ref.manifest.location, segment_id=ref.segment_id))
        return []
    except LamellaError:
        return []  # reported of the segment


class Listed(msgspec.Struct, frozen=True):
    """A segment of a snapshot: its group and its number there, or neither."""

    ref: SegmentRef
    group: GroupRef | None = None
    number: int = 0


def listed_segments(store: Store, snapshot: Snapshot) -> list[Listed]:
    """Returns every segment of a snapshot, oldest first; those of a missing or damaged group are left out.

    Raises:
        StoreError: the store failed to return a group's manifest, which may exist. Steps are counted by this list, so a
            continued verification must get the same list.
    """
    exists_below: list[Listed] = []
    for ref in snapshot.groups:
        try:
            data = store.read(ref.manifest.location)
            group = decode_group(data, sha256=ref.manifest.sha256, location=ref.manifest.location)
        except DAMAGE:
            continue  # the step of the group reports the reason
        exists_below += [Listed(segment, ref, number) for number, segment in _remaining(ref, group)]
    return [*exists_below, *(Listed(ref) for ref in snapshot.segments)]


def _remaining(ref: GroupRef, group: Group) -> list[tuple[int, SegmentRef]]:
    gone = frozenset(ref.dropped)
    return [(number, segment) for number, segment in enumerate(group.segments) if number not in gone]


def check_group(
    store: Store, layout: TableLayout, snapshot: Snapshot, ref: GroupRef, note: Note, *, repair: bool = False
) -> None:
    """Check a group; its segments' own manifests are not opened."""
    at = ref.manifest.location
    group = read_manifest(store, ref.manifest, lambda data: decode_group(data, location=at), note)
    if group is None:
        for object_ref in (ref.sidecar, ref.locations):
            read_sidecar(store, object_ref, note)
        return
    whole = group
    for problem in _group_problems(snapshot, ref, whole):
        column = None
        if problem.column_id is not None:
            column = next(
                (s.by_id()[problem.column_id].name for s in snapshot.history if problem.column_id in s.by_id()), None
            )
        note(found(problem.code, problem.message, at=at, segment_id=problem.child, column=column))
    check_sidecar(
        store,
        ref.sidecar,
        lambda: group_sidecar(snapshot, whole, in_parts=ref.sidecar.tail_bytes > 0),
        note,
        repair=repair,
    )
    data = read_derived(store, ref.locations, lambda: _location_index(store, whole), note, repair=repair)
    if data is not None:
        try:
            LocationIndex.read(data)
        except ManifestError as error:
            note(found("locations_differ", error.message, at=ref.locations.location))
    remaining = [segment for _, segment in _remaining(ref, whole)]
    check_layer_sketches(store, layout, ref.group_id, ref.summary, remaining, note, is_whole=not ref.dropped)


def _location_index(store: Store, group: Group) -> tuple[bytes | None, str]:
    """Rebuilds a group's location index from its segments, in the order of every release: by hash."""
    parts = []
    for number, ref in enumerate(group.segments):
        try:
            hashes = np.sort(hashes_of(read_locations(store, ref)))
        except LamellaError as error:
            return None, f"segment {ref.segment_id} cannot be read: {error.message}"
        parts.append((hashes, np.full(len(hashes), number, dtype=np.uint32)))
    return LocationIndex.joined(parts).to_bytes(), ""


def _group_problems(snapshot: Snapshot, ref: GroupRef, group: Group) -> Iterator[Problem]:
    if (group.group_id, group.schema_id) != (ref.group_id, ref.schema_id):
        yield Problem("manifest_identity", f"it is group {group.group_id} of schema {group.schema_id}")
    required = {name for segment in group.segments for name in segment.summary.required_features}
    required |= {*format_features(group.segments)}
    yield from _feature_problems(required, group.required_features)
    numbers = list(ref.dropped)
    if numbers != sorted(set(numbers)) or any(not 0 <= number < len(group.segments) for number in numbers):
        yield Problem(
            "group_segments", f"{numbers} are recorded as dropped, but the group has {len(group.segments)} segments"
        )
    remaining = [segment for _, segment in _remaining(ref, group)]
    if len(remaining) != ref.segment_count:
        yield Problem("group_segments", f"{ref.segment_count} segments are recorded, but there are {len(remaining)}")
    used = tuple(sorted({each for one in remaining for each in (one.block_schema_ids or (one.schema_id,))}))
    if used != ref.block_schema_ids:
        yield Problem("schema_ids_differ", f"segments have schemas {used}, but {ref.block_schema_ids} is recorded")
    for segment in remaining:
        ends = [each for each in (segment.first_location, segment.last_location) if each is not None]
        if any(not ref.first_location <= each <= ref.last_location for each in ends):
            message = f"its locations are {ends}, outside those recorded for the group"
            yield Problem("locations_differ", message, None, segment.segment_id)
    yield from count_problems(ref.summary, [segment.summary for segment in remaining])
    schemas = known_schemas(snapshot)
    strange = [segment for segment in remaining if segment.schema_id not in schemas]
    for segment in strange:
        message = f"the table never had a schema with id {segment.schema_id}"
        yield Problem("schema_unknown", message, None, segment.segment_id)
    if strange or ref.schema_id not in schemas:
        return
    then = as_of(snapshot, ref.schema_id)
    yield from summary_problems(then.history[-1].leaves_with_statistics(), ref.summary)
    try:
        seen = commits.seen_refs(then, remaining)
    except (ManifestError, InvalidSchema):
        return  # an unreadable summary is reported where it is stored
    children = [Child(each.segment_id, each.summary.row_count, each.summary.col_stats) for each in seen]
    types = {leaf.id: leaf.dtype for leaf in then.history[-1].leaves_with_statistics()}
    yield from layer_problems(types, ref.summary.col_stats, children)


class Indexes:
    """The location indexes of groups; the last one is cached, as segments are checked group by group."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cached: tuple[str, LocationIndex | None] | None = None

    def check(self, listed: Listed, locations: Sequence[str], note: Note) -> None:
        """Check that every location of a segment is in its group's index, and in the recorded range."""
        ref = listed.ref
        first, last = ref.first_location, ref.last_location
        if (
            locations
            and first is not None
            and last is not None
            and not first <= min(locations) <= max(locations) <= last
        ):
            message = f"a location is not among those from {first!r} to {last!r}, which is the recorded range"
            note(found("locations_differ", message, at=ref.manifest.location, segment_id=ref.segment_id))
        if listed.group is None:
            return
        index = self._index(listed.group, note)
        if index is None:
            return  # reported of the group, or just now
        own = np.sort(index.hashes[index.segments == listed.number])
        lacking = ~np.isin(hashes_of(locations), own)
        if lacking.any():
            block = locations[int(np.flatnonzero(lacking)[0])]
            message = f"{int(lacking.sum())} blocks of the segment are not in the index, first {block!r}"
            at = listed.group.locations.location
            note(found("locations_differ", message, at=at, segment_id=ref.segment_id, block=block))

    def _index(self, group: GroupRef, note: Note) -> LocationIndex | None:
        if self._cached is None or self._cached[0] != group.group_id:
            try:
                data = self._store.read(group.locations.location)
                check_hash(data, group.locations.sha256, group.locations.location)
                self._cached = (group.group_id, LocationIndex.read(data))
            except StoreError as error:  # it may have existed when the group was checked
                note(found("unreachable", error.message, at=group.locations.location))
                self._cached = (group.group_id, None)
            except LamellaError:
                self._cached = (group.group_id, None)
        return self._cached[1]


def check_snapshot(
    store: Store, table_id: str, pointer: SnapshotPointer, snapshot: Snapshot, note: Note, *, repair: bool = False
) -> None:
    """Check a snapshot whose manifest could be read; its segments' own manifests are not opened."""
    at = pointer.manifest.location
    if (snapshot.snapshot_id, snapshot.timestamp_ms) != (pointer.snapshot_id, pointer.timestamp_ms):
        message = f"the manifest is for {snapshot.snapshot_id} at {snapshot.timestamp_ms} ms"
        note(found("pointer_differs", message, at=at))
    if snapshot.sidecar != pointer.sidecar:
        note(found("pointer_differs", "the manifest and the catalog refer to different sidecars", at=at))
    if snapshot.table_id != table_id:
        note(found("manifest_identity", f"it belongs to table {snapshot.table_id}, not {table_id}", at=at))
    for problem in _snapshot_problems(snapshot):
        column = None
        if problem.column_id is not None:
            column = snapshot.schema.by_id()[problem.column_id].name
        note(found(problem.code, problem.message, at=at, segment_id=problem.child, column=column))
    for files in snapshot.replaced:
        read_manifest(store, files.object, ReplacedSet.read, note)
    check_sidecar(store, pointer.sidecar, lambda: snapshot_sidecar(snapshot), note, repair=repair)


def _snapshot_problems(snapshot: Snapshot) -> Iterator[Problem]:
    refs: tuple[SegmentRef | GroupRef, ...] = (*snapshot.groups, *snapshot.segments)
    required = {name for ref in refs for name in ref.summary.required_features}
    listed = () if snapshot.required_features is msgspec.UNSET else snapshot.required_features
    yield from _feature_problems(required | {*format_features(refs)}, listed)
    schemas = known_schemas(snapshot)
    if len(schemas) != len(snapshot.history):
        yield Problem("schema_ids_differ", "two schemas of the table have the same id")
    known = []
    for ref in refs:
        if ref.schema_id in schemas:
            known.append(ref)
        else:
            message = f"the table never had a schema with id {ref.schema_id}"
            yield Problem("schema_unknown", message, None, _snapshot_name(ref))
    yield from _schema_ids(snapshot, refs)
    yield from count_problems(snapshot.summary, [ref.summary for ref in refs])
    yield from summary_problems(snapshot.schema.leaves_with_statistics(), snapshot.summary)
    if len(known) != len(refs):
        return
    types = {leaf.id: leaf.dtype for leaf in snapshot.schema.leaves_with_statistics()}
    try:
        children = [_child(snapshot, ref) for ref in refs]
    except (ManifestError, InvalidSchema):
        return  # an unreadable summary is reported where it is stored
    yield from layer_problems(types, snapshot.summary.col_stats, children)


def _snapshot_name(ref: SegmentRef | GroupRef) -> str:
    return ref.segment_id if isinstance(ref, SegmentRef) else ref.group_id


def _child(snapshot: Snapshot, ref: SegmentRef | GroupRef) -> Child:
    """Returns an entry in terms of the snapshot's own schema."""
    rows = ref.summary.row_count
    written = schema_at(snapshot, ref.schema_id)
    return Child(_snapshot_name(ref), rows, seen_with(written, snapshot.schema, rows, ref.summary.col_stats))


def _schema_ids(snapshot: Snapshot, refs: Sequence[SegmentRef | GroupRef]) -> Iterator[Problem]:
    used = tuple(sorted({each for ref in refs for each in (ref.block_schema_ids or (ref.schema_id,))}))
    if used and used != tuple(snapshot.schema_ids_in_use):
        message = f"segments have blocks of schemas {list(used)}, but {list(snapshot.schema_ids_in_use)} is recorded"
        yield Problem("schema_ids_differ", message)


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot as recorded by the catalog; ``seq`` counts the table's snapshots, expired ones leave gaps."""

    seq: int
    pointer: SnapshotPointer
    prev_snapshot_id: str | None
    operation: str
    row_count: int
    block_count: int
    segment_count: int
    file_size_bytes: int


#: Returns records of a table, newest first: those with a ``seq`` below the first argument, at most as many as the
#: second.
ReadHistory = Callable[[int, int], Sequence[Recorded]]


def check_history(store: Store, records: Sequence[Recorded], note: Note, *, older: Recorded | None) -> None:
    """Check records, newest first, by themselves and against their manifests; ``older`` is the next older one."""
    for newer, before in pairwise([*records, *([older] if older is not None else [])]):
        _check_pair(newer, before, note)
    for number, record in enumerate(records):
        behind = records[number + 1] if number + 1 < len(records) else older
        _check_record(store, record, behind, note)


def _check_pair(newer: Recorded, before: Recorded, note: Note) -> None:
    at = newer.pointer.manifest.location
    if newer.seq == before.seq + 1 and newer.prev_snapshot_id != before.pointer.snapshot_id:
        message = f"it follows {newer.prev_snapshot_id}, but the snapshot before it is {before.pointer.snapshot_id}"
        note(found("history_chain", message, at=at))
    if newer.pointer.timestamp_ms <= before.pointer.timestamp_ms:
        times = f"{newer.pointer.timestamp_ms} ms after {before.pointer.timestamp_ms} ms"
        note(found("history_time", f"its time is {times} of the snapshot before it", at=at))


def _check_record(store: Store, record: Recorded, before: Recorded | None, note: Note) -> None:
    ref = record.pointer.manifest
    snapshot = read_manifest(store, ref, lambda data: decode_snapshot(data, location=ref.location), note)
    if snapshot is None:
        return
    follows = snapshot.prev_manifest
    if before is not None and before.seq + 1 == record.seq and follows not in (None, before.pointer.manifest):
        note(found("history_chain", "it refers to a different manifest than the snapshot before it", at=ref.location))
    summary = snapshot.summary
    stated = (
        record.pointer.snapshot_id,
        record.pointer.timestamp_ms,
        record.prev_snapshot_id,
        record.operation,
        record.row_count,
        record.block_count,
        record.segment_count,
        record.file_size_bytes,
    )
    own = (
        snapshot.snapshot_id,
        snapshot.timestamp_ms,
        snapshot.prev_snapshot_id,
        snapshot.operation,
        summary.row_count,
        summary.block_count,
        snapshot.segment_count,
        summary.compressed_byte_size,
    )
    if stated != own:
        note(found("history_row", f"the catalog has {stated}, but the manifest {own}", at=ref.location))
