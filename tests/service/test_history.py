"""Tags, rollback, changes, and tables that come back, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import pytest

from support.service_api import TableApi, World, fresh_name


def tagged(table: TableApi, name: str, **body: Any) -> dict[str, Any]:
    """A new tag."""
    return dict(table.api.call("POST", f"{table.path}/tags", {"name": name, **body}, expect=201))


def rolled_back(table: TableApi, **body: Any) -> dict[str, Any]:
    """The answer of a rollback."""
    return dict(table.api.call("POST", f"{table.path}/rollback", body))


def changes(table: TableApi, **query: Any) -> list[dict[str, Any]]:
    """All changes, page by page, as they came."""
    found: list[dict[str, Any]] = []
    token: str | None = None
    while True:
        given = {**query, **({} if token is None else {"page_token": token})}
        page = table.api.call("GET", f"{table.path}/changes?{urlencode(given)}")
        found += page["changes"]
        token = page["next_page_token"]
        if token is None:
            return found


def moved(entries: list[dict[str, Any]]) -> list[tuple[str, list[str], list[str]]]:
    """Operation, added and removed locations of each change."""
    return [
        (e["operation"], [b["location"] for b in e["added"]], [b["location"] for b in e["removed"]]) for e in entries
    ]


def grown(world: World, count: int = 3) -> tuple[TableApi, list[str], list[str]]:
    """A table to which so many files of ten numbers were appended one by one; the files, and the snapshots' ids."""
    table = world.table()
    files = world.numbers(world.folder(), count)
    ids = [table.info()["snapshot_id"]]
    ids += [table.register(file)["snapshot_id"] for file in files]
    return table, files, ids


ASKS: Mapping[str, Callable[[TableApi, str], object]] = {
    "prune": lambda t, ref: t.prune(snapshot_id=ref)["snapshot_id"],
    "prune batch": lambda t, ref: t.api.call(
        "POST", f"{t.path}/prune/batch", {"filters": ["a = 1"], "snapshot_id": ref}
    )["snapshot_id"],
    "aggregate": lambda t, ref: t.api.call(
        "POST", f"{t.path}/aggregate", {"aggregates": ["count(*)"], "snapshot_id": ref}
    )["snapshot_id"],
    "diff from": lambda t, ref: t.api.call("POST", f"{t.path}/diff", {"from_snapshot_id": ref})["from_snapshot_id"],
    "diff to": lambda t, ref: t.api.call(
        "POST", f"{t.path}/diff", {"from_snapshot_id": t.history()[-1]["snapshot_id"], "to_snapshot_id": ref}
    )["to_snapshot_id"],
    "snapshot": lambda t, ref: t.snapshot(ref)["snapshot_id"],
    "listing": lambda t, ref: t.api.call("GET", f"{t.path}/snapshots?snapshot_id={ref}")["snapshots"][0]["snapshot_id"],
    "changes": lambda t, ref: t.api.call("GET", f"{t.path}/changes?since={ref}")["since_snapshot_id"],
    "tag": lambda t, ref: tagged(t, fresh_name("tag"), snapshot_id=ref)["snapshot_id"],
}


@pytest.mark.parametrize("ask", ASKS)
def test_a_tag_stands_wherever_an_id_can(world: World, ask: str) -> None:
    """Each answers for the snapshot that the tag names, and says which one that is."""
    table, _, ids = grown(world)
    tagged(table, "v1.0", snapshot_id=ids[1])
    assert ASKS[ask](table, "v1.0") == ASKS[ask](table, ids[1]) == ids[1]
    assert ASKS[ask](table, "2") == ids[1]  # its number
    for unknown in ("v1.1", "V1.0", "0", "5"):
        with pytest.raises(AssertionError, match="snapshot_not_found"):
            ASKS[ask](table, unknown)


def test_a_tag_that_is_a_number_is_that_tag(world: World) -> None:
    """It goes before the number of a snapshot."""
    table, _, ids = grown(world)
    tagged(table, "2", snapshot_id=ids[3])
    assert table.snapshot("2")["snapshot_id"] == ids[3]
    assert rolled_back(table, snapshot_id="3")["snapshot_id"] not in ids
    assert [entry["row_count"] for entry in table.history()] == [20, 30, 20, 10, 0]


