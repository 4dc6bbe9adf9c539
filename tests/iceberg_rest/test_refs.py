"""Branches and tags of Iceberg clients, read by Lamella."""

from __future__ import annotations

import random
import threading
import uuid
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, RESTError
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.types import IntegerType, LongType, NestedField

from fixtures_server import StartServer
from lamella.client.http import Lamella
from lamella.snapshot.errors import BranchNotFound, InvalidRequest, ReaderFeatureMissing, SnapshotNotFound


def rows_of(*ids: int) -> pa.Table:
    """Rows with these ids."""
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{each}" for each in ids]})


@pytest.fixture
def orders(catalog: Catalog) -> Table:
    """A table that a client made, with two rows."""
    namespace = f"r{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(namespace)
    table = catalog.create_table(f"{namespace}.orders", schema=rows_of(1).schema)
    table.append(rows_of(1, 2))
    return table


def ids_of(lake: Lamella, name: str, filter: str | None = None, *, snapshot_id: str | None = None) -> list[int]:
    """The ids that Lamella reads."""
    found = lake.table(name).scan(filter, snapshot_id=snapshot_id).to_arrow()
    return sorted(found["id"].to_pylist())


def on_branch(table: Table, branch: str = "audit") -> Table:
    """The table with a branch at its current snapshot."""
    current = table.refresh().current_snapshot()
    assert current is not None
    table.manage_snapshots().create_branch(current.snapshot_id, branch).commit()
    return table


def test_lamella_reads_the_branches_of_a_client(lake: Lamella, orders: Table) -> None:
    """By the name of the branch, as a snapshot, and pruned; the list says where it comes from."""
    name = ".".join(orders.name())
    on_branch(orders)
    assert ids_of(lake, f"{name}@audit") == [1, 2]
    orders.append(rows_of(7), branch="audit")
    assert ids_of(lake, name) == [1, 2]
    assert ids_of(lake, f"{name}@audit") == [1, 2, 7]
    assert ids_of(lake, name, snapshot_id="audit") == [1, 2, 7]
    assert ids_of(lake, f"{name}@audit", "id > 2") == [7]
    assert len(lake.table(f"{name}@audit").prune("id > 2").blocks) == 1
    orders.delete("id = 1", branch="audit")
    orders.append(rows_of(3))
    assert ids_of(lake, f"{name}@audit") == [2, 7]
    assert ids_of(lake, name) == [1, 2, 3]
    main, audit = lake.table(name).branches()
    assert (main.name, main.iceberg_snapshot_id) == ("main", None)
    ref = orders.refresh().refs()["audit"]
    assert (audit.name, audit.iceberg_snapshot_id, audit.row_count) == ("audit", str(ref.snapshot_id), 2)
    operations = [each.operation for each in lake.table(f"{name}@audit").snapshots()]
    assert operations == ["overwrite", "append", "update", "append", "create"]


def test_a_branch_that_continues_nothing_has_its_own_rows_only(lake: Lamella, orders: Table) -> None:
    """As the first commit of pyiceberg to a branch does that does not exist."""
    name = ".".join(orders.name())
    orders.append(rows_of(7), branch="alone")
    orders.append(rows_of(8), branch="alone")
    assert (ids_of(lake, f"{name}@alone"), ids_of(lake, name)) == ([7, 8], [1, 2])


def test_a_client_moves_and_drops_branches(lake: Lamella, orders: Table) -> None:
    """A fast-forward of main, a branch that is moved back, and one that is dropped, seen by Lamella at once."""
    name = ".".join(orders.name())
    on_branch(orders)
    orders.append(rows_of(3), branch="audit")
    then = orders.refs()["audit"].snapshot_id
    orders.append(rows_of(4), branch="audit")
    orders.manage_snapshots().set_current_snapshot(ref_name="audit").commit()
    assert ids_of(lake, name) == ids_of(lake, f"{name}@audit") == [1, 2, 3, 4]
    orders.append(rows_of(5))
    orders.manage_snapshots().remove_branch("audit").commit()
    with pytest.raises(BranchNotFound):
        ids_of(lake, f"{name}@audit")
    assert [each.name for each in lake.table(name).branches()] == ["main"]
    orders.manage_snapshots().create_branch(then, "audit").commit()
    assert ids_of(lake, f"{name}@audit") == [1, 2, 3]
    assert ids_of(lake, name) == [1, 2, 3, 4, 5]


