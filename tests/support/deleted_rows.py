"""Deletes rows of a table's blocks by deletion vectors, as a program would that writes these itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from lamella.client.http import Table
from lamella.snapshot.deletes import VectorFile
from lamella.snapshot.manifest import FEATURES, Block
from lamella.snapshot.storage import FsspecStore, TableLayout


def blocks_of(table: Table) -> dict[str, Block]:
    """The blocks of the current snapshot, by location."""
    segments = table.snapshot(table.info().snapshot_id).segments
    listed = [table.segment(each.segment_id, reader_features=FEATURES).blocks for each in segments]
    return {block.location: block for blocks in listed for block in blocks}


def delete_positions(table: Table, positions: Mapping[str, Sequence[int]]) -> None:
    """Delete rows by the locations of their blocks; earlier lists of these blocks no longer apply."""
    info = table.info()
    file = VectorFile(TableLayout(info.location).deletes(info.snapshot_id))
    blocks = blocks_of(table)
    changed = [
        msgspec.structs.replace(blocks[location], deletes=(file.add(location, np.array(sorted(rows), dtype=np.int64)),))
        for location, rows in positions.items()
    ]
    FsspecStore().put(file.location, file.finished())
    table.commit(changed, list(positions), operation="delete")