def test_a_segment_is_read_by_the_tag_of_its_snapshot(world: World) -> None:
    """As by the snapshot's id."""
    table, files, ids = grown(world, 2)
    tagged(table, "old", snapshot_id=ids[1])
    segment_id = table.snapshot("old")["segments"][0]["segment_id"]
    segment = table.api.call("GET", f"{table.path}/segments/{segment_id}?snapshot_id=old")
    assert [block["location"] for block in segment["blocks"]] == files[:1]


def test_a_difference_by_time_is_that_of_the_snapshots_in_force_then(world: World) -> None:
    """Either end; and a request that names one end twice, or the first not at all, is refused."""
    table, files, ids = grown(world)
    times = {entry["snapshot_id"]: entry["timestamp_ms"] for entry in table.history()}
    body = {"from_timestamp": times[ids[0]], "to_timestamp": times[ids[2]]}
    answer = table.api.call("POST", f"{table.path}/diff", body)
    assert [block["location"] for block in answer["added"]] == files[:2]
    for wrong in ({}, {"from_snapshot_id": ids[0], "from_timestamp": 1}, {**body, "to_snapshot_id": ids[1]}):
        assert table.api.problem("POST", f"{table.path}/diff", wrong).code == "invalid_request"


def test_tags_are_listed_and_shown_in_the_history(world: World) -> None:
    """By name, with their snapshots; several may name one."""
    table, _, ids = grown(world)
    made = [tagged(table, name, snapshot_id=ids[at]) for name, at in (("b", 1), ("a", 1), ("now", -1))]
    listed = table.api.call("GET", f"{table.path}/tags")["tags"]
    assert listed == [made[1], made[0], made[2]]
    assert made[2]["snapshot_id"] == ids[-1]
    names = {entry["snapshot_id"]: entry["tags"] for entry in table.history()}
    assert names == {ids[3]: ["now"], ids[2]: [], ids[1]: ["a", "b"], ids[0]: []}


def test_a_tag_is_moved_only_when_that_is_said(world: World) -> None:
    """Making it again is a conflict, moving what is not there an error; it keeps its time unless it gets a new one."""
    table, _, ids = grown(world)
    made = tagged(table, "t", snapshot_id=ids[1], max_age_ms=10**9)
    tags = f"{table.path}/tags"
    assert made["expires_at_ms"] == made["created_at_ms"] + 10**9
    assert table.api.problem("POST", tags, {"name": "t"}).code == "already_exists"
    assert table.api.problem("POST", tags, {"name": "u", "move": True}).code == "tag_not_found"
    assert table.snapshot("t")["snapshot_id"] == ids[1]
    now = table.api.call("POST", tags, {"name": "t", "move": True})
    assert now == {**made, "snapshot_id": ids[3], "timestamp_ms": now["timestamp_ms"]}
    extended = table.api.call("POST", tags, {"name": "t", "snapshot_id": "t", "move": True, "max_age_ms": 2 * 10**9})
    assert extended["expires_at_ms"] > made["expires_at_ms"]
    table.api.call("DELETE", f"{tags}/t", expect=204)
    assert table.api.problem("DELETE", f"{tags}/t").code == "tag_not_found"
    assert table.prune(snapshot_id=ids[1])["snapshot_id"] == ids[1]


@pytest.mark.parametrize(
    "body",
    [
        {"name": ""},
        {"name": "-x"},
        {"name": ".x"},
        {"name": "a b"},
        {"name": "a/b"},
        {"name": "ü"},
        {"name": "x" * 129},
        {"name": "01890A5D-AC96-774B-BCCE-B302099A8057"},
        {"name": "01890a5dac96774bbcceb302099a8057"},
        {"name": "t", "max_age_ms": 0},
        {"name": "t", "max_age_ms": -1},
        {"name": "t", "expires_at_ms": 1},
        {"name": "t", "expires_at_ms": 1 << 60},
        {"name": "t", "expires_at_ms": 1 << 50, "max_age_ms": 1000},
        {"name": "t", "snapshot_id": "t", "timestamp": 1},
        {"name": "t", "timestamp": "yesterday"},
        {"name": "t", "until": 1},
    ],
)
def test_what_can_be_no_tag_is_refused(local: World, body: dict[str, Any]) -> None:
    """Names that a URL or a command line would trip over, or that an id could be; times that are over."""
    table = local.table()
    assert table.api.problem("POST", f"{table.path}/tags", body).code == "invalid_request"
    assert table.api.call("GET", f"{table.path}/tags") == {"tags": []}


