"""Bad input over real HTTP: a clear 4xx problem document, and the table is as it was."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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


REFUSED_FILES = {
    "not_parquet": (b"just some text that goes on and on", "not_parquet"),
    "empty file": (b"", "not_parquet"),
    "truncated footer": (GOOD[:40] + GOOD[-8:], "truncated_parquet"),
    "footer cut off": (GOOD[:-10], "truncated_parquet"),
    "encrypted footer": (b"PARE" + GOOD[4:-4] + b"PARE", "encrypted_parquet"),
    "damaged footer": (GOOD[:-60] + b"\xff" * 30 + GOOD[-30:], "corrupt_parquet"),
    "other type": (parquet_bytes({"a": ["text"], "s": ["x"]}), "schema_mismatch"),
}


@pytest.mark.parametrize("kind", REFUSED_FILES)
def test_a_file_that_cannot_be_a_block_is_refused(local: World, table: TableApi, kind: str) -> None:
    """Registering nothing but such a file is a 422 that names the file and the reason, strictly or not."""
    data, code = REFUSED_FILES[kind]
    location = local.put(f"{local.folder()}/bad.parquet", data)
    for strict in (False, True):
        with unchanged(table):
            body = {"paths": [location], "strict": strict}
            problem = local.api.problem("POST", f"{table.path}/register", body)
        assert (problem.status, problem.code) == (422, "blocks_refused")
        assert [(r["path"], r["code"]) for r in problem.details["refused"]] == [(location, code)]
        assert location in problem.detail


def test_a_strict_registration_takes_all_files_or_none(local: World, table: TableApi) -> None:
    """With `strict` one bad file keeps the good ones out."""
    folder = local.folder()
    local.put(f"{folder}/good.parquet", GOOD)
    local.put(f"{folder}/bad.parquet", b"no")
    with unchanged(table):
        problem = local.api.problem("POST", f"{table.path}/register", {"paths": [folder], "strict": True})
    assert (problem.status, problem.code) == (422, "blocks_refused")
    assert [r["path"] for r in problem.details["refused"]] == [f"{folder}/bad.parquet"]


@pytest.mark.parametrize("kind", REFUSED_FILES)
def test_a_table_is_not_created_from_a_file_that_is_none(local: World, kind: str) -> None:
    """`schema_from` a bad file is a 4xx, and there is no such table afterwards."""
    data, code = REFUSED_FILES[kind]
    if code == "schema_mismatch":
        pytest.fail("a good file") if not data else None
        return
    location = local.put(f"{local.folder()}/bad.parquet", data)
    namespace = fresh_name("ns")
    local.api.call("POST", "/v1/namespaces", {"name": namespace}, expect=201)
    problem = local.api.problem(
        "POST", f"/v1/namespaces/{namespace}/tables", {"name": "t", "schema_from": location}
    )
    assert (problem.status, problem.code) == (422, code)
    assert local.api.call("GET", f"/v1/namespaces/{namespace}/tables")["tables"] == []
