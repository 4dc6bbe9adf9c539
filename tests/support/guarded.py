"""A small table whose hot paths are counted, and the ceilings that the counts are held against."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Final

import msgspec

from lamella.snapshot.manifest import Block, SnapshotPointer
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from lamella.snapshot.wire.prune import Shape
from support.operations import CountedStore

CEILINGS: Final = Path(__file__).parents[1] / "guard" / "ceilings.json"
#: What a ceiling leaves for other versions of Python and of libraries.
_MARGIN: Final = 1.1
SEGMENT: Final = 100
SCHEMA: Final = Schema.assign(
    [
        Column(name="event_time", type="timestamp(us)"),
        Column(name="user_id", type="int64"),
        Column(name="country", type="string"),
        Column(name="price", type="decimal(18,2)"),
    ]
)


class Table:
    """A table of full segments over a folder, sorted by ``event_time``: a second, and a block, after the other."""

    def __init__(self, folder: Path, blocks: int, *, by_name: bool = False) -> None:
        self.root = f"file://{folder}"
        self.store = CountedStore(FsspecStore())
        self.warehouse = self.opened()
        self.pointer: SnapshotPointer = self.warehouse.create("t", SCHEMA, now_ms=1)
        self.empty = self.pointer
        for start in range(0, blocks, 10 * SEGMENT):
            numbers = range(start, min(blocks, start + 10 * SEGMENT))
            some = [msgspec.structs.replace(block(number), by_name=by_name) for number in numbers]
            refs = self.warehouse.prepare("t", SCHEMA, some)
            self.pointer = self.warehouse.commit(self.pointer, added=refs, now_ms=2).pointer

    def opened(self) -> Warehouse:
        """A warehouse that has nothing in memory."""
        return Warehouse(self.store, self.root, segment_blocks=SEGMENT)

    def narrow(self, warehouse: Warehouse, second: int, shape: Shape = "columns") -> int:
        """Prune to the blocks of three seconds; how many are kept."""
        found = warehouse.prune(self.pointer, PruneRequest(filter=narrow_filter(second), shape=shape))
        return found.report.stages[-1].kept


def narrow_filter(second: int) -> str:
    """A filter that three blocks match."""
    return f"event_time >= {_time(second)} AND event_time <= {_time(second + 2)}"


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
        for leaf in SCHEMA.leaves()
    }
    return Block(location=f"s3://bucket/{number:08}.parquet", row_count=1_000, file_size=10_000, col_stats=stats)


def hold(name: str, **counts: int) -> None:
    """Hold counts against the ceilings of ``name``, or write them down when that was asked for."""
    if os.environ.get("LAMELLA_WRITE_CEILINGS") == "1":
        known = json.loads(CEILINGS.read_text()) if CEILINGS.exists() else {}
        known[name] = {key: math.ceil(count * _MARGIN) for key, count in counts.items()}
        CEILINGS.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
        return
    ceilings = json.loads(CEILINGS.read_text())[name]
    above = [f"{key} is {count:,}, at most {ceilings[key]:,}" for key, count in counts.items() if count > ceilings[key]]
    assert not above, (
        f"{name} does more than it did: {'; '.join(above)}. If that is worth it, write the ceilings anew with "
        "LAMELLA_WRITE_CEILINGS=1 pytest tests/guard, and say why where you commit them."
    )
