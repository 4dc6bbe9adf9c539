"""Groups of segments: their manifests, companions and location indexes, and which segments they give a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from lamella.snapshot import commit as commits
from lamella.snapshot.columnar.locations import LocationIndex, hashes_of
from lamella.snapshot.errors import InvalidSchema, LamellaError, ManifestError, StoreError
from lamella.snapshot.layout import Store, TableLayout
from lamella.snapshot.manifest import Group, GroupRef, SegmentRef, Snapshot, decode_group
from lamella.snapshot.manifest.codec import check_hash
from lamella.snapshot.verify.checks import found
from lamella.snapshot.verify.companions import as_of, check_companion, group_companion, read_derived
from lamella.snapshot.verify.duplicates import read_locations
from lamella.snapshot.verify.layers import Child, Problem, count_problems, layer_problems
from lamella.snapshot.verify.reading import DAMAGE, Note, read_companion, read_manifest
from lamella.snapshot.verify.segment import known_schemas, summary_problems
from lamella.snapshot.verify.sketches import check_layer_sketches


class Listed(msgspec.Struct, frozen=True):
    """A segment of a snapshot: the group it is in and its number there, or neither."""

    ref: SegmentRef
    group: GroupRef | None = None
    number: int = 0


def listed_segments(store: Store, snapshot: Snapshot) -> list[Listed]:
    """Every segment of a snapshot, oldest first; those of a group that is missing or damaged are left out.

    Raises:
        StoreError: the store does not give a group's manifest, though it may be there. Steps are counted by what is
            listed, so whoever goes on with a verification must list the same.
    """
    found_there: list[Listed] = []
    for ref in snapshot.groups:
        try:
            data = store.read(ref.manifest.location)
            group = decode_group(data, sha256=ref.manifest.sha256, location=ref.manifest.location)
        except DAMAGE:
            continue  # the step that looks at the group says why
        found_there += [Listed(segment, ref, number) for number, segment in _kept(ref, group)]
    return [*found_there, *(Listed(ref) for ref in snapshot.segments)]


def _kept(ref: GroupRef, group: Group) -> list[tuple[int, SegmentRef]]:
    gone = frozenset(ref.dropped)
    return [(number, segment) for number, segment in enumerate(group.segments) if number not in gone]


def check_group(
    store: Store, layout: TableLayout, snapshot: Snapshot, ref: GroupRef, note: Note, *, repair: bool = False
) -> None:
    """What is wrong with a group; its segments' own manifests are not opened."""
    at = ref.manifest.location
    group = read_manifest(store, ref.manifest, lambda data: decode_group(data, location=at), note)
    if group is None:
        for object_ref in (ref.companion, ref.locations):
            read_companion(store, object_ref, note)
        return
    whole = group
    for problem in _problems(snapshot, ref, whole):
        column = None
        if problem.column_id is not None:
            column = next(
                (s.by_id()[problem.column_id].name for s in snapshot.history if problem.column_id in s.by_id()), None
            )
        note(found(problem.code, problem.message, at=at, segment_id=problem.child, column=column))
    check_companion(store, ref.companion, lambda: group_companion(snapshot, whole), note, repair=repair)
    data = read_derived(store, ref.locations, lambda: _location_index(store, whole), note, repair=repair)
    if data is not None:
        try:
            LocationIndex.read(data)
        except ManifestError as error:
            note(found("locations_differ", error.message, at=ref.locations.location))
    kept = [segment for _, segment in _kept(ref, whole)]
    check_layer_sketches(store, layout, ref.group_id, ref.summary, kept, note, is_whole=not ref.dropped)


def _location_index(store: Store, group: Group) -> tuple[bytes | None, str]:
    """A group's location index from its segments, in the order that any release writes: by hash."""
    parts = []
    for number, ref in enumerate(group.segments):
        try:
            hashes = np.sort(hashes_of(read_locations(store, ref)))
        except LamellaError as error:
            return None, f"segment {ref.segment_id} cannot be read: {error.message}"
        parts.append((hashes, np.full(len(hashes), number, dtype=np.uint32)))
    return LocationIndex.joined(parts).to_bytes(), ""


