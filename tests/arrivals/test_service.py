"""Arrivals over HTTP: which files become blocks, and what is said of the others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from starlette.testclient import TestClient

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.errors import StoreError
from lamella.snapshot.storage import FsspecStore, ObjectStat
from support.app_client import AppClient
from support.service_api import fresh_name, parquet_bytes

COLUMNS = [{"name": "a", "type": "int64"}]
#: What an answer has without anything to tell.
NOTHING = {
    "changed": False,
    "registered": 0,
    "row_count": 0,
    "file_size_bytes": 0,
    "duplicates": 0,
    "earlier": 0,
    "ignored": {},
    "refused": [],
}


class FailingStore(FsspecStore):
    """A store that fails for files whose name has "failing" in it, while it is asked to."""

    fails = True

    def stat(self, location: str) -> ObjectStat:
        """As the store does, or not."""
        if self.fails and "failing" in location:
            raise StoreError("the store is tired", location=location)
        return super().stat(location)

    def stat_many(self, locations: Sequence[str]) -> dict[str, ObjectStat]:
        """Without the files that it fails for."""
        return super().stat_many([each for each in locations if not (self.fails and "failing" in each)])

    def read_cached_ends(self, locations: Sequence[str], length: int) -> dict[str, tuple[ObjectStat, bytes]]:
        """Up to the first file that it fails for."""
        good = list(takewhile(lambda each: not (self.fails and "failing" in each), locations))
        return super().read_cached_ends(good, length)


class Table:
    """A table of an app, and a folder."""

    def __init__(self, app: TestClient, store: FailingStore, folder: Path, **body: Any) -> None:
        self.app, self.store = app, store
        self.folder = folder
        folder.mkdir(exist_ok=True)
        name = fresh_name("t")
        body = body or {"schema": COLUMNS}
        answer = app.post("/v1/namespaces/db/tables", json={"name": name, **body})
        assert answer.status_code == 201, answer.text
        self.path = f"/v1/namespaces/db/tables/{name}"

    def put(self, name: str, *values: int, data: bytes | None = None) -> str:
        """A file of numbers, or of bytes."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(parquet_bytes({"a": list(values)}) if data is None else data)
        return f"file://{path}"

    def send(self, *files: str, expect: int = 200, query: str = "", **body: Any) -> dict[str, Any]:
        """The answer to a list of files, or to what the body says."""
        given = body or {"files": files}
        answer = self.app.post(f"{self.path}/arrivals{query}", json=given)
        assert answer.status_code == expect, answer.text
        return dict(answer.json())

    def outcome(self, *files: str, query: str = "", **body: Any) -> dict[str, Any]:
        """What an answer says beyond nothing, without the snapshot and the sizes."""
        answer = self.send(*files, query=query, **body)
        left = {name: value for name, value in answer.items() if NOTHING.get(name) != value}
        for name in ("snapshot_id", "file_size_bytes", "row_count"):
            left.pop(name, None)
        if "refused" in left:
            left["refused"] = [(each["path"].rpartition("/")[2], each["code"]) for each in left["refused"]]
        return left

    def rows(self) -> list[int]:
        """All values, by the files that the table has."""
        blocks = self.app.post(f"{self.path}/prune", json={}).json()["blocks"]
        return sorted(
            value
            for block in blocks
            for value in pq.read_table(block["location"].removeprefix("file://"))["a"].to_pylist()
        )

    def call(self, path: str, body: Any) -> dict[str, Any]:
        """The answer to another request."""
        answer = self.app.post(self.path + path, json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


@pytest.fixture(scope="module")
def store() -> FailingStore:
    """The store of the app."""
    return FailingStore()


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, store: FailingStore) -> Iterator[TestClient]:
    """A service of this module."""
    options = Settings(warehouse=str(tmp_path_factory.mktemp("arrivals") / "warehouse"))
    with AppClient(create_app(options, store=store)) as app:
        assert app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        yield app


@pytest.fixture
def table(app: TestClient, store: FailingStore, tmp_path: Path) -> Table:
    """A table of numbers."""
    return Table(app, store, tmp_path / "data")


