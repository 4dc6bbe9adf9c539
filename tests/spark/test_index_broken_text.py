"""An index job on Spark's executors, where a block has text that is not UTF-8."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lamella.client.http import Lamella
from lamella.client.spark import build_index
from spark.lakes import Lakes
from support.broken_text import text_of

pytestmark = pytest.mark.spark


def test_a_build_leaves_out_a_block_with_text_that_is_none(spark: SparkSession, lake: Lamella, lakes: Lakes) -> None:
    """The job goes on, the result names the block with the reason, and queries keep it."""
    made = lakes.of(
        pa.table({"a": [1], "s": ["x"]}),
        pa.table({"a": [2], "s": text_of([b"\xff"])}),
        pa.table({"a": [3], "s": ["y"]}),
    )
    table = lake.table(made.name)
    table.create_index("i", "ngram", "s")
    result = build_index(spark, lake, made.name, "i")
    assert result.indexed == 2
    assert [left.reason for left in result.left_out] == ["s has text that is not UTF-8"]
    info = table.index("i")
    assert info.coverage is not None
    assert (info.coverage.indexed, info.coverage.not_indexed) == (2, 1)
