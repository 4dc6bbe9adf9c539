"""Three simulated days of an untuned table: nothing is done, it is compacted and reclustered every hour, or its policy
has the rule ``auto``.

    python bench/auto_days.py                        all three, three days
    python bench/auto_days.py --ways auto --days 1 --ledger

The rows are TPC-H's lineitem with two columns of orders. Half of them are there at first, in files without any order;
the others arrive hour by hour, as orders do, in one to six small files. Sizes of appends and numbers of queries follow
a daily wave with bursts and a peak at night. What is asked changes from day to day: ranges of days on the first,
look-ups of orders, customers and parts on the second, of suppliers and shipping modes on the third, and a part of the
older questions stays. The service's clock is moved on by the hour; filters are recorded without their constants, as by
default. A block that was read and has no row is found by reading its file with pyarrow, for every query.
"""

from __future__ import annotations

import argparse
import datetime as dt
import math
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from tpch_files import generate

from lamella.client.http import Lamella
from lamella.client.jobs.auto import run_auto
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.rewrite import compact, recluster
from lamella.client.rewrite.engine import SerialEngine
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.schema import Column
from lamella.snapshot.wire import AutoAction, AutoRule, Policy
from support.loopback import on_loopback

WAYS: Final = ("nothing", "hourly", "auto")
_HOUR_MS: Final = 3_600_000
_START_MS: Final = 1_790_000_000_000 // (24 * _HOUR_MS) * (24 * _HOUR_MS)
_BLOCK_ROWS: Final = 2_000
_EPOCH: Final = dt.date(1970, 1, 1)
_COLUMNS: Final = (
    "l_orderkey",
    "l_partkey",
    "l_suppkey",
    "l_quantity",
    "l_extendedprice",
    "l_discount",
    "l_shipdate",
    "l_receiptdate",
    "l_shipmode",
    "l_returnflag",
)


class Question(msgspec.Struct, frozen=True):
    """A filter in SQL, and the columns with what their values must be: ("between", low, high) or ("in", values)."""

    sql: str
    tests: tuple[tuple[str, str, tuple[Any, ...]], ...]

    def has_rows(self, rows: pa.Table) -> bool:
        """Whether a block has a row for it; by numpy alone."""
        mask = np.ones(len(rows), dtype=bool)
        for column, kind, values in self.tests:
            found = rows.column(column).to_numpy(zero_copy_only=False)
            if kind == "between":
                mask &= (found >= values[0]) & (found <= values[1])
            else:
                mask &= np.isin(found, np.array(values, dtype=found.dtype))
        return bool(mask.any())


class Day(msgspec.Struct):
    """The sums of a day of one way."""

    queries: int = 0
    read: int = 0
    empty: int = 0
    total: int = 0
    rewritten_bytes: int = 0
    job_s: float = 0.0


def rows_of(folder: Path, scale: float) -> pa.Table:
    """All rows, in the order in which their orders were made, with some that come late."""
    generate(folder, scale)
    items = pq.read_table(folder / "lineitem.parquet", columns=list(_COLUMNS))
    orders = pq.read_table(folder / "orders.parquet", columns=["o_orderkey", "o_custkey", "o_orderdate"])
    plain = [field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field for field in items.schema]
    joined = items.cast(pa.schema(plain)).join(orders, keys="l_orderkey", right_keys="o_orderkey")
    days = joined.column("o_orderdate").cast(pa.int32()).to_numpy().astype(np.float64)
    noise = np.random.default_rng(1)
    delay = np.where(
        noise.random(len(days)) < 0.05, noise.exponential(20.0, len(days)), noise.normal(0.0, 1.0, len(days))
    )
    return joined.drop_columns(["o_orderdate"]).take(pa.array(np.argsort(days + delay, kind="stable")))


def wave(hour: int, rng: random.Random) -> float:
    """The load of an hour, 1 on average: a daily wave, bursts, and a peak at night."""
    of_day = hour % 24
    load = 0.7 + 0.6 * math.sin((of_day - 8) / 24 * 2 * math.pi)
    load += 1.5 if of_day == 2 else 0.0
    return max(0.1, load * rng.lognormvariate(0.0, 0.5) + (2.0 if rng.random() < 0.06 else 0.0))


