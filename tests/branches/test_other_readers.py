"""Branches as others see them: Iceberg clients, grants, verification of a catalog."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from branches.conftest import rows
from fixtures_server import StartServer
from lamella.client import Lamella
from lamella.service.access.principal import Rights
from lamella.service.backup.check import verify_catalog
from lamella.service.catalog import open_catalog
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import Grant


def test_an_iceberg_client_loads_a_branch_by_its_name(start_server: StartServer, tmp_path: Path) -> None:
    """As a table of its own, whose metadata has no other branches; that of the table has the branch as a ref."""
    server = start_server(warehouse=tmp_path / "warehouse")
    with Lamella(server.url) as lake:
        table = lake.table("n.t")
        table.append({"x": [1, 2, 3]}, create=True)
        table.create_branch("audit")
        table.branch("audit").append({"x": [4]})
        table.append({"x": [9]})
        table.branch("audit").tag("four")
        table.tag("nine")
        catalog = load_catalog("lake", type="rest", uri=f"{server.url}/iceberg")
        found = catalog.load_table("n.t@audit").scan(row_filter="x > 1").to_arrow()
        assert sorted(found.column("x").to_pylist()) == [2, 3, 4]
        assert set(catalog.load_table("n.t").refs()) == {"main", "audit", "four", "nine"}
        assert set(catalog.load_table("n.t@audit").refs()) == {"main", "four"}
        assert catalog.list_tables("n") == [("n", "t")]
        with pytest.raises(NoSuchTableError):
            catalog.load_table("n.t@other")
        assert rows(table) == [1, 2, 3, 9]


@pytest.mark.parametrize("table", ["t@audit", "t@main", "t"])
def test_a_grant_on_a_table_holds_for_its_branches(table: str) -> None:
    """And one on another table does not."""
    rights = Rights([Grant(role="write", namespace="n", table="t")])
    assert rights.may("write", "n", table)
    assert not rights.may("maintain", "n", table)
    assert not Rights([Grant(role="write", namespace="n", table="u")]).may("read", "n", table)


def test_branches_are_verified_with_the_catalog(tmp_path: Path) -> None:
    """A file that only a branch has is missed."""
    with Lamella.embedded(tmp_path / "lake") as lake:
        table = lake.table("n.t")
        table.append({"x": [1]}, create=True)
        table.create_branch("audit")
        table.branch("audit").append({"x": [2]})
        (added,) = next(iter(table.branch("audit").changes("main"))).added
        (database,) = (tmp_path / "lake").glob("*.db")
    catalog = open_catalog(str(database))

    def verdicts() -> dict[str, bool]:
        url = f"file://{tmp_path / 'lake'}"
        found = verify_catalog(catalog, FsspecStore(), url, files=True, history=5, workers=1)
        return {each.table: each.is_clean for each in found}

    assert verdicts() == {"n.t": True, "n.t@audit": True}
    Path(added.location.removeprefix("file://")).unlink()
    assert verdicts() == {"n.t": True, "n.t@audit": False}
    catalog.close()