def test_pages_stay_with_the_snapshot_that_the_tag_named_first(world: World) -> None:
    """A tag that moves in between changes nothing; the token of one tag is none for another."""
    table, files, ids = grown(world)
    tagged(table, "t", snapshot_id=ids[2])
    tagged(table, "u", snapshot_id=ids[2])
    first = table.prune(snapshot_id="t", page_size=1)
    table.api.call("POST", f"{table.path}/tags", {"name": "t", "snapshot_id": ids[3], "move": True})
    second = table.prune(snapshot_id="t", page_size=1, page_token=first["next_page_token"])
    assert [b["location"] for page in (first, second) for b in page["blocks"]] == files[:2]
    assert second["next_page_token"] is None
    body = {"page_size": 1, "page_token": first["next_page_token"], "snapshot_id": "u"}
    assert table.api.problem("POST", f"{table.path}/prune", body).code == "invalid_page_token"


def test_a_rollback_is_a_new_snapshot_with_the_old_blocks(world: World) -> None:
    """The history goes on, so it can be rolled back too; what comes and goes is counted."""
    table, files, ids = grown(world)
    table.commit(removed=[files[0]], operation="delete")
    answer = rolled_back(table, snapshot_id=ids[1])
    assert (answer["restored_snapshot_id"], answer["added"], answer["removed"]) == (ids[1], 1, 2)
    assert (answer["block_count"], answer["row_count"]) == (1, 10)
    assert table.locations() == files[:1]
    newest, before = table.history()[:2]
    assert (newest["operation"], newest["snapshot_id"]) == ("rollback", answer["snapshot_id"])
    assert newest["prev_snapshot_id"] == before["snapshot_id"] == answer["prev_snapshot_id"]
    assert newest["timestamp_ms"] > before["timestamp_ms"]
    assert len(table.history()) == 6
    assert table.locations(snapshot_id=ids[3]) == files

    again = rolled_back(table, timestamp=before["timestamp_ms"])
    assert (again["restored_snapshot_id"], again["added"], again["removed"]) == (before["snapshot_id"], 2, 1)
    assert table.locations() == files[1:]
    more = world.numbers(world.folder(), 1)
    table.register(*more)
    assert sorted(table.locations()) == sorted([*files[1:], *more])
    assert table.locations("a >= 20") == files[2:]


def test_a_rollback_waits_for_nobody_and_needs_its_base_if_one_is_given(world: World) -> None:
    """Another current snapshot is a conflict that names it; the current one is nothing to go back to."""
    table, files, ids = grown(world)
    tagged(table, "good", snapshot_id=ids[1])
    path = f"{table.path}/rollback"
    problem = table.api.problem("POST", path, {"snapshot_id": "good", "base_snapshot_id": ids[2]})
    assert (problem.code, problem.details["snapshot_id"]) == ("commit_conflict", ids[3])
    for wrong in ({}, {"snapshot_id": "good", "timestamp": 1}, {"snapshot_id": ids[3]}):
        assert table.api.problem("POST", path, wrong).code == "invalid_request"
    assert table.api.problem("POST", path, {"snapshot_id": "bad"}).code == "snapshot_not_found"
    assert table.locations() == files
    rolled_back(table, snapshot_id="good", base_snapshot_id=ids[3].upper())
    assert table.locations() == files[:1]


def test_a_rollback_names_the_blocks_that_are_gone(world: World) -> None:
    """A missing file and a replaced one are found before anything changes; one that is in the table is not asked."""
    table, files, ids = grown(world)
    table.commit(removed=files[:2], operation="delete")
    before = table.info()
    world.store.delete(files[0])
    size = world.store.stat(files[1]).size_bytes
    world.store.delete(files[1])
    world.put(files[1], bytes(size))
    world.store.delete(files[2])
    problem = table.api.problem("POST", f"{table.path}/rollback", {"snapshot_id": ids[3]})
    assert (problem.status, problem.code) == (409, "blocks_gone")
    assert problem.details["blocks"] == files[:2]
    assert problem.details["reasons"] == ["the file is gone", "the file was replaced"]
    assert table.info() == before


