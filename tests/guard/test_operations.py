"""The hot paths do no more than they did: calls, reads and bytes, held against ``ceilings.json``; never time.

A path that got dearer on purpose, or cheaper for good: ``LAMELLA_WRITE_CEILINGS=1 pytest tests/guard`` writes the
ceilings anew, a tenth above what is counted; commit them with the change that explains them.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from lamella.snapshot.layout import FsspecStore
from lamella.snapshot.manifest import Block, SnapshotPointer
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from lamella.snapshot.wire.prune import Shape
from support.operations import CountedStore, counted

CEILINGS: Final = Path(__file__).parent / "ceilings.json"
#: What a ceiling leaves for other versions of Python and of libraries.
_ROOM: Final = 1.1
_SEGMENT: Final = 100
_SCHEMA: Final = Schema.assign(
    [
        Column(name="event_time", type="timestamp(us)"),
        Column(name="user_id", type="int64"),
        Column(name="country", type="string"),
        Column(name="price", type="decimal(18,2)"),
    ]
)
_written: dict[str, dict[str, int]] = {}


class Table:
    """A table of full segments over a folder, sorted by ``event_time``: a second, and a block, after the other."""

    def __init__(self, folder: Path, blocks: int) -> None:
        self.root = f"file://{folder}"
        self.store = CountedStore(FsspecStore())
        self.warehouse = self.opened()
        self.pointer: SnapshotPointer = self.warehouse.create("t", _SCHEMA, now_ms=1)
        for start in range(0, blocks, 10 * _SEGMENT):
            some = [block(number) for number in range(start, min(blocks, start + 10 * _SEGMENT))]
            refs = self.warehouse.prepare("t", _SCHEMA, some)
            self.pointer = self.warehouse.commit(self.pointer, added=refs, now_ms=2).pointer

    def opened(self) -> Warehouse:
        """A warehouse that has nothing in memory."""
        return Warehouse(self.store, self.root, segment_blocks=_SEGMENT)

    def narrow(self, warehouse: Warehouse, second: int, shape: Shape = "columns") -> int:
        """Prune to the blocks of three seconds; how many are kept."""
        asked = f"event_time >= {_time(second)} AND event_time <= {_time(second + 2)}"
        found = warehouse.prune(self.pointer, PruneRequest(filter=asked, shape=shape))
        return found.report.stages[-1].kept


def _time(second: int) -> str:
    return f"TIMESTAMP '1970-01-01 {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}+00:00'"


def block(number: int) -> Block:
    """One block: its second, every user, one of seven countries."""
    values: dict[str, tuple[int | bytes, int | bytes]] = {
        "event_time": (number * 10**6, number * 10**6 + 999_999),
        "user_id": (number % 13, 10**9 - number % 17),
        "country": (b"c%d" % (number % 7), b"c%d" % (number % 7)),
        "price": (number % 100, 10**6),
    }
    stats = {
        leaf.id: ColumnStats(
            min=to_bound(leaf.dtype, values[leaf.name][0]), max=to_bound(leaf.dtype, values[leaf.name][1]), null_count=0
        )
        for leaf in _SCHEMA.leaves()
    }
    return Block(location=f"s3://bucket/{number:08}.parquet", row_count=1_000, file_size=10_000, col_stats=stats)


def hold(name: str, **counts: int) -> None:
    """Hold counts against the ceilings of ``name``, or write them down."""
    if os.environ.get("LAMELLA_WRITE_CEILINGS") == "1":
        _written[name] = {key: math.ceil(count * _ROOM) for key, count in counts.items()}
        return
    ceilings = json.loads(CEILINGS.read_text())[name]
    above = [f"{key} is {count:,}, at most {ceilings[key]:,}" for key, count in counts.items() if count > ceilings[key]]
    assert not above, (
        f"{name} does more than it did: {'; '.join(above)}. If that is worth it, write the ceilings anew with "
        "LAMELLA_WRITE_CEILINGS=1 pytest tests/guard, and say why where you commit them."
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """A table of 20 segments; the ceilings are written when all is counted, if that was asked for."""
    yield Table(tmp_path_factory.mktemp("guard"), 20 * _SEGMENT)
    if _written:
        known = json.loads(CEILINGS.read_text()) if CEILINGS.exists() else {}
        CEILINGS.write_text(json.dumps(known | _written, indent=2, sort_keys=True) + "\n")


def test_a_narrow_warm_prune_does_no_more_than_it_did(table: Table) -> None:
    """A range over the sorted column, with literals that were not asked before, costs so many calls and no read."""
    assert table.narrow(table.warehouse, 310) == table.narrow(table.warehouse, 410) == 3
    table.store.reset()
    done = counted(lambda: table.narrow(table.warehouse, 510))
    hold("narrow warm prune", **msgspec.to_builtins(done), reads=table.store.reads, others=table.store.others)


def test_a_narrow_warm_prune_of_ranges_does_no_more_than_it_did(table: Table) -> None:
    """The same, answered as runs of blocks."""
    for second in (315, 415):
        table.narrow(table.warehouse, second, "ranges")
    done = counted(lambda: table.narrow(table.warehouse, 515, "ranges"))
    hold("narrow warm prune, ranges", **msgspec.to_builtins(done))


def test_a_narrow_warm_prune_does_not_grow_with_the_table(table: Table, tmp_path: Path) -> None:
    """Four times the blocks cost a narrow range hardly a call more."""
    larger = Table(tmp_path, 80 * _SEGMENT)
    calls = []
    for each in (table, larger):
        for second in (320, 420):
            each.narrow(each.warehouse, second)
        calls.append(counted(lambda each=each: each.narrow(each.warehouse, 520)))  # type: ignore[misc]  # a default
    assert calls[1].python_calls <= calls[0].python_calls * 1.1
    assert calls[1].c_calls <= calls[0].c_calls * 1.1


def test_a_first_narrow_prune_reads_no_more_than_it_did(table: Table) -> None:
    """A process that has nothing in memory reads what the snapshot layer leaves, and nothing else."""
    warehouse = table.opened()
    table.store.reset()
    assert table.narrow(warehouse, 610) == 3
    store = table.store
    hold("first narrow prune", reads=store.reads, read_bytes=store.read_bytes, puts=store.puts, others=store.others)


def test_a_commit_of_one_block_does_no_more_than_it_did(table: Table) -> None:
    """An append to a table of full segments costs so many calls, objects and bytes."""
    numbers = itertools.count(10**6)
    pointers = [table.pointer]

    def append() -> None:
        refs = table.warehouse.prepare("t", _SCHEMA, [block(next(numbers))])
        pointers.append(table.warehouse.commit(pointers[-1], added=refs, now_ms=3).pointer)

    append()
    append()
    table.store.reset()
    done = counted(append)
    store = table.store
    asked = {"reads": store.reads, "puts": store.puts, "put_bytes": store.put_bytes, "others": store.others}
    hold("commit of one block", **msgspec.to_builtins(done), **asked)


@pytest.mark.parametrize("shape", ["records", "columns", "ranges"])
def test_an_answer_of_every_block_is_encoded_with_no_more_than_it_took(table: Table, shape: Shape) -> None:
    """2,000 blocks, from the filter to the bytes that travel."""
    encoder = msgspec.json.Encoder()

    def answer(user: int) -> bytes:
        found = table.warehouse.prune(table.pointer, PruneRequest(filter=f"user_id = {user}", shape=shape))
        return encoder.encode(found)

    for user in (10**6, 10**6 + 1):
        answer(user)
    done = counted(lambda: answer(10**6 + 2))
    hold(f"answer of 2,000 blocks, {shape}", **msgspec.to_builtins(done))
