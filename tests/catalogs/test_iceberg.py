"""Tables of Iceberg catalogs: a REST catalog of ours, pyiceberg's SQL catalog, Lamella's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.catalog
import pytest
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config

from catalogs.iceberg_rest import RestCatalog
from fixtures_server import start_shared
from lamella.client import Lamella
from lamella.client.catalogs.iceberg import IcebergCatalog
from lamella.client.catalogs.importing import ImportOptions, import_tables
from lamella.client.cli.app import cli
from lamella.snapshot.errors import InvalidRequest, StoreError
from lamella.snapshot.schema import Column

ROWS = pa.table({"a": pa.array(range(6), pa.int64()), "s": ["x", "y", None, "z", "x", "y"]})


@pytest.fixture
def source(tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog with tables in two namespaces, one of them with two levels."""
    made = SqlCatalog("own", uri=f"sqlite:///{tmp_path}/own.db", warehouse=f"file://{tmp_path}/source")
    for namespace, names in {"shop": ("items", "orders", "returns"), "shop.eu": ("items",)}.items():
        made.create_namespace(namespace)
        for name in names:
            made.create_table(f"{namespace}.{name}", schema=ROWS.schema).append(ROWS)
    yield made
    made.close()


@pytest.fixture
def rest(source: SqlCatalog) -> Iterator[RestCatalog]:
    """The same over REST."""
    served = RestCatalog(source)
    yield served
    served.close()


def actions(lake: Lamella, catalog: IcebergCatalog, *include: str, **options: Any) -> dict[str, str]:
    """Import; returns what was done, or the code of the refusal, by table."""
    found = import_tables(lake, catalog, include, (), ImportOptions(**options))
    return {each.source: each.code or each.action for each in found}


def test_a_rest_catalog_is_imported_and_followed(
    lake: Lamella, source: SqlCatalog, rest: RestCatalog, name: str
) -> None:
    """Pages of nested namespaces, a token; each import follows the catalog's pointer."""
    into = f"{name}_ice"
    base = ["import", "iceberg", rest.url, "--property", "token=secret", "--url", lake.url]
    done = CliRunner().invoke(cli, [*base, "shop", "--into", into, "-o", "json"])
    assert done.exit_code == 0, done.output
    found = {each["source"]: each["action"] for each in json.loads(done.stdout)["tables"]}
    assert found == dict.fromkeys(("shop.items", "shop.orders", "shop.returns"), "created")
    assert rest.tokens == {"Bearer secret"}
    assert "secret" not in json.dumps(dict(lake.table(f"{into}.items").info().properties))
    assert lake.table(f"{into}.orders").scan("a >= 4").to_arrow().num_rows == 2
    source.load_table("shop.orders").append(ROWS)
    source.drop_table("shop.returns")
    catalog = IcebergCatalog(rest.url)
    assert actions(lake, catalog, "shop", into=into) == {
        "shop.items": "unchanged",
        "shop.orders": "refreshed",
        "shop.returns": "missing",
    }
    assert lake.table(f"{into}.orders").info().row_count == 12
    # Two tables of one name cannot be in one namespace.
    nested = actions(lake, catalog, "shop*", into=into)
    assert nested["shop.eu.items"] == "already_exists"
    assert actions(lake, catalog, "shop.eu.*") == {"shop.eu.items": "created"}
    assert lake.table("shop.eu.items").info().row_count == 6


def test_a_catalog_of_pyicebergs_configuration_is_imported(
    lake: Lamella, source: SqlCatalog, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its name; tables that cannot be read have a reason."""
    assert source
    for member, value in (("TYPE", "sql"), ("URI", source.properties["uri"]), ("WAREHOUSE", "unused")):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__OWN__{member}", value)
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # it was read when the module was imported
    location = source.load_table("shop.items").metadata_location
    Path(location.removeprefix("file://")).write_text("{")
    found = actions(lake, IcebergCatalog("own"), "shop", into=f"{name}_sql")
    assert found == {"shop.items": "store_error", "shop.orders": "created", "shop.returns": "created"}
    with pytest.raises((InvalidRequest, StoreError)):
        IcebergCatalog("not_configured").databases()


def test_the_service_follows_a_catalog_that_it_knows(
    pytestconfig: pytest.Config, source: SqlCatalog, rest: RestCatalog, tmp_path: Path
) -> None:
    """Then a refresh needs no import."""
    settings = {
        "warehouse": tmp_path / "warehouse",
        "iceberg_catalogs": json.dumps({"prod": {"type": "rest", "uri": rest.url}}),
    }
    server = start_shared(pytestconfig, tmp_path, settings)
    try:
        with Lamella(server.url) as lake:
            catalog = IcebergCatalog(rest.url)
            assert actions(lake, catalog, "shop.orders", service_catalog="prod") == {"shop.orders": "created"}
            source.load_table("shop.orders").append(ROWS)
            assert lake.table("shop.orders").refresh().added == 1
            assert actions(lake, catalog, "shop.orders", service_catalog="prod") == {"shop.orders": "unchanged"}
    finally:
        server.stop()


def test_lamellas_own_tables_are_refused(lake: Lamella, name: str) -> None:
    """Their metadata is not in a file of Iceberg's; an export is."""
    lake.create_namespace(f"{name}_own")
    lake.create_table(f"{name}_own.t", schema=[Column(name="a", type="int64")])
    found = actions(lake, IcebergCatalog(f"{lake.url}/iceberg"), f"{name}_own", into=f"{name}_copy")
    assert found == {f"{name}_own.t": "invalid_request"}
    assert [*lake.tables(f"{name}_copy")] == []


def test_a_catalog_that_is_not_there_is_named() -> None:
    """With its address, and no credentials in it."""
    with pytest.raises(StoreError, match="the catalog cannot be read"):
        IcebergCatalog("http://127.0.0.1:1").databases()
    with pytest.raises(InvalidRequest, match="credentials"):
        IcebergCatalog("http://user:secret@127.0.0.1:1")
