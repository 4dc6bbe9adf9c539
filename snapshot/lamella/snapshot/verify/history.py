"""A table's history as the catalog has it: that snapshots follow one another, and are what the catalog says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import SnapshotPointer, decode_snapshot
from lamella.snapshot.verify.checks import found
from lamella.snapshot.verify.reading import Note, read_manifest


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot as the catalog records it; ``seq`` counts the table's snapshots, expired ones leave gaps."""

    seq: int
    pointer: SnapshotPointer
    prev_snapshot_id: str | None
    operation: str
    row_count: int
    block_count: int
    segment_count: int
    file_size_bytes: int


#: Records of a table, newest first: those with a ``seq`` below the first argument, at most as many as the second.
ReadHistory = Callable[[int, int], Sequence[Recorded]]


def check_history(store: Store, records: Sequence[Recorded], note: Note, *, older: Recorded | None) -> None:
    """Check records, newest first, by themselves and against their manifests; ``older`` is the next behind them."""
    for newer, before in pairwise([*records, *([older] if older is not None else [])]):
        _check_pair(newer, before, note)
    for number, record in enumerate(records):
        behind = records[number + 1] if number + 1 < len(records) else older
        _check_record(store, record, behind, note)


def _check_pair(newer: Recorded, before: Recorded, note: Note) -> None:
    at = newer.pointer.manifest.location
    if newer.seq == before.seq + 1 and newer.prev_snapshot_id != before.pointer.snapshot_id:
        message = f"it follows {newer.prev_snapshot_id}, and the one before it is {before.pointer.snapshot_id}"
        note(found("history_chain", message, at=at))
    if newer.pointer.timestamp_ms <= before.pointer.timestamp_ms:
        times = f"{newer.pointer.timestamp_ms} ms after {before.pointer.timestamp_ms} ms"
        note(found("history_time", f"its time is {times} of the one before it", at=at))


def _check_record(store: Store, record: Recorded, before: Recorded | None, note: Note) -> None:
    ref = record.pointer.manifest
    snapshot = read_manifest(store, ref, lambda data: decode_snapshot(data, location=ref.location), note)
    if snapshot is None:
        return
    follows = snapshot.prev_manifest
    if before is not None and before.seq + 1 == record.seq and follows not in (None, before.pointer.manifest):
        note(found("history_chain", "it names another manifest than that of the snapshot before it", at=ref.location))
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
        note(found("history_row", f"the catalog has {stated}, the manifest {own}", at=ref.location))
