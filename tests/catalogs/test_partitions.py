"""What a service makes of a metastore's list of partitions, case by case. No metastore."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fixtures_server import start_shared
from lamella.client import Lamella
from lamella.client.http import Table
from lamella.snapshot.errors import (
    BlocksRefused,
    InvalidRequest,
    InvalidSchema,
    LamellaError,
    LocationRefused,
    OtherTableFormat,
)
from lamella.snapshot.schema import Column
from lamella.snapshot.wire import HivePartition, HiveTable, RefreshTableAnswer
from support.sources import rows_of

_NAMES = itertools.count()
A = Column(name="a", type="int32")
P = Column(name="p", type="int32")


class Hive:
    """A table that follows folders below ``folder``, and the partitions that it has."""

    def __init__(self, lake: Lamella, folder: Path, *columns: Column, partitioned_by: tuple[str, ...] = ("p",)) -> None:
        self.folder = folder
        self.columns = columns or (A, P)
        self.partitioned_by = partitioned_by
        if "hive" not in [each.name for each in lake.namespaces()]:
            lake.create_namespace("hive")
        name = f"hive.t{next(_NAMES)}"
        lake.create_external(name, {"kind": "hive", "location": str(folder)}, schema=self.columns)
        self.table: Table = lake.table(name)

    def refresh(self, partitions: Mapping[str, Any], **options: Any) -> RefreshTableAnswer:
        """Refresh; ``partitions``: values by folder, relative to that of the table unless it is a URL."""
        found = tuple(
            HivePartition(
                location=folder if ":" in folder else str(self.folder / folder),
                values=value if isinstance(value, tuple) else (value,),
            )
            for folder, value in partitions.items()
        )
        hive = HiveTable(columns=self.columns, partitioned_by=self.partitioned_by, partitions=found)
        answer = self.table.refresh(hive=hive, **options)
        assert self.table.verify(deep=True, sample=1.0, pages=False).findings == ()
        return answer

    def put(self, path: str, *values: int, **more: pa.Array) -> Path:
        """A file with values of ``a``."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"a": pa.array(values, pa.int32()), **more}), file)
        return file

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows, by a full scan."""
        return sorted((tuple(row.values()) for row in rows_of(self.table.scan().to_arrow())), key=repr)


@pytest.fixture
def hive(lake: Lamella, tmp_path: Path) -> Hive:
    """A table partitioned by the integer ``p``."""
    return Hive(lake, tmp_path / "t")


def test_values_are_the_metastores_and_not_those_of_folders(hive: Hive) -> None:
    """A folder's name means nothing, and one partition may be inside another."""
    hive.put("p=1/f", 1)
    hive.put("p=1/p=2/f", 2)
    hive.put("p=3/f", 3)
    hive.refresh({"p=1": "7", "p=1/p=2": None})
    assert hive.rows() == [(1, 7), (2, None)]


def test_the_same_files_get_other_values(hive: Hive) -> None:
    """Renamed, swapped, made null: the files are not opened as unchanged ones."""
    hive.put("x/f", 1)
    hive.put("y/f", 2)
    assert hive.refresh({"x": "1", "y": "2"}).added == 2
    assert not hive.refresh({"x": "1", "y": "2"}).changed
    assert hive.refresh({"x": "2", "y": "1"}).replaced == 2
    assert hive.rows() == [(1, 2), (2, 1)]
    assert hive.refresh({"x": "2", "y": None}).replaced == 1
    assert hive.rows() == [(1, 2), (2, None)]
    # Text that is no value is not null.
    with pytest.raises(BlocksRefused) as caught:
        hive.refresh({"x": "2", "y": "one"})
    assert [each["code"] for each in caught.value.details["refused"]] == ["value_outside_file"]
    assert hive.rows() == [(1, 2), (2, None)]
    assert not hive.refresh({"x": "+2", "y": None}).changed  # another text of the same value


def test_a_file_that_has_the_partition_column_must_agree(hive: Hive) -> None:
    """Its statistics prove the value, each time; otherwise the file is refused."""
    hive.put("x/f", 1, p=pa.array([5], pa.int32()))
    assert hive.refresh({"x": "5"}).added == 1
    again = hive.refresh({"x": "5"})
    assert (again.changed, again.unchanged) == (False, 1)
    with pytest.raises(BlocksRefused):
        hive.refresh({"x": "6"})
    assert hive.rows() == [(1, 5)]


def test_a_wider_partition_column_is_read_again(lake: Lamella, tmp_path: Path) -> None:
    """The float of a text is not the double of that text; a column may also stop to be a partition column."""
    hive = Hive(lake, tmp_path / "t", A, Column(name="p", type="float32"))
    hive.put("x/f", 1)
    hive.refresh({"x": "0.1"})
    assert hive.rows() != [(1, 0.1)]
    hive.columns = (A, Column(name="p", type="float64"))
    assert hive.refresh({"x": "0.1"}).replaced == 1
    assert hive.rows() == [(1, 0.1)]
    hive.put("x/g", 2, q=pa.array([9], pa.int32()))
    hive.columns = (A, Column(name="p", type="float64"), Column(name="q", type="int32"))
    hive.partitioned_by = ("q",)
    with pytest.raises(BlocksRefused):
        hive.refresh({"x": "3"})
    hive.refresh({"x": "9"})
    assert hive.rows() == [(1, None, 9), (2, None, 9)]
    assert not hive.refresh({"x": "9"}).changed


