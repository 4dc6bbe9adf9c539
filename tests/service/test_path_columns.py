"""Registering files below folders such as ``year=2020``, whose values no file holds."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lamella.snapshot.errors import ValueOutsideFile
from support.service_api import TableApi, World, parquet_bytes

_DECLARED = [{"name": "a", "type": "int64"}, {"name": "year", "type": "int32"}]


def register(table: TableApi, *paths: str, **more: Any) -> dict[str, Any]:
    """Append files, with whatever members."""
    return dict(table.api.call("POST", f"{table.path}/register", {"paths": paths, **more}))


def refused(table: TableApi, *paths: str, **more: Any) -> dict[str, str]:
    """The reasons of a registration of which nothing is taken, by file; all have the code of this topic."""
    problem = table.api.problem("POST", f"{table.path}/register", {"paths": paths, **more})
    assert (problem.status, problem.code) == (422, "blocks_refused")
    entries = problem.details["refused"]
    assert {entry["code"] for entry in entries} == {ValueOutsideFile.code}
    return {entry["path"]: entry["reason"] for entry in entries}


@pytest.mark.parametrize("columns", [_DECLARED, _DECLARED[:1]], ids=["declared", "not declared"])
def test_a_file_without_the_value_of_its_folder_is_refused_by_name(local: World, columns: list[Any]) -> None:
    """The reason names file and folder, whether or not the table has the column; other files are registered."""
    table, folder = local.table(columns), local.folder()
    lost = local.put(f"{folder}/year=2020/x.parquet", a=[1, 2])
    good = local.put(f"{folder}/y.parquet", a=[3])
    answer = register(table, folder)
    assert (answer["registered"], table.locations()) == (1, [good])
    (entry,) = answer["refused"]
    assert (entry["path"], entry["code"]) == (lost, "value_outside_file")
    assert "'year=2020'" in entry["reason"]
    assert "path_columns" in entry["reason"]


def test_the_caller_can_take_the_file_without_the_value(local: World) -> None:
    """With ``path_columns`` "ignore" the folder's name means nothing, and the column is null."""
    table, folder = local.table(_DECLARED), local.folder()
    file = local.put(f"{folder}/year=2020/x.parquet", a=[1, 2])
    assert refused(table, folder, path_columns="refuse").keys() == {file}
    assert register(table, folder, path_columns="ignore")["registered"] == 1
    assert table.locations("year IS NULL") == [file]
    problem = table.api.problem("POST", f"{table.path}/register", {"paths": [folder], "path_columns": "guess"})
    assert problem.code == "invalid_request"


def test_strict_refuses_all_files_for_one_lost_value(local: World) -> None:
    """As for any other refusal."""
    table, folder = local.table(_DECLARED), local.folder()
    file = local.put(f"{folder}/year=2020/x.parquet", a=[1])
    local.put(f"{folder}/y.parquet", a=[1])
    assert refused(table, folder, strict=True).keys() == {file}
    assert table.locations() == []


def test_a_column_of_the_file_that_has_the_value_loses_nothing(local: World) -> None:
    """In any case of letters, with leading zeros, escaped, of each type that a folder can name, and as null."""
    types = {"n": "int32", "d": "date", "t": "string", "m": "decimal(5,2)", "b": "boolean", "z": "int64"}
    table = local.table([{"name": name, "type": kind} for name, kind in types.items()])
    columns = {
        "n": pa.array([7, 7], pa.int32()),
        "d": pa.array([dt.date(2024, 2, 29)] * 2),
        "t": pa.array(["a/b ä"] * 2),
        "m": pa.array([Decimal("1.50")] * 2, pa.decimal128(5, 2)),
        "b": pa.array([True, True]),
        "z": pa.array([None, None], pa.int64()),
    }
    folder = local.folder()
    parts = "N=07/d=2024-02-29/t=a%2Fb ä/m=1.5/b=true/z=__HIVE_DEFAULT_PARTITION__"
    file = local.put(f"{folder}/{parts}/x.parquet", parquet_bytes(pa.table(columns)))
    assert register(table, folder)["registered"] == 1
    assert table.locations() == [file]


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("year=2020", [2020, 2021]),
        ("year=2020", [2021, 2021]),
        ("year=2020", [2020, None]),
        ("year=__HIVE_DEFAULT_PARTITION__", [2020, None]),
        ("year=", [2020, 2020]),
        ("year=twenty", [2020, 2020]),
        ("year=2021/year=2020", [2020, 2020]),
        ("YEAR=2021/year=2020", [2020, 2020]),
        ("year=2020=1", [2020, 2020]),
    ],
)
def test_a_file_that_contradicts_its_folder_is_refused(local: World, part: str, values: list[int | None]) -> None:
    """Spark would show the folder's value and Lamella the file's; the caller says which of them is meant."""
    table, folder = local.table(_DECLARED), local.folder()
    data = parquet_bytes(pa.table({"a": [1, 2], "year": pa.array(values, pa.int32())}))
    file = local.put(f"{folder}/{part}/x.parquet", data)
    assert refused(table, folder).keys() == {file}
    assert register(table, folder, path_columns="ignore")["registered"] == 1


def test_folders_above_the_registered_location_count(world: World) -> None:
    """One partition, or one file of it, that is registered by itself would lose its value as well."""
    table, folder = world.table(_DECLARED), world.folder()
    file = world.put(f"{folder}/year=2020/deep/x.parquet", a=[1])
    for path in (f"{folder}/year=2020", f"{folder}/year=2020/deep/", file, f"{folder}/year=*/**/*.parquet"):
        assert refused(table, path).keys() == {file}


def test_a_name_that_is_no_folder_of_hive_means_nothing(local: World) -> None:
    """A file's own name, and a folder whose name begins with the sign."""
    table, folder = local.table(), local.folder()
    files = [local.put(f"{folder}/{name}", a=[1], s=["x"]) for name in ("=2020/y.parquet", "year=2020.parquet")]
    assert register(table, folder)["registered"] == len(files)


def test_a_partition_folder_that_begins_with_an_underscore_counts(local: World) -> None:
    """Spark reads ``_p=1`` as a partition, so its files are found and its value must not be lost."""
    table, folder = local.table(), local.folder()
    file = local.put(f"{folder}/_p=1/x.parquet", a=[1], s=["x"])
    assert refused(table, folder).keys() == {file}


def test_a_folder_named_like_a_field_of_a_struct_is_a_column_of_its_own(local: World) -> None:
    """``b.c=1`` is a column of the top level, whatever ``b.c`` would be in a filter."""
    columns = [{"name": "b", "type": "struct", "fields": [{"name": "c", "type": "int64"}]}]
    table, folder = local.table(columns), local.folder()
    file = local.put(f"{folder}/b.c=1/x.parquet", b=[{"c": 1}])
    assert refused(table, folder).keys() == {file}
