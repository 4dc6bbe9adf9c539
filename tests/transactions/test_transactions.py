"""Changes of several tables happen together or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lamella.client import AsyncLamella, Lamella
from lamella.client.http.transaction import PENDING
from lamella.snapshot.errors import InvalidRequest, OutcomeUnknown, QuotaExceeded, TransactionConflict
from support.tenants import Tenants


def rows(lake: Lamella, table: str) -> list[dict[str, Any]]:
    """The rows of a table, in the order of their values."""
    found: list[dict[str, Any]] = lake.table(table).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["x"])


def test_changes_of_a_block_become_visible_at_its_end(lake: Lamella) -> None:
    """All of them, each with a snapshot of its own; not before, to the block itself neither."""
    with lake.transaction() as tx:
        appended = tx.table("n.a").append({"x": [4]})
        assert (appended.rows, appended.snapshot_id) == (1, PENDING)
        tx.table("n.b").upsert({"x": [3, 4], "y": [30, 40]}, on=["x"])
        assert len(rows(lake, "n.a")) == len(rows(lake, "n.b")) == tx.table("n.a").scan().count() == 3
    assert [row["x"] for row in rows(lake, "n.a")] == [1, 2, 3, 4]
    assert [row["y"] for row in rows(lake, "n.b")] == [1, 2, 30, 40]
    assert {each.table: each.snapshot_id for each in tx.answer.tables} == {
        name: lake.table(name).info().snapshot_id for name in ("n.a", "n.b")
    }
    assert [each.operation for each in list(lake.table("n.b").snapshots())[:1]] == ["upsert"]


def test_an_error_in_the_block_changes_nothing(lake: Lamella) -> None:
    """The error is raised, and no table has a new snapshot."""
    tx = lake.transaction()

    def fail() -> None:
        with tx:
            tx.table("n.a").append({"x": [4]})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(rows(lake, "n.a")) == 3
    with pytest.raises(InvalidRequest, match="nothing"):
        assert tx.answer


def test_every_kind_of_change_can_be_part_of_one(lake: Lamella) -> None:
    """Deletes, overwrites, properties; a table that is created is there at once."""
    with lake.transaction() as tx:
        tx.table("n.a").delete("x = 1")
        tx.table("n.b").overwrite({"x": [9], "y": [9]})
        tx.table("n.c").append({"x": [7]}, create=True)
        assert lake.table("n.c").info().row_count == 0
    assert [row["x"] for row in rows(lake, "n.a")] == [2, 3]
    assert rows(lake, "n.b") == [{"x": 9, "y": 9}]
    assert rows(lake, "n.c") == [{"x": 7}]
    with lake.transaction() as tx:
        tx.table("n.a").commit(properties={"owner": "sales"}, operation="set")
    assert lake.table("n.a").info().properties["owner"] == "sales"


def test_a_commit_of_unknown_outcome_can_be_repeated(lake: Lamella, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its answer comes; the changes are committed once."""
    tx = lake.transaction()
    tx.table("n.a").append({"x": [4]})
    send, lost = lake.run, [True]

    def lose_one_answer(call: Any, key: str | None = None) -> Any:
        answer = send(call, key)
        if lost.pop():
            lost.append(False)
            raise OutcomeUnknown("the answer was lost")
        return answer

    monkeypatch.setattr(lake, "run", lose_one_answer)
    with pytest.raises(OutcomeUnknown):
        tx.commit()
    answer = tx.commit()
    assert answer is not None
    monkeypatch.undo()
    assert answer.tables[0].snapshot_id == lake.table("n.a").info().snapshot_id
    assert [row["x"] for row in rows(lake, "n.a")] == [1, 2, 3, 4]
    with pytest.raises(InvalidRequest, match="has ended"):
        tx.commit()


def test_a_block_may_commit_by_itself(lake: Lamella) -> None:
    """Its end then does nothing."""
    with lake.transaction() as tx:
        tx.table("n.a").append({"x": [4]})
        tx.commit()
        assert len(rows(lake, "n.a")) == 4
    assert len(rows(lake, "n.a")) == 4


def test_what_cannot_wait_is_refused(lake: Lamella) -> None:
    """A second change of a table, and changes that are no commits; nothing is committed then."""
    tx = lake.transaction()
    tx.table("n.a").append({"x": [4]})
    with pytest.raises(InvalidRequest, match=r"changes n\.a already"):
        tx.table("n.a").append({"x": [5]})
    with pytest.raises(InvalidRequest, match="cannot be part of a transaction"):
        tx.table("n.b").rollback("1")
    assert len(rows(lake, "n.a")) == 3
    with lake.transaction() as tx:
        tx.table("n.a").append({"x": [4]})
    with pytest.raises(InvalidRequest, match="has ended"):
        tx.table("n.a").append({"x": [5]})
    with pytest.raises(InvalidRequest, match="has ended"):
        tx.require_unchanged("n.b")
    with lake.transaction() as nothing:
        assert nothing.table("n.a").scan().count() == 4
    with pytest.raises(InvalidRequest, match="nothing"):
        assert nothing.answer


