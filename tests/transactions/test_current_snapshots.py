"""Snapshots of several tables that are current at one moment."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from lamella.client import AsyncLamella, Lamella
from lamella.client.cli.app import cli
from lamella.service.catalog import HistoryEntry, PointerSwap, SqlCatalog, TableRecord, open_catalog
from lamella.snapshot.errors import InvalidRequest, NamespaceNotFound, TableNotFound, TransactionConflict
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import ObjectRef, SnapshotPointer
from lamella.snapshot.wire import NamespaceInfo
from support.tenants import Tenants

IDS = Ids()
BACKENDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))


def entry(seq: int) -> HistoryEntry:
    """A snapshot of a table's history."""
    ref = ObjectRef(location=f"file:///{seq}", size_bytes=seq, sha256="0" * 64)
    return HistoryEntry(
        seq=seq,
        pointer=SnapshotPointer(snapshot_id=str(IDS.new()), timestamp_ms=seq, manifest=ref, sidecar=ref),
        prev_snapshot_id=None,
        operation="append",
        row_count=1,
        block_count=1,
        segment_count=1,
        file_size_bytes=1,
    )


def new_table(catalog: SqlCatalog, namespace: str, name: str) -> TableRecord:
    """A table with its first snapshot."""
    first = entry(1)
    record = TableRecord(
        table_id=str(IDS.new()),
        namespace=namespace,
        name=name,
        location="file:///w/t",
        version=1,
        pointer=first.pointer,
        created_at_ms=5,
    )
    catalog.create_table(record, first)
    return record


@pytest.fixture(params=BACKENDS)
def catalogs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[SqlCatalog, SqlCatalog]]:
    """Two services' catalogs on one database, with the namespaces ``a`` and ``b``."""
    is_sqlite = request.param == "sqlite"
    url = str(tmp_path / "catalog.db") if is_sqlite else str(request.getfixturevalue("postgres_database"))
    both = (open_catalog(url), open_catalog(url))
    for name in ("a", "b"):
        both[0].create_namespace(NamespaceInfo(name=name), now_ms=1)
    yield both
    for catalog in both:
        catalog.close()


def test_no_swap_of_several_tables_is_seen_in_part(catalogs: tuple[SqlCatalog, SqlCatalog]) -> None:
    """All tables have the same version, however often they are swapped together meanwhile."""
    writer, reader = catalogs
    names = [(namespace, f"t{number}") for number in range(4) for namespace in ("a", "b")]
    tables = [new_table(writer, *name) for name in names]
    ended = threading.Event()

    def swap() -> None:
        rng = random.Random(1)
        for seq in range(2, 150):
            rng.shuffle(tables)
            swaps = [PointerSwap(table_id=each.table_id, entry=entry(seq)) for each in tables]
            assert writer.advance_all(swaps)
        ended.set()

    thread = threading.Thread(target=swap)
    thread.start()
    seen: list[int] = []
    while not ended.is_set():
        found = reader.tables_at_once(names)
        assert [(each.namespace, each.name) for each in found] == names
        versions = {each.version for each in found}
        assert len(versions) == 1
        seen += versions
    thread.join()
    assert seen == sorted(seen)
    assert len(set(seen)) > 1
    assert {each.version for each in reader.tables_at_once(names)} == {149}


def test_tables_are_returned_in_the_order_of_the_names(catalogs: tuple[SqlCatalog, SqlCatalog]) -> None:
    """Names that repeat, and the same name in two namespaces, each have their own answer."""
    catalog, other = catalogs
    first, second, third = (new_table(catalog, *name) for name in (("a", "t"), ("b", "t"), ("a", "u")))
    found = other.tables_at_once([("a", "u"), ("b", "t"), ("a", "t"), ("a", "u")])
    assert found == [third, second, first, third]
    with pytest.raises(TableNotFound, match=r"b\.u"):
        catalog.tables_at_once([("a", "u"), ("b", "u")])
    with pytest.raises(NamespaceNotFound, match="c"):
        catalog.tables_at_once([("a", "u"), ("c", "u")])
    with pytest.raises(NamespaceNotFound):
        catalog.tables_at_once([("a\0", "u")])
    catalog.drop_table("a", "u", now_ms=7)
    with pytest.raises(TableNotFound):
        other.tables_at_once([("a", "u")])