class Stream:
    """The questions of each day. ``known``: the rows that are there, of which constants are taken."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def question(self, day: int, known: pa.Table) -> Question:
        """One question; a tenth of the look-ups has a value that no row has."""
        rng = self._rng
        kinds = {0: ("ship", "ship", "receipt", "order"), 1: ("order", "customer", "part", "ship")}.get(
            day, ("supplier", "mode", "parts", "customer", "ship")
        )
        row = known.slice(rng.randrange(len(known)), 1).to_pylist()[0]
        absent = rng.random() < 0.1
        kind = rng.choice(kinds)
        recent = known.column("l_shipdate")[
            len(known) - 1 - min(int(rng.expovariate(1 / 20_000)), len(known) - 1)
        ].as_py()
        if kind in ("ship", "receipt"):
            column = "l_shipdate" if kind == "ship" else "l_receiptdate"
            low, width = recent - dt.timedelta(days=rng.randrange(60)), rng.choice([1, 7, 30])
            high = low + dt.timedelta(days=width)
            return _question([between(column, low, high)])
        if kind == "order":
            return _question([among("l_orderkey", [row["l_orderkey"] + (9 if absent else 0)])])
        if kind == "customer":
            return _question([among("o_custkey", [row["o_custkey"] // 3 * 3 if absent else row["o_custkey"]])])
        if kind == "part":
            return _question([among("l_partkey", [row["l_partkey"]])])
        if kind == "parts":
            others = [known.column("l_partkey")[rng.randrange(len(known))].as_py() for _ in range(3)]
            return _question([among("l_partkey", [row["l_partkey"], *others])])
        low = recent - dt.timedelta(days=rng.randrange(90))
        dates = between("l_shipdate", low, low + dt.timedelta(days=30))
        if kind == "supplier":
            return _question([among("l_suppkey", [row["l_suppkey"]]), dates])
        return _question([among("l_shipmode", [row["l_shipmode"]]), dates])


def between(column: str, low: dt.date, high: dt.date) -> tuple[str, str, str, tuple[Any, ...]]:
    """Days from ``low`` to ``high``."""
    sql = f"{column} BETWEEN DATE '{low}' AND DATE '{high}'"
    return sql, column, "between", (np.datetime64(low), np.datetime64(high))


def among(column: str, values: Sequence[Any]) -> tuple[str, str, str, tuple[Any, ...]]:
    """One of the values."""
    texts = [repr(value) if isinstance(value, str) else str(value) for value in values]
    sql = f"{column} = {texts[0]}" if len(texts) == 1 else f"{column} IN ({', '.join(texts)})"
    return sql, column, "in", tuple(values)


def _question(parts: Sequence[tuple[str, str, str, tuple[Any, ...]]]) -> Question:
    return Question(" AND ".join(part[0] for part in parts), tuple(part[1:] for part in parts))


class Table:
    """One table in a service whose clock the simulation moves."""

    def __init__(self, lake: Lamella, folder: Path, way: str, rows: pa.Table) -> None:
        self._lake = lake
        self._folder = folder
        self._files = 0
        self._blocks: dict[str, pa.Table] = {}
        self.name = f"sim.{way}"
        lake.create_table(self.name, schema=_schema(rows.schema), properties={"target_block_rows": str(_BLOCK_ROWS)})
        self.handle = lake.table(self.name)
        if way == "hourly":
            self.handle.cluster_by(["l_shipdate"])
        if way == "auto":
            self.handle.set_policy(Policy(auto=AutoRule()))

    def add(self, parts: Sequence[pa.Table]) -> None:
        """Register one file for each part, as another program wrote it."""
        paths = []
        for part in parts:
            path = self._folder / f"{self.name}-{self._files:05}.parquet"
            pq.write_table(part, path)
            paths.append(str(path))
            self._files += 1
        self.handle.register(paths)

    def ask(self, question: Question, day: Day) -> None:
        """A query: the blocks that it reads, and those that have no row for it."""
        answer = self.handle.prune(question.sql)
        day.queries += 1
        day.total += answer.report.blocks_total
        day.read += len(answer.locations)
        day.empty += sum(not question.has_rows(self._rows(each)) for each in answer.locations)

    def context(self) -> JobContext:
        """What jobs work with."""
        return JobContext(lake=self._lake, table=self.name, engine=SerialEngine())

    def _rows(self, location: str) -> pa.Table:
        if location not in self._blocks:
            self._blocks[location] = pq.read_table(location.removeprefix("file://"))
        return self._blocks[location]


def _schema(schema: pa.Schema) -> list[Column]:
    names = {
        "int32": "int32",
        "int64": "int64",
        "date32[day]": "date",
        "string": "string",
        "decimal128(15, 2)": "decimal(15,2)",
    }
    return [Column(name=field.name, type=names[str(field.type)]) for field in schema]


class Simulation(msgspec.Struct, frozen=True):
    """What happened: by way the days, and the actions of ``auto``, the first one first."""

    days: dict[str, list[Day]]
    actions: tuple[AutoAction, ...]
    table_bytes: int
    index_bytes: int


def appends(rows: pa.Table, hours: int, rng: random.Random) -> Iterator[list[pa.Table]]:
    """The rows of each hour, in one to six files."""
    loads = [wave(hour, rng) for hour in range(hours)]
    ends = np.floor(np.cumsum(loads) / sum(loads) * len(rows)).astype(int).tolist()
    start = 0
    for end in ends:
        part = rows.slice(start, end - start)
        start, files = end, rng.randrange(1, 7)
        size = max(1, -(-len(part) // files))
        yield [part.slice(at, size) for at in range(0, len(part), size)]


def simulate(rows: pa.Table, folder: Path, ways: Sequence[str], days: int, queries: float, seed: int) -> Simulation:
    """Run all ways on the same rows and questions. ``queries``: of an hour on average."""
    now_ms = [_START_MS]
    settings = Settings(
        warehouse=str(folder / "warehouse"), catalog=f"sqlite:///{folder / 'catalog.db'}", log_level="error"
    )
    found = {way: [Day() for _ in range(days)] for way in ways}
    half = len(rows) // 2
    first = rows.slice(0, half).take(pa.array(np.random.default_rng(seed).permutation(half)))
    with on_loopback(create_app(settings, clock=lambda: now_ms[0])) as url, Lamella(url, timeout_s=600.0) as lake:
        lake.create_namespace("sim")
        tables = {way: Table(lake, folder, way, rows) for way in ways}
        for table in tables.values():
            table.add([first.slice(at, _BLOCK_ROWS) for at in range(0, half, _BLOCK_ROWS)])
        rng, stream, there = random.Random(seed), Stream(seed), half
        for hour, parts in enumerate(appends(rows.slice(half), 24 * days, random.Random(seed))):
            there += sum(map(len, parts))
            known, day = rows.slice(0, there), hour // 24
            questions = []
            for _ in range(max(1, round(queries * wave(hour, rng)))):
                topic = day if day == 0 or rng.random() < 0.8 else rng.randrange(day)
                questions.append(stream.question(topic, known))
            for way, table in tables.items():
                table.add(parts)
                for question in questions:
                    table.ask(question, found[way][day])
                now_ms[0] += 1  # so that actions of two hours have an order
            now_ms[0] = _START_MS + (hour + 1) * _HOUR_MS
            for way, table in tables.items():
                began_s = time.process_time()
                found[way][day].rewritten_bytes += maintain(way, table)
                found[way][day].job_s += time.process_time() - began_s
            print(f"hour {hour + 1} of {24 * days}", end="\r", file=sys.stderr, flush=True)
        actions = tables["auto"].handle.auto_ledger().actions[::-1] if "auto" in tables else ()
        handle = next(iter(tables.values())).handle
        size = sum(each.size_bytes for each in tables["auto"].handle.indexes()) if "auto" in tables else 0
        return Simulation(found, actions, handle.snapshot(handle.info().snapshot_id).summary.compressed_byte_size, size)


def maintain(way: str, table: Table) -> int:
    """What happens at the end of an hour; returns the bytes of the files that were replaced."""
    if way == "hourly":
        return compact(table.context()).bytes_before + recluster(table.context()).bytes_before
    if way == "auto":
        done = run_auto(table.context(), new_id=lambda: str(uuid.uuid4()), timer=time.monotonic)
        return sum(each.rewritten_bytes for each in done.actions)
    return 0


def prediction_errors(actions: Sequence[AutoAction]) -> list[float]:
    """By how much the skipped part differed from what was predicted, of all actions with both."""
    return [
        abs(each.measured.after.skip - each.candidate.gain.after.skip)
        for each in actions
        if each.measured is not None and each.candidate.gain is not None
    ]


def markdown(found: Simulation) -> str:
    """The figures as a table."""
    lines = [
        "| way | day | queries | blocks read per query | of them without a row | skipped | rewritten / table |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for way, days in found.days.items():
        for number, day in enumerate(days, start=1):
            empty, skipped = day.empty / max(day.read, 1), 1 - day.read / day.total
            lines.append(
                f"| {way} | {number} | {day.queries:,} | {day.read / day.queries:.1f} | {empty:.1%} | {skipped:.1%} "
                f"| {day.rewritten_bytes / found.table_bytes:.2f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run and print."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    made.add_argument("--days", type=int, default=3)
    made.add_argument("--queries", type=float, default=20.0, help="queries of an hour, on average")
    made.add_argument("--scale", type=float, default=0.05, help="of TPC-H")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--ledger", action="store_true", help="print every action")
    options = made.parse_args()
    rows = rows_of(Path("build/speed") / f"tpch-{options.scale:g}", options.scale)
    with tempfile.TemporaryDirectory() as folder:
        found = simulate(rows, Path(folder), options.ways, options.days, options.queries, options.seed)
    print(markdown(found))
    if not found.actions:
        return
    errors = prediction_errors(found.actions)
    states: dict[str, int] = {}
    for each in found.actions:
        states[each.state] = states.get(each.state, 0) + 1
        if options.ledger:
            print(f"{dt.datetime.fromtimestamp(each.started_ms / 1000, dt.UTC):%d %H:%M} {each.state}: {each.change}")
            print(f"    {each.candidate.text}\n    {each.reason}")
    print(
        f"{len(found.actions)} actions: {states}; own indexes {found.index_bytes / found.table_bytes:.1%} of the table"
    )
    if errors:
        within = sum(each <= 0.1 for each in errors)
        print(
            f"predicted and measured skipped parts of {len(errors)} actions: median {np.median(errors):.3f}, "
            f"at most {max(errors):.3f}, {within} within 10 points"
        )


if __name__ == "__main__":
    main()
