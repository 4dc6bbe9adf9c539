"""A synthetic table for every benchmark: statistics of ``count`` blocks x 20 columns, without a single data file.

A :class:`Model` holds the least and greatest value and the null count of each column in each block as arrays, made from
a fixed seed, so that every engine describes the same blocks and must keep the same ones. Whole milliseconds and cents
only: no format loses precision.

==================================== ====================================================================
``event_time``, ``event_date``       sorted; a block overlaps half of the next one
``ingest_time``                      nearly sorted, up to an hour off
``order_id``                         ascending, each block overlaps about 50 others
``user_id``, ``session_id``          random, every block spans nearly everything
``tenant_id``, ``path``              1 to 3 of 1,000 tenants; ``path`` starts with the tenant
``country``                          1 to 4 neighbours of 60 codes
``error_code``                       nulls in 1 % of the blocks, in half of those nothing else
others                               numbers and text that no predicate asks for, as tables have them
==================================== ====================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats, to_bound

Array = npt.NDArray[Any]

#: Increment it whenever a value of the model changes: it identifies tables on disk.
MODEL_VERSION: Final = 1
ROWS: Final = 100_000
FOLDER: Final = "s3://bucket/table/"
START_MS: Final = 1_577_836_800_000  # 2020-01-01, UTC
SPAN_MS: Final = 1_461 * 86_400_000  # four years, however many blocks there are
_FILE_BYTES = 64 << 20

#: Columns and their types, in the order of their ids.
TYPES: Final = {
    "event_time": "timestamp(us)",
    "event_date": "date",
    "ingest_time": "timestamp(us)",
    "user_id": "int64",
    "session_id": "int64",
    "order_id": "int64",
    "tenant_id": "int64",
    "error_code": "int64",
    "quantity": "int32",
    "version": "int32",
    "amount": "float64",
    "score": "float64",
    "latitude": "float64",
    "longitude": "float64",
    "price": "decimal(18,2)",
    "balance": "decimal(18,2)",
    "country": "string",
    "status": "string",
    "path": "string",
    "device_id": "string",
}
#: The columns that predicates use.
FILTERED_COLUMNS: Final = ("event_time", "user_id", "error_code", "country", "path")
COUNTRIES: Final = sorted(
    [
        *("AE", "AR", "AT", "AU", "BE", "BG", "BR", "CA", "CH", "CL", "CN", "CO", "CZ", "DE", "DK", "EE", "EG", "ES"),
        *("FI", "FR", "GB", "GR", "HK", "HR", "HU", "ID", "IE", "IL", "IN", "IS", "IT", "JP", "KE", "KR", "LT", "LU"),
        *("LV", "MA", "MX", "MY", "NG", "NL", "NO", "NZ", "PE", "PH", "PK", "PL", "PT", "RO", "RS", "SA", "SE", "SG"),
        *("SI", "SK", "TH", "TR", "TW", "US"),
    ]
)


def schema(columns: Collection[str] = tuple(TYPES)) -> Schema:
    """The table's schema, or that of some of its columns."""
    return Schema.assign([Column(name=name, type=kind) for name, kind in TYPES.items() if name in columns])


SCHEMA: Final = schema()


class Model:
    """``low`` and ``high`` by column, one entry a block: milliseconds, days, cents, numbers; text as codes.

    ``columns``: only these are kept (all are drawn all the same, so the values do not depend on it).
    """

    def __init__(self, count: int, columns: Collection[str] = tuple(TYPES), seed: int = 7) -> None:
        self.count = count
        self.low: dict[str, Array] = {}
        self.high: dict[str, Array] = {}
        random = np.random.default_rng(seed)
        tenants: tuple[Array, Array] = (np.zeros(0, np.int64),) * 2
        for name, low, high in _numbers(count, random):
            if name == "tenant_id":
                tenants = (low, high)
            if name in columns:
                self.low[name], self.high[name] = low, high
        nulls = random.random(count)
        self.all_null: npt.NDArray[np.bool_] = nulls < 0.005
        for name, low, high in _texts(tenants, random):
            if name in columns:
                self.low[name], self.high[name] = low, high
        error_codes = np.where(nulls < 0.01, random.integers(1, 500, count), 0)
        self._nulls = {
            "error_code": np.where(self.all_null, ROWS, error_codes),
            "balance": random.integers(1, 2_000, count),
        }
        self.tag = random.integers(0, 2**63 - 1, count)
        self.file_size = _FILE_BYTES + random.integers(0, 1 << 20, count)

    def nulls(self, column: str) -> npt.NDArray[np.int64]:
        """Null counts of a column."""
        return self._nulls.get(column, self._zeros)

    @cached_property
    def _zeros(self) -> npt.NDArray[np.int64]:
        return np.zeros(self.count, np.int64)

    def names(self, start: int, stop: int) -> list[str]:
        """File names of blocks; :func:`block_numbers` reads the number back."""
        tags = self.tag[start:stop].tolist()
        return [f"part-{number:08d}-{tag:016x}.parquet" for number, tag in zip(range(start, stop), tags, strict=True)]


