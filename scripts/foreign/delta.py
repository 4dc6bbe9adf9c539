"""Collections of Delta tables: the acceptance tests of `dat`, and the golden tables of Delta's own tests."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from foreign.cases import Case, Suite, delta_case
from lamella.client import Lamella
from stack.tools import ROOT, MissingTool, say

DAT: Final = "https://github.com/delta-incubator/dat"
DELTA: Final = "https://github.com/delta-io/delta"
_DAT_COMMIT: Final = "5f12d45"
_ENVIRONMENT: Final = "delta-spark"
_IVY: Final = ROOT / "build" / "ivy"
_PROGRAM: Final = Path(__file__).with_name("delta_rows.py")
_LOG: Final = "/_delta_log/"


def acceptance(lake: Lamella, checkout: Path, folder: Path) -> Suite:
    """Write the acceptance tables with Delta on Spark, and compare each of their versions with the expected rows."""
    shutil.copytree(checkout / "src", folder / "src")
    environment = _environment()
    environment["PYTHONPATH"] = str(folder / "src")
    speed = ("spark.databricks.delta.snapshotPartitions=1", "spark.sql.shuffle.partitions=1", "spark.ui.enabled=false")
    settings = (*speed, f"spark.jars.ivy={_IVY}")
    options = " ".join(f"--conf {each}" for each in settings)
    environment["PYSPARK_SUBMIT_ARGS"] = f"--master local[2] --driver-memory 1g {options} pyspark-shell"
    say("writing the acceptance tables")
    with (folder / "log").open("w") as log:
        subprocess.run(
            [_python(), "-m", "dat.main", "generate-tables"],
            env=environment,
            cwd=folder,
            stdout=log,
            stderr=log,
            check=True,
        )
    cases = []
    lake.create_namespace("dat")
    tables = sorted((folder / "out" / "reader_tests" / "generated").iterdir())
    versions = [(table, expected) for table in tables for expected in sorted((table / "expected").iterdir())]
    for number, (table, expected) in enumerate(versions):
        location = table / "delta"
        if expected.name != "latest":
            location = folder / f"{number}"
            _copy_of_version(table / "delta", location, int(expected.name.removeprefix("v")))
        wanted = _rows(expected / "table_content")
        cases.append(delta_case(lake, f"{table.name}, {expected.name}", f"dat.t{number}", str(location), wanted))
    about = (
        f"[Delta acceptance tests]({DAT}), commit {_DAT_COMMIT}: their generator writes tables with Delta on Spark, "
        "and the expected rows of each version."
    )
    return Suite("Delta acceptance tests", about, cases)


def golden(lake: Lamella, tables: Path, folder: Path) -> Suite:
    """Compare Delta's golden tables with the rows that Delta on Spark reads."""
    cases = []
    lake.create_namespace("golden")
    roots = sorted({path.parent for path in tables.rglob("_delta_log") if path.is_dir()})
    with _spark(folder) as read:
        for number, root in enumerate(roots):
            name = str(root.relative_to(tables))
            rows = folder / f"rows{number}"
            problem = read(root, rows)
            wanted = None if problem is not None else _rows(rows)
            case = delta_case(lake, name, f"golden.t{number}", str(root), wanted)
            if problem is not None and case.result == "refused":
                case = Case(name, "not a case", "Delta on Spark cannot read it either")
            cases.append(case)
    about = (
        f"Tables in the tests of [Delta]({DELTA}), compared with the rows that Delta 4.4 on Spark reads. Tables that "
        "it cannot read, because their files are missing or the log is damaged on purpose, are no cases if Lamella "
        "refuses them, too."
    )
    return Suite("Delta's golden tables", about, cases)


def unpacked(repository: Path, folder: Path) -> Path:
    """Return the Delta tables of a git repository, in a folder; those of which an object is missing are left out."""
    git = ["git", "-C", str(repository)]
    listed = subprocess.run([*git, "ls-tree", "-rz", "--name-only", "HEAD"], check=True, capture_output=True)
    names = listed.stdout.decode().split("\0")
    for root in sorted({name.partition(_LOG)[0] for name in names if _LOG in name}):
        packed = subprocess.run([*git, "archive", "HEAD", root], check=False, capture_output=True)
        if packed.returncode:
            say(f"{root} is not complete, and left out")
            continue
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
    return folder


def _copy_of_version(table: Path, copy: Path, version: int) -> None:
    shutil.copytree(table, copy)
    for path in (copy / "_delta_log").iterdir():
        number = path.name.partition(".")[0]
        if path.is_file() and (path.name == "_last_checkpoint" or (number.isdigit() and int(number) > version)):
            path.unlink()


def _rows(folder: Path) -> pa.Table:
    return pq.read_table(folder, coerce_int96_timestamp_unit="us", partitioning=None)


def _python() -> str:
    made = subprocess.run(
        [str(ROOT / ".venv" / "bin" / "python"), str(ROOT / "scripts" / "environment.py"), _ENVIRONMENT],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    if made.returncode:
        raise MissingTool("the environment of Delta on Spark cannot be made")
    return made.stdout.strip()


def _environment() -> dict[str, str]:
    found = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    return found | {"PYSPARK_PYTHON": _python(), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONWARNINGS": "ignore"}


class _Reader:
    """Delta on Spark, which writes a table's rows as Parquet."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, table: Path, rows: Path) -> str | None:
        """Write the rows; returns why they cannot be read, None if they can."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the program has no pipes")
        self._process.stdin.write(json.dumps({"table": str(table.resolve()), "rows": str(rows)}) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("answer "):
                answer = line.removeprefix("answer ").strip()
                return None if answer == "done" else answer
        raise RuntimeError("the program ended")


@contextmanager
def _spark(folder: Path) -> Iterator[_Reader]:
    environment = _environment() | {"PYSPARK_SUBMIT_ARGS": "--driver-memory 1g pyspark-shell"}
    with (
        (folder / "spark.log").open("w") as log,
        subprocess.Popen(
            [_python(), str(_PROGRAM), str(_IVY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            cwd=folder,
        ) as process,
    ):
        yield _Reader(process)
        process.communicate(timeout=60)
