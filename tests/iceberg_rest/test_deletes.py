"""Deleted rows in plans: deletion vectors as delete files, for the clients that apply them as they are listed."""

from __future__ import annotations

import json
import urllib.error
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyiceberg.catalog import Catalog

from iceberg_rest.test_constants import metadata_of, posted
from lamella.client.http import Lamella
from lamella.snapshot.deletes import read_vector
from lamella.snapshot.iceberg.wire import CompletedPlan
from lamella.snapshot.manifest import DeleteFile
from lamella.snapshot.storage import FsspecStore
from support.deleted_rows import blocks_of, set_deletes
from support.folder_tables import FolderTable


class DeleteTable(FolderTable):
    """A table of files with two rows each, some of which are deleted."""

    def __init__(self, lake: Lamella, root: Path, url: str, columns: tuple[str, ...] = ()) -> None:
        super().__init__(lake, root, columns)
        self._url = f"{url}/iceberg/v1/namespaces/ice/tables/{self.name.partition('.')[2]}/plan"

    def plan(self, **request: Any) -> dict[str, Any]:
        """The answer to a plan request."""
        return posted(self._url, request)

    def planned(self, **request: Any) -> dict[str, list[int]]:
        """The deleted rows of each file of a plan, read as a client reads them."""
        answer = self.plan(**request)
        found = {}
        for task in answer["file-scan-tasks"]:
            file, rows = task["data-file"], []
            for number in task.get("delete-file-references", ()):
                deletes = answer["delete-files"][number]
                assert (deletes["spec-id"], deletes["partition"]) == (file["spec-id"], file["partition"])
                assert deletes["referenced-data-file"] == file["file-path"]
                assert (deletes["content"], deletes["file-format"]) == ("position-deletes", "puffin")
                start, size = deletes["content-offset"], deletes["content-size-in-bytes"]
                assert start + size <= deletes["file-size-in-bytes"]
                entry = DeleteFile(kind="deletion_vector", location=deletes["file-path"], offset=start, length=size)
                read = read_vector(FsspecStore(), entry, file["record-count"]).tolist()
                assert deletes["record-count"] == len(read)
                rows += read
            found[file["file-path"]] = rows
        msgspec.convert(answer, CompletedPlan)
        return found


@pytest.fixture
def table(lake: Lamella, rest_url: str, tmp_path: Path) -> DeleteTable:
    """A table of three files."""
    made = DeleteTable(lake, tmp_path, rest_url)
    made.add({}, {}, {})
    return made


def refusal(table: DeleteTable, **request: Any) -> str:
    """The reason for which a plan is refused as not expressible."""
    with pytest.raises(urllib.error.HTTPError) as raised:
        table.plan(**request)
    assert raised.value.code == 406
    found: str = json.load(raised.value)["error"]["message"]
    return found


def test_a_plan_lists_the_vectors_of_its_files(table: DeleteTable, rest_url: str) -> None:
    """Of these files and of no others; the record count is that of the file, with all rows."""
    table.delete({0: [1], 2: [0]})
    files = table.files
    assert table.planned() == {files[0]: [1], files[1]: [], files[2]: [0]}
    ids = [row["id"] for row in table.rows()]
    assert len(ids) == 4
    last = {"type": "gt-eq", "term": "id", "value": max(ids)}
    assert table.planned(filter=last) == {files[2]: [0]}
    assert "delete-files" not in table.plan(filter={"type": "lt", "term": "id", "value": -1})
    metadata = metadata_of(f"{rest_url}/iceberg", table.name)
    assert (metadata["format-version"], metadata["next-row-id"]) == (3, 0)
    summary = metadata["snapshots"][-1]["summary"]
    assert [summary[f"total-{each}"] for each in ("records", "delete-files", "position-deletes")] == ["6", "2", "2"]
    assert not [each for each in metadata["snapshots"][:-1] if "total-position-deletes" in each["summary"]]


def test_constants_and_vectors_are_in_one_plan(lake: Lamella, rest_url: str, tmp_path: Path) -> None:
    """A vector has the partition of its file."""
    table = DeleteTable(lake, tmp_path, rest_url, ("n", "s"))
    table.add({"n": "1"}, {"n": "2", "s": "x"}, {})
    table.delete({0: [0], 1: [1]})
    files = table.files
    assert table.planned() == {files[0]: [0], files[1]: [1], files[2]: []}
    two = {"type": "eq", "term": "n", "value": 2}
    assert table.planned(filter=two)[files[1]] == [1]