def test_columns_are_found_by_name_whatever_their_case(lake: Lamella, tmp_path: Path) -> None:
    """Columns that the table does not have are left out, those that files do not have are null; narrower types fit."""
    columns = (Column(name="A", type="int64"), Column(name="new", type="string"), P)
    hive = Hive(lake, tmp_path / "t", *columns)
    hive.put("x/f", 1, gone=pa.array(["x"]))
    hive.refresh({"x": "1"})
    assert hive.rows() == [(1, None, 1)]
    both = {"a": pa.array([1], pa.int32()), "A": pa.array([2], pa.int32())}
    twice = {"NEW": pa.array(["x"]), "New": pa.array(["y"])}
    for rows in ({"a": ["text"]}, both, twice):  # Spark refuses names that differ in case only, too
        pq.write_table(pa.table(rows), hive.folder / "x" / "bad")
        with pytest.raises(BlocksRefused) as caught:
            hive.refresh({"x": "1"})
        assert [each["code"] for each in caught.value.details["refused"]] == ["schema_mismatch"]


def test_links_lead_to_partitions(hive: Hive) -> None:
    """A folder counts under each of its names that is a partition."""
    hive.put("real/f", 1)
    (hive.folder / "linked").symlink_to(hive.folder / "real")
    hive.refresh({"real": "1", "linked": "2"})
    assert hive.rows() == [(1, 1), (1, 2)]
    hive.refresh({"linked": "2"})
    assert hive.rows() == [(1, 2)]


@pytest.mark.parametrize(
    ("partitions", "error"),
    [
        ({"x": "1", "./x/": "2"}, InvalidRequest),
        ({"x": ("1", "2")}, InvalidRequest),
        ({"x": ()}, InvalidRequest),
        ({"hdfs://host/x": "1"}, InvalidRequest),
    ],
)
def test_a_list_that_cannot_be_right_is_refused(
    hive: Hive, partitions: Mapping[str, Any], error: type[LamellaError]
) -> None:
    """Nothing is changed."""
    hive.put("x/f", 1)
    with pytest.raises(error):
        hive.refresh(partitions)
    assert hive.table.info().row_count == 0


def test_partition_columns_have_plain_values(hive: Hive) -> None:
    """They are columns, each once, and not nested."""
    hive.put("x/f", 1)
    for names, columns in (
        (("z",), (A, P)),
        (("p", "P"), (A, P)),
        (("p",), (A, Column(name="p", type="struct", fields=(A,)))),
    ):
        hive.partitioned_by, hive.columns = names, columns
        with pytest.raises(InvalidSchema, match="plain values"):
            hive.refresh({"x": tuple("1" for _ in names)})


def test_tables_of_other_formats_are_not_read_as_files(hive: Hive) -> None:
    """Whatever the metastore says."""
    hive.put("x/f", 1)
    (hive.folder / ".hoodie").mkdir()
    (hive.folder / ".hoodie" / "hoodie.properties").write_text("x")
    with pytest.raises(OtherTableFormat):
        hive.refresh({"x": "1"})


def test_a_table_without_partitions_has_the_files_of_its_folder(lake: Lamella, tmp_path: Path) -> None:
    """Not those below, and with folders that name columns readers disagree."""
    hive = Hive(lake, tmp_path / "t", A, partitioned_by=())
    hive.put("000000_0", 1)
    hive.put("below/f", 2)
    hive.put("_hidden", 3)
    hive.put(".hidden", 3)
    hive.refresh({})
    assert hive.rows() == [(1,)]
    hive.put("p=1/f", 4)
    with pytest.raises(InvalidRequest, match="readers disagree"):
        hive.refresh({})
    with pytest.raises(InvalidRequest, match="no partition columns"):
        hive.refresh({"x": ()})


def test_a_partition_outside_of_the_allowed_locations_refuses_the_table(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """Nothing there is listed."""
    (tmp_path / "secret").mkdir()
    settings = {
        "warehouse": tmp_path / "warehouse",
        "allowed_locations": json.dumps({"*": [(tmp_path / "t").as_uri()]}),
    }
    server = start_shared(pytestconfig, tmp_path, settings)
    try:
        with Lamella(server.url) as lake:
            hive = Hive(lake, tmp_path / "t")
            hive.put("x/f", 1)
            hive.refresh({"x": "1"})
            with pytest.raises(LocationRefused):
                hive.refresh({"x": "1", (tmp_path / "secret").as_uri(): "2"})
            assert hive.rows() == [(1, 1)]
            with pytest.raises(LocationRefused):
                Hive(lake, tmp_path / "secret")
    finally:
        server.stop()


def test_only_hive_tables_take_such_a_list(lake: Lamella, hive: Hive) -> None:
    """A directory has folders of its own; a Hive table must have columns."""
    hive.put("x/f.parquet", 1)
    lake.create_external("hive.directory", {"kind": "directory", "location": str(hive.folder)})
    with pytest.raises(InvalidRequest, match="only for tables of a Hive Metastore"):
        lake.table("hive.directory").refresh(hive=HiveTable(columns=(A,)))
    with pytest.raises(InvalidRequest, match="give schema"):
        lake.create_external("hive.none", {"kind": "hive", "location": str(hive.folder)})
    with pytest.raises(InvalidRequest, match="run lamella import again"):
        hive.table.refresh()


def test_a_table_can_move(hive: Hive, tmp_path: Path) -> None:
    """As after ALTER TABLE ... SET LOCATION."""
    hive.put("x/f", 1)
    hive.refresh({"x": "1"})
    hive.folder = tmp_path / "other"
    hive.put("y/f", 2)
    hive.refresh({"y": "1"}, location=str(hive.folder))
    assert hive.rows() == [(2, 1)]
    assert hive.table.info().properties["lamella.source.location"] == f"file://{hive.folder}"
