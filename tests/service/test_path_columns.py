"""Registering files below folders such as ``year=2020``, whose values the files need not hold."""

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


def values(table: TableApi, column: str) -> dict[str, Any]:
    """The constant of a column by file, as the service gives it to a reader that supports constants."""
    number = next(each["id"] for each in table.info()["schema"]["columns"] if each["name"] == column)
    body = {"shape": "records", "reader_features": ["constants"]}
    answer = table.api.call("POST", f"{table.path}/prune", body)
    return {block["location"]: block.get("constants", {}).get(str(number), "not there") for block in answer["blocks"]}


def locations(table: TableApi, filter: str) -> list[str]:
    """The files that a filter leaves, for a reader that supports constants."""
    body = {"filter": filter, "shape": "records", "reader_features": ["constants"]}
    return [block["location"] for block in table.api.call("POST", f"{table.path}/prune", body)["blocks"]]


def test_a_folder_gives_its_value_to_the_rows_of_its_files(local: World) -> None:
    """As a constant of the block, which every layer decides by; files elsewhere have null."""
    table, folder = local.table(_DECLARED), local.folder()
    files = {year: local.put(f"{folder}/year={year}/x.parquet", a=[1, 2]) for year in (2020, 2021)}
    other = local.put(f"{folder}/y.parquet", a=[3])
    null = local.put(f"{folder}/year=__HIVE_DEFAULT_PARTITION__/x.parquet", a=[4])
    assert register(table, folder)["registered"] == 4
    assert values(table, "year") == {
        files[2020]: {"Int64": 2020},
        files[2021]: {"Int64": 2021},
        other: "not there",
        null: None,
    }
    assert locations(table, "year = 2021") == [files[2021]]
    assert sorted(locations(table, "year IS NULL")) == sorted([other, null])
    assert locations(table, "year > 2021") == []
    assert table.info()["required_features"] == ["constants"]
    assert table.info()["constants_count"] == 3


def test_a_folder_whose_column_the_table_lacks_is_refused_by_name(local: World) -> None:
    """The reason names the folder; other files are registered."""
    table, folder = local.table(_DECLARED[:1]), local.folder()
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
    assert register(table, folder, path_columns="ignore")["registered"] == 1
    assert table.locations("year IS NULL") == [file]
    assert table.info()["required_features"] == []
    problem = table.api.problem("POST", f"{table.path}/register", {"paths": [folder], "path_columns": "guess"})
    assert problem.code == "invalid_request"


def test_files_are_given_only_to_a_reader_that_declares_the_feature(local: World) -> None:
    """Every operation that lists files refuses others, with the same code."""
    table, folder = local.table(_DECLARED), local.folder()
    file = local.put(f"{folder}/year=2020/x.parquet", a=[1, 2])
    before = table.info()["snapshot_id"]
    register(table, folder)
    snapshot = table.api.call("GET", f"{table.path}/snapshots/{table.info()['snapshot_id']}")
    segment = f"{table.path}/segments/{snapshot['segments'][0]['segment_id']}"
    posts: dict[str, dict[str, Any]] = {
        "prune": {},
        "prune/batch": {"filters": ["a = 1"]},
        "diff": {"from_snapshot_id": before},
        "blocks": {"locations": [file]},
        "plan": {"job": "compact"},
        "aggregate": {"aggregates": ["min(a)"], "filter": "a + 1 = 2"},
    }
    for name, body in posts.items():
        problem = table.api.problem("POST", f"{table.path}/{name}", body)
        assert (problem.status, problem.code, problem.details["features"]) == (
            400,
            "reader_feature_missing",
            ["constants"],
        ), name
        table.api.call("POST", f"{table.path}/{name}", {**body, "reader_features": ["constants", "a new one"]})
    for path in (f"{table.path}/changes?since={before}", segment + "?", f"{segment}/blocks?"):
        assert table.api.problem("GET", path).code == "reader_feature_missing", path
        table.api.call("GET", f"{path}&reader_features=constants,deletes")
    counted = table.api.call("POST", f"{table.path}/aggregate", {"aggregates": ["count(*)", "max(year)"]})
    assert counted["complete"]
    assert [value["value"] for value in counted["groups"][0]["values"]] == [{"Int64": 2}, {"Int64": 2020}]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int32", "007", {"Int64": 7}),
        ("int64", "-9223372036854775808", {"Int64": -(1 << 63)}),
        ("uint8", "255", {"UInt64": 255}),
        ("float64", "1e3", {"Float64": 1000.0}),
        ("float64", "NaN", {"Float64": "NaN"}),
        ("float64", "-Infinity", {"Float64": "-Infinity"}),
        ("float32", "0.1", {"Float64": 0.10000000149011612}),
        ("decimal(5,2)", "1.5", {"Decimal": ["150", 5, 2]}),
        ("date", "2024-02-29", {"Date": 19782}),
        ("timestamp(us)", "2024-02-29 12%3A30%3A00", {"TimestampMicros": 1709209800000000}),
        ("timestamp_ntz(us)", "2024-02-29 12%3A30%3A00.5", {"TimestampMicros": 1709209800500000}),
        ("boolean", "TRUE", {"Boolean": True}),
        ("string", "a%2Fb %C3%A4 ä", {"String": "a/b Ã¤ ä"}),
        ("string", "", {"String": ""}),
        ("string", "x" * 200, {"String": "x" * 200}),
    ],
)
def test_text_is_cast_to_the_type_of_the_column(local: World, kind: str, text: str, value: Any) -> None:
    """As Spark casts the values of partitions; a percent escape is one character, as in Spark."""
    table, folder = local.table([_DECLARED[0], {"name": "p", "type": kind}]), local.folder()
    file = local.put(f"{folder}/p={text}/x.parquet", a=[1])
    assert register(table, folder)["registered"] == 1
    assert values(table, "p") == {file: value}


