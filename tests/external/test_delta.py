"""Delta tables as sources, written by delta-rs."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from lamella.client import Lamella
from lamella.client.cli.app import cli
from lamella.client.http import Table
from lamella.snapshot.errors import (
    BlocksRefused,
    InvalidRequest,
    InvalidSchema,
    ObjectNotFound,
    ReaderFeatureMissing,
    StoreError,
)
from lamella.snapshot.schema.evolution import RenameColumn
from lamella.snapshot.source.delta import read_delta
from lamella.snapshot.storage import AllLocations, FsspecStore
from lamella.snapshot.wire import ExternalSource
from support.delta_logs import MappedTable, actions, commit, inline_vector, protocol, vectors_in_file, with_deleted_rows
from support.sources import same_as


def rows(start: int, count: int = 6) -> pa.Table:
    """``a`` counts on, ``s`` has nulls."""
    texts = [None if i % 4 == 3 else f"s{i:04}" for i in range(start, start + count)]
    return pa.table({"a": list(range(start, start + count)), "s": texts})


def follow(lake: Lamella, name: str, folder: Path) -> Table:
    """A table that follows a Delta table, not refreshed yet."""
    lake.create_external(name, {"kind": "delta", "location": str(folder)})
    return lake.table(name)


def own(folder: Path) -> pa.Table:
    """The rows as delta-rs reads them."""
    return DeltaTable(folder).to_pyarrow_table()


def test_a_delta_table_is_followed_through_its_history(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Appends, deletes, compaction and overwriting: after each refresh the rows are the table's own."""
    folder = tmp_path / "d elta"
    write_deltalake(folder, rows(0))
    write_deltalake(folder, rows(6), mode="append")
    table = follow(lake, name, folder)
    first = table.refresh()
    assert (first.added, first.source_version) == (2, "1")
    same_as(table, own(folder))

    DeltaTable(folder).delete("a = 3 OR a > 8")
    answer = table.refresh()
    assert (answer.removed, answer.unchanged) == (2, 0)
    same_as(table, own(folder))

    for at in range(3):
        write_deltalake(folder, rows(100 + 10 * at), mode="append")
    table.refresh()
    DeltaTable(folder).optimize.compact()
    answer = table.refresh()
    assert (answer.added, answer.unchanged) == (1, 0)
    same_as(table, own(folder))

    DeltaTable(folder).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert not table.refresh().changed  # the log says which files count, and that did not change

    write_deltalake(folder, rows(500), mode="overwrite")
    answer = table.refresh()
    assert (answer.added, answer.removed, answer.unchanged) == (1, 1, 0)
    same_as(table, own(folder))
    assert not table.refresh().changed
    assert table.refresh("full").unchanged == 1
    assert table.verify().is_clean


def test_a_version_that_the_table_has_is_not_compared_again(lake: Lamella, name: str, tmp_path: Path) -> None:
    """The answer is the same as that of a comparison, which other commits make necessary."""
    write_deltalake(tmp_path, rows(0))
    write_deltalake(tmp_path, rows(6), mode="append")
    table = follow(lake, name, tmp_path)
    table.refresh()
    known = table.refresh()
    assert (known.changed, known.unchanged, known.added, known.removed) == (False, 2, 0, 0)
    table.cluster_by(["a"])
    compared = table.refresh()
    assert (compared.changed, compared.unchanged, compared.added, compared.removed) == (False, 2, 0, 0)
    DeltaTable(tmp_path).delete("a < 6")
    assert table.refresh().removed == 1
    same_as(table, own(tmp_path))


def test_a_folder_whose_name_looks_escaped_is_not_taken_for_another(tmp_path: Path) -> None:
    """A literal ``%20`` is part of the name; there may be a table of the decoded name too."""
    write_deltalake(tmp_path / "a b", rows(0))
    write_deltalake(tmp_path / "plain", rows(10))
    for name in ("a%20b", "a%41b"):
        folder = tmp_path / name
        shutil.copytree(tmp_path / "plain", folder)
        state = read_delta(FsspecStore(), ExternalSource(kind="delta", location=str(folder)), {}, AllLocations())
        assert [file.location for file in state.files] == [f"file://{path}" for path in folder.glob("*.parquet")]


