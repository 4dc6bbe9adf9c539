"""A public wrong-result case: files as some writer left them, the values that are in them, and queries with the truth.

The truth is computed from the values by a plain function of a row, never by an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from parquet.crafted import INT64
from wrong_results.parquet_bytes import Col, PageIndex, Stats, raw

Row = Mapping[str, Any]


@dataclass(frozen=True)
class CaseWriter:
    """Writes the files of a case into its folder; the Spark session is for the cases that Spark writes."""

    folder: Path
    spark: SparkSession

    def arrow(self, table: pa.Table, name: str = "a.parquet", **options: Any) -> str:
        """A file by pyarrow."""
        path = self.folder / name
        pq.write_table(table, path, **options)
        return str(path)

    def by_spark(self, table: pa.Table, *, columns: Sequence[str] = ("*",), **options: str) -> list[str]:
        """One file by Spark itself; ``columns``: SQL over the table's; ``options``: of the Parquet writer."""
        source = self.arrow(table, "source.parquet")
        target = self.folder / "spark"
        frame = self.spark.read.parquet(source).selectExpr(*columns).coalesce(1)
        frame.write.options(**options).parquet(str(target))
        return sorted(map(str, target.glob("*.parquet")))


@dataclass(frozen=True)
class Query:
    """A condition in Spark SQL, which rows it is true for, and how pyarrow and DuckDB say the same.

    ``arrow`` None: pyarrow's expressions cannot say it. ``duckdb`` None: the SQL text fits as it is.
    """

    sql: str
    truth: Callable[[Row], bool | None]
    arrow: pc.Expression | None = None
    duckdb: str | None = None


@dataclass(frozen=True)
class Case:
    """``rows``: the values of every column by name; a row's ``id`` is its place. ``make`` writes the files.

    ``settings``: Spark's, for this case. ``source``: where the case is known from.
    ``refused``: readers of Lamella (``"spark"``, ``"python"``) that refuse these files with an error of their own
    instead of reading them; anything but that error or the truth fails the test.
    """

    id: str
    title: str
    source: str
    rows: Mapping[str, Sequence[Any]]
    make: Callable[[CaseWriter], list[str]]
    queries: Sequence[Query]
    schema: pa.Schema | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    refused: Sequence[str] = ()

    def truth(self, query: Query) -> list[int]:
        """The ids of the rows that match."""
        count = len(next(iter(self.rows.values())))
        rows = [{name: values[at] for name, values in self.rows.items()} for at in range(count)]
        return [at for at, row in enumerate(rows) if query.truth(row) is True]


def ids(count: int, groups: Sequence[int] | None = None) -> Col:
    """The column of row numbers, with honest statistics and, for one row group, an honest index of its one page.

    (A reader that looks for pages needs an offset index of every column that it reads.)
    """
    stats = []
    first = 0
    for rows in groups or [count]:
        claims = Stats(raw(INT64, first), raw(INT64, first + rows - 1), nulls=0) if rows else None
        stats.append(claims)
        first += rows
    index = () if groups else [PageIndex([False], [raw(INT64, 0)], [raw(INT64, count - 1)], [0])]
    return Col("id", INT64, range(count), required=True, stats=stats, index=index)


def table(**columns: Any) -> pa.Table:
    """An Arrow table with a leading ``id``."""
    count = len(next(iter(columns.values())))
    return pa.table({"id": pa.array(range(count), pa.int64()), **columns})


F = pc.field
