"""Metadata of tables that were never written: 20 columns, one of them nearly sorted, as event tables are."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats, to_bound

_KINDS = ("int64", "float64", "timestamp(us)", "date", "string", "decimal(18,2)")

SCHEMA = Schema.assign(
    [
        Column(name="event_time", type="int64"),
        Column(name="user_id", type="int64"),
        Column(name="country", type="string"),
        Column(name="sparse", type="int64"),
        *(Column(name=f"c{index}", type=_KINDS[index % len(_KINDS)]) for index in range(16)),
    ]
)
ROWS = 1_000


def filters(count: int) -> dict[str, str]:
    """Filters by name; ``event_time`` runs from 0 to ``count`` thousand."""
    middle = count // 2 * ROWS
    points = ", ".join(str(step * count * ROWS // 10 + 7) for step in range(10))
    return {
        "narrow range": f"event_time >= {middle} AND event_time < {middle + 5 * ROWS}",
        "equality, all survive": "user_id = 123456",
        "IN of 10": f"event_time IN ({points})",
        "range and country": f"event_time >= {middle} AND event_time < {middle + 50 * ROWS} AND country = 'c07'",
        "OR of ranges": f"event_time < {5 * ROWS} OR event_time >= {(count - 5) * ROWS}",
        "IS NULL, sparse": "sparse IS NULL",
        "nothing matches": "event_time < -1000",
    }


def blocks(count: int, seed: int = 7) -> list[Block]:
    """``count`` blocks of 1,000 rows."""
    return list(_blocks(count, Random(seed)))  # synthetic data


def _blocks(count: int, rng: Random) -> Iterator[Block]:
    leaves = SCHEMA.leaves()
    for index in range(count):
        stats = {}
        for leaf in leaves:
            low, high = _range(leaf.name, leaf.dtype.order, index, rng)
            stats[leaf.id] = ColumnStats(
                min=to_bound(leaf.dtype, low),
                max=to_bound(leaf.dtype, high),
                null_count=ROWS // 2 if leaf.name == "sparse" and index % 100 == 0 else 0,
            )
        yield Block(
            location=f"s3://bucket/table/part-{index:07d}.parquet", row_count=ROWS, file_size=120_000, col_stats=stats
        )


def _range(name: str, order: str | None, index: int, rng: Random) -> tuple[int | float | bytes, int | float | bytes]:
    if name == "event_time":
        return index * ROWS - rng.randint(0, 50), index * ROWS + ROWS + rng.randint(0, 50)
    if name == "user_id":
        return rng.randint(0, 1_000), 10**9 - rng.randint(0, 1_000)
    if name == "country":
        first = rng.randint(0, 60)
        return b"c%02d" % first, b"c%02d" % (first + rng.randint(0, 20))
    if order == "bytes":
        return b"key-%08d" % rng.randint(0, 10**7), b"key-%08d" % rng.randint(10**7, 2 * 10**7)
    low = rng.randint(0, 10_000)
    return (float(low), float(low + 1_000)) if order == "float" else (low, low + 1_000)