def test_a_block_of_the_same_location_and_content_stays_and_another_one_comes_back(world: World) -> None:
    """Blocks are told apart by content: a file that was replaced and registered again cannot be rolled back."""
    table, files, ids = grown(world, 2)
    table.commit(removed=files[:1], operation="delete")
    world.store.delete(files[0])
    world.put(files[0], a=[7], s=["other"])
    table.register(files[0])
    problem = table.api.problem("POST", f"{table.path}/rollback", {"snapshot_id": ids[2]})
    assert (problem.code, problem.details["blocks"]) == ("blocks_gone", files[:1])
    assert table.prune("a = 7")["blocks"][0]["location"] == files[0]


def test_a_rollback_brings_the_columns_back_and_no_column_id_twice(world: World) -> None:
    """The schema of then is in force under a new id; ids of columns that were added in between are not given again."""
    table, files, ids = grown(world, 2)
    path = f"{table.path}/schema"
    add = {"changes": [{"change": "add", "name": "x", "type": "int64"}]}
    drop = {"changes": [{"change": "drop", "column": "s"}]}
    table.api.call("POST", path, add)
    table.api.call("POST", path, drop)
    wide = world.put(f"{world.folder()}/wide.parquet", a=[100], x=[1])
    table.register(wide)
    answer = rolled_back(table, snapshot_id=ids[2])
    assert (answer["added"], answer["removed"]) == (0, 1)
    info = table.api.call("GET", path)
    assert [column["name"] for column in info["schema"]["columns"]] == ["a", "s"]
    assert [column["id"] for column in info["schema"]["columns"]] == [1, 2]
    assert [schema.get("schema_id", 0) for schema in info["schemas"]] == [0, 1, 2]
    assert (info["schema"]["schema_id"], info["schema"]["last_column_id"]) == (3, 3)
    assert table.locations("s = 'v000011'") == files[1:]
    assert table.prune("s = 'v000011'")["blocks"][0]["schema_id"] == 0
    assert table.locations("x = 1", snapshot_id=answer["prev_snapshot_id"]) == [wide]

    again = table.api.call("POST", path, add)
    assert [column["id"] for column in again["schema"]["columns"]] == [1, 2, 4]
    assert table.locations("x IS NOT NULL") == []
    assert table.locations("x IS NULL") == files
    rolled_back(table, snapshot_id=ids[0])
    assert table.locations() == []
    assert table.api.call("GET", path)["schema"]["last_column_id"] == 4


def test_a_rollback_within_one_schema_leaves_it_alone(world: World) -> None:
    """And the table's properties, which are settings and no content."""
    table, _, ids = grown(world, 2)
    table.commit(properties={"owner": "me"}, operation="set")
    before = table.info()
    rolled_back(table, snapshot_id=ids[1])
    after = table.info()
    assert (after["schema"], after["schemas"]) == (before["schema"], [])
    assert after["properties"] == {"owner": "me"}


def test_changes_are_listed_snapshot_by_snapshot(world: World) -> None:
    """Oldest first, each with what made it; without the first one's own blocks."""
    table, files, ids = grown(world)
    table.commit(removed=[files[1]], operation="delete")
    tagged(table, "first", snapshot_id=ids[1])
    listed = changes(table, since="first")
    assert moved(listed) == [("append", [files[1]], []), ("append", [files[2]], []), ("delete", [], [files[1]])]
    assert [entry["from_snapshot_id"] for entry in listed] == ids[1:]
    assert [entry["snapshot_id"] for entry in listed[:2]] == ids[2:]
    assert moved(changes(table, since=ids[1], until=ids[2])) == moved(listed)[:1]
    assert changes(table, since=ids[1], until=ids[1]) == []
    assert moved(changes(table, since="first", net="true")) == [("net", [files[2]], [])]
    assert moved(changes(table, since="first", filter="a >= 25")) == [
        ("append", [], []),
        ("append", [files[2]], []),
        ("delete", [], []),
    ]
    tree = '{"type":"lt","term":"a","value":15}'
    assert moved(changes(table, since=ids[0], filter=tree, net="true")) == [("net", files[:1], [])]
    times = {entry["snapshot_id"]: entry["timestamp_ms"] for entry in table.history()}
    by_time = changes(table, since_timestamp=times[ids[1]], until_timestamp=times[ids[2]])
    assert moved(by_time) == moved(listed)[:1]


