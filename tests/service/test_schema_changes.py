"""Schema changes over real HTTP, for each kind of catalog and store."""

from __future__ import annotations

import threading
from typing import Any

from support.service_api import TableApi, World, read_problem


def change(table: TableApi, *changes: dict[str, Any], key: str | None = None, **body: Any) -> dict[str, Any]:
    """Change a table's columns."""
    return dict(table.api.call("POST", f"{table.path}/schema", {"changes": changes, **body}, key=key))


def columns(info: dict[str, Any]) -> list[tuple[int, str, str]]:
    """Id, name and type of the top level."""
    return [(c["id"], c["name"], c["type"]) for c in info["schema"]["columns"]]


def test_a_change_shows_in_schema_info_and_history(world: World) -> None:
    """The answer, the table's schema and its info agree; the earlier schema is listed."""
    table = world.table()
    world.numbers(folder := world.folder(), 1)
    table.register(folder)
    answer = change(
        table, {"change": "rename", "column": "s", "name": "text"}, {"change": "add", "name": "b", "type": "int"}
    )
    assert columns(answer) == [(1, "a", "int64"), (2, "text", "string"), (3, "b", "int32")]
    shown = table.api.call("GET", f"{table.path}/schema")
    assert shown == answer
    assert [s["columns"][1]["name"] for s in shown["schemas"]] == ["s"]
    assert shown["schema_ids_in_use"] == [0]
    info = table.info()
    assert (info["schema"], info["schemas"]) == (shown["schema"], shown["schemas"])
    assert info["snapshot_id"] == shown["snapshot_id"] == table.history()[0]["snapshot_id"]
    assert table.history()[0]["operation"] == "schema"


def test_blocks_before_and_after_a_change_answer_one_filter(world: World) -> None:
    """Old blocks are known by the id of their schema; new files have the new names."""
    table, folder = world.table(), world.folder()
    (old,) = world.numbers(f"{folder}/old", 1)
    table.register(old)
    change(
        table,
        {"change": "rename", "column": "a", "name": "n"},
        {"change": "add", "name": "a", "type": "string", "default": "none"},
    )
    new = world.put(f"{folder}/new.parquet", n=[5, 6], s=["x", "y"], a=["p", "q"])
    lacking = world.put(f"{folder}/lacking.parquet", n=[5, 6], s=["x", "y"])
    assert table.register(new, lacking)["registered"] == 2
    found = {b["location"]: (b["verdict"], b.get("schema_id")) for b in table.prune("n = 5")["blocks"]}
    assert found == {old: ("SOME", 0), new: ("SOME", None), lacking: ("SOME", None)}
    assert table.locations("a = 'none'") == [old, lacking]
    as_columns = table.prune("n = 5", shape="columns")["block_columns"]
    assert as_columns["schema_id"] == [0, None, None]


def test_a_file_with_a_column_that_was_dropped_is_refused(world: World) -> None:
    """Files are taken by the names in force."""
    table, folder = world.table(), world.folder()
    change(table, {"change": "drop", "column": "s"})
    (file,) = world.numbers(folder, 1)
    problem = table.api.problem("POST", f"{table.path}/register", {"paths": [file]})
    assert problem.code == "blocks_refused"
    assert problem.details["refused"][0]["code"] == "schema_mismatch"


def test_a_committed_block_says_which_schema_it_was_written_with(world: World) -> None:
    """Its own word counts, then the snapshot that the commit is based on, then the schema in force."""
    table, folder = world.table(), world.folder()
    files = world.numbers(folder, 3)
    before = table.info()["snapshot_id"]
    change(table, {"change": "rename", "column": "a", "name": "b"})
    block = {"row_count": 10, "file_size": 0}
    table.commit(added=[{**block, "location": files[0], "schema_id": 0}])
    table.commit(added=[{**block, "location": files[1]}], base_snapshot_id=before)
    table.commit(added=[{**block, "location": files[2]}])
    assert [b.get("schema_id") for b in table.prune()["blocks"]] == [0, 0, None]
    unknown = {"added": [{**block, "location": files[2], "schema_id": 9}]}
    problem = table.api.problem("POST", f"{table.path}/commits", unknown)
    assert problem.details["refused"][0]["code"] == "invalid_schema"


def test_a_change_happens_once_under_its_key(world: World) -> None:
    """The second request gets the first one's answer and adds nothing."""
    table = world.table()
    add = {"change": "add", "name": "b", "type": "int"}
    first = change(table, add, key="k")
    assert change(table, add, key="k") == first
    assert len(table.history()) == 2
    assert table.api.problem("POST", f"{table.path}/schema", {"changes": [add]}, key="k2").code == "invalid_schema"


def test_changes_that_cannot_be_made_change_nothing(world: World) -> None:
    """All or none; errors have codes of their own, and a body that is no list of changes is refused."""
    table = world.table()
    add = {"change": "add", "name": "b", "type": "int"}
    bad: list[tuple[dict[str, Any], str]] = [
        ({"changes": [add, {"change": "drop", "column": "nope"}]}, "unknown_column"),
        ({"changes": [add, {"change": "widen", "column": "s", "type": "int"}]}, "invalid_schema"),
        ({"changes": []}, "invalid_request"),
        ({"changes": [{"change": "explode", "column": "a"}]}, "invalid_request"),
        ({"changes": [{**add, "colour": "red"}]}, "invalid_request"),
        ({"changes": [add], "base_schema_id": 3}, "schema_conflict"),
    ]
    for body, code in bad:
        assert table.api.problem("POST", f"{table.path}/schema", body).code == code, body
    assert len(table.history()) == 1
    missing = table.api.send("GET", f"{table.path}x/schema")
    assert read_problem(missing).code == "table_not_found"


def test_changes_and_registrations_at_once_all_land(world: World) -> None:
    """Concurrent adds of columns and of files end with every column and every file."""
    table, folder = world.table(), world.folder()
    files = world.numbers(folder, 4)
    failures: list[BaseException] = []

    def run(work: Any, *given: Any) -> None:
        try:
            work(*given)
        except BaseException as error:
            failures.append(error)

    adds = [{"change": "add", "name": f"b{i}", "type": "int"} for i in range(4)]
    threads = [threading.Thread(target=run, args=(change, table, add)) for add in adds]
    threads += [threading.Thread(target=run, args=(table.register, file)) for file in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    info = table.info()
    assert {name for _, name, _ in columns(info)} == {"a", "s", "b0", "b1", "b2", "b3"}
    assert len({column_id for column_id, _, _ in columns(info)}) == 6
    assert (info["schema"]["schema_id"], len(info["schemas"])) == (4, 4)
    assert sorted(table.locations("b0 IS NULL")) == files
