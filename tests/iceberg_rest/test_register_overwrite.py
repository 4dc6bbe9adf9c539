"""A client registers a metadata file under the name of an existing table: the table gets that metadata."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lamella.client.http import Lamella

ROWS = pa.table({"id": pa.array(range(10), pa.int64())})


@pytest.fixture
def namespace(catalog: Catalog) -> str:
    """A namespace."""
    name = f"o{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(name)
    return name


def register(rest_url: str, namespace: str, name: str, location: str, *, overwrite: bool = True) -> httpx2.Response:
    """The answer, whatever it is."""
    body: dict[str, Any] = {"name": name, "metadata-location": location, "overwrite": overwrite}
    return httpx2.post(f"{rest_url}/iceberg/v1/namespaces/{namespace}/register", json=body, timeout=60)


def counts(lake: Lamella, catalog: Catalog, name: str) -> tuple[int, int]:
    """The rows that Lamella and pyiceberg read."""
    return lake.table(name).scan().to_arrow().num_rows, catalog.load_table(name).scan().to_arrow().num_rows


def test_an_existing_table_gets_the_metadata_of_the_file(
    rest_url: str, lake: Lamella, catalog: Catalog, namespace: str
) -> None:
    """An older or a newer one; it keeps its id and history, and takes commits as before."""
    name = f"{namespace}.t"
    table: Table = catalog.create_table(name, schema=ROWS.schema)
    locations = [table.metadata_location]
    for _ in range(3):
        table.append(ROWS)
        locations.append(table.metadata_location)
    before = lake.table(name).info()
    made = register(rest_url, namespace, "t", locations[1])
    assert (made.status_code, made.json()["metadata-location"]) == (200, locations[1])
    assert counts(lake, catalog, name) == (10, 10)
    assert lake.table(name).info().table_id == before.table_id
    assert [each.operation for each in lake.table(name).snapshots()][:2] == ["register", "append"]
    assert register(rest_url, namespace, "t", locations[1]).status_code == 200
    assert len(list(lake.table(name).snapshots())) == 5
    catalog.load_table(name).append(ROWS)
    assert counts(lake, catalog, name) == (20, 20)
    assert register(rest_url, namespace, "t", locations[3]).status_code == 200
    assert counts(lake, catalog, name) == (30, 30)
    assert register(rest_url, namespace, "t", locations[0]).status_code == 200
    assert counts(lake, catalog, name) == (0, 0)
    refused = register(rest_url, namespace, "t", locations[2], overwrite=False)
    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "AlreadyExistsException")


def test_changes_of_lamellas_writers_are_overwritten_as_well(
    rest_url: str, lake: Lamella, catalog: Catalog, namespace: str
) -> None:
    """Also those that no client has loaded yet."""
    name = f"{namespace}.t"
    table = catalog.create_table(name, schema=ROWS.schema)
    table.append(ROWS)
    lake.table(name).append(ROWS)
    assert register(rest_url, namespace, "t", table.metadata_location).status_code == 200
    assert counts(lake, catalog, name) == (10, 10)


def test_a_table_is_created_if_there_is_none(
    rest_url: str, lake: Lamella, catalog: Catalog, namespace: str, tmp_path: Path
) -> None:
    """As without the option."""
    table = catalog.create_table(f"{namespace}.t", schema=ROWS.schema, location=f"file://{tmp_path}/t")
    table.append(ROWS)
    catalog.drop_table(f"{namespace}.t")
    assert register(rest_url, namespace, "again", table.metadata_location).status_code == 200
    assert counts(lake, catalog, f"{namespace}.again") == (10, 10)


def test_metadata_of_another_table_is_refused(
    rest_url: str, lake: Lamella, catalog: Catalog, namespace: str, tmp_path: Path
) -> None:
    """And so is a table that Lamella's interfaces made, and a file that is not there; nothing changes."""
    table, other = (catalog.create_table(f"{namespace}.{each}", schema=ROWS.schema) for each in ("t", "other"))
    table.append(ROWS)
    refused = register(rest_url, namespace, "t", other.metadata_location)
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "BadRequestException")
    assert "another table" in refused.json()["error"]["message"]
    assert register(rest_url, namespace, "t", f"file://{tmp_path}/none.metadata.json").status_code == 404
    pq.write_table(ROWS, tmp_path / "a.parquet")
    lake.create_table(f"{namespace}.own", schema_from=str(tmp_path / "a.parquet"))
    assert register(rest_url, namespace, "own", table.metadata_location).status_code == 406
    assert counts(lake, catalog, f"{namespace}.t") == (10, 10)