def test_lamella_reads_the_tags_of_a_client(lake: Lamella, orders: Table) -> None:
    """Of the table and of a branch, also while they move; a tag of Lamella with that name stays what it was."""
    name = ".".join(orders.name())
    table = lake.table(name)
    table.tag("mine")
    first = orders.current_snapshot()
    assert first is not None
    on_branch(orders)
    orders.append(rows_of(3), branch="audit")
    orders.append(rows_of(4))
    second = orders.current_snapshot()
    assert second is not None
    orders.manage_snapshots().create_tag(first.snapshot_id, "v1").create_tag(
        orders.refs()["audit"].snapshot_id, "checked"
    ).create_tag(second.snapshot_id, "mine").commit()
    assert ids_of(lake, name, snapshot_id="v1") == [1, 2]
    assert ids_of(lake, name, snapshot_id="checked") == [1, 2, 3]
    assert ids_of(lake, name, snapshot_id="mine") == [1, 2]
    assert sorted(each.name for each in table.tags()) == ["checked", "mine", "v1"]
    orders.manage_snapshots().remove_tag("v1").commit()
    orders.manage_snapshots().create_tag(second.snapshot_id, "v1").commit()
    assert ids_of(lake, name, snapshot_id="v1") == [1, 2, 4]
    orders.manage_snapshots().remove_tag("checked").remove_tag("mine").commit()
    with pytest.raises(SnapshotNotFound):
        ids_of(lake, name, snapshot_id="checked")
    assert ids_of(lake, name, snapshot_id="mine") == [1, 2]


def test_the_name_of_a_tag_can_become_that_of_a_branch(lake: Lamella, orders: Table) -> None:
    """In one commit of a client."""
    name = ".".join(orders.name())
    current = orders.current_snapshot()
    assert current is not None
    orders.manage_snapshots().create_tag(current.snapshot_id, "x").commit()
    assert [each.name for each in lake.table(name).tags()] == ["x"]
    orders.manage_snapshots().remove_tag("x").create_branch(current.snapshot_id, "x").commit()
    assert (lake.table(name).tags(), ids_of(lake, f"{name}@x")) == ((), [1, 2])
    orders.manage_snapshots().remove_branch("x").create_tag(current.snapshot_id, "x").commit()
    assert [each.name for each in lake.table(name).branches()] == ["main"]
    assert ids_of(lake, name, snapshot_id="x") == [1, 2]


def test_refs_whose_names_lamella_has_not_are_for_clients(lake: Lamella, catalog: Catalog, orders: Table) -> None:
    """The commit is made; a branch of Lamella's own name stays as it is."""
    name = ".".join(orders.name())
    current = orders.current_snapshot()
    assert current is not None
    lake.table(name).tag("taken")
    manage = orders.manage_snapshots()
    for each in ("a/b", "2024", "taken", "x" * 200):
        manage = manage.create_branch(current.snapshot_id, each)
    manage.commit()
    orders.append(rows_of(3), branch="a/b")
    assert [each.name for each in lake.table(name).branches()] == ["main"]
    loaded = catalog.load_table(name)
    assert sorted(loaded.scan().use_ref("a/b").to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert ids_of(lake, name, snapshot_id="taken") == [1, 2]


def test_the_service_plans_scans_of_branches(rest_url: str, catalog: Catalog, lake: Lamella, orders: Table) -> None:
    """By the statistics of the branch, also of its earlier snapshots."""
    name = ".".join(orders.name())
    on_branch(orders)
    orders.append(rows_of(10, 11), branch="audit")
    then = orders.refs()["audit"].snapshot_id
    orders.append(rows_of(20, 21), branch="audit")
    orders.append(rows_of(30))
    path = f"{rest_url}/iceberg/v1/namespaces/{orders.name()[0]}/tables/orders/plan"
    filter = {"type": "gt-eq", "term": "id", "value": 10}

    def planned(number: int) -> list[Any]:
        answer = httpx2.post(path, json={"filter": filter, "snapshot-id": number})
        assert answer.status_code == 200, answer.text
        return [each["residual-filter"] for each in answer.json()["file-scan-tasks"]]

    assert planned(orders.refs()["audit"].snapshot_id) == [True, True]
    assert planned(then) == [True]
    assert planned(orders.refs()["main"].snapshot_id) == [True]
    loaded = catalog.load_table(name)
    assert loaded.scan("id >= 10").use_ref("audit").to_arrow()["id"].to_pylist() == [10, 11, 20, 21]
    lake.table(f"{name}@audit").create_index("by_name", "bloom", "name")
    assert loaded.scan("name = 'n20'").use_ref("audit").to_arrow()["id"].to_pylist() == [20]


def test_lamella_leaves_the_branches_of_clients_to_them(lake: Lamella, catalog: Catalog, orders: Table) -> None:
    """It writes, moves, creates and drops none, and says why; clients name the table."""
    name = ".".join(orders.name())
    on_branch(orders)
    table, audit = lake.table(name), lake.table(f"{name}@audit")
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: audit.append(rows_of(1)), "branch of an Iceberg table"),
        (lambda: audit.delete("id = 1"), "branch of an Iceberg table"),
        (lambda: table.create_branch("other"), "table of Iceberg clients"),
        (lambda: table.fast_forward("audit"), "table of Iceberg clients"),
        (lambda: table.cherry_pick("audit"), "table of Iceberg clients"),
        (lambda: table.drop_branch("audit"), "move or drop it by an Iceberg client"),
    ]
    for write, why in refused:
        with pytest.raises(InvalidRequest, match=why):
            write()
    with pytest.raises(RESTError, match="load that table, and use its branch"):
        catalog.load_table(f"{name}@audit")
    assert ids_of(lake, f"{name}@audit") == [1, 2]


