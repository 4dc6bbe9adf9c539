"""DuckLake's catalog tables in plain DuckDB, asked with the SQL that its specification describes.

The extension itself is not needed. What stands here is kind to it: the statistics lie sorted by column, so that
DuckDB's own zone maps leave out the other 19 columns, files have a primary key, and alternatives and IS NULL are asked
of the statistics too, which the extension (1.5) does not do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from synthetic import MODEL_VERSION, ROWS, TYPES, Model, block_numbers

from speed.questions import Question, iso, prefix_end
from speed.rendered import as_text

_BATCH: Final = 250_000
_TABLES: Final = """
CREATE TABLE ducklake_data_file (data_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT,
    end_snapshot BIGINT, path VARCHAR, record_count BIGINT, file_size_bytes BIGINT);
CREATE TABLE ducklake_file_column_stats (data_file_id BIGINT, table_id BIGINT, column_id BIGINT, value_count BIGINT,
    null_count BIGINT, min_value VARCHAR, max_value VARCHAR, contains_nan BOOLEAN);
"""
_IDS: Final = {name: number for number, name in enumerate(TYPES, 1)}
_CASTS: Final = {"event_time": "TIMESTAMPTZ", "user_id": "BIGINT", "country": "VARCHAR", "path": "VARCHAR"}


class DuckLake:
    """Paths of the data files that the statistics leave, from a catalog file that is open."""

    note = "schema and SQL of DuckLake, without its extension; kinder to it than it is to itself"

    def __init__(self, folder: Path) -> None:
        self.versions = {"duckdb": duckdb.__version__}
        self._folder = folder

    def build(self, count: int) -> None:
        """Write the catalog file."""
        file = self._file(count)
        if not file.exists():
            part = file.with_suffix(".part")
            part.unlink(missing_ok=True)
            _write(part, Model(count))
            part.rename(file)

    def open(self, count: int) -> None:
        """Open the catalog file."""
        self._connection = duckdb.connect(str(self._file(count)), read_only=True)
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute("SET threads = 2")

    def warm_up(self) -> None:
        """Do nothing: the first query warms up."""

    def run(self, query: Question) -> Any:
        """Paths as an array."""
        return self._connection.execute(_sql(query)).fetchnumpy()["path"]

    def block_numbers(self, answer: Any) -> npt.NDArray[np.int64]:
        """Their blocks."""
        return np.sort(block_numbers(answer.tolist()))

    def _file(self, count: int) -> Path:
        return self._folder / f"ducklake-model{MODEL_VERSION}-{count}.duckdb"


def _sql(query: Question) -> str:
    tests: dict[str, list[str]] = {}
    if query.user is not None:
        tests["user_id"] = [_overlap("user_id", str(query.user), str(query.user))]
    elif query.prefix is not None:
        tests["path"] = [f"(max_value >= '{query.prefix}' AND min_value < '{prefix_end(query.prefix)}')"]
    elif query.ranges or query.points:
        ends = query.ranges or tuple((point, point) for point in query.points)
        tests["event_time"] = [_overlap("event_time", _time(start), _time(stop)) for start, stop in ends]
        if query.country is not None:
            tests["country"] = [_overlap("country", f"'{query.country}'", f"'{query.country}'")]
    else:
        tests["error_code"] = ["(null_count > 0 OR null_count IS NULL)"]
    stats = ", ".join(
        f"col_{_IDS[name]} AS MATERIALIZED (SELECT data_file_id, min_value, max_value, null_count "
        f"FROM ducklake_file_column_stats WHERE column_id = {_IDS[name]} AND table_id = 1)"
        for name in tests
    )
    where = " AND ".join(
        f"data_file_id IN (SELECT data_file_id FROM col_{_IDS[name]} WHERE {' OR '.join(alternatives)})"
        for name, alternatives in tests.items()
    )
    return (
        f"WITH {stats} SELECT path FROM ducklake_data_file WHERE table_id = 1 AND 1 >= begin_snapshot "
        f"AND (1 < end_snapshot OR end_snapshot IS NULL) AND {where}"
    )


def _overlap(column: str, start: str, stop: str) -> str:
    low, high = (f"TRY_CAST({side}_value AS {_CASTS[column]})" for side in ("min", "max"))
    return f"(({high} >= {start} OR max_value IS NULL) AND ({low} <= {stop} OR min_value IS NULL))"


def _time(ms: int) -> str:
    return f"TIMESTAMPTZ '{iso(ms, ' ')}+00'"


def _write(file: Path, model: Model) -> None:
    with duckdb.connect(str(file)) as database:
        database.execute(_TABLES)
        for start in range(0, model.count, _BATCH):
            stop = min(model.count, start + _BATCH)
            files = {
                "id": np.arange(start, stop),
                "path": model.names(start, stop),
                "size": model.file_size[start:stop],
            }
            database.register("files", pa.table(files))
            database.execute(f"INSERT INTO ducklake_data_file SELECT id, 1, 1, NULL, path, {ROWS}, size FROM files")
        for name, number in _IDS.items():
            for start in range(0, model.count, _BATCH):
                stop = min(model.count, start + _BATCH)
                database.register("stats", stats(model, name, start, stop))
                nan = "false" if TYPES[name] == "float64" else "NULL"
                database.execute(
                    "INSERT INTO ducklake_file_column_stats "
                    f"SELECT id, 1, {number}, {ROWS} - nulls, nulls, low, high, {nan} FROM stats"
                )


def stats(model: Model, name: str, start: int, stop: int) -> Any:
    """Statistics of a column of some files, as the catalog has them: bounds as text, and counts of nulls."""
    low, high = (as_text(model, name, side, start, stop) for side in (model.low, model.high))
    if TYPES[name] == "timestamp(us)":
        low, high = (pc.binary_join_element_wise(side, "+00", "") for side in (low, high))
    nulls = model.nulls(name)[start:stop]
    return pa.table({"id": np.arange(start, stop), "low": low, "high": high, "nulls": nulls})
