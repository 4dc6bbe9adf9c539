"""Values of folders in plans: identity partitions, for the clients that read them as what they are."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg import expressions
from pyiceberg.catalog import Catalog

from lamella.client.http import Lamella
from lamella.snapshot.schema.evolution import DropColumn, RenameColumn
from support.folder_tables import COLUMNS, FolderTable, filled

e: Any = expressions
#: Each text of a folder, as Iceberg's specification writes the value in JSON.
_JSON: Final[dict[str, list[Any]]] = {
    "n": [1, -7, 2147483647, None],
    "big": [9007199254740993, 0, None],
    "s": ["a b", "Ã©/=", "zz", None],
    "d": ["2024-02-29", "1969-12-31", None],
    "at": ["2024-02-29T10:00:00.500000+00:00", "1960-01-01T00:00:00.000000+00:00"],
    "price": ["123456789012345678901234567890.12", "-0.05", None],
    "yes": [True, False],
    "x": [0.25, -1.5, 0.0, None],
}


def as_counter(rows: list[dict[str, Any]]) -> Counter[str]:
    """Rows without their order."""
    return Counter(repr(sorted(row.items())) for row in rows)


def posted(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request of a client without a name."""
    headers = {"Content-Type": "application/json"}
    query = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310  # an address of ours
    with urllib.request.urlopen(query) as answer:  # noqa: S310
        found: dict[str, Any] = json.load(answer)
    return found


def metadata_of(catalog_url: str, name: str) -> dict[str, Any]:
    """The metadata of a table."""
    namespace, _, table = name.partition(".")
    with urllib.request.urlopen(f"{catalog_url}/v1/namespaces/{namespace}/tables/{table}") as answer:  # noqa: S310
        found: dict[str, Any] = json.load(answer)["metadata"]
    return found


def plan(rest_url: str, name: str, **request: Any) -> list[dict[str, Any]]:
    """The data files of a plan."""
    namespace, _, table = name.partition(".")
    answer = posted(f"{rest_url}/iceberg/v1/namespaces/{namespace}/tables/{table}/plan", request)
    return [task["data-file"] for task in answer["file-scan-tasks"]]


@pytest.mark.parametrize("column", _JSON)
def test_each_value_has_its_form_in_a_plan(lake: Lamella, rest_url: str, tmp_path: Path, column: str) -> None:
    """One spec with the column, which the metadata lists; a file without the folder has the spec without fields."""
    table = FolderTable(lake, tmp_path, (column,))
    table.add(*({column: text} for text in COLUMNS[column][1]), {})
    metadata = metadata_of(f"{rest_url}/iceberg", table.name)
    empty, spec = metadata["partition-specs"]
    assert (empty, metadata["default-spec-id"]) == ({"spec-id": 0, "fields": []}, 0)
    field = {"source-id": 2, "field-id": 1002, "transform": "identity", "name": column}
    assert (spec["fields"], metadata["last-partition-id"]) == ([field], 1002)
    files = plan(rest_url, table.name)
    found = {(file["spec-id"], json.dumps(file["partition"])) for file in files}
    expected = {(spec["spec-id"], json.dumps([value])) for value in _JSON[column]}
    assert found == expected | {(0, "[]")}


def test_pyiceberg_reads_values_that_json_has(lake: Lamella, catalog: Catalog, tmp_path: Path) -> None:
    """Numbers, text and booleans, also null, with filters on them and on a file without folders."""
    columns = ("n", "big", "s", "yes")
    table = FolderTable(lake, tmp_path, columns)
    texts = [COLUMNS[name][1] for name in columns]
    table.add(*(dict(zip(columns, row, strict=False)) for row in zip(*texts, strict=False)), {}, {"n": "1"})
    rows, read = table.rows(), catalog.load_table(table.name)
    assert as_counter(read.scan().to_arrow().to_pylist()) == as_counter(rows)
    for filter, keeps in (
        (e.EqualTo("n", 1), lambda row: row["n"] == 1),
        (e.LessThan("big", 1), lambda row: row["big"] is not None and row["big"] < 1),
        (e.EqualTo("s", "Ã©/="), lambda row: row["s"] == "Ã©/="),
        (e.IsNull("s"), lambda row: row["s"] is None),
        (e.EqualTo("yes", True), lambda row: row["yes"] is True),
    ):
        wanted = [row for row in rows if keeps(row)]
        assert as_counter(read.scan(filter).to_arrow().to_pylist()) == as_counter(wanted), filter
        assert read.scan(filter).count() == len(wanted), filter


@pytest.mark.parametrize("column", ["d", "at", "price"])
def test_pyiceberg_is_refused_values_that_it_takes_for_text(
    lake: Lamella, catalog: Catalog, tmp_path: Path, column: str
) -> None:
    """It would find no row of a day, for instance; the error names the export."""
    table = FolderTable(lake, tmp_path, (column,))
    table.add({column: COLUMNS[column][1][0]})
    with pytest.raises(Exception, match="read an export"):
        catalog.load_table(table.name).scan().to_arrow()
    table.add({column: COLUMNS[column][1][1]})
    table.compact()
    assert as_counter(catalog.load_table(table.name).scan().to_arrow().to_pylist()) == as_counter(table.rows())


def test_a_value_without_a_form_in_json_is_refused(lake: Lamella, rest_url: str, tmp_path: Path) -> None:
    """Infinity has none; NaN and -0.0 are compared in another way."""
    for number, text in enumerate(("Infinity", "NaN", "-0.0")):
        root = tmp_path / str(number)
        root.mkdir()
        table = FolderTable(lake, root, ("x",))
        table.add({"x": text})
        with pytest.raises(urllib.error.HTTPError) as raised:
            plan(rest_url, table.name)
        assert "compact the table" in raised.value.read().decode()


def test_columns_may_be_renamed_and_dropped(lake: Lamella, catalog: Catalog, tmp_path: Path) -> None:
    """Specs have the columns of the current schema; a snapshot with constants in others cannot be read."""
    table = FolderTable(lake, tmp_path, ("n", "s"))
    table.add({"n": "1", "s": "x"}, {"n": "2", "s": "y"})
    table.table.evolve([RenameColumn(column="n", name="number")])
    read = catalog.load_table(table.name)
    assert as_counter(read.scan().to_arrow().to_pylist()) == as_counter(table.rows())
    assert read.scan(e.EqualTo("number", 2)).count() == 2
    assert read.scan(snapshot_id=2).to_arrow().num_rows == 4
    table.table.evolve([DropColumn(column="s")])
    read = catalog.load_table(table.name)
    assert as_counter(read.scan().to_arrow().to_pylist()) == as_counter(table.rows())
    with pytest.raises(Exception, match="constants in other columns"):
        read.scan(snapshot_id=2).to_arrow()


def test_a_table_with_many_sets_of_columns_is_refused(lake: Lamella, catalog: Catalog, tmp_path: Path) -> None:
    """Until it is compacted: its metadata would have to list each."""
    table = filled(lake, tmp_path, files=1)
    names = list(COLUMNS)
    sets = [{names[at]: COLUMNS[names[at]][1][0] for at in range(8) if number >> at & 1} for number in range(1, 18)]
    table.add(*sets)
    with pytest.raises(Exception, match="too many different sets"):
        catalog.load_table(table.name)
