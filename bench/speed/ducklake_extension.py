"""DuckLake as its extension plans, on a catalog whose tables it made itself and to which files were added by SQL.

The extension is of DuckDB 1.5, the newest that a registry has it for. No data file exists: a query asks its catalog for
the files that are left, and fails when it opens the first one. That far it is timed. Which files were left is what the
statement answers that the extension sent to its catalog, taken from DuckDB's log.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import duckdb
import duckdb_extension_ducklake
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from synthetic import MODEL_VERSION, ROWS, TYPES, Model, block_numbers

from speed.ducklake import stats
from speed.questions import Question, iso, sql

_BATCH: Final = 100_000
_SQL_TYPES: Final = {
    "timestamp(us)": "TIMESTAMPTZ",
    "date": "DATE",
    "int64": "BIGINT",
    "int32": "INTEGER",
    "float64": "DOUBLE",
    "decimal(18,2)": "DECIMAL(18,2)",
    "string": "VARCHAR",
}


class Extension:
    """``SELECT`` until its first data file is opened."""

    note = "a query up to the first data file that it opens; its catalog is a DuckDB file; 2 threads"

    def __init__(self, folder: Path) -> None:
        self.versions = {
            "duckdb": duckdb.__version__,
            "duckdb-extension-ducklake": version("duckdb-extension-ducklake"),
        }
        self._folder = folder

    def build(self, count: int) -> None:
        """Let the extension make the lake, and add the files to its catalog."""
        root = self._root(count)
        if (root / "done").exists():
            return
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        columns = ", ".join(f"{name} {_SQL_TYPES[kind]}" for name, kind in TYPES.items())
        with self._attached(root) as lake:
            lake.execute(f"CREATE TABLE lake.t ({columns})")
        with duckdb.connect(str(root / "catalog.ducklake")) as catalog:
            _add(catalog, Model(count))
        (root / "done").touch()

    def open(self, count: int) -> None:
        """Load the extension and attach the lake."""
        self._lake = self._attached(self._root(count))

    def warm_up(self) -> None:
        """Do nothing: the first query warms up."""

    def run(self, query: Question) -> Any:
        """The text of the query, which was planned.

        Raises:
            RuntimeError: it has rows, and there is no data file.
        """
        text = f"SELECT user_id FROM lake.t WHERE {sql(query, _time)}"
        with suppress(duckdb.IOException):  # none where no file is left
            if self._lake.execute(text).fetchone() is not None:
                raise RuntimeError("DuckLake found rows, and there is no data file")
        return text

    def block_numbers(self, answer: Any) -> npt.NDArray[np.int64]:
        """The files that the extension's statement leaves, for the same query once more.

        Raises:
            RuntimeError: the log has no such statement.
        """
        self._lake.execute("CALL truncate_duckdb_logs()")
        self._lake.execute("CALL enable_logging('QueryLog')")
        with suppress(duckdb.IOException):
            self._lake.execute(answer).fetchone()
        self._lake.execute("CALL disable_logging()")
        log = self._lake.execute("SELECT message FROM duckdb_logs ORDER BY timestamp").fetchall()
        statements = [text for (text,) in log if "ducklake_data_file data" in text]
        if not statements:
            raise RuntimeError("DuckLake asked its catalog for no files")
        return np.sort(
            block_numbers(self._lake.execute(f"SELECT data_path FROM ({statements[-1]})").fetchnumpy()["data_path"])
        )

    def _attached(self, root: Path) -> Any:
        extension = next(Path(duckdb_extension_ducklake.__file__).parent.glob("extensions/*/ducklake.duckdb_extension"))
        connection = duckdb.connect()
        connection.execute(f"LOAD '{extension}'")
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET threads = 2")
        connection.execute(f"ATTACH 'ducklake:{root}/catalog.ducklake' AS lake (DATA_PATH '{root}/data')")
        return connection

    def _root(self, count: int) -> Path:
        return self._folder.absolute() / f"ducklake-extension-model{MODEL_VERSION}-{count}"


def _time(ms: int) -> str:
    return f"TIMESTAMPTZ '{iso(ms, ' ')}+00'"


def _add(catalog: Any, model: Model) -> None:
    """Add what the extension would have written of these files in one commit."""
    table = catalog.execute("SELECT table_id FROM ducklake_table").fetchone()[0]
    ids = dict(catalog.execute("SELECT column_name, column_id FROM ducklake_column").fetchall())
    snapshot = catalog.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchone()[0] + 1
    for start in range(0, model.count, _BATCH):
        stop = min(model.count, start + _BATCH)
        files = {"id": np.arange(start, stop), "path": model.names(start, stop), "size": model.file_size[start:stop]}
        catalog.register("files", pa.table(files))
        catalog.execute(
            "INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative, "
            "file_format, record_count, file_size_bytes, footer_size, row_id_start) "
            f"SELECT id, {table}, {snapshot}, path, true, 'parquet', {ROWS}, size, 4000, id * {ROWS} FROM files"
        )
        for name in TYPES:
            catalog.register(f"stats_{ids[name]}", stats(model, name, start, stop))
        each = " UNION ALL ".join(
            f"SELECT id, {ids[name]} AS column_id, nulls, low, high, "
            f"{'false' if TYPES[name] == 'float64' else 'NULL::BOOLEAN'} AS nan FROM stats_{ids[name]}"
            for name in TYPES
        )
        catalog.execute(  # file by file, as a writer leaves them
            "INSERT INTO ducklake_file_column_stats (data_file_id, table_id, column_id, column_size_bytes, "
            "value_count, null_count, min_value, max_value, contains_nan) "
            f"SELECT id, {table}, column_id, 1, {ROWS} - nulls, nulls, low, high, nan FROM ({each}) "
            "ORDER BY id, column_id"
        )
    catalog.execute(
        f"INSERT INTO ducklake_snapshot SELECT {snapshot}, now(), schema_version, next_catalog_id, {model.count} "
        f"FROM ducklake_snapshot WHERE snapshot_id = {snapshot - 1}"
    )
    catalog.execute(
        "INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made) "
        f"VALUES ({snapshot}, 'inserted_into_table:{table}')"
    )
    rows = model.count * ROWS
    catalog.execute("DELETE FROM ducklake_table_stats")
    catalog.execute(
        "INSERT INTO ducklake_table_stats (table_id, record_count, next_row_id, file_size_bytes) "
        f"VALUES ({table}, {rows}, {rows}, {int(model.file_size.sum())})"
    )
    catalog.execute("DELETE FROM ducklake_table_column_stats")
    for name, number in ids.items():
        kind = _SQL_TYPES[TYPES[name]]
        catalog.execute(
            "INSERT INTO ducklake_table_column_stats (table_id, column_id, contains_null, contains_nan, min_value, "
            f"max_value) SELECT {table}, {number}, max(null_count) > 0, bool_or(contains_nan), "
            f"min(CAST(min_value AS {kind}))::VARCHAR, max(CAST(max_value AS {kind}))::VARCHAR "
            f"FROM ducklake_file_column_stats WHERE column_id = {number}"
        )
