"""Branches of Lamella's own tables, as Iceberg clients see them: refs, and ids of snapshots."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog, load_catalog

from branches.conftest import rows
from branches.test_random_commits import Model
from fixtures_server import ServerProcess, StartServer
from lamella.client import Lamella
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.iceberg.metadata import FIRST_OF_BRANCHES, branch_snapshot_id, ending_of
from lamella.snapshot.ids import uuid7
from lamella.snapshot.schema.evolution import AddColumn
from support.app_client import AppClient
from support.tenants import ROOT_KEY, ROOT_SHA256


@pytest.fixture
def server(start_server: StartServer, tmp_path: Path) -> ServerProcess:
    """A service."""
    return start_server(warehouse=tmp_path / "warehouse", catalog=tmp_path / "catalog.db")


@pytest.fixture
def served(server: ServerProcess) -> Iterator[Lamella]:
    """Its client."""
    with Lamella(server.url) as lake:
        yield lake


@pytest.fixture
def catalog(server: ServerProcess) -> Catalog:
    """pyiceberg's view of it."""
    return load_catalog("lake", type="rest", uri=f"{server.url}/iceberg")


def xs(catalog: Catalog, ref: str, filter: str = "true", table: str = "n.t") -> list[int]:
    """What pyiceberg reads of a branch or a tag."""
    found = catalog.load_table(table).scan(row_filter=filter).use_ref(ref).to_arrow()
    return sorted(found.column("x").to_pylist())


def test_branches_are_refs_of_the_table(served: Lamella, catalog: Catalog) -> None:
    """With their snapshots, parents and tags; a branch without commits is at a snapshot of the table."""
    table = served.table("n.t")
    table.append({"x": [1, 2, 3]}, create=True)
    table.create_branch("audit")
    table.create_branch("same")
    table.branch("audit").append({"x": [4]})
    table.branch("audit").append({"x": [5]})
    table.append({"x": [9]})
    table.branch("audit").tag("five")
    loaded = catalog.load_table("n.t")
    refs = loaded.refs()
    assert {name: str(ref.snapshot_ref_type) for name, ref in refs.items()} == {
        "main": "branch",
        "audit": "branch",
        "same": "branch",
        "five": "tag",
    }
    number = branch_snapshot_id(table.branch("audit").info().snapshot_id)
    assert (refs["main"].snapshot_id, refs["same"].snapshot_id) == (3, 2)
    assert refs["audit"].snapshot_id == refs["five"].snapshot_id == number
    parents = {each.snapshot_id: each.parent_snapshot_id for each in loaded.snapshots()}
    between = parents[number]
    assert between is not None
    assert parents == {1: None, 2: 1, 3: 2, between: 2, number: between}
    assert xs(catalog, "audit", "x > 1") == [2, 3, 4, 5]
    assert xs(catalog, "five") == rows(table, snapshot_id="audit") == [1, 2, 3, 4, 5]
    assert xs(catalog, "same") == [1, 2, 3]
    assert sorted(loaded.scan(snapshot_id=between).to_arrow()["x"].to_pylist()) == [1, 2, 3, 4]
    assert loaded.scan("x >= 4").use_ref("audit").count() == 2
    only_refs = httpx2.get(f"{served.url}/iceberg/v1/namespaces/n/tables/t?snapshots=refs").json()["metadata"]
    assert {each["snapshot-id"] for each in only_refs["snapshots"]} == {2, 3, number}


def test_an_id_stands_for_one_snapshot_for_good(served: Lamella, catalog: Catalog) -> None:
    """Also after a fast-forward, in a branch of the branch, after a name was given again, and after a drop."""
    table = served.table("n.t")
    table.append({"x": [1]}, create=True)
    table.create_branch("audit")
    table.branch("audit").append({"x": [2]})
    first = catalog.load_table("n.t").refs()["audit"].snapshot_id
    table.create_branch("second", "audit")
    assert catalog.load_table("n.t").refs()["second"].snapshot_id == first
    table.fast_forward("audit")
    assert catalog.load_table("n.t").refs()["main"].snapshot_id == 3
    assert catalog.load_table("n.t").refs()["audit"].snapshot_id == first
    table.create_branch("audit", "2", replace=True)
    table.branch("audit").append({"x": [7]})
    assert xs(catalog, "audit") == [1, 7]
    table.drop_branch("second")
    plan = httpx2.post(f"{served.url}/iceberg/v1/namespaces/n/tables/t/plan", json={"snapshot-id": first})
    assert sum(each["data-file"]["record-count"] for each in plan.json()["file-scan-tasks"]) == 2


def test_ranges_of_snapshots_are_planned_in_a_branch(served: Lamella) -> None:
    """From a snapshot of the table or of the branch on; not from one branch to another."""
    table = served.table("n.t")
    table.append({"x": [1]}, create=True)
    for name in ("audit", "other"):
        table.create_branch(name)
        for x in (2, 3):
            table.branch(name).append({"x": [x]})
    path = f"{served.url}/iceberg/v1/namespaces/n/tables/t/plan"
    one, two = (
        [branch_snapshot_id(each.snapshot_id) for each in table.branch(name).snapshots()][:2]
        for name in ("audit", "other")
    )

    def planned(start: int, end: int) -> Any:
        answer = httpx2.post(path, json={"start-snapshot-id": start, "end-snapshot-id": end})
        return len(answer.json()["file-scan-tasks"]) if answer.status_code == 200 else answer.json()["error"]["message"]

    assert planned(2, one[0]) == 2
    assert planned(one[1], one[0]) == 1
    assert "of another branch" in planned(two[1], one[0])
    assert "is a later snapshot" in planned(one[0], one[1])


