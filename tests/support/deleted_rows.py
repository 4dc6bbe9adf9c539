"""Deletes rows of a table's blocks by deletion vectors, as a program would that writes these itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from lamella.client.http import Table
from lamella.snapshot.deletes import VectorFile
from lamella.snapshot.manifest import FEATURES, Block, DeleteFile
from lamella.snapshot.storage import FsspecStore, Store, TableLayout


def blocks_of(table: Table) -> dict[str, Block]:
    """The blocks of the current snapshot, by location."""
    segments = table.snapshot(table.info().snapshot_id).segments
    listed = [table.segment(each.segment_id, reader_features=FEATURES).blocks for each in segments]
    return {block.location: block for blocks in listed for block in blocks}


def delete_positions(
    table: Table, positions: Mapping[str, Sequence[int]], store: Store | None = None
) -> list[DeleteFile]:
    """Delete rows by the locations of their blocks; earlier lists of these blocks no longer apply.

    Returns the entry of each. ``store``: where the vectors are written; None: files.
    """
    info = table.info()
    file = VectorFile(TableLayout(info.location).deletes(info.snapshot_id))
    entries = {location: file.add(location, np.array(sorted(rows), np.int64)) for location, rows in positions.items()}
    (store or FsspecStore()).put(file.location, file.finished())
    set_deletes(table, {location: (entry,) for location, entry in entries.items()})
    return list(entries.values())


def set_deletes(table: Table, entries: Mapping[str, Sequence[DeleteFile]], **more: Any) -> None:
    """Give blocks, by location, other lists of deleted rows, in one commit."""
    blocks = blocks_of(table)
    changed = [msgspec.structs.replace(blocks[location], deletes=tuple(each)) for location, each in entries.items()]
    table.commit(changed, list(entries), operation="delete", **more)
