"""The main job over real HTTP, for each kind of catalog and store."""

from __future__ import annotations

import msgspec
import pytest

from lamella.snapshot.manifest import Segment, Snapshot, content_hash
from lamella.snapshot.wire import TableInfo
from support.service_api import World, fresh_name


def test_a_table_takes_its_columns_from_a_parquet_file(world: World) -> None:
    """`schema_from` gives the table the file's columns and no rows."""
    location = world.put(f"{world.folder()}/x.parquet", a=[1, 2], b=["x", None])
    info = msgspec.convert(
        world.table(schema_from=location, cluster_key=["A"], properties={"k": "v"}).info(), TableInfo
    )
    assert [(c.name, c.type, c.id) for c in info.schema.columns] == [("a", "int64", 1), ("b", "string", 2)]
    assert (info.cluster_key, info.properties) == (("a",), {"k": "v"})
    assert (info.row_count, info.block_count, info.segment_count, info.file_size_bytes) == (0, 0, 0, 0)


def test_registered_files_are_pruned_by_a_filter(world: World) -> None:
    """A prune answers exactly the files whose range the filter touches, with the store's sizes and a funnel."""
    table, folder = world.table(), world.folder()
    files = world.numbers(folder, 8)
    answer = table.register(folder)
    assert (answer["registered"], answer["row_count"], answer["refused"]) == (8, 80, [])

    pruned = table.prune("a BETWEEN 25 AND 34")
    assert [block["location"] for block in pruned["blocks"]] == files[2:4]
    assert [block["file_size"] for block in pruned["blocks"]] == [world.store.stat(f).size_bytes for f in files[2:4]]
    assert pruned["snapshot_id"] == answer["snapshot_id"] == table.info()["snapshot_id"]
    block_stage = pruned["report"]["stages"][-1]
    assert (block_stage["stage"], block_stage["considered"], block_stage["kept"]) == ("block", 8, 2)
    assert pruned["report"]["blocks_total"] == 8


def test_a_folder_a_glob_and_a_file_can_be_registered_together(world: World) -> None:
    """Each path may be any of the three, and each file is registered once."""
    table, folder = world.table(), world.folder()
    world.numbers(f"{folder}/deep/er", 2)
    world.numbers(f"{folder}/glob", 3)
    one = world.numbers(f"{folder}/one", 1)
    answer = table.register(f"{folder}/deep", f"{folder}/glob/*[01].parquet", one[0])
    assert answer["registered"] == 5


def test_a_folder_that_is_named_like_a_file_can_be_registered(world: World) -> None:
    """Spark writes such folders. Files beside them are registered by the same request, and what is missing is named."""
    table, folder = world.table(), world.folder()
    below = world.numbers(f"{folder}/sales.parquet", 3)
    beside = world.put(f"{folder}/more.parquet", a=[100])
    missing = f"{folder}/missing.parquet"
    answer = table.register(f"{folder}/sales.parquet", beside, missing)
    assert answer["registered"] == 4
    assert [(each["path"], each["code"]) for each in answer["refused"]] == [(missing, "object_not_found")]
    assert sorted(table.locations()) == sorted([*below, beside])
    problem = world.api.problem("POST", f"{table.path}/register", {"paths": [missing]})
    assert problem.code == "blocks_refused"


def test_files_that_cannot_be_taken_are_listed_and_the_others_registered(world: World) -> None:
    """A registration without `strict` names each refused file with a code and a reason."""
    table, folder = world.table(), world.folder()
    good = world.numbers(folder, 2)
    text = world.put(f"{folder}/text.parquet", b"this is not a Parquet file at all")
    other = world.put(f"{folder}/other.parquet", a=["text, where numbers belong"])
    missing = f"{folder}/missing.parquet"
    answer = table.register(folder, missing)
    assert answer["registered"] == 2
    codes = {entry["path"]: entry["code"] for entry in answer["refused"]}
    assert codes == {missing: "object_not_found", text: "not_parquet", other: "schema_mismatch"}
    assert all(entry["reason"] for entry in answer["refused"])
    assert table.locations() == good