def test_a_branch_that_lamella_cannot_read_says_why(
    lake: Lamella, catalog: Catalog, orders: Table, tmp_path: Path
) -> None:
    """The table is read as before, and so is the branch when its files can be read again."""
    name = ".".join(orders.name())
    on_branch(orders)
    lost = tmp_path / "lost.parquet"
    pq.write_table(rows_of(9), lost)
    transaction = orders.transaction()
    transaction.add_files([f"file://{lost}"], branch="audit")
    hidden = lost.rename(tmp_path / "hidden")
    transaction.commit_transaction()
    with pytest.raises(ReaderFeatureMissing, match="unread"):
        ids_of(lake, f"{name}@audit")
    assert "lost.parquet" in lake.table(f"{name}@audit").info().properties["lamella.source.unread"]
    assert ids_of(lake, name) == [1, 2]
    assert len(list(catalog.load_table(name).scan().use_ref("audit").plan_files())) == 2
    hidden.rename(lost)
    lake.table(f"{name}@audit").refresh()
    assert ids_of(lake, f"{name}@audit") == [1, 2, 9]
    orders.append(rows_of(10), branch="audit")
    assert ids_of(lake, f"{name}@audit") == [1, 2, 9, 10]


def test_branches_come_with_a_registered_table(lake: Lamella, catalog: Catalog, tmp_path: Path) -> None:
    """All of its metadata file, and all of another one that takes its place."""
    other = SqlCatalog("other", uri=f"sqlite:///{tmp_path}/other.db", warehouse=f"file://{tmp_path}/old")
    other.create_namespace("o")
    old = other.create_table("o.t", schema=rows_of(1).schema)
    old.append(rows_of(1))
    on_branch(old)
    old.append(rows_of(2), branch="audit")
    name = f"r{uuid.uuid4().hex[:8]}.t"
    catalog.create_namespace(name.partition(".")[0])
    catalog.register_table(name, old.metadata_location)
    assert (ids_of(lake, name), ids_of(lake, f"{name}@audit")) == ([1], [1, 2])
    old.append(rows_of(3), branch="audit")
    on_branch(old, "second")
    path = f"/iceberg/v1/namespaces/{name.partition('.')[0]}/register"
    body = {"name": "t", "metadata-location": old.metadata_location, "overwrite": True}
    assert httpx2.post(f"{lake.url}{path}", json=body).status_code == 200
    assert ids_of(lake, f"{name}@audit") == [1, 2, 3]
    assert ids_of(lake, f"{name}@second") == [1]


