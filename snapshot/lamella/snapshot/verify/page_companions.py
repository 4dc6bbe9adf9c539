"""The page companion of a segment: built again from the files and compared. It may be written again at any time."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lamella.snapshot.errors import LamellaError, ManifestError, ObjectNotFound, StoreError
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import Segment, SegmentRef, Snapshot
from lamella.snapshot.pages import PageCompanion, SegmentPages, build_pages
from lamella.snapshot.pages.cell import encode
from lamella.snapshot.schema import Schema, parse_type
from lamella.snapshot.verify.checks import found
from lamella.snapshot.verify.companions import put_again
from lamella.snapshot.verify.reading import Note
from lamella.snapshot.wire.verify import Finding


class _Held(msgspec.Struct, frozen=True):
    """Bytes as if they were an object."""

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
    """Compare a segment's page companion, if it has one, with what its files say; True when it has one.

    ``expected``: it should have one.
    """
    pages = SegmentPages(ref.segment_id, ref.manifest)
    problems: list[tuple[str, str, str | None]] = []
    is_there = True
    try:
        held = PageCompanion(store, pages.location, ref.segment_id, ref.manifest.sha256)
        schema = _schema_of(snapshot, held)
        if len(held) != len(segment.blocks):
            raise ManifestError(f"it has {len(held)} blocks, not {len(segment.blocks)}")
        built = build_pages(store, schema, ref.segment_id, ref.manifest.sha256, segment.blocks, workers=workers)
        if store.read(pages.location) != built:
            fresh = PageCompanion(_Held(built), pages.location, ref.segment_id, ref.manifest.sha256)
            problems += _differences(held, fresh, segment)
    except ObjectNotFound as error:
        is_there = False
        if expected:
            problems.append(("page_companion_missing", error.message, None))
    except ManifestError as error:
        problems.append(("page_companion_damaged", error.message, None))
    except LamellaError as error:
        problems.append(("unreachable", error.message, None))
    findings = [
        found(code, message, at=pages.location, segment_id=ref.segment_id, block=block)
        for code, message, block in problems
    ]
    if repair and findings and all(finding.code != "unreachable" for finding in findings):
        findings = _repaired(store, snapshot.schema, ref, segment, findings, pages.location, workers)
    for finding in findings:
        note(finding)
    return is_there


def _schema_of(snapshot: Snapshot, held: PageCompanion) -> Schema:
    """The schema that a page companion was built for; raises ManifestError."""
    built_for = held.column_types
    for schema in reversed(snapshot.history):
        if {leaf.id: str(leaf.dtype) for leaf in schema.leaves()} == built_for:
            return schema
    raise ManifestError("it was built for columns that the table never had")


def _differences(held: PageCompanion, fresh: PageCompanion, segment: Segment) -> Iterator[tuple[str, str, str | None]]:
    """What differs, at most one sentence a block; raises ManifestError when cells are damaged."""
    everything = range(len(held))
    told: set[int] = set()
    for row, block in enumerate(segment.blocks):
        mine, now = held.block(row), fresh.block(row)
        if now[2] is not None:  # the file cannot be read now, which is said of the block
            told.add(row)
            if now[2] == StoreError.code:  # but for this: a moment ago it could, perhaps
                yield "unreachable", "the store failed while the pages of a block were read", block.location
        elif mine[2] is not None:
            told.add(row)
            yield "page_companion_incomplete", f"it has nothing of the block: {mine[2]}", block.location
        elif mine != now:
            told.add(row)
            yield "page_companion_differs", "row groups or the content id are not the file's", block.location
    for column_id, text in held.column_types.items():
        dtype = parse_type(text)
        pairs = zip(held.cells(column_id, dtype, everything), fresh.cells(column_id, dtype, everything), strict=True)
        for row, (one, other) in enumerate(pairs):
            if row in told:
                continue
            if one is None and other is not None:
                told.add(row)
                location = segment.blocks[row].location
                yield "page_companion_incomplete", f"it has no pages of column #{column_id}", location
            elif one is not None and (other is None or encode(one) != encode(other)):
                told.add(row)
                location = segment.blocks[row].location
                yield "page_companion_differs", f"the pages of column #{column_id} are not the file's", location


def _repaired(
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
