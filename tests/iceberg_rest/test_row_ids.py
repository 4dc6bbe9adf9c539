"""Row ids of format version 3: plans of the service have what Iceberg's own Spark runtime finds in the manifests."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx2
import pyarrow.parquet as pq
import pytest

from conftest import path_from_script
from lamella.client.http import Lamella
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.rewrite import compact
from lamella.client.rewrite.engine import SerialEngine
from lamella.snapshot.deletes import decode_vector
from lamella.snapshot.schema.evolution import AddColumn, MoveColumn, WidenColumn
from lamella.snapshot.storage import normal
from support.spark_environment import spark_environment

pytestmark = [pytest.mark.soak, pytest.mark.spark]

PROGRAM: Final = Path(__file__).with_name("spark_program.py")
IVY: Final = Path(__file__).resolve().parent.parent.parent / "build" / "ivy"
_LINEAGE: Final = "SELECT id, _row_id, _last_updated_sequence_number FROM {} ORDER BY id"
#: What gives files of all kinds: with and without ids of their own, with deletion vectors, moved by a rewrite.
_STATEMENTS: Final = (
    "CREATE TABLE {} (id bigint, name string) USING iceberg TBLPROPERTIES ('format-version'='2')",
    "INSERT INTO {} SELECT id, 'old' FROM range(0, 10)",
    "ALTER TABLE {} SET TBLPROPERTIES ('format-version'='3', 'write.delete.mode'='merge-on-read',"
    " 'write.update.mode'='copy-on-write')",
    "INSERT INTO {} SELECT id, 'new' FROM range(10, 20)",
    "INSERT INTO {} SELECT id, 'new' FROM range(20, 30)",
    "DELETE FROM {} WHERE id IN (3, 14)",
    "UPDATE {} SET name = 'changed' WHERE id IN (5, 22)",
    "CALL ice.system.rewrite_manifests('{}')",
    "INSERT INTO {} SELECT id, 'last' FROM range(30, 35)",
)


def test_plans_have_the_row_ids_that_clients_find_in_manifests(
    java_home: Path, rest_url: str, lake: Lamella, tmp_path: Path
) -> None:
    """The first id and the sequence number of each file: with them, a reader of its rows has the ids that Spark has."""
    assert java_home
    lake.create_namespace("lineage")
    queries = [each.format("ice.lineage.t") for each in (*_STATEMENTS, _LINEAGE)]
    by_manifests = spark_answers(rest_url, queries, tmp_path)[-1]
    assert isinstance(by_manifests, list), by_manifests
    assert len(by_manifests) == 33
    assert planned_lineage(rest_url, "lineage", "t") == [tuple(map(int, row)) for row in by_manifests]


def test_the_runtime_does_not_read_the_sequence_number_of_a_plan(
    java_home: Path, rest_url: str, lake: Lamella, tmp_path: Path
) -> None:
    """This is why the service says that it does not plan these tables: with its plans, row ids are the same, but the
    runtime (1.12) takes the numbers of the last changes for unknown, and would lose them when it moves rows."""
    assert java_home
    lake.create_namespace("planned")
    queries = [each.format("ice.planned.t") for each in (*_STATEMENTS, _LINEAGE)]
    by_manifests = spark_answers(rest_url, queries, tmp_path)[-1]
    with planned_by_the_service(rest_url) as (url, plans):
        by_service = spark_answers(url, [_LINEAGE.format("ice.planned.t")], tmp_path)[0]
    assert plans
    assert isinstance(by_service, list), by_service
    assert [row[:2] for row in by_service] == [row[:2] for row in by_manifests]
    assert None in {row[2] for row in by_service}
    assert None not in {row[2] for row in by_manifests}


def test_both_sides_write_a_table_with_row_ids(java_home: Path, rest_url: str, lake: Lamella, tmp_path: Path) -> None:
    """Spark finds the rows that Lamella's writers left, each with an id of its own; rows of files that stay have the
    ids that they had, and Spark's next changes go on from there."""
    assert java_home
    lake.create_namespace("both")
    name, rows = "ice.both.t", "SELECT id, name FROM ice.both.t ORDER BY id"
    made = (
        *_STATEMENTS[:-1],
        "ALTER TABLE {} ADD PARTITION FIELD bucket(2, id)",
        "INSERT INTO {} SELECT id, 'parts' FROM range(30, 40)",
    )
    before = spark_answers(rest_url, [each.format(name) for each in (*made, _LINEAGE)], tmp_path)[-1]
    table = lake.table("both.t")
    table.append([{"id": number, "name": "lamella"} for number in range(100, 105)])
    table.delete("id = 12")  # a file of Spark, with a deletion vector, is replaced
    table.delete("id BETWEEN 30 AND 39")  # files of a partition go
    table.upsert([{"id": 101, "name": "again"}, {"id": 200, "name": "new"}], on=["id"])
    found, lineage = spark_answers(rest_url, [rows, _LINEAGE.format(name)], tmp_path)
    wanted = {int(row[0]) for row in before} - {12} - set(range(30, 40)) | set(range(100, 105)) | {200}
    assert [int(row[0]) for row in found] == sorted(wanted)
    assert {row[0]: row[1] for row in found}["101"] == "again"
    assert texts_of(table.scan().to_arrow().to_pylist()) == found
    assert planned_lineage(rest_url, "both", "t") == [tuple(map(int, row)) for row in lineage]
    ids = [row[1] for row in lineage]
    assert None not in ids
    assert len(set(ids)) == len(ids)
    then = {row[0]: row[1:] for row in before}
    assert sum(then.get(row[0]) == row[1:] for row in lineage) >= 15
    compact(JobContext(lake=lake, table="both.t", engine=SerialEngine()))
    table.evolve([AddColumn(name="more", type="int32"), MoveColumn(column="more", after="id")])
    table.evolve([WidenColumn(column="more", type="int64")])
    more = (
        "UPDATE {} SET name = 'spark' WHERE id IN (100, 7)",
        "DELETE FROM {} WHERE id = 200",
        "INSERT INTO {} VALUES (300, 5000000000, 'end')",
        "CALL ice.system.rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))",
    )
    moved = [_LINEAGE, more[0], more[1], more[2], _LINEAGE, more[3], _LINEAGE]
    answers = spark_answers(rest_url, [*(each.format(name) for each in moved), rows], tmp_path)
    compacted, changed, rewritten = answers[0], answers[4], answers[6]
    assert [row[0] for row in compacted] == [row[0] for row in lineage]
    assert {row[0] for row in changed} == {row[0] for row in compacted} - {"200"} | {"300"}
    first = {row[0]: row[1] for row in compacted}
    assert all(first.get(row[0], row[1]) == row[1] for row in changed)
    assert rewritten == changed  # Spark moves rows with their ids
    assert texts_of(table.scan().to_arrow().to_pylist()) == answers[7]
    assert table.scan("more > 4000000000").to_arrow()["id"].to_pylist() == [300]


