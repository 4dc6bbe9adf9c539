"""The warehouse `exports`: clients that plan scans themselves find the last export of each table."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from lamella.client.http import Lamella
from lamella.client.iceberg.export import export_iceberg
from lamella.snapshot.storage import FsspecStore
from support.folder_tables import filled
from support.iceberg_tables import IcebergTable, ids

_ROOT: Final = "/iceberg/v1/exports"


@pytest.fixture
def exports(rest_url: str) -> Catalog:
    """pyiceberg's view of the exports; it gets the prefix from the service."""
    return load_catalog("exports", type="rest", uri=f"{rest_url}/iceberg", warehouse="exports")


def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, Any, dict[str, str]]:
    """Status, JSON and headers of an answer."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers)) as answer:  # noqa: S310
            text = answer.read()
            return answer.status, json.loads(text) if text else None, dict(answer.headers)
    except urllib.error.HTTPError as error:
        text = error.read()
        return error.code, json.loads(text) if text else None, dict(error.headers)


def test_a_client_plans_the_scan_of_the_exported_snapshot(
    exports: Catalog, catalog: Catalog, lake: Lamella, tmp_path: Path
) -> None:
    """It sees what the last export saw; the service's own plans see rows that came later."""
    made = IcebergTable(lake, tmp_path)
    name = f"ice.{made.name}"
    export_iceberg(lake, name, FsspecStore())
    assert (("ice", made.name)) in exports.list_tables("ice")
    assert ids(exports.load_table(name).scan().to_arrow()) == ids(made.rows)
    assert ids(exports.load_table(name).scan("id < 10").to_arrow()) == list(range(10))
    made.table.append(made.rows.slice(0, 1))
    assert len(exports.load_table(name).scan().to_arrow()) == made.rows.num_rows
    assert len(catalog.load_table(name).scan().to_arrow()) == made.rows.num_rows + 1
    export_iceberg(lake, name, FsspecStore())
    assert len(exports.load_table(name).scan().to_arrow()) == made.rows.num_rows + 1


def test_values_of_folders_and_deleted_rows(exports: Catalog, lake: Lamella, tmp_path: Path) -> None:
    """Which pyiceberg reads in exports only."""
    table = filled(lake, tmp_path)
    table.delete({0: [0], 3: [1], 4: [0]})
    table.export()
    found = exports.load_table(table.name).scan().to_arrow()
    truth = pa.Table.from_pylist(table.rows(), found.schema)
    assert found.sort_by("id") == truth.sort_by("id")


def test_every_endpoint_that_is_named_is_there(rest_url: str, lake: Lamella, tmp_path: Path) -> None:
    """And no plans; the metadata is that of the file, which clients may keep by its tag."""
    made = IcebergTable(lake, tmp_path)
    _, config, _ = ask(f"{rest_url}/iceberg/v1/config?warehouse=exports")
    assert config["overrides"] == {"prefix": "exports"}
    url = f"{rest_url}{_ROOT}/namespaces/ice/tables"
    status, body, _ = ask(f"{url}/{made.name}")
    assert (status, body["error"]["type"]) == (406, "UnsupportedOperationException")
    assert f"lamella export iceberg ice.{made.name}" in body["error"]["message"]
    status, body, _ = ask(f"{url}/nope")
    assert (status, body["error"]["type"]) == (404, "NoSuchTableException")
    done = export_iceberg(lake, f"ice.{made.name}", FsspecStore())
    for endpoint in config["endpoints"]:
        method, path = endpoint.split(" ")
        path = path.replace("/v1/{prefix}", _ROOT).format(namespace="ice", table=made.name)
        assert ask(rest_url + path, method)[0] in (200, 204), endpoint
    _, body, headers = ask(f"{url}/{made.name}")
    assert body["metadata-location"] == done.metadata_location
    assert body["metadata"] == json.loads(FsspecStore().read(done.metadata_location))
    assert body["config"] == {"s3.region": "eu-central-1"}
    assert ask(f"{url}/{made.name}", **{"If-None-Match": headers["etag"]})[0] == 304