def test_a_checkpoint_is_read(lake: Lamella, name: str, tmp_path: Path) -> None:
    """The log's own summary, with older commits gone."""
    for at in range(4):
        write_deltalake(tmp_path, rows(10 * at), mode="append")
    DeltaTable(tmp_path).create_checkpoint()
    for log in sorted((tmp_path / "_delta_log").glob("*.json"))[:3]:
        log.unlink()
    table = follow(lake, name, tmp_path)
    table.refresh()
    same_as(table, own(tmp_path))


def test_a_column_that_is_added_comes_in_the_same_snapshot(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Older files have null there; statistics prune by the new column."""
    write_deltalake(tmp_path, rows(0))
    table = follow(lake, name, tmp_path)
    before = table.refresh()
    wider = rows(10).append_column("x", pa.array([float(i) for i in range(6)]))
    write_deltalake(tmp_path, wider, mode="append", schema_mode="merge")
    answer = table.refresh()
    assert (answer.added, answer.unchanged, answer.schema_changes) == (1, 1, 1)
    same_as(table, own(tmp_path))
    assert table.prune("x > 3").block_count == 1
    assert table.scan("x IS NULL").count() == 6
    history = [*table.snapshots()]
    assert [each.operation for each in history] == ["refresh", "refresh", "create"]
    assert history[0].prev_snapshot_id == before.snapshot_id
    assert table.verify().is_clean


def test_a_schema_that_was_overwritten_is_read_anew(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Another type under the same name is another column; no old value shines through."""
    write_deltalake(tmp_path, rows(0))
    table = follow(lake, name, tmp_path)
    table.refresh()
    other = pa.table({"s": [1, 2], "b": ["x", "y"], "a": [1.5, 2.5]})
    write_deltalake(tmp_path, other, mode="overwrite", schema_mode="overwrite")
    answer = table.refresh()
    assert (answer.added, answer.removed) == (1, 1)
    assert answer.schema_changes > 0
    assert [column.name for column in table.schema().schema.columns] == ["s", "b", "a"]
    same_as(table, own(tmp_path).select(["b", "s"]))
    assert table.scan("a > 2").to_arrow().to_pylist() == [{"s": 2, "b": "y", "a": 2.5}]


def test_a_dropped_column_that_comes_back_has_what_the_files_have(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Columns are known by name, so files that were never rewritten still have their values: they are read again."""
    write_deltalake(tmp_path, rows(0))
    table = follow(lake, name, tmp_path)
    table.refresh()
    (first,) = actions(tmp_path, "metaData")
    fields = json.loads(first["schemaString"])
    narrow = {**first, "schemaString": json.dumps({**fields, "fields": fields["fields"][:1]})}
    commit(tmp_path, {"metaData": narrow})
    with pytest.raises(BlocksRefused, match="no column"):
        table.refresh()  # the file has a column that the table does not: taken as a whole, or not at all
    assert table.scan().count() == 6
    commit(tmp_path, {"metaData": first})
    assert not table.refresh().changed
    same_as(table, own(tmp_path))


def test_a_refresh_after_a_rollback_follows_the_columns_again(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Over a column that was added and one whose type changed: the table has the source's rows after each refresh."""
    write_deltalake(tmp_path, rows(0))
    table = follow(lake, name, tmp_path)
    versions = [table.refresh()]
    wider = rows(10).append_column("b", pa.array([1.5] * 6))
    write_deltalake(tmp_path, wider, mode="append", schema_mode="merge")
    versions.append(table.refresh())
    other = rows(20).append_column("b", pa.array(["x"] * 6))
    write_deltalake(tmp_path, other, mode="overwrite", schema_mode="overwrite")
    versions.append(table.refresh())
    for version in (*versions[:-1], *versions):
        table.rollback(version.snapshot_id)
        assert table.info().properties["lamella.source.version"] == version.source_version
        table.refresh()
        same_as(table, own(tmp_path))
        assert table.scan("b = 'x'").count() == 6
    assert table.verify().is_clean


def without(folder: Path, *gone: int) -> pa.Table:
    """All rows of a table's files but some, by the values of ``a``."""
    every = pa.concat_tables(pq.read_table(file) for file in sorted(folder.glob("*.parquet")))
    return every.filter(pa.array([value not in gone for value in every["a"].to_pylist()]))


def test_rows_of_deletion_vectors_are_left_out(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Vectors in the log and in files, changed and taken back; after each refresh the rows are the table's own."""
    write_deltalake(tmp_path, rows(0))
    write_deltalake(tmp_path, rows(10), mode="append")
    first, second = actions(tmp_path, "add")
    table = follow(lake, name, tmp_path)
    table.refresh()
    assert table.info().required_features == ()
    with_deleted_rows(tmp_path, first, inline_vector([1, 3]))
    answer = table.refresh()
    assert (answer.added, answer.removed, answer.replaced, answer.unchanged) == (0, 0, 1, 1)
    same_as(table, without(tmp_path, 1, 3))
    info = table.info()
    assert (info.row_count, info.live_row_count, info.deletes_count) == (12, 10, 1)
    assert info.required_features == ("deletes",)
    assert not table.refresh().changed
    with_deleted_rows(tmp_path, first, inline_vector([2, 3]))
    table.refresh()
    same_as(table, without(tmp_path, 2, 3))
    one, other = vectors_in_file(tmp_path, [0, 5], [2], prefix="ab")
    with_deleted_rows(tmp_path, first, other)
    with_deleted_rows(tmp_path, second, one)
    table.refresh()
    same_as(table, without(tmp_path, 2, 10, 15))
    (anywhere,) = vectors_in_file(tmp_path, [4], path=tmp_path / "vectors of another.bin")
    with_deleted_rows(tmp_path, second, anywhere)
    table.refresh()
    same_as(table, without(tmp_path, 2, 14))
    assert table.verify(deep=True, sample=1.0).findings == ()
    with_deleted_rows(tmp_path, first, None)
    with_deleted_rows(tmp_path, second, inline_vector(range(6)))
    answer = table.refresh()
    assert (answer.replaced, answer.removed) == (1, 1)  # no row of the second file is left
    same_as(table, rows(0))
    assert table.info().required_features == ()
    assert not table.refresh().changed


def test_time_travel_has_the_rows_of_then(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Also after a rollback, which brings deleted rows back."""
    write_deltalake(tmp_path, rows(0))
    (add,) = actions(tmp_path, "add")
    table = follow(lake, name, tmp_path)
    before = table.refresh().snapshot_id
    with_deleted_rows(tmp_path, add, inline_vector([1]))
    between = table.refresh().snapshot_id
    with_deleted_rows(tmp_path, add, inline_vector([1, 2]))
    table.refresh()
    counts = [table.scan("a < 3", snapshot_id=each).count() for each in (before, between, None)]
    assert counts == [3, 2, 1]
    difference = table.diff(between, reader_features=["deletes"])
    assert [len(difference.added), len(difference.removed)] == [1, 1]
    table.rollback(before)
    same_as(table, rows(0))
    table.rollback(between)
    same_as(table, without(tmp_path, 1))


def test_deletion_vectors_survive_a_checkpoint(lake: Lamella, name: str, tmp_path: Path) -> None:
    """The log is read from the checkpoint on; a commit before it is gone."""
    write_deltalake(tmp_path, rows(0))
    (add,) = actions(tmp_path, "add")
    with_deleted_rows(tmp_path, add, inline_vector([1]))
    DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    table = follow(lake, name, tmp_path)
    table.refresh()
    same_as(table, without(tmp_path, 1))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"cardinality": 2}, "not 2"),
        ({"pathOrInlineDv": "0" * 45}, "damaged"),
        ({"pathOrInlineDv": "~" * 40}, "Base85"),
        ({"sizeInBytes": 4_000}, "bytes"),
        ({"storageType": "x"}, "unknown way"),
    ],
)
def test_a_deletion_vector_that_cannot_be_read_is_refused_with_its_file(
    lake: Lamella, name: str, tmp_path: Path, wrong: dict[str, Any], reason: str
) -> None:
    """Its rows would come back; nothing is changed, unless the user wants the others without it."""
    write_deltalake(tmp_path, rows(0))
    write_deltalake(tmp_path, rows(10), mode="append")
    table = follow(lake, name, tmp_path)
    before = table.refresh()
    add = actions(tmp_path, "add")[0]
    with_deleted_rows(tmp_path, add, {**inline_vector([1]), **wrong})
    with pytest.raises(BlocksRefused, match=reason) as caught:
        table.refresh()
    (refused,) = caught.value.details["refused"]
    assert refused["path"] == f"file://{tmp_path}/{add['path']}"
    assert table.info().snapshot_id == before.snapshot_id
    answer = table.refresh(strict=False)
    assert (answer.removed, len(answer.refused)) == (1, 1)
    assert table.scan().count() == 6
    other = f"{name}b"
    result = CliRunner().invoke(cli, ["external", "create", other, "delta", str(tmp_path), "--url", lake.url])
    assert result.exit_code == 1
    assert f"table {other} was made, and has no rows yet" in result.stderr
    assert lake.table(other).info().block_count == 0


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["x y", "a/b", "", None, "ä%", "="]),
        pa.array([1, -(1 << 31), None, 0, 2, 3], pa.int32()),
        pa.array([1.5, float("nan"), float("-inf"), -0.0, None, -2.25]),
        pa.array([0.1, float("nan"), 1.5, None, 2, 3], pa.float32()),
        pa.array([Decimal("1.50"), Decimal("999.99"), None, Decimal(0), Decimal("0.01"), Decimal(7)]),
        pa.array([dt.date(2024, 2, 29), dt.date(1, 1, 1), None, dt.date(9999, 12, 31), dt.date(1970, 1, 1), None]),
        pa.array([dt.datetime(2024, 2, 29, 12, 30, 0, 5, dt.UTC)] * 5 + [None], pa.timestamp("us", "UTC")),
        pa.array([True, False, None, True, False, True]),
        pa.array([b"\x00\xff", b"abc", None, b"x", b"y", b"z"]),
    ],
    ids=lambda values: str(values.type),
)
def test_partition_values_come_from_the_log(lake: Lamella, name: str, tmp_path: Path, values: pa.Array) -> None:
    """Of every type that a Delta table can be partitioned by, and null; a filter on them opens no other file."""
    write_deltalake(tmp_path / "p", rows(0).append_column("p", values), partition_by=["p"])
    table = follow(lake, name, tmp_path / "p")
    table.refresh()
    same_as(table, own(tmp_path / "p"))
    info = table.info()
    assert info.required_features == ("constants",)
    assert info.constants_count == info.block_count
    nulls = table.prune("p IS NULL", reader_features=["constants"])
    assert {block.verdict for block in nulls.records()} <= {"ALL"}
    assert sum(block.row_count for block in nulls.records()) == own(tmp_path / "p").column("p").null_count
    with pytest.raises(ReaderFeatureMissing):
        table.prune("p IS NULL")


def test_unknown_features_are_refused(lake: Lamella, name: str, tmp_path: Path) -> None:
    """What would need more than is known is said by name."""
    write_deltalake(tmp_path, rows(0))
    table = follow(lake, name, tmp_path)
    table.refresh()
    commit(tmp_path, protocol("variantType"))
    with pytest.raises(InvalidRequest, match="variantType"):
        table.refresh()


def numbered(**columns: tuple[int, list[Any]]) -> pa.Table:
    """Rows of a file whose columns have field ids."""
    fields = [
        pa.field(name, pa.array(values).type, metadata={"PARQUET:field_id": str(number)})
        for name, (number, values) in columns.items()
    ]
    return pa.table([pa.array(values) for _, values in columns.values()], schema=pa.schema(fields))


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_read_by_their_names_in_the_files(
    lake: Lamella, name: str, tmp_path: Path, mode: str
) -> None:
    """Two columns that swap names, one that is dropped and one that takes its name: no value changes its column."""
    made = MappedTable(tmp_path / "m", mode)
    a, s, gone = ("a", "long", 1, "s"), ("s", "string", 2, "a"), ("x", "long", 3, "x")
    made.columns(a, s, gone)
    made.add("0.parquet", numbered(s=(1, [1, 2]), a=(2, ["p", None]), x=(3, [10, 20])))
    table = follow(lake, name, made.folder)
    assert [column.name for column in table.schema().schema.columns] == ["a", "s", "x"]
    table.refresh()
    same_as(table, pa.table({"a": [1, 2], "s": ["p", None], "x": [10, 20]}))

    made.columns(a, s, ("x", "string", 4, "col-4"))
    made.add("1.parquet", numbered(s=(1, [3]), a=(2, ["q"]), **{"col-4": (4, ["new"])}))
    answer = table.refresh()
    assert (answer.added, answer.unchanged) == (1, 1)
    wanted = pa.table({"a": [1, 2, 3], "s": ["p", None, "q"], "x": [None, None, "new"]})
    same_as(table, wanted)
    assert table.prune("x = 'new'").block_count == 1
    assert table.prune("a = 3").block_count == 1
    assert table.prune("s = 'p'").block_count == 1

    made.columns(("s", "long", 1, "s"), ("a", "string", 2, "a"), ("x", "string", 4, "col-4"))
    assert not table.refresh().added
    same_as(table, pa.table({"s": wanted["a"], "a": wanted["s"], "x": wanted["x"]}).select(["s", "x"]))
    assert table.prune("s = 3").block_count == 1
    assert table.prune("a = 'p'").block_count == 1
    assert table.verify(deep=True, sample=1.0).is_clean

    final = table.info().snapshot_id
    table.rollback([*table.snapshots()][-2].snapshot_id)
    assert [column.name for column in table.schema().schema.columns] == ["a", "s", "x"]
    assert table.scan("s = 'p'").to_arrow().to_pylist() == [{"a": 1, "s": "p", "x": 10}]
    table.refresh()
    assert table.info().snapshot_id != final
    assert table.scan("a = 'p'").to_arrow().to_pylist() == [{"s": 1, "a": "p", "x": None}]
    assert table.scan().count() == 3

    # The file with the dropped column, read by somebody who never saw that column.
    other = follow(lake, f"{name}_other", made.folder)
    other.refresh()
    assert other.scan("a = 'p'").to_arrow().to_pylist() == [{"s": 1, "a": "p", "x": None}]
    assert other.verify(deep=True, sample=1.0).is_clean


def test_partition_values_of_mapped_columns(lake: Lamella, name: str, tmp_path: Path) -> None:
    """The log has them under the names for files."""
    made = MappedTable(tmp_path, "name", "p")
    made.columns(("a", "long", 1, "c1"), ("p", "integer", 2, "c2"))
    made.add("0.parquet", pa.table({"c1": [1, 2]}), {"c2": "7"})
    made.add("1.parquet", pa.table({"c1": [3]}), {"c2": None})
    table = follow(lake, name, tmp_path)
    table.refresh()
    same_as(table, pa.table({"a": [1, 2, 3], "p": [7, 7, None]}))
    assert table.scan("p = 7").count() == 2
    assert [block.verdict for block in table.prune("p = 7", reader_features=["constants"]).records()] == ["ALL"]


def test_partition_values_that_are_in_the_files_too(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Some writers keep them there, without statistics; then the values are read, and all of them must be the log's."""
    at = dt.datetime(2024, 1, 1, 12, 0, 0, 5, dt.UTC)
    made = MappedTable(tmp_path, "name", "p", "t")
    made.columns(("a", "long", 1, "c1"), ("p", "integer", 2, "c2"), ("t", "timestamp", 3, "c3"))
    inside = {"c2": pa.array([7, 7], pa.int32()), "c3": pa.array([at, at], pa.timestamp("us", "UTC"))}
    whole = pa.table({"c1": [1, 2], **inside})
    of_log = {"c2": "7", "c3": "2024-01-01 12:00:00.000005"}
    made.add("0.parquet", whole, of_log, write_statistics=False)
    made.add("1.parquet", whole, of_log, use_deprecated_int96_timestamps=True)
    made.add("2.parquet", pa.table({"c1": [3]}), {"c2": None, "c3": None})
    table = follow(lake, name, tmp_path)
    table.refresh()
    same_as(table, pa.table({"a": [1, 2, 1, 2, 3], "p": [7, 7, 7, 7, None], "t": [at, at, at, at, None]}))
    verdicts = [block.verdict for block in table.prune("p = 7", reader_features=["constants"]).records()]
    assert verdicts == ["ALL", "ALL"]
    assert table.verify(deep=True, sample=1.0).is_clean

    mixed = pa.table({"c1": [1, 2], "c2": pa.array([7, None], pa.int32()), "c3": inside["c3"]})
    made.add("3.parquet", mixed, of_log, write_statistics=False)
    with pytest.raises(BlocksRefused, match="may have other values"):
        table.refresh()


def test_a_file_whose_ids_contradict_the_log_is_refused(lake: Lamella, name: str, tmp_path: Path) -> None:
    """With mapping by id a name in a file means nothing; a file that only its ids explain is not read by its names."""
    for at, file in enumerate([numbered(c1=(2, [1]), c2=(1, [1])), numbered(other=(1, [1])), pa.table({"c1": [1]})]):
        made = MappedTable(tmp_path / str(at), "id")
        made.columns(("a", "long", 1, "c1"), ("b", "long", 2, "c2"))
        made.add("0.parquet", file)
        with pytest.raises(BlocksRefused, match="field id"):
            follow(lake, f"{name}_{at}", made.folder).refresh()


def test_columns_can_be_mapped_when_there_are_files(lake: Lamella, name: str, tmp_path: Path) -> None:
    """The files keep their names; a dropped column does not come back under its old name."""
    made = MappedTable(tmp_path, "name")
    made.columns(("a", "long", 1, "a"), ("s", "string", 2, "s"), **{"delta.columnMapping.mode": "none"})
    made.add("0.parquet", pa.table({"a": [1, 2], "s": ["p", None]}))
    table = follow(lake, name, tmp_path)
    table.refresh()
    same_as(table, pa.table({"a": [1, 2], "s": ["p", None]}))
    made.columns(("a", "long", 1, "a"), ("s", "string", 2, "s"))
    table.refresh()
    same_as(table, pa.table({"a": [1, 2], "s": ["p", None]}))
    made.columns(("a", "long", 1, "a"), ("s", "string", 3, "col-3"))
    made.add("1.parquet", pa.table({"a": [3], "col-3": ["q"]}))
    table.refresh()
    same_as(table, pa.table({"a": [1, 2, 3], "s": [None, None, "q"]}))
    assert table.prune("s = 'p'").block_count == 0
    assert table.verify(deep=True, sample=1.0).is_clean


def test_a_column_without_a_mapping_is_an_error(lake: Lamella, name: str, tmp_path: Path) -> None:
    """A table that maps its columns must map all of them; the reader of the log names the column."""
    write_deltalake(tmp_path, rows(0))
    (first,) = actions(tmp_path, "metaData")
    mapped = {**first["configuration"], "delta.columnMapping.mode": "name"}
    commit(tmp_path, protocol("columnMapping"), {"metaData": {**first, "configuration": mapped}})
    with pytest.raises(StoreError, match="'a'"):
        follow(lake, name, tmp_path)


def test_another_table_in_the_same_location_is_not_taken_for_the_same(lake: Lamella, name: str, tmp_path: Path) -> None:
    """A table has an id of its own."""
    write_deltalake(tmp_path / "d", rows(0))
    table = follow(lake, name, tmp_path / "d")
    table.refresh()
    (tmp_path / "d").rename(tmp_path / "old")
    with pytest.raises(ObjectNotFound):
        table.refresh()
    write_deltalake(tmp_path / "d", rows(0))
    with pytest.raises(InvalidRequest, match="but the table was created from"):
        table.refresh()
    assert table.info().row_count == 6


def test_its_columns_are_changed_in_the_source_only(lake: Lamella, name: str, tmp_path: Path) -> None:
    """And are not given when the table is made."""
    write_deltalake(tmp_path, rows(0))
    table = follow(lake, name, tmp_path)
    with pytest.raises(InvalidRequest, match="columns of its source"):
        table.evolve([RenameColumn(column="a", name="b")])
    source = {"kind": "delta", "location": str(tmp_path)}
    with pytest.raises(InvalidRequest, match="columns come from"):
        lake.create_external(f"{name}b", source, schema_from=f"file://{tmp_path}/x.parquet")


def test_nested_columns_and_all_types_come_through(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Structs, lists, maps, decimals, dates and both kinds of timestamps, with a field that is added inside."""
    when = dt.datetime(2024, 1, 31, 12, 30, tzinfo=dt.UTC)
    row = {
        "a": 1,
        "s": "x",
        "d": Decimal("1.50"),
        "day": dt.date(2024, 1, 31),
        "at": when,
        "naive": when.replace(tzinfo=None),
        "st": {"x": 1, "deep": {"y": "z"}},
        "l": [{"k": 1}],
        "m": [("k", 2)],
        "b": b"\x00",
        "t": True,
        "f": 0.5,
    }
    inner = pa.struct([("x", pa.int32()), ("deep", pa.struct([("y", pa.string())]))])
    schema = pa.schema(
        [
            ("a", pa.int64()),
            ("s", pa.string()),
            ("d", pa.decimal128(10, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("naive", pa.timestamp("us")),
            ("st", inner),
            ("l", pa.list_(pa.struct([("k", pa.int64())]))),
            ("m", pa.map_(pa.string(), pa.int64())),
            ("b", pa.binary()),
            ("t", pa.bool_()),
            ("f", pa.float32()),
        ]
    )
    write_deltalake(tmp_path, pa.Table.from_pylist([row], schema))
    table = follow(lake, name, tmp_path)
    table.refresh()
    assert table.scan("st.deep.y = 'z' AND d = 1.5 AND at >= '2024-01-31T12:00:00Z'").count() == 1
    assert table.scan(columns=["day", "naive", "st", "m"]).to_arrow().to_pylist() == [
        {name: row[name] for name in ("day", "naive", "st", "m")}
    ]


def test_a_type_that_a_table_cannot_have_is_refused_when_it_is_made(lake: Lamella, name: str, tmp_path: Path) -> None:
    """The column is named."""
    write_deltalake(tmp_path, rows(0))
    (first,) = actions(tmp_path, "metaData")
    fields = json.loads(first["schemaString"])
    fields["fields"].append({"name": "v", "type": "void", "nullable": True, "metadata": {}})
    commit(tmp_path, {"metaData": {**first, "schemaString": json.dumps(fields)}})
    with pytest.raises((InvalidSchema, InvalidRequest)):
        follow(lake, name, tmp_path)


def test_columns_of_a_change_data_feed_are_no_columns_of_the_table(lake: Lamella, name: str, tmp_path: Path) -> None:
    """Delta's writers put them into data files as well; other columns that the log does not list are refused."""
    write_deltalake(tmp_path, rows(0), configuration={"delta.enableChangeDataFeed": "true"})
    table = follow(lake, name, tmp_path)
    table.refresh()
    with_more = rows(10)
    for column, values in (("__is_cdc", [False] * 6), ("_change_type", pa.array([None] * 6, pa.string()))):
        with_more = with_more.append_column(column, pa.array(values))
    pq.write_table(with_more, tmp_path / "more.parquet")
    size = (tmp_path / "more.parquet").stat().st_size
    add = {"path": "more.parquet", "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}
    commit(tmp_path, {"add": add})
    table.refresh()
    assert table.info().schema.ignored_columns == ("__is_cdc", "_change_type")
    assert [column.name for column in table.info().schema.columns] == ["a", "s"]
    same_as(table, pa.concat_tables([rows(0), rows(10)]))
    assert not table.refresh().changed
    assert table.verify(deep=True, sample=1.0).findings == ()
    pq.write_table(rows(20).append_column("other", pa.array([1] * 6)), tmp_path / "other.parquet")
    size = (tmp_path / "other.parquet").stat().st_size
    commit(tmp_path, {"add": {**add, "path": "other.parquet", "size": size}})
    with pytest.raises(BlocksRefused, match="no column for \\['other'\\]"):
        table.refresh()


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview"])
def test_a_table_that_a_catalog_manages_is_refused(lake: Lamella, name: str, tmp_path: Path, feature: str) -> None:
    """Commits may be elsewhere, or not in the table; the error says so."""
    write_deltalake(tmp_path, rows(0))
    features = {"readerFeatures": [feature], "writerFeatures": [feature, "inCommitTimestamp"]}
    commit(tmp_path, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    with pytest.raises(InvalidRequest, match="a catalog manages the Delta table"):
        lake.create_external(name, {"kind": "delta", "location": str(tmp_path)})