@pytest.mark.parametrize("page_size", [1, 2, 3, 5, 100])
def test_changes_come_in_pages_of_so_many_blocks(world: World, page_size: int) -> None:
    """Together the pages are the whole answer, also where one ends inside a snapshot, and whatever is committed."""
    table, folder = world.table(), world.folder()
    start = table.info()["snapshot_id"]
    files = world.numbers(folder, 5)
    table.register(*files[:3])
    table.commit(removed=files[:2], operation="delete")
    table.register(*files[3:])
    end = table.info()["snapshot_id"]
    whole = changes(table, since=start, until=end)
    path = f"{table.path}/changes?{urlencode({'since': start, 'page_size': page_size})}"
    page = table.api.call("GET", path)
    table.register(*world.numbers(world.folder(), 1))
    found: list[dict[str, Any]] = []
    while True:
        assert sum(len(e["added"]) + len(e["removed"]) for e in page["changes"]) <= page_size
        assert page["until_snapshot_id"] == end
        for entry in page["changes"]:
            if found and found[-1]["continues"]:
                assert found[-1]["snapshot_id"] == entry["snapshot_id"]
                for side in ("added", "removed"):
                    entry[side] = found[-1][side] + entry[side]
                found.pop()
            found.append(entry)
        if page["next_page_token"] is None:
            break
        page = table.api.call("GET", f"{path}&page_token={page['next_page_token']}")
    assert found == whole
    assert [len(e["added"]) - len(e["removed"]) for e in whole] == [3, -2, 2]


def test_a_reader_of_appends_is_notified_of_a_rewrite(world: World) -> None:
    """What came before it is answered first; removals that the filter rules out, or that net out, do not matter."""
    table, files, ids = grown(world)
    table.commit(removed=[files[1]], operation="compact")
    rewriting = table.info()["snapshot_id"]
    path = f"{table.path}/changes?append_only=true&since="
    page = table.api.call("GET", path + ids[0])
    assert moved(page["changes"]) == [("append", [file], []) for file in files]
    problem = table.api.problem("GET", f"{path}{ids[0]}&page_token={page['next_page_token']}")
    assert (problem.status, problem.code) == (409, "not_append_only")
    assert (problem.details["snapshot_id"], problem.details["operation"]) == (rewriting, "compact")
    assert table.api.problem("GET", path + ids[3]).code == "not_append_only"
    assert table.api.problem("GET", f"{path}{ids[2]}&net=true").code == "not_append_only"
    assert table.api.call("GET", f"{path}{ids[3]}&filter=a%3C5")["changes"][0]["removed"] == []
    net = table.api.call("GET", f"{path}{ids[1]}&net=true")["changes"]
    assert moved(net) == [("net", files[2:], [])]


def test_the_names_in_a_filter_of_changes_are_those_of_the_last_snapshot(world: World) -> None:
    """Also for snapshots from before a column got its name."""
    table, files, ids = grown(world, 2)
    rename = {"changes": [{"change": "rename", "column": "a", "name": "b"}]}
    table.api.call("POST", f"{table.path}/schema", rename)
    listed = changes(table, since=ids[0], filter="b < 5")
    assert moved(listed) == [("append", files[:1], []), ("append", [], []), ("schema", [], [])]
    wrong = f"{table.path}/changes?since={ids[0]}&filter=a%3C5"
    assert table.api.problem("GET", wrong).code == "unknown_column"
    before = changes(table, since=ids[0], until=ids[2], filter="a < 5")
    assert moved(before) == [("append", files[:1], []), ("append", [], [])]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "invalid_request"),
        ("since=nothing", "snapshot_not_found"),
        ("since=FIRST&since_timestamp=1", "invalid_request"),
        ("since=LAST&until=FIRST", "invalid_request"),
        ("since=FIRST&net=yes", "invalid_request"),
        ("since=FIRST&page_size=0", "invalid_request"),
        ("since=FIRST&filter=a+%3D+%3D", "invalid_filter"),
        ("since=FIRST&filter=%7B", "invalid_filter"),
        ("since=FIRST&columns=a", "invalid_request"),
        ("since=FIRST&page_token=nonsense", "invalid_page_token"),
    ],
)
def test_changes_that_cannot_be_meant_are_refused(local: World, query: str, code: str) -> None:
    """With the code that says why."""
    table, _, ids = grown(local, 1)
    parameters = query.replace("FIRST", ids[0]).replace("LAST", ids[1])
    assert table.api.problem("GET", f"{table.path}/changes?{parameters}").code == code