def test_few_rows_count_without_deleted_ones(table: DeleteTable) -> None:
    """For two rows, two files with one row each are enough, and one is not."""
    table.delete({0: [1], 1: [0], 2: [0]})
    assert len(table.planned(**{"min-rows-requested": 2})) == 2


def test_a_table_without_deleted_rows_has_plain_metadata(table: DeleteTable, rest_url: str) -> None:
    """Version 2 before them and after a compaction; a snapshot with vectors then has metadata of a wrong version."""
    assert metadata_of(f"{rest_url}/iceberg", table.name)["format-version"] == 2
    table.delete({0: [1]})
    with_vectors = len(list(table.table.snapshots()))
    table.compact()
    assert metadata_of(f"{rest_url}/iceberg", table.name)["format-version"] == 2
    assert set(map(len, table.planned().values())) == {0}
    assert "the current one has none" in refusal(table, **{"snapshot-id": with_vectors})


def test_earlier_snapshots_have_their_own_vectors(table: DeleteTable) -> None:
    """Also one without any."""
    table.delete({0: [1]})
    table.delete({1: [0]})
    files = table.files
    assert table.planned(**{"snapshot-id": 2}) == {file: [] for file in files}
    assert table.planned(**{"snapshot-id": 3}) == {files[0]: [1], files[1]: [], files[2]: []}
    assert table.planned() == {files[0]: [1], files[1]: [0], files[2]: []}


def test_files_that_were_added_may_have_vectors(table: DeleteTable) -> None:
    """An incremental plan lists them; deleting rows of a file that was there replaces it, and is refused."""
    [entry] = table.delete({2: [0]})
    location = table.files[2]
    block = blocks_of(table.table)[location]
    table.table.commit(removed=[location], operation="delete")
    before = len(list(table.table.snapshots()))
    table.table.commit([block], operation="append", take_replaced=True)
    between = {"start-snapshot-id": before, "end-snapshot-id": before + 1}
    assert table.planned(**between) == {location: [0]}
    assert entry in block.deletes
    table.delete({0: [0]})
    assert "adds and removes" in refusal_of(table, between | {"end-snapshot-id": before + 2})


def refusal_of(table: DeleteTable, request: dict[str, int]) -> str:
    """The reason for which a range of snapshots is refused."""
    with pytest.raises(urllib.error.HTTPError) as raised:
        table.plan(**request)
    assert raised.value.code == 400
    found: str = json.load(raised.value)["error"]["message"]
    return found


def test_a_compaction_that_leaves_out_deleted_rows_adds_none(table: DeleteTable) -> None:
    """An incremental plan passes over it."""
    table.delete({0: [1], 1: [0]})
    before = len(list(table.table.snapshots()))
    table.compact()
    table.add({})
    [added] = table.planned(**{"start-snapshot-id": before, "end-snapshot-id": before + 2})
    assert added.startswith(table.root.as_uri())


@pytest.mark.parametrize("how", ["unknown", "two"])
def test_deletes_that_iceberg_cannot_state_are_refused(table: DeleteTable, how: str) -> None:
    """An unknown number of rows, or several vectors; the message says what helps."""
    [entry] = table.delete({0: [1]})
    entries = [msgspec.structs.replace(entry, cardinality=None)] if how == "unknown" else [entry, entry]
    set_deletes(table.table, {table.files[0]: entries})
    if how == "unknown":  # the service counts it
        assert table.planned()[table.files[0]] == [1]
    else:
        assert "several deletion vectors" in refusal(table)


def test_pyiceberg_is_refused(table: DeleteTable, catalog: Catalog) -> None:
    """It applies every vector of a file, to the data files that its footer names; compaction helps."""
    table.delete({0: [1]})
    with pytest.raises(Exception, match="read an export"):
        catalog.load_table(table.name).scan().to_arrow()
    table.compact()
    assert catalog.load_table(table.name).scan().to_arrow().num_rows == 5
