"""Random filters by pyiceberg over an export: the rows of a full scan, from fewer files."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import expressions as px
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.table import StaticTable

from lamella.client.http import Lamella
from lamella.client.iceberg.export import export_iceberg
from lamella.snapshot.schema import Column
from lamella.snapshot.storage import FsspecStore

NAN, INF = float("nan"), float("inf")
DAY = dt.date(2020, 1, 1)
NOON = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)
COLUMNS = {
    "flag": ("boolean", pa.bool_()),
    "small": ("int8", pa.int8()),
    "number": ("int32", pa.int32()),
    "big": ("int64", pa.int64()),
    "half": ("float32", pa.float32()),
    "real": ("float64", pa.float64()),
    "price": ("decimal(12,2)", pa.decimal128(12, 2)),
    "day": ("date", pa.date32()),
    "moment": ("timestamp(us)", pa.timestamp("us", "UTC")),
    "local": ("timestamp_ntz(us)", pa.timestamp("us")),
    "text": ("string", pa.string()),
    "data": ("binary", pa.binary()),
}
SCHEMA = pa.schema([(name, arrow) for name, (_, arrow) in COLUMNS.items()])
FLOATS = ("half", "real")
_NAMES = itertools.count()


def value(rng: random.Random, name: str, at: int) -> Any:
    """A value of a column near the ``at``-th part of its range; NaN too."""
    near = at * 10 + rng.randrange(12)
    match name:
        case "flag":
            return rng.random() < at / 8
        case "small" | "number" | "big":
            return (near - 40) * {"small": 1, "number": 1 << 20, "big": 1 << 52}[name]
        case "half" | "real":
            return rng.choice([near / 4, -near / 4, 0.0, -0.0, NAN, INF, -INF]) if at % 2 else near / 4
        case "price":
            return Decimal(near - 40).scaleb(-2)
        case "day":
            return DAY + dt.timedelta(days=near - 40)
        case "moment":
            return NOON + dt.timedelta(microseconds=near - 40)
        case "local":
            return (NOON + dt.timedelta(milliseconds=near - 40)).replace(tzinfo=None)
    text = rng.choice(["", "ab", "x" * 70, "\U0010ffff" * 20, "ä"]) + chr(ord("a") + near % 90)
    text = chr(ord("A") + at) + text
    return text if name == "text" else text.encode()


def file_of(rng: random.Random, at: int, size: int) -> pa.Table:
    """Rows near one part of all ranges; some columns have only nulls, some none."""
    nulls = {name: rng.choice([0.0, 0.2, 1.0]) for name in COLUMNS}
    return pa.table(
        {
            name: pa.array(
                [None if rng.random() < nulls[name] else value(rng, name, at) for _ in range(size)],
                SCHEMA.field(name).type,
            )
            for name in COLUMNS
        }
    )


def a_filter(rng: random.Random, depth: int = 0) -> Any:
    """A random one: comparisons, sets, beginnings, tests of null and NaN, and all of it combined."""
    if depth < 3 and rng.random() < 0.5:
        kind = rng.choice([px.And, px.Or, px.Not])
        if kind is px.Not:
            return px.Not(a_filter(rng, depth + 1))
        return kind(a_filter(rng, depth + 1), a_filter(rng, depth + 1))
    name = rng.choice(list(COLUMNS))
    shape = rng.randrange(10)
    if shape == 0:
        return rng.choice([px.IsNull, px.NotNull])(name)
    if shape == 1 and name in FLOATS:
        return rng.choice([px.IsNaN, px.NotNaN])(name)
    if shape == 2 and name == "text":
        prefix = value(rng, name, rng.randrange(9))[: rng.randrange(1, 4)]
        return rng.choice([px.StartsWith, px.NotStartsWith])(name, prefix)
    if shape in (3, 4):
        values = {literal(rng, name) for _ in range(rng.randrange(1, 5))}
        return rng.choice([px.In, px.NotIn])(name, values)
    compare = [px.EqualTo, px.NotEqualTo]
    if name != "flag":
        compare += [px.LessThan, px.LessThanOrEqual, px.GreaterThan, px.GreaterThanOrEqual] * 2
    return rng.choice(compare)(name, literal(rng, name))


def literal(rng: random.Random, name: str) -> Any:
    """A value as filters have it: no NaN, which pyiceberg takes for the test of it, and times as text."""
    found = value(rng, name, rng.randrange(9))
    if name in FLOATS and (found != found or found in (INF, -INF)):
        return 1.25
    return found.isoformat() if isinstance(found, dt.date) else found


def bag(rows: pa.Table) -> Counter[str]:
    """Rows as a bag of texts."""
    return Counter(map(repr, zip(*(rows[name].to_pylist() for name in COLUMNS), strict=True)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.few(2)
def test_a_filter_finds_the_rows_of_a_full_scan(export_url: str, tmp_path: Path, seed: int) -> None:
    """Whatever is skipped by counts and bounds, in files with nulls, NaN, both zeros and cut texts."""
    rng = random.Random(seed)
    files = [file_of(rng, at, rng.randrange(1, 12)) for at in range(9)]
    for number, rows in enumerate(files):
        pq.write_table(rows, tmp_path / f"{number}.parquet")
    everything = pa.concat_tables(files)
    name = f"filters.t{next(_NAMES)}_{rng.getrandbits(40):x}_{tmp_path.name}"[:60]
    with Lamella(export_url) as lake:
        if "filters" not in [each.name for each in lake.namespaces()]:
            lake.create_namespace("filters")
        lake.create_table(name, schema=[Column(name=each, type=kind) for each, (kind, _) in COLUMNS.items()])
        lake.table(name).register([str(tmp_path)])
        found = StaticTable.from_metadata(export_iceberg(lake, name, FsspecStore()).metadata_location)
    schema = found.schema()
    skipped = 0
    for _ in range(60):
        tree = a_filter(rng)
        wanted = everything.filter(expression_to_pyarrow(bind(schema, tree, case_sensitive=True), schema))
        scan = found.scan(tree)
        assert bag(scan.to_arrow().cast(SCHEMA)) == bag(wanted), tree
        skipped += len(files) - len(list(scan.plan_files()))
    assert skipped > 60
