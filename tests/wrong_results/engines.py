"""Who answers: Lamella in two ways, and other engines on the same files.

Every engine gives the ids of the rows that match. For another engine, an answer that differs from the truth is held
against the same engine's answer without any skipping: alike means that it understands the condition otherwise,
different means that it lost rows, or found too many, by skipping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lamella.client.http import Lamella
from lamella.snapshot.errors import LamellaError
from spark.lakes import no_pushdown, setting
from wrong_results.case import Case, Query

TIME_ZONE = "Europe/Berlin"
#: How a query of Spark fails: with an error of its own, or with one of the JVM's that it does not know.
_SPARK_ERRORS = (PySparkException, Py4JError)
#: The catalog in SQL that these tests attach.
CATALOG = "judged"


@dataclass(frozen=True)
class Answer:
    """The ids found, or why there are none: an error, or a condition that the engine has no words for."""

    ids: Sequence[int] | None = None
    error: str | None = None
    #: Only of other engines: what the same engine finds when it skips nothing.
    unpruned: Sequence[int] | None = None


class Engine(Protocol):
    """Answers all queries of a case over its files."""

    def __call__(self, case: Case, paths: Sequence[str], table: str) -> list[Answer]: ...


def lamella_spark(spark: SparkSession) -> Engine:
    """Spark SQL over Lamella's catalog."""

    def answer(case: Case, paths: Sequence[str], table: str) -> list[Answer]:
        del paths
        with setting(spark, **_spelled(case.settings)):
            return _spark_answers(spark, case, f"{CATALOG}.{table}")

    return answer


def lamella_python(lake: Lamella) -> Engine:
    """Lamella's Python reader."""

    def one(table: str, query: Query) -> Answer:
        try:
            scan = lake.table(table).scan(filter=query.sql, columns=["id"], time_zone=TIME_ZONE)
            return Answer(sorted(scan.to_arrow().column("id").to_pylist()))
        except LamellaError as error:
            return Answer(error=f"refused ({error.code})")

    def answer(case: Case, paths: Sequence[str], table: str) -> list[Answer]:
        del paths
        return [one(table, query) for query in case.queries]

    return answer


def plain_spark(spark: SparkSession) -> Engine:
    """Spark alone on the files, as it is delivered."""

    def answer(case: Case, paths: Sequence[str], table: str) -> list[Answer]:
        view = f"plain_{table.replace('.', '_')}"
        reader = spark.read
        if case.schema is not None:
            reader = reader.schema(spark.table(f"{CATALOG}.{table}").schema)
        with setting(spark, **_spelled(case.settings)):
            try:
                reader.parquet(*paths).createOrReplaceTempView(view)
            except _SPARK_ERRORS as error:
                return [Answer(error=_named(error))] * len(case.queries)
            found = _spark_answers(spark, case, view)
            if _all_true(case, found):
                return found
            with no_pushdown(spark):
                return _with_unpruned(found, _spark_answers(spark, case, view))

    return answer


def pyarrow_dataset(case: Case, paths: Sequence[str], table: str) -> list[Answer]:
    """pyarrow's dataset scanner with a filter."""
    del table
    return [_by_pyarrow(case, paths, query) for query in case.queries]


def _by_pyarrow(case: Case, paths: Sequence[str], query: Query) -> Answer:
    if query.arrow is None:
        return Answer()
    try:
        source = ds.dataset(list(paths), schema=case.schema, format="parquet")
        found = source.to_table(filter=query.arrow, columns=["id"])
        whole = source.to_table().filter(query.arrow)
    except (pa.ArrowException, OSError) as error:
        return Answer(error=_named(error))
    return Answer(sorted(found["id"].to_pylist()), unpruned=sorted(whole["id"].to_pylist()))


def by_duckdb(case: Case, paths: Sequence[str], table: str) -> list[Answer]:
    """DuckDB's read_parquet."""
    del table
    return [_by_duckdb(paths, query.sql if query.duckdb is None else query.duckdb) for query in case.queries]


def _by_duckdb(paths: Sequence[str], condition: str) -> Answer:
    listed = ", ".join(f"'{path}'" for path in paths)
    text = f"SELECT id FROM read_parquet([{listed}], union_by_name = true) WHERE {condition}"  # noqa: S608  # our own
    with duckdb.connect() as connection:
        connection.execute(f"SET TimeZone = '{TIME_ZONE}'")
        try:
            found = sorted(row[0] for row in connection.execute(text).fetchall())
            connection.execute("SET disabled_optimizers = 'filter_pushdown,statistics_propagation'")
            whole = sorted(row[0] for row in connection.execute(text).fetchall())
        except duckdb.Error as error:
            return Answer(error=_named(error))
    return Answer(found, unpruned=whole)


def _spark_answers(spark: SparkSession, case: Case, source: str) -> list[Answer]:
    """All queries in one job; one by one when one of them fails."""

    def scan(at: int, query: Query) -> str:
        return f"SELECT {at} AS query, id FROM {source} WHERE {query.sql}"  # noqa: S608  # our own text

    try:
        together = " UNION ALL ".join(scan(at, query) for at, query in enumerate(case.queries))
        return _split(spark.sql(together), len(case.queries))
    except _SPARK_ERRORS:
        return [_alone(spark, scan(at, query)) for at, query in enumerate(case.queries)]


def _alone(spark: SparkSession, text: str) -> Answer:
    try:
        return Answer(sorted(row.id for row in spark.sql(text).collect()))
    except _SPARK_ERRORS as error:
        return Answer(error=_named(error))


def _split(frame: DataFrame, count: int) -> list[Answer]:
    found: list[list[int]] = [[] for _ in range(count)]
    for row in frame.collect():
        found[row.query].append(row.id)
    return [Answer(sorted(ids)) for ids in found]


def _all_true(case: Case, found: Sequence[Answer]) -> bool:
    return all(answer.ids == case.truth(query) for answer, query in zip(found, case.queries, strict=True))


def _with_unpruned(found: Sequence[Answer], whole: Sequence[Answer]) -> list[Answer]:
    return [Answer(one.ids, one.error, all_.ids) for one, all_ in zip(found, whole, strict=True)]


def _named(error: Exception) -> str:
    return f"error ({type(error).__name__})"


def _spelled(settings: Mapping[str, str]) -> dict[str, str]:
    return {name.replace(".", "__"): value for name, value in settings.items()}
