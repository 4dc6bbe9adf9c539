"""Tables of every type that Iceberg has, laid out so that blocks can be skipped, and their rows."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Sequence
from decimal import Decimal
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lamella.client.http import Lamella
from lamella.client.http.client import Table

SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("small", pa.int32()),
        pa.field("yes", pa.bool_()),
        pa.field("ratio", pa.float64()),
        pa.field("single", pa.float32()),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us")),
        pa.field("when", pa.timestamp("us", "UTC")),
        pa.field("name", pa.string()),
        pa.field("data", pa.binary()),
        pa.field("empty", pa.string()),
    ]
)
FLOATS: Final = (math.nan, math.inf, -math.inf, 0.0, -0.0)
_DAY: Final = dt.date(2024, 1, 1)
_TIME: Final = dt.datetime(2024, 1, 1)  # noqa: DTZ001  # of a column without a zone
_NAMES: Final = count()


def rows(rng: Random, block: int, size: int) -> pa.Table:
    """Rows of a block, most of whose columns lie by its number; some with nulls, NaN, infinities and both zeros."""

    def maybe(value: Any, share: float = 0.1) -> Any:
        return None if rng.random() < share else value

    made: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for at in range(size):
        number = block * size + at
        special = block % 3 == 0 and rng.random() < 0.2
        made["id"].append(number)
        made["small"].append(7 if block == 1 else maybe(number % 11 + block, 0.3 if block == 2 else 0))
        made["yes"].append(maybe(block % 2 == 0, 0.1 if block > 2 else 0))
        made["ratio"].append(rng.choice(FLOATS) if special else maybe(number / 8))
        made["single"].append(rng.choice(FLOATS) if special else maybe(number * 0.1))
        made["price"].append(maybe(Decimal(number * 37).scaleb(-2)))
        made["day"].append(maybe(_DAY + dt.timedelta(days=number // 4)))
        made["at"].append(maybe(_TIME + dt.timedelta(hours=number, microseconds=at)))
        made["when"].append(maybe((_TIME + dt.timedelta(hours=number)).replace(tzinfo=dt.UTC)))
        made["name"].append(maybe(f"{'prefix of sixteen ' if block > 3 else ''}k{number:05}\U0001f600"))
        made["data"].append(maybe(uuid.UUID(int=number).bytes[-3:]))
        made["empty"].append(None)
    return pa.table(made, schema=SCHEMA)


class IcebergTable:
    """A table of the service and what is in it."""

    def __init__(self, lake: Lamella, folder: Path, *, seed: int = 1, blocks: int = 6, size: int = 24) -> None:
        rng = Random(seed)
        self.parts = [rows(rng, block, size) for block in range(blocks)]
        self.files = [folder / f"{block:03}-{next(_NAMES)}.parquet" for block in range(blocks)]
        for file, part in zip(self.files, self.parts, strict=True):
            pq.write_table(part, file)
        self.name = f"t{next(_NAMES)}"
        lake.create_table(f"ice.{self.name}", schema_from=f"file://{self.files[0]}")
        self.table: Table = lake.table(f"ice.{self.name}")
        half = blocks // 2
        for some in (self.files[:half], self.files[half:]):
            if some:
                self.table.register([f"file://{file}" for file in some])

    @property
    def rows(self) -> pa.Table:
        """All of it."""
        return pa.concat_tables(self.parts)


def ids(table: pa.Table) -> list[int]:
    """The rows by their ids, sorted."""
    return sorted(table.column("id").to_pylist())


def values(table: pa.Table, name: str) -> Sequence[Any]:
    """The values of a column that are not null."""
    return [value for value in table.column(name).to_pylist() if value is not None]