def test_columns_reach_branches_with_the_table(lake: Lamella, orders: Table) -> None:
    """A branch has the columns of its table, as in Spark, with one history of columns for all."""
    name = ".".join(orders.name())
    on_branch(orders)
    orders.append(rows_of(3), branch="audit")
    with orders.update_schema() as schema:
        schema.add_column("more", LongType())
        schema.rename_column("name", "label")
    more = pa.table({"id": pa.array([4], pa.int64()), "label": ["x"], "more": pa.array([40], pa.int64())})
    orders.append(more, branch="audit")
    found = lake.table(f"{name}@audit").scan("id >= 3").to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": 3, "label": "n3", "more": None}, {"id": 4, "label": "x", "more": 40}]
    first = orders.snapshots()[0].snapshot_id
    orders.manage_snapshots().create_branch(first, "late").commit()
    orders.append(more, branch="late")
    assert sorted(lake.table(f"{name}@late").scan().to_arrow()["id"].to_pylist()) == [1, 2, 4]
    schemas = {each: lake.table(each).info().schema for each in (name, f"{name}@audit", f"{name}@late")}
    assert len(set(map(repr, schemas.values()))) == 1


def test_a_transaction_moves_branches_of_several_tables(lake: Lamella, catalog: Catalog, orders: Table) -> None:
    """All of them, or none."""
    namespace = orders.name()[0]
    second = catalog.create_table(f"{namespace}.second", schema=rows_of(1).schema)
    second.append(rows_of(5))
    second_id = second.refs()["main"].snapshot_id

    def change(name: str, number: int, ref: str) -> dict[str, Any]:
        update = {"action": "set-snapshot-ref", "ref-name": ref, "type": "branch", "snapshot-id": number}
        return {"identifier": {"namespace": [namespace], "name": name}, "requirements": [], "updates": [update]}

    path = f"{lake.url}/iceberg/v1/transactions/commit"
    first_id = orders.refs()["main"].snapshot_id
    bad = httpx2.post(path, json={"table-changes": [change("orders", first_id, "b"), change("second", 1, "b")]})
    assert bad.status_code == 400
    assert [each.name for each in lake.table(f"{namespace}.orders").branches()] == ["main"]
    both = [change("orders", first_id, "b"), change("second", second_id, "b")]
    assert httpx2.post(path, json={"table-changes": both}).status_code == 204
    assert ids_of(lake, f"{namespace}.orders@b") == [1, 2]
    assert ids_of(lake, f"{namespace}.second@b") == [5]


def test_a_vacuum_knows_the_heads_of_clients(start_server: StartServer, tmp_path: Path) -> None:
    """Blocks that Lamella wrote and replaced stay while a branch in the metadata has them, and go with it; the metadata
    files of old commits are not needed."""
    server = start_server(
        warehouse=tmp_path / "warehouse",
        catalog=tmp_path / "catalog.db",
        vacuum_min_age_s=0,
        drop_grace_s=0,
        retention_max_age_s=0,
        retention_min_snapshots=1,
    )
    catalog = load_catalog("lake", type="rest", uri=f"{server.url}/iceberg")
    catalog.create_namespace("n")
    orders = catalog.create_table("n.orders", schema=rows_of(1).schema)
    orders.append(rows_of(1, 2))
    with Lamella(server.url) as lake:
        table, audit = lake.table("n.orders"), lake.table("n.orders@audit")
        table.append(rows_of(3))
        written = Path(next(iter(table.prune("id = 3").blocks)).location.removeprefix("file://"))
        orders = on_branch(catalog.load_table("n.orders"))
        table.delete("id = 3")
        orders.refresh().append(rows_of(4))
        orders.append(rows_of(5), branch="audit")
        Path(audit.info().properties["lamella.source.location"].removeprefix("file://")).unlink()
        orders.append(rows_of(6))
        table.vacuum(older_than="0s", execute=True)
        assert written.exists()
        assert ids_of(lake, "n.orders@audit") == [1, 2, 3, 5]
        orders.append(rows_of(7), branch="audit")
        assert ids_of(lake, "n.orders@audit") == [1, 2, 3, 5, 7]
        by_manifests = StaticTable.from_metadata(orders.metadata_location).scan().use_ref("audit")
        assert sorted(by_manifests.to_arrow()["id"].to_pylist()) == [1, 2, 3, 5, 7]
        orders.manage_snapshots().remove_branch("audit").commit()
        current = {each.snapshot_id for each in orders.refs().values()}
        old = [each.snapshot_id for each in orders.snapshots() if each.snapshot_id not in current]
        orders.maintenance.expire_snapshots().by_ids(old).commit()
        for _ in range(2):
            table.vacuum(older_than="0s", execute=True)
        assert not written.exists()
        assert ids_of(lake, "n.orders") == [1, 2, 4, 6]