def block_numbers(names: Collection[str]) -> npt.NDArray[np.int64]:
    """The numbers of the blocks in file names or locations."""
    return np.array([int(name[-33:-25]) for name in names], np.int64)


def text(column: str, codes: Array) -> list[str]:
    """The values of a text column that codes stand for, in the same order."""
    values = codes.tolist()
    if column == "country":
        return [COUNTRIES[value] for value in values]
    if column == "status":
        return [("cancelled", "shipped")[value] for value in values]
    if column == "path":
        return [f"tenant-{value // 10**6:05d}/obj-{value % 10**6:06d}" for value in values]
    return [f"{value:016x}" for value in values]


def blocks(count: int) -> list[Block]:
    """The blocks of a table with all columns."""
    return list(blocks_of(Model(count), 0, count, SCHEMA))


def blocks_of(model: Model, start: int, stop: int, table: Schema, *, exact: bool = False) -> Iterator[Block]:
    """Some blocks of a model; their statistics are those of the columns of ``table``.

    ``exact``: the bounds are said to be values of rows, as those of files that were read are.
    """
    columns = []
    for leaf in table.leaves():
        lows, highs = (_ordered(leaf.name, side[leaf.name][start:stop]) for side in (model.low, model.high))
        empty = model.all_null[start:stop].tolist() if leaf.name == "error_code" else [False] * (stop - start)
        counts = model.nulls(leaf.name)[start:stop].tolist()
        columns.append((leaf, lows, highs, counts, empty))
    sizes = model.file_size[start:stop].tolist()
    for at, name in enumerate(model.names(start, stop)):
        stats = {
            leaf.id: ColumnStats(
                min=None if empty[at] else to_bound(leaf.dtype, lows[at]),
                max=None if empty[at] else to_bound(leaf.dtype, highs[at]),
                null_count=counts[at],
                min_exact=exact and not empty[at],
                max_exact=exact and not empty[at],
            )
            for leaf, lows, highs, counts, empty in columns
        }
        yield Block(location=FOLDER + name, row_count=ROWS, file_size=sizes[at], col_stats=stats)


def _ordered(column: str, values: Array) -> list[Any]:
    """Values as they are compared: microseconds, days, unscaled decimals, bytes."""
    kind = TYPES[column]
    if kind == "string":
        return [value.encode() for value in text(column, values)]
    ordered: list[Any] = (values * 1_000 if kind.startswith("timestamp") else values).tolist()
    return ordered


def _numbers(count: int, random: np.random.Generator) -> Iterator[tuple[str, Array, Array]]:
    """Yield columns that are not text, one after another: a large model cannot keep them all in memory."""
    number = np.arange(count, dtype=np.int64)
    first = START_MS + number * SPAN_MS // count
    last = first + SPAN_MS * 3 // (2 * count)
    yield "event_time", first, last
    yield "event_date", first // 86_400_000, last // 86_400_000
    delay_ms = random.integers(0, 3_600_000, count)
    yield "ingest_time", first + delay_ms, last + delay_ms + 60_000
    yield "user_id", random.integers(1, 10**6, count), 10**12 - random.integers(1, 10**6, count)
    yield "session_id", random.integers(1, 2**40, count), 2**63 - 1 - random.integers(1, 2**40, count)
    order = number * ROWS + random.integers(0, ROWS, count)
    yield "order_id", order, order + 25 * ROWS
    tenant = random.integers(0, 1_000, count)
    yield "tenant_id", tenant, np.minimum(tenant + random.integers(0, 3, count), 999)
    yield "error_code", random.integers(0, 5, count), random.integers(500, 600, count)
    yield "quantity", np.ones(count, np.int64), random.integers(90, 120, count)
    version = number * 20 // count + 1
    yield "version", version, np.minimum(version + 1, 20)
    yield "amount", random.random(count).round(4), np.exp(random.normal(9, 1, count)).round(4) + 1
    yield "score", (random.random(count) * 0.01).round(6), (1 - random.random(count) * 0.01).round(6)
    for name, reach in (("latitude", 60), ("longitude", 160)):
        degrees = random.uniform(-reach, reach, count).round(5)
        yield name, degrees, (degrees + random.random(count) * 8).round(5)
    yield "price", random.integers(1, 100, count), random.integers(10**4, 10**6, count)
    yield "balance", -random.integers(0, 10**7, count), random.integers(0, 10**9, count)


def _texts(tenants: tuple[Array, Array], random: np.random.Generator) -> Iterator[tuple[str, Array, Array]]:
    """Yield text columns, as codes; ``tenants``: the minimum and maximum of each block."""
    count = len(tenants[0])
    code = random.integers(0, len(COUNTRIES), count)
    yield "country", code, np.minimum(code + random.integers(0, 4, count), len(COUNTRIES) - 1)
    yield "status", np.zeros(count, np.int64), np.ones(count, np.int64)
    one, other = random.integers(0, 10**6, (2, count))
    same = tenants[0] == tenants[1]
    low, high = np.where(same, np.minimum(one, other), one), np.where(same, np.maximum(one, other), other)
    yield "path", tenants[0] * 10**6 + low, tenants[1] * 10**6 + high
    yield "device_id", random.integers(0, 2**44, count), 2**62 + random.integers(0, 2**44, count)