def test_a_token_of_other_changes_or_of_a_prune_is_refused(local: World) -> None:
    """Each belongs to one request of one kind."""
    table, _, ids = grown(local, 3)
    path = f"{table.path}/changes?page_size=1&since="
    token = table.api.call("GET", path + ids[0])["next_page_token"]
    pruning = table.prune(page_size=1)["next_page_token"]
    for wrong in (f"{path}{ids[1]}&page_token={token}", f"{path}{ids[0]}&page_token={pruning}"):
        assert table.api.problem("GET", wrong).code == "invalid_page_token"
    body = {"page_size": 1, "page_token": token}
    assert table.api.problem("POST", f"{table.path}/prune", body).code == "invalid_page_token"


def test_a_dropped_table_is_listed_and_comes_back(world: World) -> None:
    """With its blocks, history and tags, by name or id, under its old name or a new one."""
    table, files, ids = grown(world, 2)
    tagged(table, "v1", snapshot_id=ids[1])
    before = table.info()
    namespace = f"/v1/namespaces/{table.namespace}"
    table.api.call("DELETE", table.path, expect=204)
    assert table.api.problem("POST", f"{table.path}/prune", {}).code == "table_not_found"
    (dropped,) = table.api.call("GET", f"{namespace}/dropped")["tables"]
    assert (dropped["table_id"], dropped["name"], dropped["snapshot_id"]) == (before["table_id"], "t", ids[2])
    assert dropped["undrop_before_ms"] - dropped["dropped_at_ms"] == 604_800_000
    assert table.api.call("POST", f"{namespace}/undrop", {"name": "t"}) == before
    assert table.locations(snapshot_id="v1") == files[:1]
    assert table.api.call("GET", f"{namespace}/dropped") == {"tables": []}

    table.api.call("DELETE", table.path, expect=204)
    table.api.call("POST", f"{namespace}/tables", {"name": "t", "schema": [{"name": "z", "type": "int64"}]}, expect=201)
    undrop = f"{namespace}/undrop"
    assert table.api.problem("POST", undrop, {"name": "t"}).code == "already_exists"
    back = table.api.call("POST", undrop, {"table_id": before["table_id"], "as": "old"})
    assert back == {**before, "name": "old"}
    assert TableApi(table.api, table.namespace, "old").locations() == files
    assert table.api.call("GET", f"{namespace}/tables")["tables"] == ["old", "t"]


def test_what_cannot_be_undropped_is_refused(local: World) -> None:
    """What was never dropped, what was purged, names that are none, and both or none of the two ways to say it."""
    table, _, _ = grown(local, 1)
    namespace = f"/v1/namespaces/{table.namespace}"
    table_id = table.info()["table_id"]
    undrop = f"{namespace}/undrop"
    for body, code in (
        ({"name": "t"}, "table_not_found"),
        ({"table_id": table_id}, "table_not_found"),
        ({}, "invalid_request"),
        ({"name": "t", "table_id": table_id}, "invalid_request"),
        ({"name": "t", "to": "u"}, "invalid_request"),
    ):
        assert table.api.problem("POST", undrop, body).code == code
    assert table.api.problem("POST", "/v1/namespaces/nope/undrop", {"name": "t"}).code == "namespace_not_found"
    assert table.api.problem("GET", "/v1/namespaces/nope/dropped").code == "namespace_not_found"
    assert table.api.problem("DELETE", f"{table.path}?purge=yes").code == "invalid_request"
    table.api.call("DELETE", f"{table.path}?purge=true", expect=204)
    assert table.api.call("GET", f"{namespace}/dropped") == {"tables": []}
    assert table.api.problem("POST", undrop, {"table_id": table_id}).code == "table_not_found"