def test_deleted_rows_and_columns_of_a_branch_are_described(served: Lamella) -> None:
    """The metadata has the version of deletion vectors if a branch has some, and branches follow with their columns."""
    table = served.table("n.t")
    table.append({"x": [1, 2, 3, 4, 5, 6, 7, 8, 9]}, create=True)
    table.create_branch("audit")
    table.branch("audit").delete("x = 3", mode="merge-on-read")
    path = f"{served.url}/iceberg/v1/namespaces/n/tables/t"
    metadata = httpx2.get(path).json()["metadata"]
    assert metadata["format-version"] == 3
    number = metadata["refs"]["audit"]["snapshot-id"]
    plan = httpx2.post(f"{path}/plan", json={"snapshot-id": number}).json()
    assert len(plan["delete-files"]) == 1
    assert "delete-files" not in httpx2.post(f"{path}/plan", json={}).json()
    table.evolve([AddColumn(name="y", type="int64")])
    metadata = httpx2.get(path).json()["metadata"]
    schemas = {each["snapshot-id"]: each["schema-id"] for each in metadata["snapshots"]}
    assert schemas[number] != metadata["current-schema-id"]
    assert {each["schema-id"] for each in metadata["schemas"]} == set(schemas.values())
    filter = {"type": "is-null", "term": "y"}
    plan = httpx2.post(f"{path}/plan", json={"snapshot-id": number, "filter": filter}).json()
    assert len(plan["file-scan-tasks"]) == 1


def test_ids_of_branches_open_no_other_table(tmp_path: Path) -> None:
    """A key reads snapshots of branches of the tables that it may read, and finds no others by their ids."""
    settings = Settings(warehouse=str(tmp_path / "warehouse"), auth=True, root_key_sha256=ROOT_SHA256)
    with AppClient(create_app(settings)) as app:
        root = {"Authorization": f"Bearer {ROOT_KEY}"}
        app.post("/v1/namespaces", json={"name": "n"}, headers=root)
        numbers = {}
        for name in ("a", "b"):
            body = {"name": name, "schema": [{"name": "x", "type": "int64"}]}
            app.post("/v1/namespaces/n/tables", json=body, headers=root)
            app.post(f"/v1/namespaces/n/tables/{name}/branches", json={"name": "audit"}, headers=root)
            change = {"properties": {"owner": name}}
            done = app.post(f"/v1/namespaces/n/tables/{name}@audit/commits", json=change, headers=root)
            assert done.status_code == 200, done.text
            numbers[name] = branch_snapshot_id(done.json()["snapshot_id"])
        grants = [{"role": "read", "namespace": "n", "table": "a"}]
        key = app.post("/v1/keys", json={"name": "reader", "grants": grants}, headers=root).json()["key"]

        def status(table: str, number: int) -> int:
            body, headers = {"snapshot-id": number}, {"Authorization": f"Bearer {key}"}
            path = f"/iceberg/v1/namespaces/n/tables/{table}/plan"
            return int(app.post(path, json=body, headers=headers).status_code)

        assert status("a", numbers["a"]) == 200
        assert status("a", numbers["b"]) == 400
        assert status("b", numbers["b"]) in (403, 404)


@given(at_ms=st.integers(0, (1 << 48) - 1), entropy=st.binary(min_size=10, max_size=10))
def test_an_iceberg_id_says_how_the_id_ends(at_ms: int, entropy: bytes) -> None:
    """It is above all numbers, fits into 63 bits, and the rest of the snapshot's id is its time."""
    snapshot_id = str(uuid7(at_ms, entropy))
    number = branch_snapshot_id(snapshot_id)
    assert FIRST_OF_BRANCHES <= number < 1 << 63
    assert snapshot_id.endswith(ending_of(number))


def test_clients_read_what_random_commits_left(served: Lamella, catalog: Catalog) -> None:
    """Each branch by its name, and each snapshot that any client ever saw by its id: that has its rows, or is gone."""
    done: Counter[str] = Counter()
    seen = 0
    for seed in range(2):
        table = served.table(f"n.t{seed}")
        table.append({"x": [100], "y": [100]}, create=True)
        table.delete("x = 100")
        model = Model(table, random.Random(seed), modes=("copy-on-write",))
        remembered: dict[int, list[tuple[int, int]]] = {}
        for number in range(30):
            model.step()
            if number % 3:
                continue
            loaded = catalog.load_table(f"n.t{seed}")
            refs = loaded.refs()
            assert {name for name, ref in refs.items() if str(ref.snapshot_ref_type) == "branch"} == model.heads.keys()
            for name, expected in model.heads.items():
                wanted = sorted((row.x, row.y) for row in expected)
                assert _pairs(loaded.scan().use_ref(name).to_arrow()) == wanted, name
                low = model.rng.randrange(40)
                some = [pair for pair in wanted if pair[0] >= low]
                assert _pairs(loaded.scan(f"x >= {low}").use_ref(name).to_arrow()) == some, name
                assert remembered.setdefault(refs[name].snapshot_id, wanted) == wanted
            listed = {each.snapshot_id for each in loaded.snapshots()}
            for each in sorted(listed & remembered.keys()):
                assert _pairs(loaded.scan(snapshot_id=each).to_arrow()) == remembered[each]
                seen += each >= FIRST_OF_BRANCHES
        done += model.done
    assert min(done[kind] for kind in ("branch", "forwarded", "picked")) > 0, done
    assert seen > 0


def _pairs(found: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(found.column("x").to_pylist(), found.column("y").to_pylist(), strict=True))