def test_a_conflict_undoes_all_and_names_every_table(lake: Lamella) -> None:
    """Each with the code of a commit of its own."""
    tx = lake.transaction()
    tx.table("n.a").overwrite({"x": [8]})
    tx.table("n.b").delete("x = 1")
    tx.table("n.c").append({"x": [7]}, create=True)
    lake.table("n.a").delete("x = 1")
    lake.table("n.b").delete("x < 3")
    with pytest.raises(TransactionConflict) as raised:
        tx.commit()
    conflicts = raised.value.details["conflicts"]
    assert [(each["table"], each["code"]) for each in conflicts] == [
        ("n.a", "commit_conflict"),
        ("n.b", "commit_conflict"),
    ]
    assert [row["x"] for row in rows(lake, "n.a")] == [2, 3]
    assert rows(lake, "n.c") == []


def test_rows_that_must_not_change_are_guarded(lake: Lamella) -> None:
    """Rows of a third table, by a filter; other rows of it may change."""

    def moved(changed: str) -> None:
        with lake.transaction() as tx:
            at = tx.require_unchanged("n.b", "x = 3")
            assert at == lake.table("n.b").info().snapshot_id
            tx.table("n.a").append({"x": [10]})
            lake.table("n.b").delete(changed)

    moved("x = 1")
    with pytest.raises(TransactionConflict) as raised:
        moved("x = 3")
    [conflict] = raised.value.details["conflicts"]
    assert (conflict["table"], conflict["code"], conflict["details"]["table"]) == ("n.a", "read_conflict", "n.b")
    assert len(rows(lake, "n.a")) == 4


def test_a_transaction_works_for_asyncio(tmp_path: Path) -> None:
    """The same methods, awaited; what writes files collects its commit in a thread."""

    async def run() -> None:
        async with await AsyncLamella.embedded(tmp_path / "lake") as lake:
            await lake.table("n.a").append({"x": [1]}, create=True)
            await lake.table("n.b").append({"x": [1]}, create=True)
            async with lake.transaction() as tx:
                await tx.require_unchanged("n.a", "x = 5")
                await tx.table("n.a").append({"x": [2]})
                await tx.table("n.b").commit(properties={"owner": "sales"}, operation="set")
                assert (await lake.table("n.a").info()).row_count == 1
            assert [each.table for each in tx.answer.tables] == ["n.a", "n.b"]
            assert (await lake.table("n.a").info()).row_count == 2
            assert (await lake.table("n.b").info()).properties["owner"] == "sales"
            tx = lake.transaction()
            await tx.table("n.a").overwrite({"x": [8]})
            await lake.table("n.a").delete("x = 1")
            with pytest.raises(TransactionConflict):
                await tx.commit()

    asyncio.run(run())


def setting(*tables: str, **properties: str) -> dict[str, Any]:
    """A transaction that sets properties of tables."""
    commit = {"properties": properties or {"turn": "1"}, "operation": "set"}
    return {"tables": [{"table": table, "commit": commit} for table in tables]}


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    """A service of two tenants."""
    with Tenants(tmp_path_factory.mktemp("tenants")) as tenants:
        yield tenants


def test_a_transaction_is_committed_once_per_key(tenants: Tenants) -> None:
    """The same request again gets the first answer, and a request of another content an error."""
    names = [f"north.{tenants.resources('north').table}" for _ in range(2)]
    key = {"Idempotency-Key": "once"}
    first = tenants.root.send("POST", "/v1/transactions", setting(*names), **key)
    again = tenants.root.send("POST", "/v1/transactions", setting(*names), **key)
    assert first.status_code == again.status_code == 200
    assert first.content == again.content
    assert again.headers["idempotency-replayed"] == "true"
    other = tenants.root.send("POST", "/v1/transactions", setting(*names[:1]), **key)
    assert other.json()["code"] == "idempotency_mismatch"
    for name in names:
        path = f"/v1/namespaces/north/tables/{name.partition('.')[2]}/snapshots"
        assert len(tenants.root.call("GET", path)["snapshots"]) == 4


