"""Sidecars of statistics and of pages: rebuilt, compared, and rewritten if damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot import commit as commits
from lamella.snapshot.columnar import build_blocks, build_segments
from lamella.snapshot.columnar.column_parts import whole_batch
from lamella.snapshot.columnar.sidecar import BLOCK_KEY
from lamella.snapshot.columnar.zones import HIGH_EXACT, LOW_EXACT
from lamella.snapshot.errors import AlreadyExists, LamellaError, ManifestError, ObjectNotFound, StoreError
from lamella.snapshot.manifest import (
    LAST_WITH_OLD_NAMES,
    Group,
    GroupRef,
    ObjectRef,
    Segment,
    SegmentRef,
    Snapshot,
    content_hash,
    encode,
)
from lamella.snapshot.pages import PageSidecar, SegmentPages, build_pages
from lamella.snapshot.pages.cell import encode as encode_cell
from lamella.snapshot.schema import Schema, parse_type
from lamella.snapshot.schema.evolution import Versioned, schema_at
from lamella.snapshot.storage import Store
from lamella.snapshot.verify.checks import CHECKS, found
from lamella.snapshot.verify.reading import Note, read_sidecar
from lamella.snapshot.wire.maintenance import Finding

# Sidecars: rebuilt from their manifests, compared, and rewritten if damaged.
#
# A sidecar's name and hash are recorded in the layer above, so it can only be restored as exactly those bytes. Building
# is deterministic for one release (and one version of Arrow); bytes of an older one may differ with the same meaning.

_EXACT: Final = LOW_EXACT | HIGH_EXACT
#: Arrays that older releases did not write; without them nothing is asserted.
_OPTIONAL: Final = (".spans", ".elsewhere", ".sum", ".bucket", *BLOCK_KEY)
_HEADER: Final = b"lamella.header"
#: Version of the writing release; a newer one is refused when the sidecar is opened.
_VERSION: Final = b"lamella.format_version"


class AsOf(msgspec.Struct, frozen=True):
    """A table's schemas up to the one with an id: the state when that one was current."""

    history: tuple[Schema, ...]


def as_of(table: Versioned, schema_id: int) -> AsOf:
    """Returns a table's schemas up to one of them. Raises InvalidSchema if the table never had that schema."""
    wanted = schema_at(table, schema_id)
    return AsOf((*(schema for schema in table.history if schema.schema_id != schema_id), wanted))


def segment_sidecar(table: Versioned, segment: Segment, *, in_parts: bool = False) -> bytes:
    """Builds a segment's sidecar from its manifest, ``in_parts`` or as a whole, as the reference to it says.

    Raises:
        InvalidSchema: an unknown schema.
        ManifestError: unreadable statistics.
    """
    then = as_of(table, segment.schema_id)
    seen = commits.seen_blocks(then, segment.blocks)
    built = build_blocks(then.history[-1], seen, split_from_bytes=0 if in_parts else None)
    return _as_written(segment.format_version, built)


def snapshot_sidecar(snapshot: Snapshot) -> bytes:
    """Builds a snapshot's sidecar from its manifest; raises as :func:`segment_sidecar`."""
    head = msgspec.structs.replace(snapshot, segments=(), groups=tuple(map(_bare, snapshot.groups)), sidecar=None)
    refs = commits.seen_refs(snapshot, snapshot.segments)
    if snapshot.format_version > LAST_WITH_OLD_NAMES:
        return build_segments(snapshot.schema, refs, encode(head))
    members = _with_old_names(msgspec.to_builtins(head, str_keys=True))
    members["groups"] = [_with_old_names(group) for group in members["groups"]]
    if snapshot.format_version == 1:
        for newer in ("groups", "prev_manifest"):
            members.pop(newer, None)
    built = build_segments(snapshot.schema, refs, msgspec.json.encode(members))
    return _as_written(snapshot.format_version, built)