def test_timestamps_in_folders_have_the_time_zone_of_the_request(local: World) -> None:
    """A folder's name has none."""
    table, folder = local.table([_DECLARED[0], {"name": "p", "type": "timestamp(us)"}]), local.folder()
    file = local.put(f"{folder}/p=2024-07-01 00%3A00%3A00/x.parquet", a=[1])
    assert register(table, folder, time_zone="Europe/Paris")["registered"] == 1
    assert locations(table, "p = TIMESTAMP '2024-06-30 22:00:00Z'") == [file]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int32", "2147483648"),
        ("int8", "128"),
        ("int32", "1.0"),
        ("int32", " 1"),
        ("int32", ""),
        ("decimal(5,2)", "1.555"),
        ("decimal(5,2)", "1000"),
        ("decimal(5,2)", "1e999"),
        ("date", "2024-02-30"),
        ("date", "today"),
        ("timestamp(us)", "soon"),
        ("timestamp(ms)", "2024-02-29 12%3A30%3A00.0001"),
        ("boolean", "maybe"),
        ("binary", "ab"),
        ("uuid", "00000000-0000-0000-0000-000000000000"),
    ],
)
def test_a_value_that_the_type_does_not_have_is_refused(local: World, kind: str, text: str) -> None:
    """Naming the folder and the type."""
    table, folder = local.table([_DECLARED[0], {"name": "p", "type": kind}]), local.folder()
    file = local.put(f"{folder}/p={text}/x.parquet", a=[1])
    (reason,) = refused(table, folder).values()
    assert f"p={text}".split("%")[0] in reason
    assert locations(table, "true") == []
    assert register(table, file, path_columns="ignore")["registered"] == 1


def test_a_required_column_may_come_from_folders(local: World) -> None:
    """Then its value must not be null; a file elsewhere is refused, since it lacks the column."""
    columns: list[dict[str, Any]] = [*_DECLARED[:1], {"name": "year", "type": "int32", "nullable": False}]
    table, folder = local.table(columns), local.folder()
    good = local.put(f"{folder}/year=2020/x.parquet", a=[1])
    null = local.put(f"{folder}/year=__HIVE_DEFAULT_PARTITION__/x.parquet", a=[1])
    none = local.put(f"{folder}/x.parquet", a=[1])
    answer = register(table, folder)
    assert locations(table, "true") == [good]
    codes = {entry["path"]: entry["code"] for entry in answer["refused"]}
    assert codes == {null: "schema_mismatch", none: "schema_mismatch"}


def test_a_folders_columns_are_part_of_a_schema_from_a_folder(local: World) -> None:
    """With the types of all values."""
    folder = local.folder()
    for year, region in ((2020, "north"), (3_000_000_000, "7")):
        local.put(f"{folder}/year={year}/region={region}/x.parquet", a=[1])
    table = local.table(schema_from=f"{folder}/")
    types = {column["name"]: column["type"] for column in table.info()["schema"]["columns"]}
    assert types == {"a": "int64", "year": "int64", "region": "string"}
    assert register(table, folder)["registered"] == 2


def test_a_commit_may_bring_constants(local: World) -> None:
    """The service derives their statistics, whatever the request says of them."""
    table, folder = local.table(_DECLARED), local.folder()
    file = local.put(f"{folder}/x.parquet", a=[1, 2])
    number = table.info()["schema"]["columns"][1]["id"]
    block = {"location": file, "row_count": 2, "file_size": 1, "constants": {number: {"Int64": 7}}}
    lying = {number: {"min": {"Int64": 1}, "max": {"Int64": 2}, "null_count": 0, "source": "constant"}}
    table.api.call("POST", f"{table.path}/commits", {"added": [{**block, "col_stats": lying}]})
    assert locations(table, "year = 7") == [file]
    assert locations(table, "year <> 7") == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"constants": {99: None}},
        {"constants": {2: {"String": "x"}}},
        {"constants": {2: {"Int64": 1 << 40}}},
        {"constants": {2: {"Int64": 1}}, "col_metas": {2: [[4, 10, 1]]}, "row_group_row_counts": [2]},
        {"constants": {2: {"Int64": 1}}, "col_stats": {2: {"null_count": 0, "source": "footer"}}},
    ],
)
def test_constants_that_cannot_be_meant_are_refused(local: World, wrong: dict[str, Any]) -> None:
    """A column that the table lacks or the file has, and values of another type."""
    table, folder = local.table(_DECLARED), local.folder()
    file = local.put(f"{folder}/x.parquet", a=[1, 2])
    body = {"added": [{"location": file, "row_count": 2, "file_size": 1, **wrong}]}
    problem = table.api.problem("POST", f"{table.path}/commits", body)
    assert problem.status in (400, 422)
    assert locations(table, "true") == []


def test_strict_refuses_all_files_for_one_lost_value(local: World) -> None:
    """As for any other refusal."""
    table, folder = local.table(_DECLARED), local.folder()
    file = local.put(f"{folder}/month=2/x.parquet", a=[1])
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
    """One partition, or one file of it, that is registered by itself would lose its value otherwise."""
    folder = world.folder()
    file = world.put(f"{folder}/year=2020/deep/x.parquet", a=[1])
    for path in (f"{folder}/year=2020", f"{folder}/year=2020/deep/", file, f"{folder}/year=*/**/*.parquet"):
        table = world.table(_DECLARED)
        assert register(table, path)["registered"] == 1
        assert values(table, "year") == {file: {"Int64": 2020}}


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
