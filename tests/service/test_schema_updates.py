"""Commits that change the columns and add rows in one snapshot, for each kind of catalog and store."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from lamella.client.http import Lamella
from lamella.snapshot.commit import seen_with_update
from lamella.snapshot.errors import BlocksRefused, CommitConflict, InvalidSchema, SchemaConflict
from lamella.snapshot.schema import Column
from lamella.snapshot.schema.evolution import AddColumn, RenameColumn, ReplaceColumns, SchemaChange, WidenColumn
from lamella.snapshot.wire import ClusterUpdate, SchemaUpdate
from support.built_parts import blocks_of
from support.race import Race
from support.service_api import TableApi, World


class Writer:
    """A writer that has read a table's schema, and writes rows under changed columns."""

    def __init__(self, world: World, lake: Lamella, table: TableApi, *changes: SchemaChange | ReplaceColumns) -> None:
        self.world = world
        self.raw = table
        self.table = lake.table(f"{table.namespace}.{table.name}")
        info = self.table.info()
        self.base = info.snapshot_id
        self.update = SchemaUpdate(changes=changes, base_schema_id=info.schema.schema_id)

    def block(self, **columns: Any) -> Any:
        """A new block under the changed columns."""
        file = self.world.put(f"{self.world.folder()}/new.parquet", **columns)
        seen = seen_with_update(self.table.snapshot(self.base), self.update)
        (block,) = blocks_of(self.world.store, seen, [file])
        return block

    def commit(self, *added: Any, **more: Any) -> Any:
        """Commit blocks with the changes."""
        return self.table.commit(added, schema_update=self.update, **more)


def test_one_snapshot_has_the_new_columns_and_their_rows(world: World) -> None:
    """The rows are pruned by the new column; older blocks are null in it, and their statistics are widened."""
    table = world.table()
    table.register(*world.numbers(world.folder(), 2))
    before = len(table.history())
    with Lamella(world.url) as lake:
        writer = Writer(world, lake, table, AddColumn(name="b", type="double"))
        answer = writer.commit(writer.block(a=[5], s=["x"], b=[1.5]))
    assert len(table.history()) == before + 1
    info = table.info()
    assert info["snapshot_id"] == answer.snapshot_id
    assert [column["name"] for column in info["schema"]["columns"]] == ["a", "s", "b"]
    assert len(table.locations("b = 1.5")) == 1
    assert len(table.locations("b IS NULL")) == 2
    assert table.history()[0]["operation"] == "append"


def test_a_refused_commit_leaves_the_columns_as_they_were(world: World) -> None:
    """The change and the rows are made together or not at all."""
    table = world.table()
    before = table.info()
    with Lamella(world.url) as lake:
        writer = Writer(world, lake, table, AddColumn(name="b", type="double"))
        block = writer.block(a=[5], s=["x"], b=[1.5])
        world.store.delete(block.location)
        with pytest.raises(BlocksRefused):
            writer.commit(block)
        impossible = SchemaUpdate(changes=(WidenColumn(column="s", type="int"),), base_schema_id=0)
        with pytest.raises(InvalidSchema):
            writer.table.commit([], schema_update=impossible)
    assert table.info() == before


def test_the_same_change_by_two_writers_is_made_once(world: World) -> None:
    """The second one's rows are appended under the columns that the first one made."""
    table = world.table()
    with Lamella(world.url) as lake:
        one = Writer(world, lake, table, AddColumn(name="b", type="bigint"))
        other = Writer(world, lake, table, AddColumn(name="b", type="bigint"))
        one.commit(one.block(a=[1], s=["x"], b=[1]))
        other.table.evolve([AddColumn(name="c", type="bigint")])
        other.commit(other.block(a=[2], s=["y"], b=[2]))
    assert [column["name"] for column in table.info()["schema"]["columns"]] == ["a", "s", "b", "c"]
    assert len(table.locations("b = 2")) == 1


def test_another_change_in_the_meantime_refuses_the_commit(world: World) -> None:
    """The ids of its columns are others then, so nothing is done, and the error says to write again."""
    table = world.table()
    with Lamella(world.url) as lake:
        writer = Writer(world, lake, table, AddColumn(name="b", type="bigint"))
        block = writer.block(a=[1], s=["x"], b=[1])
        writer.table.evolve([RenameColumn(column="s", name="text")])
        before = table.info()
        with pytest.raises(SchemaConflict, match="write the rows again"):
            writer.commit(block)
    assert table.info() == before