def texts_of(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Rows as the program writes them."""
    return [[str(row["id"]), row["name"]] for row in sorted(rows, key=lambda row: row["id"])]


def planned_lineage(url: str, namespace: str, table: str) -> list[tuple[int, ...]]:
    """The id, the row id and the number of the last change of each row, by a plan."""
    answer = httpx2.post(f"{url}/iceberg/v1/namespaces/{namespace}/tables/{table}/plan", json={})
    assert answer.status_code == 200, answer.text
    plan = answer.json()
    found = []
    for task in plan["file-scan-tasks"]:
        file = task["data-file"]
        gone = {
            at
            for each in task.get("delete-file-references", ())
            for at in deleted_positions(plan["delete-files"][each], file["file-path"])
        }
        rows = pq.read_table(local(file["file-path"])).to_pylist()
        for at, row in enumerate(rows):
            if at in gone:
                continue
            own, changed = row.get("_row_id"), row.get("_last_updated_sequence_number")
            found.append(
                (
                    row["id"],
                    file["first-row-id"] + at if own is None else own,
                    file["data-sequence-number"] if changed is None else changed,
                )
            )
    return sorted(found)


def local(location: str) -> Path:
    """The file at a location, which Spark spells in its own way."""
    return Path(normal(location).removeprefix("file://"))


def deleted_positions(file: dict[str, Any], data_file: str) -> list[int]:
    """The positions in a deletion vector."""
    assert file["referenced-data-file"] == data_file
    offset, length = file["content-offset"], file["content-size-in-bytes"]
    data = local(file["file-path"]).read_bytes()[offset : offset + length]
    return [int(at) for at in decode_vector(data, 1 << 20, location=file["file-path"])]


@contextmanager
def planned_by_the_service(url: str) -> Iterator[tuple[str, list[str]]]:
    """The address of a proxy that says of each table that the service plans its scans; and the plans' paths."""
    plans: list[str] = []

    class Proxy(BaseHTTPRequestHandler):
        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name: text for name, text in self.headers.items() if name.lower() in ("content-type", "accept")}
            answer = httpx2.request(self.command, f"{url}{self.path}", content=body, headers=headers, timeout=60)
            if self.path.endswith("/plan"):
                plans.append(self.path)
            data = answer.content.replace(b'"scan-planning-mode":"client"', b'"scan-planning-mode":"server"')
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers.get("content-type", "application/json"))
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_HEAD = do_DELETE = _forward  # the names of the base class

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", plans
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def spark_answers(url: str, queries: list[str], folder: Path) -> list[Any]:
    """What a Spark with Iceberg's runtime answers."""
    python = path_from_script("environment.py", "iceberg-spark")
    given = {"uri": f"{url}/iceberg", "ivy": str(IVY), "files": {}, "queries": queries}
    done = subprocess.run(
        [python, str(PROGRAM)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        env=spark_environment(),
        cwd=folder,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    found: list[Any] = json.loads(done.stdout.strip().splitlines()[-1])
    errors = [each for each in found if isinstance(each, dict)]
    assert not errors, errors
    return found
