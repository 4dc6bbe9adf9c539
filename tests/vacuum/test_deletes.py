"""Files of deletion vectors live as long as a snapshot names one of their vectors."""

from __future__ import annotations

import msgspec
import numpy as np

from lamella.service.history.history import history_entry
from lamella.snapshot.deletes import VectorFile
from lamella.snapshot.manifest import Block
from vacuum.lake import DAY, MIN_AGE, Lake


def delete(lake: Lake, table_id: str, *locations: str) -> str:
    """Delete a row of each block; returns the location of the new file."""
    file = VectorFile(lake.warehouse.new_deletes_location(table_id))
    blocks: list[Block] = []
    for location in locations:
        block: Block = msgspec.structs.replace(lake.block(location), row_count=10)
        blocks.append(msgspec.structs.replace(block, deletes=(file.add(location, np.array([len(blocks)])),)))
    lake.store.put(file.location, file.finished())
    replace(lake, table_id, blocks)
    return file.location


def replace(lake: Lake, table_id: str, blocks: list[Block]) -> None:
    """Commit other entries of blocks."""
    record = lake.catalog.table_by_id(table_id)
    added = lake.warehouse.prepare(table_id, lake.warehouse.snapshot(record.pointer), blocks)
    removed = [block.location for block in blocks]
    result = lake.warehouse.commit(record.pointer, added=added, removed=removed, now_ms=lake.now_ms)
    assert lake.catalog.advance(table_id, history_entry(record.version + 1, result.pointer, result.snapshot))


def files(lake: Lake, table_id: str) -> set[str]:
    """What is in the folder of vectors."""
    return {found.location for found in lake.store.list(f"{lake.warehouse.table_location(table_id)}/_dv/")}


def test_a_file_lives_as_long_as_a_snapshot_names_one_of_its_vectors(lake: Lake) -> None:
    """Of the current snapshot, of one in the history, and of a tag."""
    table_id = lake.table()
    first, second = lake.append(table_id), lake.append(table_id)
    both = delete(lake, table_id, first, second)
    lake.now_ms += DAY
    one = delete(lake, table_id, first)
    lake.now_ms += 30 * DAY
    lake.clean(table_id)
    assert files(lake, table_id) == {both, one}  # the second block still has its vector
    lake.tag(table_id, "named", lake.history(table_id)[0])
    replace(lake, table_id, [lake.block(first), lake.block(second)])
    lake.now_ms += 30 * DAY
    lake.clean(table_id)
    assert files(lake, table_id) == {both, one}
    lake.catalog.drop_tag(table_id, "named", now_ms=lake.now_ms)
    lake.now_ms += 30 * DAY
    lake.clean(table_id)
    assert files(lake, table_id) == set()
    lake.verify(table_id)


def test_a_file_that_no_snapshot_names_goes_when_it_is_old(lake: Lake) -> None:
    """It may belong to a commit under way."""
    table_id = lake.table()
    lake.append(table_id)
    file = VectorFile(lake.warehouse.new_deletes_location(table_id))
    file.add("memory://x", np.array([1]))
    lake.store.put(file.location, file.finished())
    lake.now_ms += MIN_AGE // 2
    lake.clean(table_id)
    assert files(lake, table_id) == {file.location}
    lake.now_ms += 2 * MIN_AGE
    lake.clean(table_id)
    assert files(lake, table_id) == set()