def _bare(group: GroupRef) -> GroupRef:
    """Returns a group as in the header of a sidecar: without statistics, which are in its own sidecar."""
    return msgspec.structs.replace(group, summary=msgspec.structs.replace(group.summary, col_stats={}))


def _with_old_names(members: dict[str, Any]) -> dict[str, Any]:
    """Returns the members of a manifest with the name that a sidecar had before version 3, in the same order."""
    return {"companion" if name == "sidecar" else name: value for name, value in members.items()}


def _as_written(version: int, data: bytes) -> bytes:
    """Returns a sidecar as a release of its format version would have written it."""
    if version > LAST_WITH_OLD_NAMES:
        return data
    batch = whole_batch(data)
    fields = [_before_version_3(field) for field in batch.schema]
    metadata = {**(batch.schema.metadata or {}), _VERSION: str(version).encode()}
    schema = pa.schema(fields, metadata=metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch(batch.columns, schema=schema))
    return bytes(sink.getvalue())


def _before_version_3(field: pa.Field) -> pa.Field:
    first, dot, rest = field.name.partition(".")
    return field.with_name(f"companion.{rest}") if dot and first == "sidecar" else field


def group_sidecar(table: Versioned, group: Group, *, in_parts: bool = False) -> bytes:
    """Builds a group's sidecar from its manifest, as :func:`segment_sidecar`."""
    then = as_of(table, group.schema_id)
    seen = commits.seen_refs(then, group.segments)
    built = build_segments(then.history[-1], seen, split_from_bytes=0 if in_parts else None)
    return _as_written(group.format_version, built)


def check_sidecar(
    store: Store,
    ref: ObjectRef,
    build: Callable[[], bytes],
    note: Note,
    *,
    segment_id: str | None = None,
    repair: bool = False,
) -> bytes | None:
    """Compare a sidecar with the result of ``build``; returns the bytes, None if they cannot be used.

    ``repair``: rewrite it if it is missing or damaged.
    """
    built, reason = _built(build)
    data = read_derived(store, ref, lambda: (built, reason), note, segment_id=segment_id, repair=repair)
    if data is None:
        return None
    if built is None or data == built:
        return data
    problems = list(differences(data, built))
    for problem in problems:
        note(found("sidecar_differs", problem, at=ref.location, segment_id=segment_id))
    if not problems:
        note(found("sidecar_older", "this release would write different bytes", at=ref.location, segment_id=segment_id))
    return data


def read_derived(
    store: Store,
    ref: ObjectRef,
    built: Callable[[], tuple[bytes | None, str]],
    note: Note,
    *,
    segment_id: str | None = None,
    repair: bool = False,
) -> bytes | None:
    """Returns the bytes of a derived object, None if it is missing or damaged (and was not restored).

    ``built``: returns the correct bytes, or None and the reason why they are unknown; called only to ``repair``.
    """
    findings: list[Finding] = []
    data = read_sidecar(store, ref, findings.append, segment_id=segment_id)
    if data is None and repair:
        made, reason = built()
        findings = [_repaired(store, ref, finding, made, reason) for finding in findings]
        if all(finding.repaired for finding in findings):
            data = made
    for finding in findings:
        note(finding)
    return data


def put_again(store: Store, location: str, data: bytes) -> None:
    """Replace a damaged object, and check the result; raises StoreError and others."""
    store.delete(location)
    with suppress(AlreadyExists):  # another writer was faster; its result is checked
        store.put(location, data)
    if content_hash(store.read(location)) != content_hash(data):
        raise LamellaError(f"{location} was written, but has different content when read back", location=location)


def _built(build: Callable[[], bytes]) -> tuple[bytes | None, str]:
    try:
        return build(), ""
    except (
        LamellaError,
        ValueError,
    ) as error:  # arrays cannot hold it: reported of the manifest
        return None, f"it cannot be built from its manifest: {error}"