def test_all_columns_are_replaced_with_all_rows(world: World) -> None:
    """A column of the same name and type stays the same; the new key is of the new columns; older snapshots stay."""
    table = world.table(cluster_key=["s"])
    table.register(*(files := world.numbers(world.folder(), 2)))
    new = (Column(name="x", type="double", nullable=False), Column(name="A", type="int64"))
    with Lamella(world.url) as lake:
        writer = Writer(world, lake, table, ReplaceColumns(columns=new))
        update = msgspec.structs.replace(writer.update, cluster_key=ClusterUpdate(columns=("x",), kind="linear"))
        writer.update = update
        block = writer.block(x=pa.array([1.5, 2.5]), A=[5, 6])
        with pytest.raises(CommitConflict, match="leaves 1 block"):
            writer.commit(block, removed=files[:1], base_snapshot_id=writer.base, operation="overwrite")
        answer = writer.commit(block, removed=files, base_snapshot_id=writer.base, operation="overwrite")
        info = writer.table.info()
        assert [(column.name, column.id) for column in info.schema.columns] == [("x", 3), ("A", 1)]
        assert (info.cluster_key, info.cluster_key_id, info.snapshot_id) == (("x",), 1, answer.snapshot_id)
        assert table.locations("x < 2 AND a = 5") == [block.location]
        assert len(table.locations("s IS NOT NULL", snapshot_id=writer.base)) == 2
        with pytest.raises(SchemaConflict):
            writer.commit(removed=[block.location], base_snapshot_id=answer.snapshot_id)


def test_columns_are_replaced_only_with_the_rows_that_are_there(local: World) -> None:
    """Rows that others add meanwhile have none of the new columns: the commit is refused. So is a change by itself."""
    table = local.table()
    table.register(*(files := local.numbers(local.folder(), 1)))
    with Lamella(local.url) as lake:
        writer = Writer(local, lake, table, ReplaceColumns(columns=(Column(name="x", type="double"),)))
        table.register(*local.numbers(local.folder(), 1))
        before = table.info()
        with pytest.raises(CommitConflict):
            writer.commit(removed=files, base_snapshot_id=writer.base, operation="overwrite")
        change = {"change": "replace", "columns": [{"name": "x", "type": "double"}]}
        assert table.api.send("POST", f"{table.path}/schema", {"changes": [change]}).status_code == 400
    assert table.info() == before


def test_appends_beside_a_schema_update_all_succeed(local: World) -> None:
    """Neither side loses rows: appends are merged into other snapshots than the change."""
    table = local.table()
    with Lamella(local.url) as lake:
        writer = Writer(local, lake, table, AddColumn(name="b", type="bigint"))
        changed = writer.block(a=[1], s=["x"], b=[1])
        plain = local.numbers(local.folder(), 12)
        threads = [threading.Thread(target=table.register, args=(file,)) for file in plain]
        threads.append(threading.Thread(target=writer.commit, args=(changed,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(table.locations()) == 13
    assert len(table.locations("b = 1")) == 1


@pytest.mark.parametrize("is_same", [True, False])
def test_a_change_by_another_process_between_check_and_swap_is_seen(race: Race, is_same: bool) -> None:
    """The commit is checked again on the snapshot that won: it follows, or is refused."""
    change = {"change": "add", "name": "b", "type": "int64"}
    theirs = change if is_same else {**change, "name": "c"}
    body = {"changes": [theirs], "base_schema_id": 0}
    race.meanwhile = lambda: race.other.post("/v1/namespaces/db/tables/t/schema", json=body)
    update = {"changes": [change], "base_schema_id": 0}
    block = {"location": race.file("new"), "row_count": 1, "file_size": 0}
    sent = {"added": [block], "schema_update": update}
    answer = race.app.post("/v1/namespaces/db/tables/t/commits", json=sent)
    schema = race.other.get("/v1/namespaces/db/tables/t").json()["schema"]
    if is_same:
        assert answer.status_code == 200
        assert len(race.locations()) == 1
    else:
        assert answer.json()["code"] == "schema_conflict"
        assert race.locations() == []
    assert [column["name"] for column in schema["columns"]] == ["a", theirs["name"]]
