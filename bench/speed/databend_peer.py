"""Embedded Databend (the PyPI wheel of 2024), which has to have real blocks: four rows each, which span the model's.

Its ``EXPLAIN`` prunes as a query does and says how many blocks are left, not which. The planner's own time, that of a
table without blocks to prune, is part of what is measured, as a user has it too.

``python -m speed.databend_peer FOLDER COUNT`` makes the table: in a process of its own, since the library reads its
data folder when it is imported and cannot change it. Every block is a file that the library syncs to the disk; in a
folder in memory that takes a third of the time, so the table is made there when there is room, and copied.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from synthetic import FILTERED_COLUMNS, MODEL_VERSION, Model

from speed.questions import Question, iso, sql
from speed.rendered import as_values

_ROWS: Final = 4
_BATCH: Final = 20_000
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # what is made there has a folder of its own, by tempfile
_BYTES_A_BLOCK: Final = 5_000
_SQL_TYPES: Final = "event_time timestamp, user_id bigint, error_code bigint null, country varchar, path varchar"


class Databend:
    """``EXPLAIN SELECT ... WHERE`` on a table of local Parquet blocks; its cache of prune results is off."""

    note = "a build of May 2024; counts only; the five columns asked for, no bloom index; 2 threads"

    def __init__(self, folder: Path) -> None:
        self.versions = {"databend": version("databend")}
        self._folder = folder

    def build(self, count: int) -> None:
        """Load the rows, in another process."""
        root = self._root(count)
        if (root / "done").exists():
            return
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        with tempfile.TemporaryDirectory(prefix="lamella-bench-", dir=_scratch(root, count)) as scratch:
            subprocess.run([sys.executable, "-m", "speed.databend_peer", scratch, str(count)], check=True)
            shutil.copytree(f"{scratch}/data", root / "data")
        (root / "done").touch()

    def load(self, root: Path, count: int) -> None:
        """Load the rows into the data folder of this process, in batches of blocks."""
        self._connect(root)
        self._query("set max_threads = 1")  # else rows of several blocks mix
        self._query(
            f"create table t ({_SQL_TYPES}) storage_format = 'parquet' row_per_block = {_ROWS} "
            "block_per_segment = 1000 bloom_index_columns = ''"
        )
        self._query(f"create stage s url = 'fs://{root}/in/' file_format = (type = parquet)")
        model = Model(count, FILTERED_COLUMNS)
        for start in range(0, count, _BATCH):
            stop = min(count, start + _BATCH)
            (root / "in").mkdir(exist_ok=True)
            pq.write_table(_rows(model, start, stop), root / "in" / f"{start}.parquet")
            self._query(
                f"insert into t select {', '.join(FILTERED_COLUMNS)} from @s/{start}.parquet (file_format => 'parquet')"
            )
        shutil.rmtree(root / "in")
        blocks = self._query("select block_count from fuse_snapshot('default', 't') limit 1")[0]["block_count"]
        if blocks != count:
            raise RuntimeError(f"Databend cut {blocks:,} blocks, not {count:,}")

    def open(self, count: int) -> None:
        """Open the data folder."""
        self._connect(self._root(count))
        self._query("set max_threads = 2")
        self._query("set max_inlist_to_or = 1000")

    def warm_up(self) -> None:
        """Do nothing: the first query warms up."""

    def run(self, query: Question) -> Any:
        """The plan as text."""
        rows = self._query(f"explain select user_id from t where {_where(query)}")
        return "\n".join(next(iter(row.values())) for row in rows)

    def block_numbers(self, answer: Any) -> int:
        """How many blocks the plan scans."""
        found = re.search(r"partitions scanned: (\d+)", answer)
        return int(found.group(1)) if found else 0

    def _connect(self, root: Path) -> None:
        if not hasattr(self, "_context"):  # one data folder a process; it is read when the library is imported
            os.environ["DATABEND_DATA_PATH"] = f"{root}/data/"
            os.environ["CACHE_TABLE_PRUNE_PARTITIONS_COUNT"] = "0"
            from databend import SessionContext

            self._context = SessionContext(tenant="bench")
            self._query("set enable_table_lock = 0")

    def _query(self, text: str) -> list[dict[str, Any]]:
        return [row for batch in self._context.sql(text).to_py_arrow() for row in batch.to_pylist()]

    def _root(self, count: int) -> Path:
        return self._folder / f"databend-model{MODEL_VERSION}-{count}"


def _scratch(root: Path, count: int) -> Path:
    """Where the table is made: in memory, if it needs no more than a third of what is free."""
    if not os.access(_IN_MEMORY, os.W_OK):
        return root
    available = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    free = min(shutil.disk_usage(_IN_MEMORY).free, int(available.split()[1]) << 10)
    return _IN_MEMORY if count * _BYTES_A_BLOCK * 3 < free else root


def _where(query: Question) -> str:
    return sql(query, lambda ms: f"to_timestamp('{iso(ms, ' ')}')")


def _rows(model: Model, start: int, stop: int) -> Any:
    """Write four rows per block: minimum, maximum, minimum (null where there are nulls), maximum."""
    size = stop - start
    first = np.arange(size)
    order = pa.array(np.stack([first, first + size, first, first + size], axis=1).ravel())
    columns: dict[str, Any] = {}
    for name in FILTERED_COLUMNS:
        ends = [as_values(model, name, side, start, stop) for side in (model.low, model.high)]
        column = pa.chunked_array(ends).combine_chunks().take(order)
        if name == "error_code":
            null = np.zeros((size, _ROWS), bool)
            null[:, 2] = model.nulls(name)[start:stop] > 0
            column = pc.if_else(pa.array(null.ravel()), pa.scalar(None, pa.int64()), column)
        columns[name] = column.cast(pa.timestamp("us")) if name == "event_time" else column
    return pa.table(columns)


def main() -> None:
    """Make the table of COUNT blocks in FOLDER."""
    root, count = Path(sys.argv[1]), int(sys.argv[2])
    Databend(root).load(root, count)


if __name__ == "__main__":
    main()
