"""Blocks on S3: executors write and read them through Python alone, with the options they are given."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fixtures_s3 import S3Server
from lamella.client.rewrite.sort import Order, Scratch, cut_ranges
from lamella.client.rewrite.source import read_rows
from lamella.client.rewrite.stages import MergeRange, Sink
from lamella.client.rewrite.target import Target
from lamella.client.spark.lake import BlockSelection
from lamella.client.spark.python_blocks import spark_arrow_schema
from lamella.snapshot.errors import ObjectNotFound, StoreError
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore

pytestmark = pytest.mark.s3

SPARK_SCHEMA = '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}'
TABLE = Schema.assign([Column(name="a", type="int64")])


def test_a_task_writes_blocks_to_a_bucket_and_another_reads_them(s3: S3Server) -> None:
    """The store's own size is recorded, and Spark would find the block by its s3a path."""
    bucket = s3.bucket("spark-blocks")
    options = {"s3": s3.storage_options}
    target = Target(
        location=f"{bucket}/a table/with ü",
        history=(TABLE,),
        order=Order(keys=("a",)),
        block_rows=60,
        storage_options=options,
    )
    scratch = Scratch(target.layout.scratch)
    sunk = Sink(target=target, scratch=scratch).drain([pa.RecordBatch.from_pydict({"c0": list(range(99, -1, -1))})])
    done = [
        MergeRange(target=target, scratch=scratch, block_rows=target.block_rows)(each)
        for each in cut_ranges(sunk.runs, 1_000)
    ]
    blocks = [block for each in done for block in each.blocks]
    assert [block.row_count for block in blocks] == [50, 50]
    store = FsspecStore(options)
    assert all(block.file_size == store.stat(block.location).size_bytes for block in blocks)
    selection = BlockSelection(locations=[blocks[0].location], sizes=[blocks[0].file_size], rows=[50], blocks_total=2)
    path, _ = selection.files()[0]
    assert path.startswith("s3a://spark-blocks/a table/with ü/_b/")
    wanted = spark_arrow_schema(SPARK_SCHEMA)
    read = [
        pa.Table.from_batches(list(read_rows(block.location, wanted, options, written=TABLE, current=TABLE)))
        for block in blocks
    ]
    rows = [table["a"].to_pylist() for table in read]
    assert rows == [list(range(50)), list(range(50, 100))]


def test_a_block_that_is_not_there_or_may_not_be_read_is_an_error(s3: S3Server) -> None:
    """Nothing is read as an empty block."""
    bucket = s3.bucket("spark-missing")
    target = spark_arrow_schema(SPARK_SCHEMA)
    with pytest.raises(ObjectNotFound):
        list(read_rows(f"{bucket}/nothing.parquet", target, {"s3": s3.storage_options}, written=TABLE, current=TABLE))
    one_try = {"retries": {"total_max_attempts": 1}}
    unreachable = {**s3.storage_options, "endpoint_url": "http://127.0.0.1:9", "config_kwargs": one_try}
    with pytest.raises(StoreError):
        list(read_rows(f"{bucket}/nothing.parquet", target, {"s3": unreachable}, written=TABLE, current=TABLE))