def test_each_table_needs_the_right_to_write_it(tenants: Tenants) -> None:
    """One that may not be seen is not there, as for a commit; nothing is committed."""
    own, other = tenants.resources("north"), tenants.resources("south")
    both = setting(f"north.{own.table}", f"south.{other.table}")
    writes = {"role": "write", "namespace": "north", "table": own.table}
    blind = tenants.asker(writes)
    assert blind.send("POST", "/v1/transactions", both).json()["code"] == "namespace_not_found"
    reader = tenants.asker(writes, {"role": "read", "namespace": "south", "table": other.table})
    assert reader.send("POST", "/v1/transactions", both).json()["code"] == "permission_denied"
    path = f"/v1/namespaces/north/tables/{own.table}"
    assert tenants.root.call("GET", path)["snapshot_id"] == own.snapshot_id
    assert reader.send("POST", "/v1/transactions", setting(f"north.{own.table}")).status_code == 200


def test_what_cannot_be_meant_is_refused_with_its_table(tenants: Tenants) -> None:
    """Names that are no names, a table twice or under no name, an empty commit."""
    name = f"north.{tenants.resources('north').table}"
    codes = {}
    for bad in ("nonsense", name, "north.nope"):
        answer = tenants.root.send("POST", "/v1/transactions", setting(name, bad)).json()
        codes[bad] = answer["code"]
    assert list(codes.values()) == ["invalid_request", "invalid_request", "table_not_found"]
    empty = {"tables": [*setting(name)["tables"], {"table": name.replace("table", "t"), "commit": {}}]}
    assert tenants.root.send("POST", "/v1/transactions", empty).json()["code"] == "table_not_found"
    assert tenants.root.send("POST", "/v1/transactions", {"tables": []}).json()["code"] == "invalid_request"
    second = f"north.{tenants.resources('north').table}"
    nothing = {"tables": [*setting(name)["tables"], {"table": second, "commit": {}}]}
    answer = tenants.root.send("POST", "/v1/transactions", nothing).json()
    assert (answer["code"], answer["details"]["table"]) == ("invalid_request", second)


def test_the_audit_trail_has_an_entry_for_each_table(tenants: Tenants) -> None:
    """With the snapshot of that table."""
    names = [f"north.{tenants.resources('north').table}" for _ in range(2)]
    done = tenants.root.call("POST", "/v1/transactions", setting(*names))
    for each in done["tables"]:
        entry = tenants.root.call("GET", f"/v1/audit?table={each['table']}")["entries"][0]
        assert (entry["operation"], entry["snapshot_id"]) == ("commit_transaction", each["snapshot_id"])


def test_quotas_hold_for_all_tables_together(tmp_path: Path) -> None:
    """Each change would fit by itself."""
    settings = {"quota_blocks": 5, "quota_tables": 10}
    with Lamella.embedded(tmp_path / "lake", settings=settings) as lake:
        for name in ("n.a", "n.b"):
            lake.table(name).append({"x": [1, 2]}, create=True, target_block_rows=1)
        tx = lake.transaction()
        tx.table("n.a").append({"x": [3]})
        tx.table("n.b").append({"x": [3]})
        with pytest.raises(QuotaExceeded):
            tx.commit()
        assert len(rows(lake, "n.a")) == len(rows(lake, "n.b")) == 2
        with lake.transaction() as tx:
            tx.table("n.a").append({"x": [3]})
            tx.table("n.b").delete("x = 1")
        assert [len(rows(lake, name)) for name in ("n.a", "n.b")] == [3, 1]


def test_commits_and_transactions_of_many_threads_lose_nothing(lake: Lamella) -> None:
    """They wait for one another, whatever the order of the tables; the numbers of both tables agree in the end."""

    def transact(worker: int) -> None:
        names = ["n.a", "n.c"] if worker % 2 else ["n.c", "n.a"]
        for turn in range(6):
            with lake.transaction() as tx:
                for name in names:
                    tx.table(name).append({"x": [100 * worker + turn]})

    def append(worker: int) -> None:
        for turn in range(6):
            lake.table("n.a").append({"x": [1_000 + 100 * worker + turn]})

    lake.table("n.c").append({"x": [0]}, create=True)
    with ThreadPoolExecutor(6) as pool:
        done = [pool.submit(transact, worker) for worker in range(4)] + [pool.submit(append, each) for each in range(2)]
        for each in done:
            each.result()
    transacted = {100 * worker + turn for worker in range(4) for turn in range(6)}
    appended = {1_000 + 100 * worker + turn for worker in range(2) for turn in range(6)}
    assert sorted(row["x"] for row in rows(lake, "n.c")) == sorted([0, *transacted])
    assert sorted(row["x"] for row in rows(lake, "n.a")) == sorted([1, 2, 3, *transacted, *appended])