def test_removed_blocks_leave_the_current_snapshot_and_stay_in_the_old_one(world: World) -> None:
    """A commit that removes a block makes a new snapshot; the old one answers as before."""
    table, folder = world.table(), world.folder()
    files = world.numbers(folder, 3)
    before = table.register(folder)["snapshot_id"]
    answer = table.commit(removed=files[:1], operation="delete", base_snapshot_id=before)
    assert (answer["added"], answer["removed"], answer["block_count"], answer["row_count"]) == (0, 1, 2, 20)
    assert answer["prev_snapshot_id"] == before
    assert table.locations() == files[1:]
    assert table.locations(snapshot_id=before) == files


def test_a_commit_replaces_blocks_in_one_snapshot(world: World) -> None:
    """Adding and removing happen together: compaction is one commit."""
    table, folder = world.table(), world.folder()
    world.numbers(folder, 3)
    table.register(folder)
    blocks = table.blocks()
    merged = world.put(f"{folder}/merged/x.parquet", a=list(range(30)), s=[f"v{i:06}" for i in range(30)])
    block = {**blocks[0], "location": merged, "row_count": 30, "col_stats": {}, "row_group_row_counts": [30]}
    answer = table.commit(added=[block], removed=[b["location"] for b in blocks], operation="compact")
    assert (answer["added"], answer["removed"], answer["block_count"], answer["row_count"]) == (1, 3, 1, 30)
    assert table.locations("a = 7") == [merged]
    assert table.history()[0]["operation"] == "compact"


@pytest.mark.parametrize("claimed", [1, 10**9])
def test_the_recorded_size_of_a_block_is_the_stores_own(world: World, claimed: int) -> None:
    """Whatever size and content id a writer sends, the manifest and the prune answer have the store's."""
    table, folder = world.table(), world.folder()
    source = world.numbers(folder, 1)[0]
    table.register(source)
    sent = {**table.blocks()[0], "file_size": claimed, "content_id": "made up"}
    table.commit(removed=[source])
    table.commit(added=[sent], take_replaced=True)
    stat = world.store.stat(source)
    assert [(b["file_size"], b["content_id"]) for b in table.blocks()] == [(stat.size_bytes, stat.content_id)]
    assert [b["file_size"] for b in table.prune("a >= 0")["blocks"]] == [stat.size_bytes]


def test_manifests_are_answered_as_they_were_written(world: World) -> None:
    """Snapshot and segment JSON have the recorded content hash, so nothing on the way re-encoded them."""
    table, folder = world.table(), world.folder()
    world.numbers(folder, 2)
    table.register(folder)
    raw = world.api.send("GET", f"{table.path}/snapshots/{table.info()['snapshot_id']}").content
    snapshot = msgspec.json.decode(raw, type=Snapshot)
    assert snapshot.summary.block_count == 2
    ref = snapshot.segments[0]
    segment = world.api.send("GET", f"{table.path}/segments/{ref.segment_id}").content
    assert content_hash(segment) == ref.manifest.sha256
    assert len(msgspec.json.decode(segment, type=Segment).blocks) == 2


def test_a_segment_of_an_old_snapshot_is_found_by_naming_the_snapshot(world: World) -> None:
    """Without `snapshot_id` only the current snapshot's segments are there."""
    table, folder = world.table(), world.folder()
    files = world.numbers(folder, 2)
    old = table.register(folder)["snapshot_id"]
    segment_id = table.snapshot(old)["segments"][0]["segment_id"]
    table.commit(removed=files[:1])
    path = f"{table.path}/segments/{segment_id}"
    assert world.api.problem("GET", path).code == "segment_not_found"
    assert len(world.api.call("GET", f"{path}?snapshot_id={old}")["blocks"]) == 2