def test_readers_use_the_snapshots_of_one_moment(lake: Lamella) -> None:
    """They see neither table of a transaction that was committed later."""
    at = lake.current_snapshots("n.a", "n.b")
    with lake.transaction() as tx:
        tx.table("n.a").append({"x": [4]})
        tx.table("n.b").append({"x": [4], "y": [4]})
    assert [lake.table(name).scan(snapshot_id=at[name]).count() for name in at] == [3, 3]
    now = lake.current_snapshots("n.b", "n.a")
    assert list(now.items()) == [(each.table, each.snapshot_id) for each in reversed(tx.answer.tables)]
    with pytest.raises(InvalidRequest):
        lake.current_snapshots()
    with pytest.raises(InvalidRequest):
        lake.current_snapshots("nonsense")
    with pytest.raises(InvalidRequest):
        lake.current_snapshots(*["n.a"] * 101)


def test_the_snapshots_can_be_required_to_be_unchanged(lake: Lamella) -> None:
    """A change between the look and the transaction is a conflict as well."""
    at = lake.current_snapshots("n.a", "n.b")
    lake.table("n.b").delete("x = 3")
    tx = lake.transaction()
    assert tx.require_unchanged("n.b", "x = 3", snapshot_id=at["n.b"]) == at["n.b"]
    tx.table("n.a").append({"x": [4]})
    with pytest.raises(TransactionConflict):
        tx.commit()
    assert lake.table("n.a").scan().count() == 3


def test_the_asynchronous_client_has_the_same(tmp_path: Path) -> None:
    """Also what must stay unchanged since then."""

    async def run() -> None:
        async with await AsyncLamella.embedded(tmp_path / "lake") as lake:
            await lake.table("n.a").append({"x": [1]}, create=True)
            at = await lake.current_snapshots("n.a")
            assert at == {"n.a": (await lake.table("n.a").info()).snapshot_id}
            await lake.table("n.a").delete("x = 1")
            tx = lake.transaction()
            await tx.require_unchanged("n.a", snapshot_id=at["n.a"])
            await tx.table("n.a").append({"x": [2]})
            with pytest.raises(TransactionConflict):
                await tx.commit()

    asyncio.run(run())


def test_each_table_needs_the_right_to_read_it(tmp_path: Path) -> None:
    """A table that the caller may not read is not there."""
    with Tenants(tmp_path) as tenants:
        own, other = tenants.resources("north"), tenants.resources("south")
        both = {"tables": [f"north.{own.table}", f"south.{other.table}"]}
        reads = {"role": "read", "namespace": "north", "table": own.table}
        seeing = tenants.asker(reads, {"role": "read", "namespace": "south", "table": other.table})
        found = seeing.send("POST", "/v1/current-snapshots", both).json()["snapshots"]
        assert [(each["table"], each["snapshot_id"]) for each in found] == [
            (both["tables"][0], own.snapshot_id),
            (both["tables"][1], other.snapshot_id),
        ]
        refused = tenants.asker(reads).send("POST", "/v1/current-snapshots", both)
        assert refused.json()["code"] == "namespace_not_found"


def test_a_query_reads_its_tables_at_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that is committed while ``lamella sql`` plans is in none of them."""
    with Lamella.embedded(tmp_path / "lake") as lake:
        for name in ("n.a", "n.b"):
            lake.table(name).append({"x": [1]}, create=True)
        look = Lamella.current_snapshots

        def look_before_a_transaction(self: Lamella, *tables: str) -> dict[str, str]:
            found = look(self, *tables)
            with self.transaction() as tx:
                for name in ("n.a", "n.b"):
                    tx.table(name).append({"x": [2]})
            return found

        monkeypatch.setattr(Lamella, "current_snapshots", look_before_a_transaction)
        query = "SELECT (SELECT count(*) FROM n.a) AS a, (SELECT count(*) FROM n.b) AS b"
        shown = CliRunner().invoke(cli, ["sql", query, "--url", lake.url, "-o", "csv"], catch_exceptions=False)
        assert shown.output.split() == ["a,b", "1,1"]