def test_a_dropped_table_outlives_its_namespace(local: World) -> None:
    """It comes back into a namespace of the same name."""
    table, files, _ = grown(local, 1)
    table.api.call("DELETE", table.path, expect=204)
    table.api.call("DELETE", f"/v1/namespaces/{table.namespace}", expect=204)
    table.api.call("POST", "/v1/namespaces", {"name": table.namespace}, expect=201)
    table.api.call("POST", f"/v1/namespaces/{table.namespace}/undrop", {"name": "t"})
    assert table.locations() == files


def test_a_table_is_dropped_only_at_the_snapshot_that_is_named(world: World) -> None:
    """What others committed meanwhile, or a table that others made under the name, stays."""
    table, files, ids = grown(world, 2)
    for stale in (ids[1], "nope"):
        for purge in ("", "&purge=true"):
            problem = table.api.problem("DELETE", f"{table.path}?base_snapshot_id={stale}{purge}")
            assert (problem.code, problem.details["snapshot_id"]) == ("commit_conflict", ids[2])
    assert table.locations() == files
    key = fresh_name("key")
    table.api.call("DELETE", f"{table.path}?base_snapshot_id={ids[2].upper()}", key=key, expect=204)
    assert (
        table.api.problem("DELETE", f"{table.path}?base_snapshot_id={ids[1]}", key=key).code == "idempotency_mismatch"
    )
    assert table.api.problem("DELETE", f"{table.path}?base_snapshot_id={ids[2]}").code == "table_not_found"
    (dropped,) = table.api.call("GET", f"/v1/namespaces/{table.namespace}/dropped")["tables"]
    assert dropped["snapshot_id"] == ids[2]


REPEATED: Mapping[str, Callable[[TableApi, list[str]], tuple[str, str, Any]]] = {
    "tag": lambda t, ids: ("POST", f"{t.path}/tags", {"name": "x", "snapshot_id": ids[0]}),
    "move": lambda t, ids: ("POST", f"{t.path}/tags", {"name": "there", "snapshot_id": ids[0], "move": True}),
    "drop a tag": lambda t, _: ("DELETE", f"{t.path}/tags/there", None),
    "rollback": lambda t, ids: ("POST", f"{t.path}/rollback", {"snapshot_id": ids[1]}),
    "undrop": lambda t, _: ("POST", f"/v1/namespaces/{t.namespace}/undrop", {"name": "gone"}),
    "purge": lambda t, _: ("DELETE", f"{t.path}?purge=true", None),
}


@pytest.mark.parametrize("change", REPEATED)
def test_a_repeated_key_changes_nothing_twice(world: World, change: str) -> None:
    """The second answer is the first one, and says that it is a replay."""
    table, _, ids = grown(world, 2)
    tagged(table, "there")
    tables = f"/v1/namespaces/{table.namespace}/tables"
    table.api.call("POST", tables, {"name": "gone", "schema": [{"name": "z", "type": "int64"}]}, expect=201)
    table.api.call("DELETE", f"{tables}/gone", expect=204)
    method, path, body = REPEATED[change](table, ids)
    key = fresh_name("key")
    first = table.api.send(method, path, body, key=key)
    assert first.status_code < 300, first.text
    second = table.api.send(method, path, body, key=key)
    assert (second.status_code, second.content) == (first.status_code, first.content)
    assert second.headers["Idempotency-Replayed"] == "true"


def test_a_key_of_a_drop_is_not_one_of_a_purge(local: World) -> None:
    """They are two requests, although their paths are the same."""
    table, _, _ = grown(local, 1)
    key = fresh_name("key")
    table.api.call("DELETE", table.path, key=key, expect=204)
    assert table.api.problem("DELETE", f"{table.path}?purge=true", key=key).code == "idempotency_mismatch"
