"""The export as a command, as a job of a worker, and as a source that is followed again."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner

from fixtures_server import start_shared
from iceberg.conftest import MakeTable
from iceberg.exporting import exported, opened, rows
from lamella.client.cli.app import cli
from lamella.client.http import Lamella
from lamella.client.iceberg.export import ExportResult
from lamella.client.jobs.rewrite import compact
from lamella.snapshot.job_kinds import check_arguments, command_line, job_kind_named
from lamella.snapshot.schema.evolution import AddColumn, DropColumn, RenameColumn, WidenColumn
from support.event_tables import EventTable, events
from support.worker_process import WorkerProcess


def filled(make_table: MakeTable) -> EventTable:
    """A table of two files."""
    table = make_table()
    rng = random.Random(5)
    table.add(events(rng, 20), events(rng, 20))
    return table


def test_the_command_exports(make_table: MakeTable, export_url: str, tmp_path: Path) -> None:
    """It says what it wrote, and that there is nothing to do; a wrong command line is refused."""
    table = filled(make_table)

    def run(*words: str, status: int = 0) -> str:
        done = CliRunner().invoke(cli, ["export", "iceberg", "--url", export_url, *words, "--", table.name])
        assert done.exit_code == status, done.output
        return done.output

    said = run()
    assert "2 files, 40 rows" in said
    assert "1 manifests written" in said
    assert "is up to date" in run()
    folder = tmp_path / "elsewhere"
    done = msgspec.json.decode(run("--json", "--location", str(folder), "--columns", "id, day"), type=ExportResult)
    assert rows(opened(done)) == table.rows()
    assert done.location == f"file://{folder}"
    assert "at most one" in run("--hold", "x", "--no-hold", status=2)
    assert "not JSON" in run("--storage-options", "[1]", status=2)
    compact(table.context(block_rows=1_000))
    run("--no-hold")
    table.handle.vacuum(execute=True)
    run("--snapshot", table.handle.info().snapshot_id)


def test_without_the_extra_the_command_says_what_to_install(
    make_table: MakeTable, export_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not that a module is missing."""
    for name in [name for name in sys.modules if name.startswith("lamella.client.iceberg.export")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "lamella.snapshot.iceberg.export")
    monkeypatch.setitem(sys.modules, "pyiceberg.avro.file", None)
    done = CliRunner().invoke(cli, ["export", "iceberg", "--url", export_url, filled(make_table).name])
    assert done.exit_code == 1
    assert "lamella[iceberg]" in done.output


@pytest.mark.slow
def test_a_worker_exports(make_table: MakeTable, export_url: str, tmp_path: Path) -> None:
    """The job's result is the command's answer, and its progress counts segments."""
    table = filled(make_table)
    job = table.lake.jobs.submit("export_iceberg", table.name, {"columns": "id,day"})
    worker = WorkerProcess(export_url, tmp_path, "exporter")
    try:
        ended = table.lake.jobs.wait(job.job_id, timeout_s=300)
    finally:
        worker.stop()
    assert ended.state == "succeeded", ended.error
    done = msgspec.convert(ended.result, ExportResult)
    assert rows(opened(done)) == table.rows()
    assert ended.progress is not None
    assert (ended.progress.done, ended.progress.total, ended.progress.unit) == (1, 1, "segments")


def test_arguments_become_options() -> None:
    """Under the names of the command's."""
    kind = job_kind_named("export_iceberg")
    given = {"snapshot": "gold", "location": "s3://b/x", "no_hold": True, "trust_files": False}
    assert command_line(kind, "db.t", check_arguments(kind, given)) == [
        *("export", "iceberg", "--snapshot=gold", "--location=s3://b/x", "--no-hold", "--", "db.t")
    ]


@pytest.fixture
def elsewhere(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Lamella]:
    """A service with a warehouse of its own: a table's own files are no other table's in the same one."""
    server = start_shared(pytestconfig, tmp_path, {"warehouse": tmp_path / "warehouse"})
    with Lamella(server.url) as lake:
        lake.create_namespace("x")
        yield lake
    server.stop()


def test_an_export_is_followed_as_an_iceberg_table(make_table: MakeTable, elsewhere: Lamella) -> None:
    """Files with and without numbers, of old and new schemas: the same rows again, and the next export's too."""
    table = filled(make_table)
    compact(table.context(block_rows=1_000))
    table.handle.evolve([RenameColumn(column="user", name="who"), WidenColumn(column="place.zip", type="int64")])
    table.add(events(random.Random(1), 10).rename_columns(["id", "day", "who", "amount", "price", "place"]))
    table.handle.evolve([DropColumn(column="price"), AddColumn(name="note", type="string")])
    done = exported(table)
    elsewhere.create_external("x.again", {"kind": "iceberg", "location": done.location})
    again = elsewhere.table("x.again")
    answer = again.refresh()
    assert (answer.added, answer.refused) == (2, ())

    def same() -> bool:
        found, wanted = (
            sorted(map(json.dumps, pa.Table.to_pylist(read.select(["id", "who", "note", "place"]))))
            for read in (again.scan().to_arrow(), table.handle.scan().to_arrow())
        )
        return bool(found) and found == wanted

    assert same()
    assert not again.refresh().changed
    table.add(pa.table({"id": pa.array([7], pa.int64()), "note": ["new"]}))
    exported(table)
    assert again.refresh().added == 1
    assert same()
    assert again.verify().is_clean
