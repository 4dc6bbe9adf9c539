"""Iceberg tables of a catalog that speaks Iceberg's REST protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table as IcebergTable

from catalogs.iceberg_rest import RestCatalog
from fixtures_server import start_shared
from lamella.client import Lamella
from lamella.snapshot.errors import ObjectNotFound
from support.sources import same_as

ROWS = pa.table({"a": pa.array(range(6), pa.int64()), "s": ["x", "y", None, "z", "x", "y"]})


@pytest.fixture
def source(tmp_path: Path) -> IcebergTable:
    """A table."""
    own = SqlCatalog("own", uri=f"sqlite:///{tmp_path}/own.db", warehouse=f"file://{tmp_path}/source")
    own.create_namespace("n")
    made = own.create_table("n.t", schema=ROWS.schema)
    made.append(ROWS)
    return made


@pytest.fixture
def served(source: IcebergTable) -> Iterator[RestCatalog]:
    """Its catalog."""
    catalog = RestCatalog(source.catalog)
    yield catalog
    catalog.close()


def test_a_rest_catalog_says_which_metadata_is_the_current_one(
    source: IcebergTable, served: RestCatalog, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """With pyiceberg's properties of it, a token among them; a table that it does not have is not there."""
    catalogs = {"rest": {"type": "rest", "uri": served.url, "token": "secret"}}
    settings = {"warehouse": tmp_path / "warehouse", "iceberg_catalogs": json.dumps(catalogs)}
    server = start_shared(pytestconfig, tmp_path, settings)
    try:
        with Lamella(server.url) as lake:
            lake.create_namespace("x")
            lake.create_external("x.t", {"kind": "iceberg", "catalog": "rest", "table": "n.t"})
            table = lake.table("x.t")
            assert table.refresh().added == 1
            same_as(table, source.scan().to_arrow())
            source.append(ROWS)
            assert table.refresh().added == 1
            same_as(table, source.scan().to_arrow())
            assert served.tokens == {"Bearer secret"}
            with pytest.raises(ObjectNotFound):
                lake.create_external("x.u", {"kind": "iceberg", "catalog": "rest", "table": "n.u"})
    finally:
        server.stop()
