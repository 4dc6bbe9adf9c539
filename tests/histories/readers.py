"""Everything that reads a table of a history besides the scan by which it is followed; each must find its rows."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import RESTError
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from histories.changes import Row, rows_of
from histories.history import History
from iceberg.test_export_duckdb import answers
from lamella.client import Lamella
from lamella.client.iceberg.export import export_iceberg
from support.sharing_client import load
from support.spark_environment import connect_environment


class Readers:
    """Readers of the tables of a service at ``url``, which has the same warehouse as the histories."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.url, self.options = url, options
        self.lake = Lamella(url, timeout_s=120)
        self.iceberg: Catalog = load_catalog("lake", type="rest", uri=f"{url}/iceberg")
        kinds = ("Python", "Iceberg REST", "Iceberg export", "DuckDB", "Delta Sharing", "Spark", "Spark Connect")
        self.counts = dict.fromkeys(kinds, 0)

    def check_python(self, history: History) -> None:
        """Each form of a scan."""
        scan = self.lake.table(history.name).scan(storage_options=self.options)
        same(history, rows_of(pa.Table.from_batches(scan.to_batches(), scan.schema)), "batches")
        parts = [batch for fragment in scan.fragments() for batch in fragment.to_batches()]
        same(history, [row for part in parts for row in rows_of(part)], "fragments")
        same(history, rows_of(scan.to_reader().read_all()), "reader")
        same(history, rows_of(scan.to_polars().to_arrow()), "Polars")
        same(history, rows_of(scan.to_duckdb().arrow().read_all()), "DuckDB relation")
        frame = scan.to_pandas()
        keys = sorted(zip(frame["id"].tolist(), frame["v"].tolist(), strict=True))
        assert keys == sorted((row.id, row.v) for row in history.rows), history.report("pandas")
        assert scan.count() == len(history.rows), history.report("count")
        self.counts["Python"] += 1

    def check_iceberg(self, history: History) -> None:
        """pyiceberg, by the REST catalog; it is refused where it would apply vectors of other files, too."""
        try:
            found = self.iceberg.load_table(history.name).scan().to_arrow()
        except RESTError as error:
            if "read an export of the table" not in str(error):
                raise
            return
        same(history, rows_of(found), "Iceberg REST")
        self.counts["Iceberg REST"] += 1

    def check_export(self, history: History) -> str:
        """pyiceberg, from the metadata of an export; returns the export's folder."""
        done = export_iceberg(self.lake, history.name, history.world.files)
        same(history, rows_of(StaticTable.from_metadata(done.metadata_location).scan().to_arrow()), "Iceberg export")
        self.counts["Iceberg export"] += 1
        return done.location.removeprefix("file://")

    def check_duckdb(self, histories: Sequence[History], exports: Sequence[str]) -> None:
        """DuckDB's Iceberg extension, on exports."""
        # an export without snapshots of rows has no columns there
        pairs = [(each, folder) for each, folder in zip(histories, exports, strict=True) if each.rows]
        found = answers([], [f"SELECT id, v, g, x FROM iceberg_scan('{folder}')" for _, folder in pairs])
        for (history, _), rows in zip(pairs, found, strict=True):
            shown = sorted((str(row.id), str(row.v), str(row.g), str(row.x)) for row in history.rows)
            assert sorted(map(tuple, rows)) == shown, history.report("DuckDB")
            self.counts["DuckDB"] += 1

    def check_sharing(self, history: History, profile: Path) -> None:
        """The Delta Sharing client."""
        frame = load(f"{profile}#lamella.{history.name}", use_delta_format=True)
        keys = sorted(zip(frame["id"].tolist(), frame["v"].tolist(), strict=True))
        assert keys == sorted((row.id, row.v) for row in history.rows), history.report("Delta Sharing")
        self.counts["Delta Sharing"] += 1

    def check_spark(self, spark: SparkSession, histories: Sequence[History], catalog: str) -> None:
        """One query over many tables, by Spark's catalog."""
        parts = [
            f"SELECT {number} AS number, id, v, g, x FROM {catalog}.{history.name}"
            for number, history in enumerate(histories)
        ]
        found: list[list[Row]] = [[] for _ in histories]
        for number, i, v, g, x in spark.sql(" UNION ALL ".join(parts)).collect():
            found[number].append(Row(i, v, g, None if x is None else repr(x)))
        for history, rows in zip(histories, found, strict=True):
            same(history, rows, "Spark")
            self.counts["Spark"] += 1

    def check_connect(self, connect: Connect, histories: Sequence[History]) -> None:
        """``read`` and the Python data source on Spark Connect, by one query each."""
        for way, tables in zip(("read", "data source"), connect.rows([each.name for each in histories]), strict=True):
            for history, found in zip(histories, tables, strict=True):
                same(history, [Row(*row) for row in found], f"Connect, {way}")
        self.counts["Spark Connect"] += len(histories)

    def shown(self) -> str:
        """How many tables each of them read."""
        return ", ".join(f"{name} read {count}" for name, count in self.counts.items() if count)


class Connect:
    """A process with a session of Spark Connect. A context manager."""

    def __init__(self, url: str, folder: Path) -> None:
        folder.mkdir()
        self._log = folder / "log"
        program = Path(__file__).with_name("connect_program.py")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, program, url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=connect_environment(),
                cwd=folder,
            )
        self._line()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # the program ends with its input

    def rows(self, names: Sequence[str]) -> list[list[list[tuple[Any, ...]]]]:
        """The rows of each table, by each way to read."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(names) + "\n")
        self._process.stdin.flush()
        found: list[list[list[tuple[Any, ...]]]] = json.loads(self._line())
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log.read_text("utf-8", errors="replace")[-4000:]
        return line


def same(history: History, found: Sequence[Row], reader: str) -> None:
    """Check that a reader has found the rows of a history, each once."""
    assert len(found) == len(history.rows), history.report((reader, len(found)))
    assert frozenset(found) == history.rows, history.report((reader, sorted(set(found) ^ history.rows)[:5]))