def _problems(snapshot: Snapshot, ref: GroupRef, group: Group) -> Iterator[Problem]:
    if (group.group_id, group.schema_id) != (ref.group_id, ref.schema_id):
        yield Problem("manifest_identity", f"it is group {group.group_id} of schema {group.schema_id}")
    numbers = list(ref.dropped)
    if numbers != sorted(set(numbers)) or any(not 0 <= number < len(group.segments) for number in numbers):
        yield Problem("group_segments", f"{numbers} are said to be dropped of {len(group.segments)} segments")
    kept = [segment for _, segment in _kept(ref, group)]
    if len(kept) != ref.segment_count:
        yield Problem("group_segments", f"{ref.segment_count} segments are recorded, and there are {len(kept)}")
    used = tuple(sorted({each for one in kept for each in (one.block_schema_ids or (one.schema_id,))}))
    if used != ref.block_schema_ids:
        yield Problem("schema_ids_differ", f"segments have schemas {used}, and {ref.block_schema_ids} is recorded")
    for segment in kept:
        ends = [each for each in (segment.first_location, segment.last_location) if each is not None]
        if any(not ref.first_location <= each <= ref.last_location for each in ends):
            message = f"its locations are {ends}, outside those recorded of the group"
            yield Problem("locations_differ", message, None, segment.segment_id)
    yield from count_problems(ref.summary, [segment.summary for segment in kept])
    schemas = known_schemas(snapshot)
    strange = [segment for segment in kept if segment.schema_id not in schemas]
    for segment in strange:
        message = f"the table never had a schema with id {segment.schema_id}"
        yield Problem("schema_unknown", message, None, segment.segment_id)
    if strange or ref.schema_id not in schemas:
        return
    then = as_of(snapshot, ref.schema_id)
    yield from summary_problems(then.history[-1].leaves(), ref.summary)
    try:
        seen = commits.seen_refs(then, kept)
    except (ManifestError, InvalidSchema):
        return  # a summary that cannot be read is reported where it stands
    children = [Child(each.segment_id, each.summary.row_count, each.summary.col_stats) for each in seen]
    types = {leaf.id: leaf.dtype for leaf in then.history[-1].leaves()}
    yield from layer_problems(types, ref.summary.col_stats, children)


class Indexes:
    """The location indexes of groups; the last one is kept, as segments are looked at group by group."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: tuple[str, LocationIndex | None] | None = None

    def check(self, listed: Listed, locations: Sequence[str], note: Note) -> None:
        """Every location of a segment must be in its group's index, and in the range that is recorded of it."""
        ref = listed.ref
        first, last = ref.first_location, ref.last_location
        if (
            locations
            and first is not None
            and last is not None
            and not first <= min(locations) <= max(locations) <= last
        ):
            message = f"a location is not among those from {first!r} to {last!r}, which are recorded"
            note(found("locations_differ", message, at=ref.manifest.location, segment_id=ref.segment_id))
        if listed.group is None:
            return
        index = self._index(listed.group, note)
        if index is None:
            return  # said of the group, or just now
        own = np.sort(index.hashes[index.segments == listed.number])
        lacking = ~np.isin(hashes_of(locations), own)
        if lacking.any():
            block = locations[int(np.flatnonzero(lacking)[0])]
            message = f"{int(lacking.sum())} blocks of the segment are not in the index, first {block!r}"
            at = listed.group.locations.location
            note(found("locations_differ", message, at=at, segment_id=ref.segment_id, block=block))

    def _index(self, group: GroupRef, note: Note) -> LocationIndex | None:
        if self._held is None or self._held[0] != group.group_id:
            try:
                data = self._store.read(group.locations.location)
                check_hash(data, group.locations.sha256, group.locations.location)
                self._held = (group.group_id, LocationIndex.read(data))
            except StoreError as error:  # it may have been there when the group was looked at
                note(found("unreachable", error.message, at=group.locations.location))
                self._held = (group.group_id, None)
            except LamellaError:
                self._held = (group.group_id, None)
        return self._held[1]