@pytest.mark.postgres
def test_writers_at_once_through_two_services_lose_nothing_in_any_branch(
    start_server: StartServer, tmp_path: Path, postgres_database: str
) -> None:
    """Each commits to a branch of its own, one of them to main, one makes and drops branches; a tag names the end."""
    servers = [start_server(warehouse=tmp_path / "warehouse", catalog=postgres_database) for _ in range(2)]
    first = load_catalog("lake", type="rest", uri=f"{servers[0].url}/iceberg")
    first.create_namespace("n")
    table = first.create_table("n.t", schema=rows_of(1).schema)
    table.append(rows_of(0))
    names, each = ("main", "a", "b"), 5
    for name in names[1:]:
        on_branch(table, name)

    def repeated(change: Callable[[Table], object], server: int) -> None:
        own = load_catalog("lake", type="rest", uri=f"{servers[server].url}/iceberg")
        while True:
            try:
                change(own.load_table("n.t"))
                return
            except CommitFailedException:
                continue

    def write(number: int) -> None:
        for step in range(each):
            row = rows_of(100 * number + step)
            repeated(lambda own, row=row: own.append(row, branch=names[number]), number % 2)  # type: ignore[misc]

    def make() -> None:
        for step in range(each):
            repeated(lambda own, step=step: on_branch(own, f"x{step}"), step % 2)  # type: ignore[misc]
            repeated(lambda own, step=step: own.manage_snapshots().remove_branch(f"x{step}").commit(), 1)  # type: ignore[misc]

    threads = [threading.Thread(target=write, args=(number,)) for number in range(len(names))]
    threads.append(threading.Thread(target=make))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = first.load_table("n.t")
    table.manage_snapshots().create_tag(table.refs()["a"].snapshot_id, "end").commit()
    with Lamella(servers[1].url) as lake:
        assert [branch.name for branch in lake.table("n.t").branches()] == ["main", "a", "b"]
        for number, name in enumerate(names):
            wanted = [0, *range(100 * number, 100 * number + each)]
            assert sorted(ids_of(lake, f"n.t@{name}")) == sorted(wanted)
            assert sorted(table.scan().use_ref(name).to_arrow()["id"].to_pylist()) == sorted(wanted)
        assert ids_of(lake, "n.t", snapshot_id="end") == [0, *range(100, 100 + each)]
        own = lake.table("n.own")
        own.append(rows_of(1), create=True)
        own.create_branch("audit")
        own.branch("audit").append(rows_of(2))
        found = first.load_table("n.own").scan("id > 1").use_ref("audit").to_arrow()
        assert found["id"].to_pylist() == [2]


def test_random_commits_to_branches_are_read_by_both_sides(lake: Lamella, catalog: Catalog) -> None:
    """Appends, deletes, overwrites and columns; branches that are made, moved, published and dropped; Lamella's own
    writes to main; each branch against the rows that it must have, by Lamella, by plans and by manifests."""
    namespace = f"r{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(namespace)
    done: Counter[str] = Counter()
    for seed in range(5):
        model = Branches(lake, catalog, f"{namespace}.t{seed}", random.Random(seed))
        for step in range(22):
            model.change(step)
            model.check()
        done += model.done
    wanted = ("append", "delete", "overwrite", "column", "branch", "publish", "move", "drop", "lamella", "tag")
    assert min(done[each] for each in wanted) > 0, done


Row = tuple[int | None, ...]


