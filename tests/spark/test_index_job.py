"""Skip indexes that are built on Spark's executors."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lamella.client.http import Lamella
from lamella.client.spark import BuildProgress, build_index
from lamella.snapshot.errors import IndexNotFound, InvalidRequest
from lamella.snapshot.schema.evolution import DropColumn
from spark.lakes import Lakes

pytestmark = pytest.mark.spark

BLOCKS = 40


def test_a_build_on_executors_knows_what_a_refresh_would(spark: SparkSession, lake: Lamella, lakes: Lakes) -> None:
    """Batches are committed one after another; a second build goes on, and one with nothing to do changes nothing."""
    made = lakes.of(*(pa.table({"a": [i, i + 1], "s": [f"v{i}", None]}) for i in range(BLOCKS)))
    table = lake.table(made.name)
    table.create_index("i", "value_set", "a")
    table.create_index("j", "value_set", "a")
    with pytest.raises(IndexNotFound):
        build_index(spark, lake, made.name, "none")
    with pytest.raises(InvalidRequest):
        build_index(spark, lake, made.name, "i", read_threads=0)
    seen: list[BuildProgress] = []
    result = build_index(spark, lake.url, made.name, "i", batch_pieces=1, on_batch=seen.append)
    assert (result.indexed, result.row_count, result.left_out) == (BLOCKS, 2 * BLOCKS, ())
    assert [part.blocks_done for part in seen][-1] == seen[-1].blocks_total == BLOCKS
    assert len(seen) == result.parts == 2
    info = table.index("i")
    assert info.coverage is not None
    assert (info.coverage.indexed, info.coverage.not_indexed, info.parts) == (BLOCKS, 0, 1)
    table.refresh_index("j")
    assert info.size_bytes == table.index("j").size_bytes
    made.add(pa.table({"a": [1_000], "s": ["x"]}))
    before = made.snapshot_id()
    assert build_index(spark, lake, made.name, "i").indexed == 1
    after = made.snapshot_id()
    assert after != before
    assert build_index(spark, lake, made.name, "i").indexed == 0
    assert made.snapshot_id() == after
    assert build_index(spark, lake, made.name, "i", mode="full").indexed == BLOCKS + 1
    info = table.index("i")
    assert info.coverage is not None
    assert (info.coverage.indexed, info.coverage.unused_entries) == (BLOCKS + 1, 0)
    assert table.verify().is_clean


def test_a_build_over_a_column_that_is_gone_is_refused_before_a_task_starts(
    spark: SparkSession, lake: Lamella, lakes: Lakes
) -> None:
    """With the error that a refresh gives, not one of an executor."""
    made = lakes.of(pa.table({"a": [1, 2], "s": ["x", "y"]}))
    table = lake.table(made.name)
    table.create_index("gone", "value_set", "s")
    table.evolve([DropColumn(column="s")])
    with pytest.raises(InvalidRequest, match="has changed since"):
        build_index(spark, lake, made.name, "gone")