def test_new_files_are_registered_and_known_ones_counted(table: Table) -> None:
    """Files of one request are one snapshot; what comes again changes nothing, in any order and company."""
    first, second = table.put("1.parquet", 1, 2), table.put("2.parquet", 3)
    answer = table.send(first, second)
    assert (answer["changed"], answer["registered"], answer["row_count"]) == (True, 2, 3)
    assert answer["file_size_bytes"] > 0
    before = answer["snapshot_id"]
    again = table.send(second, first)
    assert again == NOTHING | {"snapshot_id": before, "duplicates": 2}
    third = table.put("3.parquet", 4)
    assert table.outcome(third, first) == {"changed": True, "registered": 1, "duplicates": 1}
    assert table.rows() == [1, 2, 3, 4]
    history = table.app.get(f"{table.path}/snapshots").json()["snapshots"]
    assert len(history) == 3


def test_what_is_no_data_file_is_ignored_with_the_reason(table: Table) -> None:
    """Other names, hidden folders, other prefixes, files that are gone, and events that are no arrivals."""
    selected = table.put("in/1.parquet", 1)
    others = [table.put("in/x.csv", data=b"a"), table.put("in/_temporary/1.parquet", 2), table.put("out/1.parquet", 3)]
    gone = f"file://{table.folder}/in/gone.parquet"
    query = f"?prefix={table.folder}/in/"
    outcome = table.outcome(files=[selected, *others, gone], removed=["file:///x"], query=query)
    assert outcome == {"changed": True, "registered": 1, "ignored": {"other_file": 3, "gone": 1, "deleted": 1}}
    assert table.outcome(Event="s3:TestEvent") == {"ignored": {"test": 1}}
    assert table.outcome(removed=["file:///x"]) == {"ignored": {"deleted": 1}}
    assert table.outcome(table.put("in/2.parq", 5), query="?suffix=.parq") == {"changed": True, "registered": 1}
    assert table.rows() == [1, 5]


def test_a_name_stands_for_one_file_and_nothing_else(table: Table) -> None:
    """Neither for a folder nor for files that match it: an old event of a file that is gone adds no others."""
    table.put("a1.parquet", 1)
    table.put("folder.parquet/x.parquet", 2)
    glob, folder = f"file://{table.folder}/a[0-9].parquet", f"file://{table.folder}/folder.parquet"
    outcome = table.outcome(glob, folder, folder + "/", f"file://{table.folder}/*.parquet")
    assert outcome.pop("ignored")["gone"] >= 2
    assert "registered" not in outcome
    assert table.rows() == []
    exact = table.put("a[0-9].parquet", 3)
    assert table.outcome(exact)["registered"] == 1
    assert table.rows() == [3]


def test_refused_files_do_not_stop_others_and_are_no_error(table: Table) -> None:
    """Not Parquet, truncated, empty, other columns: each with its code; the others are in the table."""
    good = table.put("good.parquet", 1)
    bad = [
        table.put("text.parquet", data=b"hello, world"),
        table.put("empty.parquet", data=b""),
        table.put("cut.parquet", data=parquet_bytes({"a": [1]})[:-20]),
        table.put("other.parquet", data=parquet_bytes({"a": ["x"]})),
    ]
    outcome = table.outcome(*bad, good)
    assert outcome["registered"] == 1
    codes = dict(outcome["refused"])
    assert set(codes) == {"text.parquet", "empty.parquet", "cut.parquet", "other.parquet"}
    assert codes["other.parquet"] == "schema_mismatch"
    assert set(codes.values()) <= {"not_parquet", "truncated_parquet", "corrupt_parquet", "schema_mismatch"}
    assert sorted(table.outcome(*bad)["refused"]) == sorted(codes.items())
    assert table.rows() == [1]


def test_a_file_that_was_overwritten_is_reported_and_not_added(table: Table) -> None:
    """Its new rows are not in the table, and its old ones would be counted twice if it were added."""
    file = table.put("1.parquet", 1, 2)
    table.send(file)
    table.put("1.parquet", 3, 4, 5)
    assert table.outcome(file) == {"refused": [("1.parquet", "block_replaced")]}
    other = table.put("2.parquet", 9)
    outcome = table.outcome(file, other)
    assert outcome == {"changed": True, "registered": 1, "refused": [("1.parquet", "block_replaced")]}
    Path(file.removeprefix("file://")).unlink()
    assert table.outcome(file) == {"duplicates": 1}


