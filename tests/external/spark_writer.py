"""A Spark with the writer of another table format, and what a table that follows its tables must answer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from conftest import path_from_script
from lamella.client import Lamella
from support.sources import rows_of
from support.spark_environment import spark_environment

_PROGRAM: Final = Path(__file__).with_name("spark_program.py")
_IVY: Final = Path(__file__).resolve().parent.parent.parent / "build" / "ivy"


class SparkWriter:
    """Runs statements in a process of its own. ``warehouse``: the folder of Iceberg's tables."""

    def __init__(self, kind: Literal["delta", "iceberg"], folder: Path) -> None:
        python = path_from_script("environment.py", "iceberg-spark")
        self.warehouse = folder / "warehouse"
        self._errors = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [python, _PROGRAM, kind, _IVY, self.warehouse.as_uri()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=spark_environment(python),
            cwd=folder,
        )

    def write(self, table: str, rows: Path, statements: Sequence[str]) -> pa.Table:
        """Run statements about a table, and write its rows into a folder; returns these."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        given = {"table": table, "rows": str(rows), "statements": statements}
        self._process.stdin.write(json.dumps(given) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("answer "):
                assert line == "answer done\n", line
                return pq.read_table(rows, coerce_int96_timestamp_unit="us")
        raise AssertionError(f"the program ended: {self._errors.name}")

    def close(self) -> None:
        """End the program."""
        self._process.communicate(timeout=60)
        self._errors.close()


def in_utc(rows: pa.Table, *names: str) -> pa.Table:
    """Spark's times as instants: in its own files nothing says that they are in UTC. ``names``: of such columns."""
    for name in names:
        if name in rows.column_names:
            at = rows.column_names.index(name)
            rows = rows.set_column(at, name, rows.column(at).cast(pa.timestamp("us", "UTC")))
    return rows


def check_followed(lake: Lamella, name: str, step: int, source: dict[str, str], wanted: pa.Table) -> None:
    """Refresh a table, and another one that follows its source from now on: rows and names are those that are wanted.

    ``step`` 0: make the first one.
    """
    for each in (name, f"{name}_{step}"):
        if each != name or step == 0:
            lake.create_external(each, source)
        table = lake.table(each)
        table.refresh()
        scanned = table.scan().to_arrow()
        assert scanned.column_names == wanted.column_names
        found, expected = (list(map(repr, rows_of(rows))) for rows in (scanned, wanted))  # NaN is not equal to NaN
        assert found == expected, step
        assert table.scan().count() == wanted.num_rows
        assert not table.refresh().changed
        assert table.verify(deep=True, sample=1.0, pages=False).findings == ()
