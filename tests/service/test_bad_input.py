"""Bad input over real HTTP: a clear 4xx problem document, and the table is as it was."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.service_api import TableApi, World, fresh_name, parquet_bytes, read_problem

GOOD = parquet_bytes({"a": [1, 2, 3], "s": ["x", "y", "z"]})
COLUMN = {"name": "a", "type": "int64"}


@contextmanager
def unchanged(table: TableApi) -> Iterator[None]:
    """The table, its history and its answers are the same before and after."""
    before = (table.info(), table.history(), table.prune("a >= 0")["blocks"])
    yield
    assert (table.info(), table.history(), table.prune("a >= 0")["blocks"]) == before


@pytest.fixture(scope="module")
def table(local: World) -> TableApi:
    """A table of two blocks, which no request below may change."""
    table = local.table()
    folder = local.folder()
    local.numbers(folder, 2)
    table.register(folder)
    return table


NOT_A_BLOCK = {
    "text": (b"just some text that goes on and on", "not_parquet"),
    "empty file": (b"", "not_parquet"),
    "footer points outside": (GOOD[:40] + GOOD[-8:], "truncated_parquet"),
    "end cut off": (GOOD[:-10], "truncated_parquet"),
    "encrypted footer": (b"PARE" + GOOD[4:-4] + b"PARE", "encrypted_parquet"),
    "damaged footer": (GOOD[:-60] + b"\xff" * 30 + GOOD[-30:], "corrupt_parquet"),
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("data", "code"),
    [*NOT_A_BLOCK.values(), (parquet_bytes({"a": ["text"], "s": ["x"]}), "schema_mismatch")],
    ids=[*NOT_A_BLOCK, "another type"],
)
def test_a_file_that_cannot_be_a_block_is_refused(
    local: World, table: TableApi, data: bytes, code: str, strict: bool
) -> None:
    """Registering nothing but such a file is a 422 that names the file and the reason."""
    location = local.put(f"{local.folder()}/bad.parquet", data)
    with unchanged(table):
        problem = local.api.problem("POST", f"{table.path}/register", {"paths": [location], "strict": strict})
    assert (problem.status, problem.code) == (422, "blocks_refused")
    assert [(r["path"], r["code"]) for r in problem.details["refused"]] == [(location, code)]
    assert location in problem.detail


def test_a_strict_registration_takes_all_files_or_none(local: World, table: TableApi) -> None:
    """With `strict` one bad file keeps the good ones out."""
    folder = local.folder()
    local.put(f"{folder}/good.parquet", GOOD)
    bad = local.put(f"{folder}/bad.parquet", b"no")
    with unchanged(table):
        problem = local.api.problem("POST", f"{table.path}/register", {"paths": [folder], "strict": True})
    assert (problem.status, problem.code) == (422, "blocks_refused")
    assert [r["path"] for r in problem.details["refused"]] == [bad]


@pytest.mark.parametrize(
    ("paths", "status", "code"),
    [
        ([], 400, "invalid_request"),
        (["/nowhere/at/all"], 422, "blocks_refused"),
        (["relative/path"], 422, "blocks_refused"),
        (["ftp://host/file"], 422, "blocks_refused"),
        (["/a\u0000b"], 422, "blocks_refused"),
        ([""], 422, "blocks_refused"),
    ],
)
def test_paths_that_name_nothing_are_refused(
    local: World, table: TableApi, paths: list[str], status: int, code: str
) -> None:
    """A path without files, of an unknown kind or with a NUL byte registers nothing."""
    with unchanged(table):
        problem = local.api.problem("POST", f"{table.path}/register", {"paths": paths})
    assert (problem.status, problem.code) == (status, code)


def test_a_file_that_is_in_the_table_is_not_registered_again(local: World, table: TableApi) -> None:
    """Only duplicates: 409. Beside a new file, the duplicate is listed as refused."""
    present = table.blocks()[0]["location"]
    for spelling in (present, present.removeprefix("file://"), present.replace("file:///", "file:/")):
        with unchanged(table):
            problem = local.api.problem("POST", f"{table.path}/register", {"paths": [spelling]})
        assert (problem.status, problem.code) == (409, "duplicate_block")
        assert problem.details["blocks"] == [present]
    other = local.table()
    other.register(present)
    new = local.put(f"{local.folder()}/new.parquet", GOOD)
    answer = other.register(present, new, new)
    assert answer["registered"] == 1
    assert [(r["path"], r["code"]) for r in answer["refused"]] == [
        (new, "duplicate_block"),
        (present, "duplicate_block"),
    ]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"filter": "a = = 4"}, 400, "invalid_filter"),
        ({"filter": "a = 4 AND"}, 400, "invalid_filter"),
        ({"filter": {"type": "no-such", "term": "a", "value": 4}}, 400, "invalid_filter"),
        ({"filter": ["a", 4]}, 400, "invalid_filter"),
        ({"filter": "nope = 4"}, 400, "unknown_column"),
        ({"filter": "a = 4", "columns": ["nope"]}, 400, "unknown_column"),
        ({"filter": "a = 'x'"}, 400, "filter_type_mismatch"),
        ({"filter": "a = " + "(" * 200 + "1" + ")" * 200}, 400, None),
        ({"filter": "a IN (" + "1," * 200_000 + "1)"}, 400, "limit_exceeded"),
        ({"snapshot_id": "00000000-0000-7000-8000-000000000000"}, 404, "snapshot_not_found"),
        ({"snapshot_id": "not an id"}, 404, "snapshot_not_found"),
        ({"snapshot_id": "\u0000"}, 404, "snapshot_not_found"),
        ({"timestamp": 0}, 404, "snapshot_not_found"),
        ({"timestamp": -1}, 400, "invalid_request"),
        ({"timestamp": 1 << 63}, 400, "invalid_request"),
        ({"timestamp": "yesterday"}, 400, "invalid_request"),
        ({"timestamp": "2026-01-01T00:00:00", "time_zone": "Nowhere/Town"}, 400, "invalid_request"),
        ({"timestamp": True}, 400, "invalid_request"),
        ({"timestamp": 1.5}, 400, "invalid_request"),
        ({"snapshot_id": "x", "timestamp": 1}, 400, "invalid_request"),
        ({"filtre": "a = 4"}, 400, "invalid_request"),
        ({"level": "row"}, 400, "invalid_request"),
        ({"columns": "a"}, 400, "invalid_request"),
    ],
)
def test_a_prune_that_cannot_be_answered_says_why(
    local: World, table: TableApi, body: dict[str, Any], status: int, code: str | None
) -> None:
    """Each wrong member of a prune request has an error of its own."""
    problem = local.api.problem("POST", f"{table.path}/prune", body)
    assert problem.status == status
    assert code is None or problem.code == code


def test_a_filter_that_cannot_be_read_is_answered_with_the_position(local: World, table: TableApi) -> None:
    """The offset of the mistake is part of the problem."""
    problem = local.api.problem("POST", f"{table.path}/prune", {"filter": "a > 1 AND a = = 4"})
    assert problem.code == "invalid_filter"
    assert problem.details["position"] == len("a > 1 AND a = ")  # the second sign of equality, or the value's place


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"name": 7}, "$.name"),
        ({"name": "x", "schema": [{"name": "a"}]}, "$.schema[0]"),
        ({"name": "x", "schema": [COLUMN], "cluster_key": ["a", 1]}, "$.cluster_key[1]"),
        ({"name": "x", "schema": [COLUMN], "properties": {"a": 1}}, "$.properties[...]"),
        ([], "$"),
    ],
)
def test_a_body_of_the_wrong_form_is_answered_with_the_json_path(local: World, body: Any, path: str) -> None:
    """`details.path` says where in the body the mistake is."""
    problem = local.api.problem("POST", "/v1/namespaces/any/tables", body)
    assert (problem.status, problem.code, problem.details["path"]) == (400, "invalid_request", path)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"{", "invalid_request"),
        (b"", "invalid_request"),
        (b'{"filter": "a = 1"} trailing', "invalid_request"),
        (b'{"filter": "\xff"}', "invalid_request"),
        (b'{"filter": "\\ud800"}', "invalid_request"),
        (b'{"filter": ' + b"[" * 100_000, "limit_exceeded"),
        (b'{"filter": ' + b'{"type":"not","child":' * 5_000 + b"true" + b"}" * 5_000 + b"}", "limit_exceeded"),
    ],
)
def test_a_body_that_is_not_json_is_refused(local: World, table: TableApi, text: bytes, code: str) -> None:
    """Broken JSON, bytes that are no text, and endless nesting are a 400."""
    headers = {"content-type": "application/json"}
    problem = read_problem(local.api.http.post(f"{table.path}/prune", content=text, headers=headers))
    assert (problem.status, problem.code) == (400, code)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_that_does_not_say_it_is_json_is_refused(local: World, kind: str) -> None:
    """A web page of another origin can send only such bodies without asking first."""
    headers = {"content-type": kind} if kind else {}
    response = local.api.http.post("/v1/namespaces", content=b'{"name": "sneaked_in"}', headers=headers)
    assert (read_problem(response).status, read_problem(response).code) == (400, "invalid_request")
    assert local.api.problem("GET", "/v1/namespaces/sneaked_in").code == "namespace_not_found"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": ""}, 400, "invalid_request"),
        ({"name": "a b"}, 400, "invalid_request"),
        ({"name": "a/b"}, 400, "invalid_request"),
        ({"name": "a.b"}, 400, "invalid_request"),
        ({"name": "-a"}, 400, "invalid_request"),
        ({"name": "é"}, 400, "invalid_request"),
        ({"name": "a\n"}, 400, "invalid_request"),
        ({"name": "a" * 129}, 400, "invalid_request"),
        ({"schema": []}, 400, "invalid_schema"),
        ({"schema": [{"name": "a", "type": "no_such_type"}]}, 400, "invalid_schema"),
        ({"schema": [COLUMN, {"name": "A", "type": "int"}]}, 400, "invalid_schema"),
        ({"schema": [{**COLUMN, "id": 1}, {"name": "b", "type": "int", "id": 1}]}, 400, "invalid_schema"),
        ({"schema": None}, 400, "invalid_request"),
        ({"schema_from": "/x.parquet"}, 400, "invalid_request"),
        ({"cluster_key": ["b"]}, 400, "unknown_column"),
        ({"cluster_key": ["a", "A"]}, 400, "invalid_request"),
        ({"schema": [{"name": "v", "type": "variant"}], "cluster_key": ["v"]}, 400, "invalid_request"),
    ],
)
def test_a_table_that_cannot_be_is_not_created(local: World, body: dict[str, Any], status: int, code: str) -> None:
    """Wrong names, columns and cluster keys leave the namespace as it was."""
    namespace = fresh_name("ns")
    local.api.call("POST", "/v1/namespaces", {"name": namespace}, expect=201)
    tables = f"/v1/namespaces/{namespace}/tables"
    problem = local.api.problem("POST", tables, {"name": "t", "schema": [COLUMN], **body})
    assert (problem.status, problem.code) == (status, code)
    assert local.api.call("GET", tables)["tables"] == []


@pytest.mark.parametrize(("data", "code"), NOT_A_BLOCK.values(), ids=NOT_A_BLOCK.keys())
def test_a_table_is_not_created_from_a_file_that_is_none(local: World, data: bytes, code: str) -> None:
    """`schema_from` a bad file is a 422, and there is no such table afterwards."""
    namespace = fresh_name("ns")
    local.api.call("POST", "/v1/namespaces", {"name": namespace}, expect=201)
    tables = f"/v1/namespaces/{namespace}/tables"
    location = local.put(f"{local.folder()}/bad.parquet", data)
    problem = local.api.problem("POST", tables, {"name": "t", "schema_from": location})
    assert (problem.status, problem.code) == (422, code)
    assert local.api.problem("POST", tables, {"name": "t", "schema_from": "/none.parquet"}).code == "object_not_found"
    assert local.api.call("GET", tables)["tables"] == []


@pytest.mark.parametrize("name", ["", "a b", ".a", "a.", "a..b", "x" * 129])
def test_a_namespace_with_a_bad_name_is_not_created(local: World, name: str) -> None:
    """Names that cannot stand in a URL and in SQL as they are are refused."""
    before = local.api.call("GET", "/v1/namespaces")
    assert local.api.problem("POST", "/v1/namespaces", {"name": name}).code == "invalid_request"
    assert local.api.call("GET", "/v1/namespaces") == before


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/namespaces/nope", 404, "namespace_not_found"),
        ("DELETE", "/v1/namespaces/nope", 404, "namespace_not_found"),
        ("GET", "/v1/namespaces/nope/tables", 404, "namespace_not_found"),
        ("GET", "/v1/namespaces/nope/tables/t", 404, "namespace_not_found"),
        ("GET", "/v1/namespaces/{ns}/tables/nope", 404, "table_not_found"),
        ("DELETE", "/v1/namespaces/{ns}/tables/nope", 404, "table_not_found"),
        ("GET", "/v1/namespaces/{ns}/tables/nope/snapshots", 404, "table_not_found"),
        ("GET", "/v1/namespaces/{ns}/tables/t/snapshots/nope", 404, "snapshot_not_found"),
        ("GET", "/v1/namespaces/{ns}/tables/t/segments/nope", 404, "segment_not_found"),
        ("GET", "/v1/namespaces/{ns}/tables/t/snapshots?page_size=0", 400, "invalid_request"),
        ("GET", "/v1/namespaces/{ns}/tables/t/snapshots?page_size=1001", 400, "invalid_request"),
        ("GET", "/v1/namespaces/{ns}/tables/t/snapshots?page_size=x", 400, "invalid_request"),
        ("GET", "/v1/namespaces/{ns}/tables/t/snapshots?page_token=x", 400, "invalid_page_token"),
        ("GET", "/v1/namespaces/{ns}/tables/t/snapshots?page_token=%C3%A9", 400, "invalid_page_token"),
        ("GET", "/v1/namespaces/{ns}/tables/t/snapshots?page_token=Zm9vOjE", 400, "invalid_page_token"),
        ("GET", "/v1", 404, "not_found"),
        ("GET", "/v1/namespaces/", 404, "not_found"),
        ("GET", "/v1/namespaces/a%2Fb%00", 404, None),
        ("PUT", "/v1/namespaces", 405, "invalid_request"),
        ("GET", "/v1/namespaces/{ns}/tables/t/prune", 405, "invalid_request"),
    ],
)
def test_what_is_not_there_is_a_problem_document_too(
    local: World, table: TableApi, method: str, path: str, status: int, code: str | None
) -> None:
    """Unknown names, paths and methods, and listings with bad parameters, are answered like everything else."""
    problem = local.api.problem(method, path.replace("{ns}", table.namespace))
    assert problem.status == status
    assert code is None or problem.code == code


def test_a_method_that_a_path_lacks_is_answered_with_those_it_has(local: World) -> None:
    """405 carries `Allow`, with the methods of all routes of the path."""
    assert local.api.send("PUT", "/v1/namespaces").headers["allow"] == "GET, HEAD, POST"


def changed_block(table: TableApi, **changes: Any) -> dict[str, Any]:
    """A block that could be added to the table, but for the changes."""
    return {**table.blocks()[0], **changes}


def stats(**changes: Any) -> dict[str, Any]:
    """Statistics of column 1 of the table, with changes."""
    return {"1": {"min": {"Int64": 0}, "max": {"Int64": 9}, "null_count": 0, **changes}}


@pytest.mark.parametrize(
    ("changes", "code", "names"),
    [
        ({"col_stats": {"7": {"null_count": 0}}}, "unknown_column", "7"),
        ({"col_metas": {"7": [[0, 1, 1]]}}, "unknown_column", "7"),
        ({"col_metas": {"1": [[0, (1 << 63) - 1, 1]] * 2}}, "invalid_request", "'a'"),
        ({"row_count": -1}, "invalid_request", "row_count"),
        ({"row_count": 11}, "invalid_request", "row groups"),
        ({"format": "orc"}, "invalid_request", "orc"),
        ({"location": "relative.parquet"}, "invalid_request", "relative.parquet"),
        ({"location": "/nowhere.parquet"}, "object_not_found", "nowhere"),
        ({"col_stats": stats(min={"String": "x"})}, "schema_mismatch", "'a'"),
        ({"col_stats": stats(min={"Int64": 1 << 63})}, "schema_mismatch", "'a'"),
        ({"col_stats": stats(min={})}, "schema_mismatch", "'a'"),
        ({"col_stats": stats(min={"Int64": 0, "Date": 0})}, "schema_mismatch", "'a'"),
        ({"col_stats": stats(min={"Int64": 10})}, "schema_mismatch", "'a'"),
        ({"col_stats": stats(null_count=-1)}, "schema_mismatch", "null_count"),
        ({"col_stats": stats(null_count=11)}, "schema_mismatch", "null_count"),
        ({"col_stats": stats(null_count=10)}, "schema_mismatch", "'a'"),
        ({"col_stats": stats(nan="all")}, "schema_mismatch", "nan"),
        ({"col_stats": stats(sum="1.5")}, "schema_mismatch", "not sums of type int64"),
        ({"col_stats": stats(sum="91")}, "schema_mismatch", "more than the values can have"),
        ({"col_stats": stats(bucket=[0, 0])}, "schema_mismatch", "no bucket 0 of 0"),
        ({"col_stats": stats(bucket=[4, 4])}, "schema_mismatch", "no bucket 4 of 4"),
        ({"col_stats": {"2": {"nan": "maybe"}}}, "schema_mismatch", "'s'"),
    ],
)
def test_a_block_whose_statistics_cannot_be_true_is_refused(
    local: World, table: TableApi, changes: dict[str, Any], code: str, names: str
) -> None:
    """A commit with such a block is a 422 that names the block and what is wrong; nothing is added or removed."""
    other = local.put(f"{local.folder()}/new.parquet", GOOD)
    good = changed_block(table, location=other, row_count=3, row_group_row_counts=[], col_stats={}, col_metas={})
    bad = changed_block(table, **{"location": other + "2", **changes})
    local.put(other + "2", GOOD)
    with unchanged(table):
        body = {"added": [good, bad], "removed": [table.blocks()[0]["location"]]}
        problem = local.api.problem("POST", f"{table.path}/commits", body)
    assert (problem.status, problem.code) == (422, "blocks_refused")
    assert [(r["path"], r["code"]) for r in problem.details["refused"]] == [(bad["location"], code)]
    assert names in problem.details["refused"][0]["reason"]


@pytest.mark.parametrize(
    ("block", "path"),
    [
        ({"location": "/x"}, "$.added[1]"),
        ({"location": "/x", "row_count": "1", "file_size": 1}, "$.added[1].row_count"),
        ({"location": "/x", "row_count": 1, "file_size": 1, "col_stats": {"x": {}}}, "$.added[1].col_stats"),
        (7, "$.added[1]"),
    ],
)
def test_something_that_is_no_block_is_answered_with_its_position(
    local: World, table: TableApi, block: Any, path: str
) -> None:
    """The JSON path counts the blocks of the request."""
    with unchanged(table):
        problem = local.api.problem("POST", f"{table.path}/commits", {"added": [changed_block(table), block]})
    assert (problem.status, problem.code) == (400, "invalid_request")
    assert problem.details["path"].startswith(path)


def test_a_commit_that_cannot_be_is_refused(local: World, table: TableApi) -> None:
    """Nothing to do, unknown base, blocks that are gone or doubled, words that are no operation."""
    path = f"{table.path}/commits"
    present = changed_block(table)
    location = present["location"]
    unknown_id = "00000000-0000-7000-8000-000000000000"
    new = changed_block(table, location=local.put(f"{local.folder()}/new.parquet", GOOD))
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({}, 400, "invalid_request"),
        ({"removed": [location], "operation": "DROP TABLE"}, 400, "invalid_request"),
        ({"removed": [location, location]}, 400, "invalid_request"),
        ({"removed": [location], "base_snapshot_id": unknown_id}, 404, "snapshot_not_found"),
        ({"removed": ["/not/there.parquet"]}, 409, "commit_conflict"),
        ({"added": [present]}, 409, "duplicate_block"),
        ({"added": [new, new]}, 409, "duplicate_block"),
    ]
    for body, status, code in cases:
        with unchanged(table):
            problem = local.api.problem("POST", path, body)
        assert (problem.status, problem.code) == (status, code)


def test_blocks_that_are_gone_are_named_with_the_snapshot_that_lacks_them(local: World, table: TableApi) -> None:
    """A conflict tells exactly which blocks it is about."""
    gone = "file:///not/there.parquet"
    body = {"removed": [gone, table.blocks()[0]["location"]]}
    with unchanged(table):
        problem = local.api.problem("POST", f"{table.path}/commits", body)
    assert problem.details == {
        "blocks": [gone],
        "snapshot_id": table.info()["snapshot_id"],
        "snapshot_is": "current",
    }


@pytest.mark.parametrize("key", ["", "x" * 256, "ключ".encode()])
def test_an_idempotency_key_that_is_none_is_refused(local: World, key: str | bytes) -> None:
    """Empty, over 255 characters, or not printable ASCII."""
    name = fresh_name("ns")
    headers = {"Idempotency-Key": key}
    response = local.api.http.post("/v1/namespaces", json={"name": name}, headers=headers)  # type: ignore[arg-type]  # bytes are sent as they are
    assert read_problem(response).code == "invalid_request"
    assert local.api.problem("GET", f"/v1/namespaces/{name}").code == "namespace_not_found"


LIMIT_BYTES = 64 << 20


@pytest.mark.parametrize("action", ["register", "prune"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_refused(local: World, table: TableApi, chunked: bool, action: str) -> None:
    """413 as a problem document, whether the body says its length first or comes in chunks."""
    chunk = b" " * (1 << 20)

    def body() -> Iterator[bytes]:
        for _ in range((LIMIT_BYTES >> 20) + 2):
            yield chunk

    headers = {"Content-Type": "application/json"}
    if not chunked:
        headers["Content-Length"] = str(LIMIT_BYTES + (2 << 20))
    parts = urlsplit(local.url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    with unchanged(table):
        connection.request("POST", f"{table.path}/{action}", body=body(), headers=headers, encode_chunked=chunked)
        response = connection.getresponse()
        document = json.loads(response.read())
    connection.close()
    assert (response.status, document["status"], document["code"]) == (413, 413, "body_too_large")
    assert response.headers["content-type"] == "application/problem+json"
    assert document["details"] == {"limit": "body_bytes", "limit_bytes": LIMIT_BYTES}
