"""chDB, which is ClickHouse in a process: a MergeTree table in which a granule of four rows is a block.

Its data-skipping indexes are minima and maxima of each granule, and of 1,000 granules before those, as Lamella's
segments are. Sets and bloom filters would be other metadata than the model has. The primary key is the number of the
block, which keeps its rows together; blocks overlap in every column that is asked for, so none of them can be the key.

``mergeTreeAnalyzeIndexes`` answers which granules a query would read, and reads none.
"""

from __future__ import annotations

import json
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from chdb.session import Session
from synthetic import FILTERED_COLUMNS, MODEL_VERSION, Model

from speed.four_rows import ROWS, rows
from speed.questions import Question, iso, sql

_SESSION: Final[Any] = Session  # it has no types
_BATCH: Final = 100_000
_GROUP: Final = 1_000
_SQL_TYPES: Final = {
    "event_time": "DateTime64(6, 'UTC')",
    "user_id": "Int64",
    "error_code": "Nullable(Int64)",
    "country": "String",
    "path": "String",
}


class Chdb:
    """``mergeTreeAnalyzeIndexes`` over a table of one part."""

    note = (
        "minmax indexes of each granule of four rows, which is a block, and of 1,000 of them; asked by "
        "mergeTreeAnalyzeIndexes, which names the granules; its cache of conditions is off; 2 threads"
    )

    def __init__(self, folder: Path) -> None:
        self.versions = {"chdb-core": version("chdb-core")}
        self._folder = folder

    def build(self, count: int) -> None:
        """Load the rows, and merge what was loaded into one part.

        Raises:
            RuntimeError: the table has not one part of so many granules.
        """
        root = self._root(count)
        if (root / "done").exists():
            return
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        self._session = _SESSION(str(root / "data"))
        columns = ", ".join(f"{name} {kind}" for name, kind in _SQL_TYPES.items())
        indexes = ", ".join(
            f"INDEX {name}_{size} {name} TYPE minmax GRANULARITY {size}" for name in _SQL_TYPES for size in (_GROUP, 1)
        )
        self._ask("CREATE DATABASE bench ENGINE = Atomic")
        self._ask(
            f"CREATE TABLE bench.t (number UInt64, {columns}, {indexes}) ENGINE = MergeTree ORDER BY number "
            f"SETTINGS index_granularity = {ROWS}, index_granularity_bytes = 0, min_bytes_for_wide_part = 0"
        )
        model = Model(count, FILTERED_COLUMNS)
        for start in range(0, count, _BATCH):
            stop = min(count, start + _BATCH)
            numbers = pa.array(np.arange(start * ROWS, stop * ROWS, dtype=np.uint64))
            pq.write_table(rows(model, start, stop).append_column("number", numbers), root / "in.parquet")
            names = ", ".join(("number", *FILTERED_COLUMNS))
            self._ask(f"INSERT INTO bench.t ({names}) SELECT {names} FROM file('{root}/in.parquet', Parquet)")
        (root / "in.parquet").unlink()
        self._ask("OPTIMIZE TABLE bench.t FINAL")
        parts = json.loads(
            self._ask("SELECT rows, marks FROM system.parts WHERE table = 't' AND active", "JSONCompact")
        )["data"]
        if [[int(value) for value in part] for part in parts] != [[count * ROWS, count]]:
            raise RuntimeError(f"ClickHouse made {parts}, not one part of {count:,} granules")
        self._session.close()
        (root / "done").touch()

    def open(self, count: int) -> None:
        """Open the folder."""
        self._session = _SESSION(str(self._root(count) / "data"))
        for setting in ("max_threads = 2", "use_query_condition_cache = 0"):
            self._ask(f"SET {setting}")

    def warm_up(self) -> None:
        """Do nothing: the first query warms up."""

    def run(self, query: Question) -> Any:
        """Runs of granules, as JSON."""
        where = sql(query, lambda ms: f"'{iso(ms, ' ')}'")
        return self._ask(f"SELECT ranges FROM mergeTreeAnalyzeIndexes('bench', 't', {where})", "JSONCompactEachRow")

    def block_numbers(self, answer: Any) -> npt.NDArray[np.int64]:
        """The granules in the runs."""
        runs = [run for line in answer.splitlines() for run in json.loads(line)[0]]
        return np.sort(
            np.concatenate([*(np.arange(int(first), int(end)) for first, end in runs), np.zeros(0, np.int64)])
        )

    def _ask(self, text: str, form: str = "CSV") -> str:
        return str(self._session.query(text, form))

    def _root(self, count: int) -> Path:
        return self._folder / f"chdb-model{MODEL_VERSION}-{count}"
