"""The demo: what it keeps, what it counts as a failure, and a small run of the whole."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import Row

from lamella.snapshot.errors import LamellaError
from support.worker_process import until
from tpch_demo.comparison import NARROW, QUERIES, QueryResult, Results, have_equal_rows
from tpch_demo.data import Folder, LoadState, generate
from tpch_demo.run import ServiceProcess

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MEMBERS = {
    "name",
    "equal",
    "blocks_read",
    "blocks_total",
    "bytes_read",
    "bytes_total",
    "seconds",
    "full_scan_seconds",
}


def result(**changes: object) -> QueryResult:
    """A result as it should be."""
    values: dict[str, object] = {
        "name": NARROW,
        "equal": True,
        "blocks_read": 10,
        "blocks_total": 200,
        "bytes_read": 1,
        "bytes_total": 2,
        "seconds": 0.1,
        "full_scan_seconds": 1.0,
    }
    return QueryResult(**{**values, **changes})  # type: ignore[arg-type]  # a test's own values


def test_answers_are_equal_in_any_order_but_not_in_another_number() -> None:
    """Rows are compared whole and counted."""
    one, two = Row(a=1, b=Decimal("1.50")), Row(a=2, b=None)
    assert have_equal_rows([one, two, two], [two, one, two])
    assert not have_equal_rows([one, two], [one, one, two])
    assert not have_equal_rows([one], [Row(a=1, c=Decimal("1.50"))])
    assert not have_equal_rows([one], [])


def test_only_a_wrong_answer_or_a_wide_narrow_query_fails() -> None:
    """Other queries may read what they need."""
    assert Results(queries=(result(), result(name="x", blocks_read=200))).failures() == []
    assert len(Results(queries=(result(equal=False), result(name="x", equal=False))).failures()) == 2
    assert "11 of 200" in Results(queries=(result(blocks_read=11),)).failures()[0]


def test_the_results_file_has_its_shape(tmp_path: Path) -> None:
    """demo.json holds one object with a list of queries and the members that scripts read."""
    Results(queries=(result(),)).write(tmp_path / "demo.json")
    found = json.loads((tmp_path / "demo.json").read_text())
    assert found.keys() == {"queries"}
    assert found["queries"][0].keys() == MEMBERS


def test_tables_are_reused_only_when_they_are_whole_and_of_the_same_scale(tmp_path: Path) -> None:
    """An interrupted load, another scale or another layout is loaded anew; clearing keeps the generated files."""
    folder = Folder(tmp_path)
    folder.source(1).mkdir(parents=True)
    folder.warehouse.mkdir()
    Path(f"{folder.catalog}-wal").touch()
    assert folder.loaded(1) is None
    folder.mark_loaded(LoadState(1, {"orders": 5}))
    assert folder.loaded(1) == LoadState(1, {"orders": 5})
    assert folder.loaded(0.5) is None
    folder.mark_loaded(LoadState(1, {}, layout=0))
    assert folder.loaded(1) is None
    folder.mark_loaded(LoadState(1, {}))
    folder.clear()
    assert folder.loaded(1) is None
    assert [path.name for path in folder.root.iterdir()] == ["tpch-1"]


def test_generated_files_are_made_once_and_whole(tmp_path: Path) -> None:
    """A second call leaves the files alone; what an interrupted one left is replaced."""
    folder = tmp_path / "tpch"
    partial = tmp_path / "tpch.partial"
    partial.mkdir()
    (partial / "orders.parquet").write_bytes(b"half")
    generate(folder, 0.001)
    assert sorted(path.name for path in folder.iterdir()) == ["lineitem.parquet", "orders.parquet"]
    assert not partial.exists()
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    generate(folder, 0.001)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_the_service_is_a_child_that_ends_with_its_block(tmp_path: Path) -> None:
    """It is ready inside the block, whatever LAMELLA_* variables say, and nobody listens after it."""
    with ServiceProcess(Folder(tmp_path)) as service, service.lake() as lake:
        assert lake.namespaces() == ()
        port = urlsplit(service.url).port
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_the_service_ends_when_the_demo_is_killed(tmp_path: Path) -> None:
    """Nobody would be left who ends it."""
    program = """
import sys, time
from pathlib import Path
from tpch_demo.data import Folder
from tpch_demo.run import ServiceProcess
with ServiceProcess(Folder(Path(sys.argv[1]))) as service:
    print(service.url, flush=True)
    time.sleep(600)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        port = urlsplit(process.stdout.readline().strip()).port
        process.kill()

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(lambda: not listens(), "the service ends")


def test_a_service_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    """The error holds the end of the log, so that the reason can be seen."""
    folder = Folder(tmp_path)
    folder.root.mkdir()
    folder.catalog.write_bytes(b"this is no database, and long enough to be looked at as one " * 10)
    with pytest.raises(LamellaError, match=r"service\.log.*"), ServiceProcess(folder):
        pass


def demo(build: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """The command as a person runs it."""
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py"), "--build-dir", str(build), "--scale", "0.01", *args],
        check=False,
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )


def check_results(build: Path) -> None:
    """Every answer is equal, and narrow queries read few of at least 200 blocks."""
    queries = {q["name"]: q for q in json.loads((build / "demo.json").read_text())["queries"]}
    assert list(queries) == [query.name for query in QUERIES]
    assert all(q["equal"] for q in queries.values())
    assert queries[NARROW]["blocks_total"] >= 200
    assert 0 < queries[NARROW]["blocks_read"] <= 0.05 * queries[NARROW]["blocks_total"]
    assert 0 < queries["key point"]["blocks_read"] <= 2
    assert queries["join, pruned by its keys"]["blocks_read"] < queries["join, one side narrow"]["blocks_read"]
    assert all(q["bytes_read"] < q["bytes_total"] for q in queries.values())


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.usefixtures("java_home")
def test_a_small_demo_succeeds(tmp_path: Path) -> None:
    """The whole way at scale 0.01, below a folder whose name needs quoting."""
    build = tmp_path / "a b%41ü"
    done = demo(build)
    assert done.returncode == 0, done.stderr
    assert "equal" in done.stdout
    assert "make serve" in done.stderr
    check_results(build)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.usefixtures("java_home")
def test_a_second_demo_reuses_or_rebuilds(tmp_path: Path) -> None:
    """A second run finds the tables of the first; after someone changed them they are made anew."""
    build = tmp_path / "build"
    assert demo(build).returncode == 0
    done = demo(build, "--json")
    assert done.returncode == 0
    assert "still there" in done.stderr
    assert json.loads(done.stdout) == json.loads((build / "demo.json").read_text())
    check_results(build)
    with ServiceProcess(Folder(build)) as service, service.lake() as lake:
        lake.drop_table("tpch.orders")
    done = demo(build)
    assert done.returncode == 0
    assert "Spark writes orders" in done.stderr
    check_results(build)
