"""Tables of events in a service, registered file by file, whose rows a full scan reads again: what jobs are held to."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.client.http import Lamella
from lamella.client.jobs.context import JobContext, Sizes
from lamella.client.rewrite.engine import Engine, SerialEngine
from lamella.snapshot.deletes import deleted_rows
from lamella.snapshot.manifest import FEATURES, Block
from lamella.snapshot.parquet import block_of, read_footer
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("day", pa.date32()),
        pa.field("user", pa.string()),
        pa.field("amount", pa.float64()),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("place", pa.struct([pa.field("city", pa.string()), pa.field("zip", pa.int32())])),
    ]
)
COLUMNS = [
    Column(name="id", type="int64"),
    Column(name="day", type="date"),
    Column(name="user", type="string"),
    Column(name="amount", type="float64"),
    Column(name="price", type="decimal(12,2)"),
    Column(name="place", type="struct", fields=(Column(name="city", type="string"), Column(name="zip", type="int32"))),
]
_NAMES = count()


def events(rng: random.Random, size: int, *, days: tuple[int, int] = (0, 1_000)) -> pa.Table:
    """Random events, with nulls, NaN and both zeros; every id is another one."""
    numbers = range(size)
    return pa.table(
        {
            "id": pa.array([rng.getrandbits(50) for _ in numbers], pa.int64()),
            "day": pa.array([rng.randrange(*days) if rng.random() > 0.02 else None for _ in numbers], pa.int32()).cast(
                pa.date32()
            ),
            "user": pa.array([f"u{rng.randrange(500):04}" if rng.random() > 0.05 else None for _ in numbers]),
            "amount": pa.array([rng.choice([rng.random(), -0.0, 0.0, float("nan"), None]) for _ in numbers]),
            "price": pa.array([Decimal(rng.randrange(10**8)).scaleb(-2) for _ in numbers], pa.decimal128(12, 2)),
            "place": pa.array([{"city": rng.choice(["Ulm", "Köln"]), "zip": rng.randrange(9)} for _ in numbers]),
        },
        schema=SCHEMA,
    )


def as_texts(rows: pa.Table) -> Counter[str]:
    """Rows as a bag of texts, which tell -0.0 from 0.0 and know one NaN."""
    columns = [rows.column(name).to_pylist() for name in SCHEMA.names]
    return Counter(map(repr, zip(*columns, strict=True)))


class EventTable:
    """A table of a service. ``folder``: for files that are registered."""

    def __init__(self, lake: Lamella, folder: Path, **more: Any) -> None:
        self.lake = lake
        self.name = f"events.t{next(_NAMES)}_{random.Random().getrandbits(40):x}"  # a fresh name
        self.folder = folder / self.name
        self.folder.mkdir(parents=True)
        if "events" not in [each.name for each in lake.namespaces()]:
            lake.create_namespace("events")
        lake.create_table(self.name, schema=COLUMNS, **more)
        self.handle = lake.table(self.name)
        self._files = count()

    def add(self, *tables: pa.Table, verify: bool = False) -> None:
        """Register each as a file of its own, in one commit. ``verify``: with statistics of the values."""
        paths = []
        for rows in tables:
            path = self.folder / f"{next(self._files):05}.parquet"
            pq.write_table(rows, path)
            paths.append(str(path))
        self.handle.register(paths, verify=verify)

    def copy_first(self) -> None:
        """What a compaction does: the first block's rows in another file."""
        block = self.blocks()[0]
        path = self.folder / f"{next(self._files):05}.parquet"
        path.write_bytes(Path(block.location.removeprefix("file://")).read_bytes())
        copy = block_of(read_footer(FsspecStore(), f"file://{path}"), Schema.assign(COLUMNS))
        self.handle.commit(added=[copy], removed=[block.location], operation="compact")

    def blocks(self, snapshot_id: str | None = None) -> list[Block]:
        """All blocks of the current snapshot, or of another one."""
        snapshot = self.handle.snapshot(snapshot_id or self.handle.info().snapshot_id)
        refs = [ref.segment_id for ref in snapshot.segments]
        found = (self.handle.segment(each, snapshot_id=snapshot.snapshot_id, reader_features=FEATURES) for each in refs)
        return [block for segment in found for block in segment.blocks]

    def rows(self, snapshot_id: str | None = None) -> Counter[str]:
        """All rows that are not deleted, by a full scan of the files by pyarrow."""
        tables = []
        for block in self.blocks(snapshot_id):
            left = np.ones(block.row_count, dtype=bool)
            left[deleted_rows(FsspecStore(), block.deletes, block.row_count)] = False
            tables.append(pq.read_table(block.location.removeprefix("file://")).filter(pa.array(left)))
        return as_texts(pa.concat_tables([each.cast(SCHEMA) for each in tables])) if tables else Counter()

    def context(self, engine: Engine | None = None, **sizes: Any) -> JobContext:
        """What a job over the table works with."""
        return JobContext(lake=self.lake, table=self.name, engine=engine or SerialEngine(), sizes=Sizes(**sizes))

    def sizes(self) -> Sequence[int]:
        """Rows of each block."""
        return [block.row_count for block in self.blocks()]
