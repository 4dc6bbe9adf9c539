"""What a narrow range and a commit cost does not grow with the number of segments: calls, reads and bytes; never time.

The layer of segments is real. Its segments but the first are names of one sidecar, which nothing here opens.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pytest

from lamella.snapshot import commit as commits
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import GroupRef, SegmentRef
from lamella.snapshot.sketch.layers import SketchLayers
from lamella.snapshot.stats import to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.storage.together import TogetherStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.manifest_writer import ManifestWriter
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import PruneRequest
from support.guarded import SCHEMA, SEGMENT, block, narrow_filter
from support.operations import CountedStore, counted

SIZES: Final = (1_000, 10_000)
GROUP: Final = 1_000
EVENT_TIME: Final = SCHEMA.leaves()[0]
#: Calls that putting together a new snapshot's layer may take for each group more.
CALLS_A_GROUP: Final = 80
#: Bytes of a group's entry in a snapshot, once in its manifest and once in the header of its sidecar.
ENTRY_BYTES: Final = 4_000


class LargeTable:
    """A table of many segments, each of them a hundred seconds of the sorted column."""

    def __init__(self, folder: Path, segments: int) -> None:
        self.store = CountedStore(FsspecStore())
        self._root = f"file://{folder}"
        warehouse = self.opened()
        created = warehouse.create("t", SCHEMA, now_ms=1)
        empty = warehouse.snapshot(created)
        (first,) = warehouse.prepare("t", SCHEMA, [block(number) for number in range(SEGMENT)])
        ids = Ids()
        store = TogetherStore(self.store)
        writer = ManifestWriter(store, self._root, ids, SketchLayers(store), Manifests(store, 0))
        layout = writer.layout("t")
        refs = [first, *(_at(first, number, str(ids.new())) for number in range(1, segments))]
        groups: list[GroupRef] = []
        for start in range(0, segments, GROUP):
            members = refs[start : start + GROUP]
            hashes = [np.array([start + at], dtype=np.uint64) for at in range(len(members))]
            index = [(each, np.full(1, at, dtype=np.uint32)) for at, each in enumerate(hashes)]
            groups.append(writer.group(layout, empty, members, index))
        following = commits.next_snapshot(
            empty,
            snapshot_id=str(ids.new()),
            groups=groups,
            segments=(),
            appended=None,
            operation="append",
            row_changes=["append"],
            properties={},
            now_ms=2,
        )
        self.pointer = writer.snapshot(following)[0]
        self.warehouse = self.opened()

    def opened(self) -> Warehouse:
        """A warehouse that has nothing in memory."""
        return Warehouse(self.store, self._root)

    def narrow(self, second: int, warehouse: Warehouse | None = None) -> None:
        """Ask for three seconds of the first segment."""
        request = PruneRequest(filter=narrow_filter(second), shape="ranges")
        found = (warehouse or self.warehouse).prune(self.pointer, request)
        assert found.report.stages[-1].kept == 3

    def append(self, number: int) -> None:
        """Commit one block, after all others."""
        refs = self.warehouse.prepare("t", SCHEMA, [block(10**8 + number)])
        self.pointer = self.warehouse.commit(self.pointer, added=refs, now_ms=3).pointer


def _at(first: SegmentRef, number: int, segment_id: str) -> SegmentRef:
    """The reference of another segment, with its own times and names of blocks."""
    second = number * SEGMENT
    stats = msgspec.structs.replace(
        first.summary.col_stats[EVENT_TIME.id],
        min=to_bound(EVENT_TIME.dtype, second * 10**6),
        max=to_bound(EVENT_TIME.dtype, (second + SEGMENT) * 10**6 - 1),
    )
    summary = msgspec.structs.replace(first.summary, col_stats={**first.summary.col_stats, EVENT_TIME.id: stats})
    names = [block(each).location for each in (second, second + SEGMENT - 1)]
    return msgspec.structs.replace(
        first, segment_id=segment_id, summary=summary, first_location=names[0], last_location=names[1]
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[LargeTable, LargeTable]:
    """Tables of a thousand and of ten thousand segments."""

    @cache
    def table(segments: int) -> LargeTable:
        return LargeTable(tmp_path_factory.mktemp(f"large-{segments}"), segments)

    return table(SIZES[0]), table(SIZES[1])


def test_a_narrow_prune_costs_the_same_of_ten_times_the_segments(tables: tuple[LargeTable, LargeTable]) -> None:
    """A range with new literals takes hardly a call more, and reads nothing."""
    done = []
    for table in tables:
        for second in (10, 20):
            table.narrow(second)
        table.store.reset()
        done.append(counted(lambda table=table: table.narrow(30)))  # type: ignore[misc]  # a default
        assert table.store.reads == table.store.others == 0
    assert done[1].python_calls <= done[0].python_calls * 1.1
    assert done[1].c_calls <= done[0].c_calls * 1.1


def test_a_first_prune_reads_the_layer_and_one_segment(tables: tuple[LargeTable, LargeTable]) -> None:
    """A process that has nothing in memory opens each group's sidecar, the snapshot's, and one segment's."""
    for table, segments in zip(tables, SIZES, strict=True):
        warehouse = table.opened()
        table.store.reset()
        table.narrow(40, warehouse)
        assert table.store.reads <= segments // GROUP + 2
        assert table.store.read_bytes <= segments * 1_000 + 250_000


def test_a_commit_costs_the_same_of_ten_times_the_segments(tables: tuple[LargeTable, LargeTable]) -> None:
    """A commit of one block reads nothing of the table, and writes no more than an entry for each group."""
    done = []
    written = []
    for table in tables:
        table.append(0)
        table.store.reset()
        done.append(counted(lambda table=table: table.append(1)))  # type: ignore[misc]  # a default
        assert table.store.reads == table.store.others == 0
        written.append((table.store.puts, table.store.put_bytes))
    more = (SIZES[1] - SIZES[0]) // GROUP
    assert written[1][0] == written[0][0]
    assert written[1][1] <= written[0][1] + more * ENTRY_BYTES
    assert done[1].python_calls <= done[0].python_calls + more * CALLS_A_GROUP


def test_the_first_prune_after_a_commit_costs_calls_for_groups_and_not_for_segments(
    tables: tuple[LargeTable, LargeTable],
) -> None:
    """What was made of a group's segments for the snapshot before is not made again."""
    done = []
    for table in tables:
        table.narrow(50)
        table.append(2)
        table.narrow(51)
        table.append(3)
        table.store.reset()
        done.append(counted(lambda table=table: table.narrow(52)))  # type: ignore[misc]  # a default
        assert table.store.reads == table.store.others == 0
    more = (SIZES[1] - SIZES[0]) // GROUP
    assert done[1].python_calls <= done[0].python_calls + more * CALLS_A_GROUP
    assert done[1].c_calls <= done[0].c_calls + more * CALLS_A_GROUP
