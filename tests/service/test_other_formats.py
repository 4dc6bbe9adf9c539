"""Registering folders that are tables of another format, in which not every file counts."""

from __future__ import annotations

from typing import Any

import pytest

from lamella.client import Lamella
from lamella.snapshot.errors import OtherTableFormat
from support.service_api import TableApi, World

#: A file of each format's log, and what its tables are followed by.
LOGS = [
    ("_delta_log/00000000000000000000.json", "external create NAMESPACE.TABLE delta"),
    ("metadata/v1.metadata.json", "external create NAMESPACE.TABLE iceberg"),
    (".hoodie/hoodie.properties", "cannot be followed"),
    ("_ducklake/x", "cannot be followed"),
]


def refused(table: TableApi, *paths: str, **more: Any) -> dict[str, str]:
    """The reasons of a registration of which nothing is taken, by path; all have the code of this topic."""
    problem = table.api.problem("POST", f"{table.path}/register", {"paths": paths, **more})
    assert (problem.status, problem.code) == (422, "blocks_refused")
    entries = problem.details["refused"]
    assert {entry["code"] for entry in entries} == {OtherTableFormat.code}
    return {entry["path"]: entry["reason"] for entry in entries}


@pytest.mark.parametrize(("log", "way"), LOGS)
def test_a_folder_of_another_format_is_refused_with_the_way_to_go(local: World, log: str, way: str) -> None:
    """By folder, by a folder above it and by glob; the caller can take every file, or name one by itself."""
    table, above = local.table(), local.folder()
    folder = f"{above}/shop/orders"
    file = local.put(f"{folder}/data/x.parquet", a=[1], s=["x"])
    local.put(f"{folder}/{log}", b"{}")
    for path in (folder, f"{folder}/", above, f"{folder}/data/*.parquet".replace("data/", "*/"), f"{above}/*"):
        (reason,) = refused(table, path, other_formats="refuse").values()
        assert way in reason
        assert "--ignore-other-formats" in reason
        assert f"not all files in {folder} are current" in reason
    assert refused(table, folder).keys() == {folder}
    assert table.locations() == []
    with Lamella(local.url) as lake:
        answer = lake.table(f"{table.namespace}.{table.name}").register([folder], other_formats="ignore")
    assert answer.registered == 1
    assert table.locations() == [file]
    other = local.table()
    assert other.register(file)["registered"] == 1


def test_other_paths_of_the_request_are_registered(local: World) -> None:
    """Unless it is strict."""
    table, folder, plain = local.table(), local.folder(), local.folder()
    local.put(f"{folder}/x.parquet", a=[1], s=["x"])
    local.put(f"{folder}/_delta_log/0.json", b"{}")
    file = local.put(f"{plain}/x.parquet", a=[1], s=["x"])
    problem = table.api.problem("POST", f"{table.path}/register", {"paths": [folder, plain], "strict": True})
    assert problem.code == "blocks_refused"
    answer = table.register(folder, plain)
    assert [(entry["path"], entry["code"]) for entry in answer["refused"]] == [(folder, OtherTableFormat.code)]
    assert table.locations() == [file]


def test_a_glob_is_refused_for_the_tables_that_it_selects(local: World) -> None:
    """A table of another format beside the files that a glob selects is no reason, nor is a folder of a like name."""
    table, folder = local.table(), local.folder()
    local.put(f"{folder}/a/x.parquet", a=[1], s=["x"])
    local.put(f"{folder}/a/_delta_log/0.json", b"{}")
    file = local.put(f"{folder}/ab/x.parquet", a=[2], s=["x"])
    local.put(f"{folder}/ab/metadata/notes.json", b"{}")
    assert table.register(f"{folder}/*b/*.parquet")["registered"] == 1
    assert table.locations() == [file]
    assert refused(table, f"{folder}/*/*.parquet", other_formats="refuse").keys() == {f"{folder}/*/*.parquet"}