def test_a_file_that_left_the_table_does_not_come_back(table: Table) -> None:
    """By a removal, or by a rewrite of its rows into another file; another file in its place is new after a removal."""
    file = table.put("1.parquet", 1, 2)
    table.send(file)
    table.call("/commits", {"removed": [file], "operation": "delete"})
    assert table.outcome(file) == {"earlier": 1}
    table.put("1.parquet", 7, 8)
    assert table.outcome(file) == {"changed": True, "registered": 1}
    made = table.put("made/x.parquet", 7, 8)
    added = [{"location": made, "row_count": 2, "file_size": 0}]
    table.call("/commits", {"removed": [file], "added": added, "operation": "compact"})
    assert table.outcome(file, made) == {"earlier": 1, "duplicates": 1}
    assert table.rows() == [7, 8]


def test_blocks_that_the_service_wrote_are_not_arrivals(table: Table) -> None:
    """Notifications of a bucket that also holds the warehouse name them as well."""
    location = table.app.get(table.path).json()["location"]
    own = f"{location}/_b/01900000-0000-7000-8000-000000000000_v1.parquet"
    table.store.put(own, parquet_bytes({"a": [1]}))
    assert table.outcome(own, query=f"?prefix={location}/_b/") == {"earlier": 1}
    assert table.outcome(own) == {"earlier": 1}


def test_a_store_that_fails_makes_senders_of_events_come_again(table: Table) -> None:
    """A webhook reads the status only, so it is an error; a list is answered file by file. Others are registered."""
    good, failing = table.put("good.parquet", 1), table.put("failing.parquet", 2)
    outcome = table.outcome(good, failing)
    assert outcome == {"changed": True, "registered": 1, "refused": [("failing.parquet", "store_error")]}
    inner = {"Message": json.dumps({"files": [good, failing]})}
    problem = table.send(expect=502, **inner)
    assert problem["code"] == "store_error"
    table.store.fails = False
    try:
        assert table.outcome(**inner) == {"changed": True, "registered": 1, "duplicates": 1}
    finally:
        table.store.fails = True
    assert table.rows() == [1, 2]


def test_folders_give_columns(app: TestClient, store: FailingStore, tmp_path: Path) -> None:
    """As for registrations: the constants of the block are the folder's values."""
    columns = [*COLUMNS, {"name": "day", "type": "date"}]
    table = Table(app, store, tmp_path / "data", schema=columns)
    file = table.put("day=2026-11-28/1.parquet", 1)
    assert table.outcome(file)["registered"] == 1
    reader = {"reader_features": ["constants"]}
    selected = table.call("/prune", {"filter": "day = DATE '2026-11-28'", **reader})
    assert len(selected["blocks"]) == 1
    assert table.call("/prune", {"filter": "day = DATE '2026-11-29'", **reader})["blocks"] == []
    bad = table.put("day=never/1.parquet", 1)
    assert table.outcome(bad)["refused"] == [("1.parquet", "value_outside_file")]


def test_an_external_directory_is_refreshed(app: TestClient, store: FailingStore, tmp_path: Path) -> None:
    """By a file that was created, overwritten or deleted below it; not by one elsewhere."""
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "0.parquet").write_bytes(parquet_bytes({"a": [0]}))
    table = Table(app, store, folder, source={"kind": "directory", "location": str(folder)})
    first = f"file://{folder}/0.parquet"
    assert table.outcome(first) == {"changed": True, "registered": 1}
    assert table.outcome(first) == {}
    second = table.put("sub/1.parquet", 1)
    assert table.outcome("file:///elsewhere/x.parquet") == {"ignored": {"other_file": 1}}
    assert table.rows() == [0]
    assert table.outcome(second, "file:///elsewhere/x.parquet") == {
        "changed": True,
        "registered": 1,
        "ignored": {"other_file": 1},
    }
    table.put("0.parquet", 5, 6)
    assert table.outcome(first) == {"changed": True, "registered": 1}
    assert table.rows() == [1, 5, 6]
    Path(second.removeprefix("file://")).unlink()
    assert table.outcome(removed=[second]) == {"changed": True}
    assert table.rows() == [5, 6]
    bad, older = table.put("bad.parquet", data=b"x"), table.put("older.parquet", data=b"x")
    assert [path for path, _ in table.outcome(bad)["refused"]] == ["bad.parquet"]
    assert [path for path, _ in table.outcome(older)["refused"]] == ["older.parquet"]


