"""Skip indexes: directories, parts, and that each entry of a block leads to a row of its part. No block is read."""

from __future__ import annotations

import numpy as np

from lamella.snapshot.carrying import CarryingPool
from lamella.snapshot.errors import HashMismatch, LamellaError, ManifestError, NotFound, StoreError
from lamella.snapshot.index.definition import term_in
from lamella.snapshot.index.directory import Directory
from lamella.snapshot.index.kind import kinds
from lamella.snapshot.index.part import Part, PartRef
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import DirectoryRef, Snapshot, TableIndex
from lamella.snapshot.verify.checks import found
from lamella.snapshot.verify.reading import Note, read_manifest
from lamella.snapshot.wire.verify import Finding


def check_definition(snapshot: Snapshot, index: TableIndex, at: str, note: Note) -> None:
    """Whether an index that is in use can be used; ``at``: the snapshot's manifest."""
    if index.dropped_ms is not None:
        return
    if index.kind not in kinds():
        note(found("index_not_usable", f"index {index.name!r}: the kind {index.kind!r} is not installed here", at=at))
    elif term_in(index, snapshot) is None:
        message = f"index {index.name!r}: a column of {index.expression} is gone or has another type"
        note(found("index_not_usable", message, at=at))


def check_directory(store: Store, index: TableIndex, ref: DirectoryRef, note: Note, *, workers: int) -> int:
    """One directory of an index and all of its parts; how many parts were looked at."""
    at = ref.object.location
    directory = read_manifest(store, ref.object, lambda data: Directory.read(data, at), note)
    if directory is None:
        return 0
    recorded = (ref.part_count, ref.block_count, ref.parts_bytes)
    own = (len(directory.parts), len(directory), sum(part.size_bytes for part in directory.parts))
    if recorded != own:
        note(found("index_counts", f"parts, blocks and bytes are {own}, and {recorded} is recorded", at=at))
    if not _is_sorted(directory):
        note(found("index_entries", "its keys are not in order, so blocks are not found", at=at))
    last_row = np.full(len(directory.parts), -1, dtype=np.int64)
    np.maximum.at(last_row, directory.part, directory.row)
    with CarryingPool(max_workers=workers, thread_name_prefix="verify") as pool:
        for findings in pool.map(
            lambda number: _part(store, index, directory.parts[number], int(last_row[number])),
            range(len(directory.parts)),
        ):
            for finding in findings:
                note(finding)
    return len(directory.parts)


def open_part(store: Store, ref: PartRef) -> Part:
    """A part, read from the store itself; raises as :class:`Part`."""
    return Part(ref, lambda ranges: [store.read_range(ref.location, *each) for each in ranges])


def _part(store: Store, index: TableIndex, ref: PartRef, last_row: int) -> list[Finding]:
    def wrong(code: str, message: str) -> list[Finding]:
        return [found(code, f"index {index.name!r}: {message}", at=ref.location)]

    try:
        size_bytes = store.stat(ref.location).size_bytes
        if size_bytes != ref.size_bytes:
            return wrong("index_part_damaged", f"it has {size_bytes} bytes, not {ref.size_bytes}")
        header = open_part(store, ref).header
    except StoreError as error:
        return wrong("unreachable", error.message)
    except (HashMismatch, ManifestError) as error:
        return wrong("index_part_damaged", error.message)
    except NotFound as error:
        return wrong("index_part_missing", error.message)
    except LamellaError as error:  # a place that there cannot be
        return wrong("index_part_damaged", error.message)
    if header.kind != index.kind or header.options != index.options:
        return wrong("index_part_differs", "it was built by another definition")
    if header.block_count != ref.block_count:
        return wrong("index_part_differs", f"it knows {header.block_count} blocks, not {ref.block_count}")
    if last_row >= header.block_count:
        return wrong("index_entries", f"an entry leads to row {last_row} of {header.block_count}")
    return []


def _is_sorted(directory: Directory) -> bool:
    high, low = directory.keys[:, 0], directory.keys[:, 1]
    return bool(((high[:-1] < high[1:]) | ((high[:-1] == high[1:]) & (low[:-1] < low[1:]))).all())
