"""Spark itself as the judge of what JSON paths give: its answer, or that nothing is certain, and never another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rows.test_json_paths import given
from support.json_documents import PATHS, UNCERTAIN, VECTORS, random_document

pytestmark = pytest.mark.spark

#: Whether Spark reads a document once for all the paths of a query. It is no setting of ours: both have to agree.
SHARED = "spark.sql.optimizer.getJsonObjectSharedParsing.enabled"


def of_spark(
    spark: SparkSession, folder: Path, documents: Sequence[str], paths: Sequence[str]
) -> list[list[str | None]]:
    """What each path gives in each document."""
    pq.write_table(pa.table({"j": pa.array(documents, pa.string())}), folder / "j.parquet")
    frame = spark.read.parquet(str(folder / "j.parquet")).coalesce(1)
    columns = [F.get_json_object("j", path).alias(f"c{at}") for at, path in enumerate(paths)]
    return [column.to_pylist() for column in frame.select(*columns).toArrow().columns]


@pytest.fixture(params=[False, True], ids=["each", "shared"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Spark, reading documents for each path, or once for all."""
    spark.conf.set(SHARED, str(request.param).lower())
    yield spark
    spark.conf.unset(SHARED)


def test_spark_gives_what_the_vectors_say(session: SparkSession, tmp_path: Path) -> None:
    """The table of documents is Spark's, not ours."""
    documents = list(dict.fromkeys(document for document, _, _ in VECTORS))
    paths = list(dict.fromkeys(path for _, path, _ in VECTORS))
    answers = of_spark(session, tmp_path, documents, paths)
    for document, path, expected in VECTORS:
        found = answers[paths.index(path)][documents.index(document)]
        assert expected is UNCERTAIN or found == expected, (document[:200], path)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.few(2)
def test_random_documents_give_what_spark_gives(session: SparkSession, tmp_path: Path, seed: int) -> None:
    """Thousands of documents, whole and broken: the same value or null, or nothing is said, and mostly something is."""
    rng = Random(seed)
    documents = [random_document(rng) for _ in range(3_000)]
    certain = values = 0
    for path, spark_says in zip(PATHS, of_spark(session, tmp_path, documents, PATHS), strict=True):
        for document, mine, theirs in zip(documents, given(list(documents), path), spark_says, strict=True):
            assert mine is UNCERTAIN or mine == theirs, (document, path)
            certain += mine is not UNCERTAIN
            values += mine is not UNCERTAIN and mine is not None
    assert certain > 0.9 * len(documents) * len(PATHS)
    assert values > 1_000