def _repaired(store: Store, ref: ObjectRef, finding: Finding, built: bytes | None, reason: str) -> Finding:
    if not CHECKS[finding.code].repairable:
        return finding
    if built is None or content_hash(built) != ref.sha256:
        reason = reason or "the sidecar built by this release does not have the recorded SHA-256; nothing was written"
        return msgspec.structs.replace(finding, not_repaired=reason)
    try:
        put_again(store, ref.location, built)
    except LamellaError as error:
        return msgspec.structs.replace(finding, not_repaired=error.message)
    return msgspec.structs.replace(finding, repaired=True)


def differences(recorded: bytes, built: bytes) -> Iterator[str]:
    """Yields the differences between two sidecars, column by column."""
    try:
        ours, theirs = whole_batch(built), whole_batch(recorded)
    except (pa.ArrowException, OSError, ValueError, LamellaError) as error:
        yield f"it is not a sidecar: {error}"
        return
    if ours.num_rows != theirs.num_rows:
        yield f"it has {theirs.num_rows} rows, not {ours.num_rows}"
        return
    yield from _metadata(ours.schema.metadata or {}, theirs.schema.metadata or {})
    for name in theirs.schema.names:
        if name not in ours.schema.names:
            yield f"the array {name!r} is not in the manifest"
    for name in ours.schema.names:
        if name not in theirs.schema.names:
            if not name.endswith(_OPTIONAL):
                yield f"the array {name!r} is missing"
            continue
        text = _column(name, ours, theirs)
        if text is not None:
            yield text


def _metadata(ours: dict[bytes, bytes], theirs: dict[bytes, bytes]) -> Iterator[str]:
    for key in sorted({*ours, *theirs}):
        one, other = ours.get(key, b""), theirs.get(key, b"")
        if one == other or key == _VERSION:
            continue
        if key == _HEADER:
            try:
                if msgspec.json.decode(one) == msgspec.json.decode(other):
                    continue
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
        yield f"{key.decode('utf-8', 'replace')} differs from the manifest"


def _column(name: str, ours: Any, theirs: Any) -> str | None:
    here, there = ours.schema.field(name), theirs.schema.field(name)
    if here.type != there.type or (here.metadata or {}) != (there.metadata or {}):
        return f"the array {name!r} has a different type"
    one, other = ours.column(name), theirs.column(name)
    if one.equals(other):
        return None
    if name.endswith(".flags"):
        asserted = pc.bit_wise_and(other, pc.bit_wise_not(one))
        lost = pc.bit_wise_and(pc.bit_wise_xor(one, other), pa.scalar(0xFF ^ _EXACT, pa.uint8()))
        # Exact bits that are cleared assert nothing: older releases did not have them.
        wrong = pc.or_(
            pc.not_equal(pc.bit_wise_and(asserted, pa.scalar(_EXACT, pa.uint8())), pa.scalar(0, pa.uint8())),
            pc.not_equal(lost, pa.scalar(0, pa.uint8())),
        )
        if not pc.any(wrong).as_py():
            return None
        return f"the array {name!r} differs, first at row {wrong.to_pylist().index(True)}"
    pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
    row = next(index for index, (mine, exists_below) in enumerate(pairs) if mine != exists_below)
    return f"the array {name!r} differs, first at row {row}: {other[row].as_py()!r}, not {one[row].as_py()!r}"


class _InMemory(msgspec.Struct, frozen=True):
    """Bytes with the interface of a stored object."""

    data: bytes

    def read_range(self, location: str, start: int, length: int) -> bytes:
        del location
        return self.data[start : start + length]


