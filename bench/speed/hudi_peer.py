"""Hudi on Spark: a table that it wrote itself, one file a block, with column statistics.

It looks at the size of a file after a hundred rows, and here no size is small enough: so each file has the hundred rows
of one block, which are four rows again and again. Its index of files finds those that are left in the column statistics
of its metadata table, when a scan asks for them.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from synthetic import FILTERED_COLUMNS, MODEL_VERSION, Model

from speed.environments import HUDI
from speed.four_rows import ROWS, rows
from speed.spark_peers import OnSpark, session

_ROWS: Final = 100
_BLOCKS_OF_A_GROUP: Final = 500  # of the rows that Spark reads, so that no task begins within a block
_OPTIONS: Final = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}
_WRITING: Final = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.operation": "bulk_insert",
    "hoodie.bulkinsert.sort.mode": "NONE",
    "hoodie.parquet.max.file.size": "1",
    "hoodie.datasource.write.recordkey.field": "row",
    "hoodie.datasource.write.partitionpath.field": "",
    "hoodie.index.bloom.num_entries": str(_ROWS),
    "hoodie.parquet.compression.codec": "uncompressed",
    "hoodie.write.markers.type": "DIRECT",  # without a server in between
    "hoodie.embed.timeline.server": "false",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.column.stats.column.list": ",".join(FILTERED_COLUMNS),
}
_READING: Final = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}


class Hudi(OnSpark):
    """A view of the table, which is opened once, with data skipping."""

    note = (
        "counts only; the five columns asked for; until the scan knows its files; each predicate was planned three "
        "times before; 2 threads"
    )
    jar = HUDI.jars[0]
    table = "t"
    options = _OPTIONS

    def build(self, count: int) -> None:
        """Write the table.

        Raises:
            RuntimeError: Hudi wrote other files.
        """
        root = self._root(count)
        if (root / "done").exists():
            return
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        numbers = np.arange(count * _ROWS)
        blocks = rows(Model(count, FILTERED_COLUMNS), 0, count).take(pa.array(numbers // _ROWS * ROWS + numbers % ROWS))
        blocks = blocks.append_column("row", pa.array(numbers))
        pq.write_table(blocks, root / "rows.parquet", row_group_size=_ROWS * _BLOCKS_OF_A_GROUP)
        spark = session(self.jar, self.options)
        frame = spark.read.parquet(f"file://{root}/rows.parquet")
        frame = frame.withColumn("event_time", frame.event_time.cast("timestamp"))
        frame.write.format("hudi").options(**_WRITING).mode("overwrite").save(f"file://{root}/table")
        (root / "rows.parquet").unlink()
        files = sum(1 for _ in (root / "table").glob("*.parquet"))
        if files != count:
            raise RuntimeError(f"Hudi wrote {files:,} files, not {count:,}")
        spark.stop()
        (root / "done").touch()

    def load(self, count: int) -> None:
        """Open the table."""
        reader = self.spark.read.format("hudi").options(**_READING)
        reader.load(f"file://{self._root(count)}/table").createOrReplaceTempView(self.table)

    def block_numbers(self, answer: Any) -> int:
        """The number of files that the scan reads."""
        return int(answer.metrics().apply("numFiles").value())

    def _root(self, count: int) -> Path:
        return self._folder / f"hudi-model{MODEL_VERSION}-{count}"