def test_an_external_delta_table_is_refreshed_by_its_log(app: TestClient, store: FailingStore, tmp_path: Path) -> None:
    """A commit of Delta writes an entry of the log, which is no data file but changes the table."""
    location = tmp_path / "delta"
    write_deltalake(str(location), pa.table({"a": [1]}))
    table = Table(app, store, location, source={"kind": "delta", "location": str(location)})
    log = f"file://{location}/_delta_log/00000000000000000000.json"
    assert table.outcome(log) == {"changed": True, "registered": 1}
    assert table.outcome(log) == {}
    write_deltalake(str(location), pa.table({"a": [2]}), mode="append")
    assert table.outcome(log.replace("0.json", "1.json")) == {"changed": True, "registered": 1}
    write_deltalake(str(location), pa.table({"a": [3]}), mode="overwrite")
    assert table.outcome(log.replace("0.json", "2.json")) == {"changed": True, "registered": 1}
    assert table.rows() == [3]


@pytest.mark.parametrize(
    ("body", "query", "code"),
    [
        ({}, "", "invalid_request"),
        ({"Records": "x"}, "", "invalid_request"),
        ({"files": ["relative"]}, "", "invalid_request"),
        ({"files": ["/x.parquet"]}, "?suffix=", "invalid_request"),
        ({"files": ["/x.parquet"]}, "?suffix=a/b", "invalid_request"),
        ({"files": ["/x.parquet"]}, "?prefix=relative", "invalid_request"),
        ({"files": ["/x" * 3_000]}, "", "limit_exceeded"),
    ],
)
def test_requests_that_cannot_be_read_are_errors(table: Table, body: Any, query: str, code: str) -> None:
    """And change nothing."""
    answer = table.app.post(f"{table.path}/arrivals{query}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


def test_tables_that_take_no_files_say_so(app: TestClient, store: FailingStore, tmp_path: Path) -> None:
    """A table with constraints has each of its rows checked, which a registration does not."""
    table = Table(app, store, tmp_path / "data", schema=COLUMNS)
    change = {"change": "add-check", "name": "positive", "condition": "a > 0"}
    assert app.post(f"{table.path}/schema", json={"changes": [change]}).status_code == 200
    assert table.send(table.put("1.parquet", 1), expect=409)["code"] == "not_proven"
    assert app.post("/v1/namespaces/db/tables/none/arrivals", json={"files": ["/x.parquet"]}).status_code == 404


def test_files_outside_of_the_allowed_locations_are_refused_one_by_one(tmp_path: Path) -> None:
    """The others are registered, and nothing of the refused ones is read."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    options = Settings(warehouse=str(tmp_path / "warehouse"), allowed_locations={"db": [f"file://{inside}"]})
    store = FailingStore()
    with AppClient(create_app(options, store=store)) as app:
        assert app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        table = Table(app, store, inside)
        outside.mkdir()
        other = outside / "1.parquet"
        other.write_bytes(parquet_bytes({"a": [1]}))
        outcome = table.outcome(table.put("1.parquet", 2), f"file://{other}")
        assert outcome == {"changed": True, "registered": 1, "refused": [("1.parquet", "location_refused")]}
        assert table.rows() == [2]


def test_arrivals_are_counted(app: TestClient, table: Table) -> None:
    """By outcome, from zero on."""

    def counts() -> dict[str, float]:
        lines = app.get("/metrics").text.splitlines()
        found = (line.partition("}") for line in lines if line.startswith("lamella_arrivals_total{"))
        return {head.partition('"')[2].rstrip('"'): float(value) for head, _, value in found}

    before = counts()
    assert set(before) == {"registered", "duplicate", "earlier", "ignored", "refused"}
    file = table.put("1.parquet", 1)
    table.send(file, table.put("2.parquet", data=b"x"), f"file://{table.folder}/x.csv")
    table.send(file)
    table.call("/commits", {"removed": [file], "operation": "delete"})
    table.send(file)
    after = counts()
    assert {name: after[name] - before[name] for name in after} == dict.fromkeys(after, 1.0)