def check_pages(
    store: Store,
    snapshot: Snapshot,
    ref: SegmentRef,
    segment: Segment,
    note: Note,
    *,
    expected: bool,
    repair: bool = False,
    workers: int = 8,
) -> bool:
    """Compare a segment's page sidecar, if it has one, with its files; returns whether it has one.

    ``expected``: it should have one.
    """
    pages = SegmentPages(ref.segment_id, ref.manifest)
    problems: list[tuple[str, str, str | None]] = []
    is_there = True
    try:
        stored = PageSidecar(store, pages.location, ref.segment_id, ref.manifest.sha256)
        schema = _schema_of(snapshot, stored)
        if len(stored) != len(segment.blocks):
            raise ManifestError(f"it has {len(stored)} blocks, not {len(segment.blocks)}")
        built = build_pages(store, schema, ref.segment_id, ref.manifest.sha256, segment.blocks, workers=workers)
        if store.read(pages.location) != built:
            fresh = PageSidecar(_InMemory(built), pages.location, ref.segment_id, ref.manifest.sha256)
            problems += _differences(stored, fresh, segment)
    except ObjectNotFound as error:
        is_there = False
        if expected:
            problems.append(("page_sidecar_missing", error.message, None))
    except ManifestError as error:
        problems.append(("page_sidecar_damaged", error.message, None))
    except LamellaError as error:
        problems.append(("unreachable", error.message, None))
    findings = [
        found(code, message, at=pages.location, segment_id=ref.segment_id, block=block)
        for code, message, block in problems
    ]
    if repair and findings and all(finding.code != "unreachable" for finding in findings):
        findings = _pages_repaired(store, snapshot.schema, ref, segment, findings, pages.location, workers)
    for finding in findings:
        note(finding)
    return is_there


def _schema_of(snapshot: Snapshot, stored: PageSidecar) -> Schema:
    """Returns the schema that a page sidecar was built for; raises ManifestError."""
    built_for = stored.column_types
    for schema in reversed(snapshot.history):
        if {leaf.id: str(leaf.dtype) for leaf in schema.leaves()} == built_for:
            return schema
    raise ManifestError("it was built for columns that the table never had")


def _differences(stored: PageSidecar, fresh: PageSidecar, segment: Segment) -> Iterator[tuple[str, str, str | None]]:
    """Yields the differences, at most one sentence per block; raises ManifestError if cells are damaged."""
    everything = range(len(stored))
    reported: set[int] = set()
    for row, block in enumerate(segment.blocks):
        mine, now = stored.block(row), fresh.block(row)
        if now[2] is not None:  # the file cannot be read now, which is reported of the block
            reported.add(row)
            if now[2] == StoreError.code:  # except here: a moment ago it may have been readable
                yield "unreachable", "the store failed while the pages of a block were read", block.location
        elif mine[2] is not None:
            reported.add(row)
            yield "page_sidecar_incomplete", f"it has no data for the block: {mine[2]}", block.location
        elif mine != now:
            reported.add(row)
            yield "page_sidecar_differs", "row groups or the content id differ from the file's", block.location
    for column_id, text in stored.column_types.items():
        dtype = parse_type(text)
        pairs = zip(stored.cells(column_id, dtype, everything), fresh.cells(column_id, dtype, everything), strict=True)
        for row, (one, other) in enumerate(pairs):
            if row in reported:
                continue
            if one is None and other is not None:
                reported.add(row)
                location = segment.blocks[row].location
                yield "page_sidecar_incomplete", f"it has no pages for column #{column_id}", location
            elif one is not None and (other is None or encode_cell(one) != encode_cell(other)):
                reported.add(row)
                location = segment.blocks[row].location
                yield "page_sidecar_differs", f"the pages of column #{column_id} differ from the file's", location


def _pages_repaired(
    store: Store,
    schema: Schema,
    ref: SegmentRef,
    segment: Segment,
    findings: list[Finding],
    location: str,
    workers: int,
) -> list[Finding]:
    try:
        data = build_pages(store, schema, ref.segment_id, ref.manifest.sha256, segment.blocks, workers=workers)
        put_again(store, location, data)
    except LamellaError as error:
        return [msgspec.structs.replace(each, not_repaired=error.message) for each in findings]
    return [msgspec.structs.replace(each, repaired=True) for each in findings]
