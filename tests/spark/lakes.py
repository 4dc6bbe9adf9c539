"""Tables for tests of the Spark integration: real files, registered with a real service, beside a full scan of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession

from lamella.client.http import NO_RETRY, Lamella
from lamella.client.http.fake_transport import FakeTransport
from lamella.client.http.transport import HttpRequest, HttpResponse, PooledTransport, TransportFailure
from lamella.snapshot.wire import PathColumns

#: What answers a request instead of the service; None lets it through.
Fault = Callable[[HttpRequest], HttpResponse | TransportFailure | None]

_NUMBERS = itertools.count()
_BLOCKS = re.compile(r"blocks=(\d+)/(\d+)")
_AFTER_JOIN = re.compile(r"after join keys=(\d+)")

#: The catalog of the tests.
CATALOG = "lake"


def fresh(prefix: str) -> str:
    """A name that nothing else in this run has."""
    return f"{prefix}{next(_NUMBERS)}"


@dataclass
class LakeTable:
    """One table of the service, and the files that are its blocks."""

    lake: Lamella
    name: str
    folder: Path
    paths: list[str] = field(default_factory=list)

    @property
    def sql(self) -> str:
        """Its name in SQL."""
        return f"{CATALOG}.{self.name}"

    def add(
        self,
        *blocks: pa.Table,
        names: Sequence[str] | None = None,
        path_columns: PathColumns = "read",
        **options: Any,
    ) -> LakeTable:
        """Write each as one file, and register them together: one snapshot."""
        added = []
        for at, block in enumerate(blocks):
            path = self.folder / (names[at] if names else f"{fresh('b')}.parquet")
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(block, path, **options)
            added.append(str(path))
        answer = self.lake.table(self.name).register(added, strict=True, path_columns=path_columns)
        assert answer.registered == len(blocks)
        self.paths += added
        return self

    def snapshot_id(self) -> str:
        """The snapshot in force now."""
        return self.lake.table(self.name).info().snapshot_id

    def full_scan(self, spark: SparkSession) -> DataFrame:
        """Spark's own reader over all files: the oracle, while :func:`no_pushdown` holds."""
        schema = spark.table(self.sql).schema
        return spark.read.schema(schema).option("recursiveFileLookup", "true").parquet(*map(_escaped, self.paths))


@dataclass
class Lakes:
    """Makes tables in one service."""

    lake: Lamella
    folder: Path

    def empty(self, schema: pa.Schema, cluster_key: Sequence[str] = ()) -> LakeTable:
        """A table of that schema without blocks."""
        namespace = fresh("ns")
        folder = self.folder / namespace
        folder.mkdir(parents=True)
        example = folder / "_schema.parquet"
        pq.write_table(schema.empty_table(), example)
        self.lake.create_namespace(namespace)
        self.lake.create_table(f"{namespace}.t", schema_from=str(example), cluster_key=cluster_key)
        return LakeTable(self.lake, f"{namespace}.t", folder)

    def of(self, *blocks: pa.Table, **options: Any) -> LakeTable:
        """A table of these blocks."""
        return self.empty(blocks[0].schema).add(*blocks, **options)


def numbers(blocks: int, rows: int = 100, **more: Any) -> list[pa.Table]:
    """Blocks of a column ``a`` that counts on from block to block, ``b`` (three values) and ``s`` (its text)."""
    made = []
    for at in range(blocks):
        values = list(range(at * rows, (at + 1) * rows))
        columns = {"a": values, "b": [v % 3 for v in values], "s": [f"v{v:06}" for v in values]}
        columns |= {name: [make(v) for v in values] for name, make in more.items()}
        made.append(pa.table(columns))
    return made


def plan(frame: DataFrame) -> str:
    """The plan that the frame ran with, after adaptive changes."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def blocks_read(frame: DataFrame) -> tuple[int, int]:
    """Blocks kept of blocks in all, as the plan of a frame over one table says."""
    found = _BLOCKS.search(plan(frame))
    assert found is not None, plan(frame)
    return int(found[1]), int(found[2])


def blocks_after_join(frame: DataFrame) -> int | None:
    """Blocks that join keys left, None when no scan of the plan was narrowed."""
    found = _AFTER_JOIN.search(plan(frame))
    return int(found[1]) if found else None


@dataclass
class Faults:
    """Clients whose requests go to a real service, unless a fault answers them first."""

    url: str
    transports: list[PooledTransport] = field(default_factory=list)

    def client(self, fault: Fault) -> Lamella:
        """A client with that fault; it does not try again."""
        service = PooledTransport(self.url, timeout_s=30)
        self.transports.append(service)
        transport = FakeTransport(lambda request: fault(request) or service.send(request))
        return Lamella(self.url, transport=transport, policy=NO_RETRY)

    def close(self) -> None:
        """Close what reached the service."""
        for transport in self.transports:
            transport.close()


@contextmanager
def setting(spark: SparkSession, **values: Any) -> Iterator[None]:
    """Spark settings for a while; ``__`` stands for a dot."""
    names = {name.replace("__", "."): str(value) for name, value in values.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def no_pushdown(spark: SparkSession) -> Any:
    """While it holds, Spark skips nothing, so that a full scan is one.

    Neither in files nor in cached frames: the bounds that Spark keeps of a cached batch leave out NaN, so that
    `f64 >= 7` loses the rows that have it.
    """
    return setting(
        spark,
        spark__sql__parquet__filterPushdown="false",
        spark__sql__inMemoryColumnarStorage__partitionPruning="false",
    )


def sorted_rows(frame: DataFrame) -> list[str]:
    """The rows in an order of their own, comparable even where NaN is."""
    return sorted(map(_shown, frame.collect()))


def assert_same_rows(spark: SparkSession, table: LakeTable, condition: str) -> int:
    """The condition gives the same rows through Lamella and by a full scan; returns how many."""
    through = sorted_rows(spark.table(table.sql).where(condition))
    with no_pushdown(spark):
        truth = sorted_rows(table.full_scan(spark).where(condition))
    assert through == truth, condition
    return len(truth)


def _shown(row: Row) -> str:
    return repr(row)


def _escaped(path: str) -> str:
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)