def test_history_is_paged_newest_first(world: World) -> None:
    """Pages of any size give the same history: each snapshot once, linked to the one before."""
    table, folder = world.table(), world.folder()
    for file in world.numbers(folder, 4):
        table.register(file)
    history = table.history()
    assert [entry["block_count"] for entry in history] == [4, 3, 2, 1, 0]
    assert [entry["operation"] for entry in history] == ["append"] * 4 + ["create"]
    links = [entry["prev_snapshot_id"] for entry in history]
    assert links == [entry["snapshot_id"] for entry in history[1:]] + [None]
    assert [entry["timestamp_ms"] for entry in history] == sorted({e["timestamp_ms"] for e in history}, reverse=True)
    for page_size in (1, 2, 5):
        assert table.history(page_size) == history


def test_namespaces_and_tables_are_listed_by_name(world: World) -> None:
    """Listings hold what was created and not what was dropped."""
    namespace = fresh_name("list")
    world.api.call("POST", "/v1/namespaces", {"name": namespace, "properties": {"owner": "ops"}}, expect=201)
    assert world.api.call("GET", f"/v1/namespaces/{namespace}") == {"name": namespace, "properties": {"owner": "ops"}}
    assert namespace in [entry["name"] for entry in world.api.call("GET", "/v1/namespaces")["namespaces"]]
    tables = f"/v1/namespaces/{namespace}/tables"
    for name in ("b", "a-1", "C", "_d"):
        columns = [{"name": "x", "type": "int"}]
        world.api.call("POST", tables, {"name": name, "schema": columns}, expect=201)
    assert world.api.call("GET", tables)["tables"] == ["C", "_d", "a-1", "b"]
    assert world.api.problem("DELETE", f"/v1/namespaces/{namespace}").code == "namespace_not_empty"
    for name in ("b", "a-1", "C", "_d"):
        world.api.call("DELETE", f"{tables}/{name}", expect=204)
    assert world.api.call("GET", tables)["tables"] == []
    world.api.call("DELETE", f"/v1/namespaces/{namespace}", expect=204)
    assert world.api.problem("GET", tables).code == "namespace_not_found"


def test_the_name_of_a_dropped_table_is_free_and_its_files_stay(world: World) -> None:
    """Dropping touches no file, and a new table of the name starts empty with an id of its own."""
    table, folder = world.table(), world.folder()
    file = world.numbers(folder, 1)[0]
    table.register(file)
    first = table.info()
    world.api.call("DELETE", table.path, expect=204)
    assert world.api.problem("GET", table.path).code == "table_not_found"
    body = {"name": "t", "schema_from": file}
    second = world.api.call("POST", f"/v1/namespaces/{table.namespace}/tables", body, expect=201)
    assert second["table_id"] != first["table_id"]
    assert table.locations() == []
    assert world.store.stat(f"{first['location']}/_ss/{first['snapshot_id']}_v3.json").size_bytes > 0


def test_a_namespace_may_have_levels(world: World) -> None:
    """Dots are part of a namespace's name."""
    name = f"{fresh_name()}.eu.west"
    world.api.call("POST", "/v1/namespaces", {"name": name}, expect=201)
    body = {"name": "t", "schema": [{"name": "x", "type": "int"}]}
    assert world.api.call("POST", f"/v1/namespaces/{name}/tables", body, expect=201)["namespace"] == name


def test_the_columns_shape_and_the_segment_level_answer_the_same_blocks(world: World) -> None:
    """The forms of an answer differ in form alone."""
    table, folder = world.table(), world.folder()
    world.numbers(folder, 4)
    table.register(folder)
    records = table.prune("a < 20")["blocks"]
    columns = table.prune("a < 20", shape="columns")["block_columns"]
    assert columns["location"] == [block["location"] for block in records]
    assert columns["verdict"] == [block["verdict"] for block in records] == ["ALL", "ALL"]
    segments = table.prune("a < 20", level="segment")["segments"]
    assert [segment["block_count"] for segment in segments] == [4]
    assert table.prune("a > 1000", level="segment")["segments"] == []
