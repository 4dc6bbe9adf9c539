"""DataFusion on Parquet files whose row groups of four rows are the blocks, 1,000 a file, as Lamella's segments have.

Files are left out by their statistics, which it collects when the table is registered, and row groups by the footers
in its metadata cache. Both happen while a query runs, and nothing of the library does them alone: what is timed is a
query, which also reads the row groups that are left.
"""

from __future__ import annotations

import re
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from datafusion import SessionConfig, SessionContext
from synthetic import FILTERED_COLUMNS, MODEL_VERSION, Model

from speed.four_rows import ROWS, rows
from speed.questions import Question, iso, sql

_GROUPS_OF_A_FILE: Final = 1_000
_LEFT: Final = re.compile(r"row_groups_pruned_statistics\{[^}]*\}=[\d.]+ ?K? total → ([\d.]+)( K)? matched")


class DataFusion:
    """``SELECT user_id ... WHERE``, of which the metrics say how many row groups were left."""

    note = (
        "counts only; row groups are blocks, 1,000 a file; the time of reading those that are left is part of it; "
        "footers in its cache; 2 partitions"
    )

    def __init__(self, folder: Path) -> None:
        self.versions = {"datafusion": version("datafusion")}
        self._folder = folder

    def build(self, count: int) -> None:
        """Write the files."""
        root = self._root(count)
        if (root / "done").exists():
            return
        shutil.rmtree(root, ignore_errors=True)
        (root / "files").mkdir(parents=True)
        model = Model(count, FILTERED_COLUMNS)
        for start in range(0, count, _GROUPS_OF_A_FILE):
            file = root / "files" / f"{start:08d}.parquet"
            pq.write_table(rows(model, start, min(count, start + _GROUPS_OF_A_FILE)), file, row_group_size=ROWS)
        (root / "done").touch()

    def open(self, count: int) -> None:
        """Register the folder: its files are listed, and their statistics read."""
        self._context = SessionContext(SessionConfig().with_target_partitions(2))
        for name in ("metadata_cache_limit", "file_statistics_cache_limit", "list_files_cache_limit"):
            self._context.sql(f"SET datafusion.runtime.{name} = '4G'").collect()
        self._context.register_parquet("t", str(self._root(count) / "files"))

    def warm_up(self) -> None:
        """Do nothing: the first query warms up."""

    def run(self, query: Question) -> Any:
        """The plan that was executed, with its metrics."""
        where = sql(query, lambda ms: f"TIMESTAMP '{iso(ms, ' ')}'")
        frame = self._context.sql(f"SELECT user_id FROM t WHERE {where}")
        frame.collect()
        return frame.execution_plan()

    def block_numbers(self, answer: Any) -> int:
        """How many row groups were left of all files, which count no more than a thousand each."""
        metrics = "\n".join(str(found) for _, found in answer.collect_metrics())
        return sum(round(float(number) * (1_000 if thousands else 1)) for number, thousands in _LEFT.findall(metrics))

    def _root(self, count: int) -> Path:
        return self._folder / f"datafusion-model{MODEL_VERSION}-{count}"
