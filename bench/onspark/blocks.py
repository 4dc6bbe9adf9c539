"""The files that all tables share, and the queries."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

#: The columns as SQL writes their types.
COLUMNS: Final = {
    "id": "bigint",
    "at": "timestamp",
    "tenant": "string",
    "user": "bigint",
    "cents": "bigint",
    "status": "string",
    "note": "string",
}
_EPOCH_S: Final = 1_700_000_000
_STATUSES: Final = np.array(["new", "open", "paid", "sent", "void"])
_FILES_OF_A_TENANT: Final = 20
#: A row's time differs from the order of its id by at most this many files.
_JITTER_FILES: Final = 10


class Shape(msgspec.Struct, frozen=True):
    """How many files, and how many rows each has."""

    files: int
    rows: int

    @property
    def total(self) -> int:
        """Rows in all."""
        return self.files * self.rows


class Question(msgspec.Struct, frozen=True):
    """``sql`` has ``{t}`` as the placeholder of the table. ``reads_all``: no engine can prune anything."""

    name: str
    sql: str
    reads_all: bool = False


def write_files(folder: Path, shape: Shape) -> None:
    """Write one file per block: ordered by ``id``, ``at`` nearly so, ``tenant`` in stretches, other columns random."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    for number in range(shape.files):
        ids = np.arange(number * shape.rows, (number + 1) * shape.rows)
        jitter = _JITTER_FILES * shape.rows
        seconds = _EPOCH_S + ids + rng.integers(-jitter, jitter, shape.rows)
        rows = pa.table(
            {
                "id": ids,
                "at": pa.array(seconds * 1_000_000).cast(pa.timestamp("us", "UTC")),
                "tenant": pa.array([_tenant(number)] * shape.rows),
                "user": rng.integers(0, 1 << 40, shape.rows),
                "cents": rng.integers(0, 1_000_000, shape.rows),
                "status": pa.array(_STATUSES[rng.integers(0, len(_STATUSES), shape.rows)]),
                "note": pa.array(_notes(rng, shape.rows)),
            }
        )
        pq.write_table(rows, folder / f"part-{number:06}.parquet", compression="zstd")


def _notes(rng: np.random.Generator, count: int) -> list[str]:
    data = rng.bytes(8 * count).hex()
    return [data[16 * at : 16 * at + 16] for at in range(count)]


def _tenant(file: int) -> str:
    return f"tenant-{file // _FILES_OF_A_TENANT * 7919 % 100_003:06}"


def questions(shape: Shape, round_number: int) -> Iterator[Question]:
    """Yield the same kinds of queries each round, with other literals, so that no answer is cached."""
    rng = random.Random(round_number)
    thousandth, hundredth = shape.total // 1_000, shape.total // 100

    def start(length: int) -> int:
        return rng.randrange(shape.total - length)

    yield Question("one key", f"SELECT user, cents, note FROM {{t}} WHERE id = {start(1)}")
    first = start(thousandth)
    yield Question(
        "0.1 % of the key", f"SELECT count(*), sum(cents) FROM {{t}} WHERE id BETWEEN {first} AND {first + thousandth}"
    )
    second = _EPOCH_S + start(thousandth)
    yield Question(
        "0.1 % of a second column",
        "SELECT count(*), sum(cents) FROM {t} "
        f"WHERE at >= timestamp_seconds({second}) AND at < timestamp_seconds({second + thousandth})",
    )
    keys = ", ".join(str(start(1)) for _ in range(20))
    yield Question("20 keys", f"SELECT id, user, cents FROM {{t}} WHERE id IN ({keys})")
    low = start(5 * hundredth)
    file = (low + rng.randrange(5 * hundredth)) // shape.rows
    yield Question(
        "three columns",
        "SELECT count(*), sum(cents), max(note) FROM {t} "
        f"WHERE id >= {low} AND id < {low + 5 * hundredth} AND tenant = '{_tenant(file)}' AND status = 'paid'",
    )
    counted = start(hundredth)
    yield Question("count of 1 %", f"SELECT count(*) FROM {{t}} WHERE id >= {counted} AND id < {counted + hundredth}")
    wide = start(10 * hundredth)
    yield Question(
        "10 % of the key, grouped",
        "SELECT status, count(*), sum(cents) FROM {t} "
        f"WHERE id >= {wide} AND id < {wide + 10 * hundredth} GROUP BY status",
    )
    user = rng.randrange(1 << 40)
    all_of_it = f"SELECT count(*), sum(cents) FROM {{t}} WHERE user < {user} AND cents % 7 = 3"
    yield Question("nothing to skip", all_of_it, reads_all=True)
