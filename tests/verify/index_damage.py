"""Every way in which a skip index can be wrong, each made on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from lamella.snapshot.index.directory import Directory
from lamella.snapshot.manifest import ObjectRef, TableIndex
from lamella.snapshot.warehouse.index_refresh import RefreshPosition
from support.lying_writer import LyingWriter


def indexed(table: LyingWriter) -> TableIndex:
    """Give the table an index that knows all of its blocks."""
    warehouse = table.warehouse
    table.pointer = warehouse.indexing.create(
        table.pointer, name="i", kind="value_set", expression="a", now_ms=3_000
    ).pointer
    table.record()
    (index,) = table.snapshot.skip_indexes
    built = warehouse.index_refresh.run(table.pointer, index, "incremental", RefreshPosition(), max_blocks=100)
    table.pointer = warehouse.indexing.add_parts(table.pointer, index.index_id, built.parts, now_ms=4_000).pointer
    table.record()
    return table.snapshot.skip_indexes[0]


def changed(**members: Any) -> Callable[[LyingWriter], None]:
    """Another definition."""

    def do(table: LyingWriter) -> None:
        publish(table, msgspec.structs.replace(indexed(table), **members))

    return do


def publish(table: LyingWriter, index: TableIndex) -> None:
    """Let the snapshot have this index."""
    table.publish(msgspec.structs.replace(table.snapshot, indexes=(index,)))


def directory(table: LyingWriter, change: Callable[[Directory], Directory]) -> None:
    """Write the directory again."""
    index = indexed(table)
    (ref,) = index.directories
    data = change(Directory.read(table.store.read(ref.object.location))).to_bytes()
    written: ObjectRef = table.write(ref.object.location, data)
    publish(table, msgspec.structs.replace(index, directories=(msgspec.structs.replace(ref, object=written),)))


def rows(change: Callable[[Any], Any]) -> Callable[[LyingWriter], None]:
    """Entries that lead to other rows."""
    return lambda table: directory(table, lambda d: Directory(d.parts, d.keys, d.part, change(d.row)))


def counts(table: LyingWriter) -> None:
    """More blocks are recorded than there are."""
    index = indexed(table)
    refs = [msgspec.structs.replace(ref, block_count=ref.block_count + 1) for ref in index.directories]
    publish(table, msgspec.structs.replace(index, directories=tuple(refs)))


def part_of(table: LyingWriter) -> str:
    """The place of the index's part."""
    (ref,) = indexed(table).directories
    return Directory.read(table.store.read(ref.object.location)).parts[0].location


def flipped(table: LyingWriter) -> None:
    """A bit in the tail of a part."""
    location = part_of(table)
    table.flip(location, len(table.store.read(location)) - 10)