class Branches:
    """A table, and the rows that its branches and tags should have: an id, and the values of the columns then."""

    def __init__(self, lake: Lamella, catalog: Catalog, name: str, chance: random.Random) -> None:
        self._lake = lake
        self._catalog = catalog
        self._name = name
        self._chance = chance
        self._columns: list[str] = []
        catalog.create_table(name, schema=Schema(NestedField(1, "id", LongType()))).append(self._arrow([(0,)]))
        self._heads: dict[str, list[Row]] = {"main": [(0,)]}
        self._tags: dict[str, list[dict[str, Any]]] = {}
        self.done: Counter[str] = Counter()

    def change(self, step: int) -> None:
        """Commit something."""
        chance, table = self._chance, self._catalog.load_table(self._name)
        head, low = chance.choice(sorted(self._heads)), chance.randrange(60)
        rows, others = self._heads[head], sorted(self._heads.keys() - {"main"})
        kinds = ["append", "append", "delete", "overwrite", "column", "branch", "publish", "move", "drop", "tag"]
        kind = chance.choice([*kinds, "lamella", "lamella"])
        made: list[Row] = [(chance.randrange(60), *[step] * len(self._columns)) for _ in range(low % 4 + 1)]
        manage = table.manage_snapshots()
        if kind == "append":
            table.append(self._arrow(made), branch=head)
            self._heads[head] = [*rows, *made]
        elif kind == "delete":
            with warnings.catch_warnings(action="ignore"):  # of deletes that match nothing
                table.delete(f"id >= {low} and id < {low + 20}", branch=head)
            self._heads[head] = [row for row in rows if not low <= cast(int, row[0]) < low + 20]
        elif kind == "overwrite":
            with warnings.catch_warnings(action="ignore"):
                table.overwrite(self._arrow(made), f"id >= {low}", branch=head)
            self._heads[head] = [*(row for row in rows if cast(int, row[0]) < low), *made]
        elif kind == "column" and len(self._columns) < 2:
            with table.update_schema() as schema:
                schema.add_column(f"c{step}", IntegerType())
            self._columns.append(f"c{step}")
        elif kind == "branch" and len(others) < 3:
            name = f"b{step}"
            manage.create_branch(table.refs()[head].snapshot_id, name).commit()
            self._heads[name] = rows
        elif kind == "publish" and others:
            name = chance.choice(others)
            manage.set_current_snapshot(ref_name=name).commit()
            self._heads["main"] = self._heads[name]
        elif kind == "move" and others:
            name = chance.choice(others)
            table.manage_snapshots().remove_branch(name).create_branch(table.refs()[head].snapshot_id, name).commit()
            self._heads[name] = rows
        elif kind == "drop" and others:
            name = chance.choice(others)
            manage.remove_branch(name).commit()
            del self._heads[name]
        elif kind == "tag":
            number = table.refs()[head].snapshot_id
            manage.create_tag(number, f"t{step}").commit()
            snapshot = table.snapshot_by_id(number)
            assert snapshot is not None
            names = table.schemas()[snapshot.schema_id or 0].column_names
            self._tags[f"t{step}"] = [{each: row.get(each) for each in names} for row in self._dicts(rows)]
        elif kind == "lamella":
            own, rows = self._lake.table(self._name), self._heads["main"]
            if low < 30:
                own.append(self._dicts(made))
                self._heads["main"] = [*rows, *made]
            else:
                own.delete(f"id BETWEEN {low} AND {low + 9}")
                self._heads["main"] = [row for row in rows if not low <= cast(int, row[0]) <= low + 9]
        else:
            return
        self.done[kind] += 1

    def check(self) -> None:
        """All readers find the rows of all branches, and those of a filter."""
        low = self._chance.randrange(60)
        loaded = self._catalog.load_table(self._name)
        by_manifests = StaticTable.from_metadata(loaded.metadata_location)
        listed = {each.name for each in self._lake.table(self._name).branches()}
        assert listed == self._heads.keys()
        for head, rows in self._heads.items():
            dicts = self._dicts(rows)
            some = [row for row in dicts if row["id"] >= low]
            table = self._lake.table(f"{self._name}@{head}")
            assert _texts(table.scan().to_arrow()) == _texts(dicts), head
            assert _texts(table.scan(f"id >= {low}").to_arrow()) == _texts(some), head
            # pyiceberg reads a branch with the columns of its last commit.
            planned = loaded.scan(f"id >= {low}").use_ref(head).to_arrow()
            assert _texts(planned) == _texts(some, planned.column_names), head
            found = by_manifests.scan().use_ref(head).to_arrow()
            assert _texts(found) == _texts(dicts, found.column_names), head
        for tag, dicts in self._tags.items():
            found = self._lake.table(self._name).scan(snapshot_id=tag).to_arrow()
            assert _texts(found, [*dicts[0]] if dicts else None) == _texts(dicts), tag

    def _arrow(self, rows: list[Row]) -> pa.Table:
        types = [pa.field("id", pa.int64()), *(pa.field(each, pa.int32()) for each in self._columns)]
        return pa.Table.from_pylist(self._dicts(rows), schema=pa.schema(types))

    def _dicts(self, rows: list[Row]) -> list[dict[str, Any]]:
        return [dict(zip_longest(["id", *self._columns], row)) for row in rows]


def _texts(rows: pa.Table | list[dict[str, Any]], columns: list[str] | None = None) -> list[str]:
    found = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    return sorted(repr({each: row[each] for each in columns or row}) for row in found)
