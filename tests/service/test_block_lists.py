"""Commits whose blocks come in lists: as those of a body, in one snapshot or not at all, with a bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fixtures_server import StartServer
from lamella.client.http import Lamella
from lamella.snapshot.errors import DuplicateBlock, InvalidRequest, LimitExceeded, ObjectNotFound
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import Block, Snapshot, content_hash, decode_snapshot
from lamella.snapshot.storage import FsspecStore, TableLayout
from lamella.snapshot.wire import BlockListSent
from support import dying
from support.built_parts import blocks_of, built, sent_blocks, sent_parts
from support.listed import put_lists
from support.own_app import NewOwn
from support.pausable_service import WAIT_S, PausableService
from support.race import TABLE, Race
from support.service_api import TableApi, World


def current(raw: TableApi) -> Snapshot:
    """A table's current snapshot."""
    response = raw.api.send("GET", f"{raw.path}/snapshots/{raw.info()['snapshot_id']}")
    return decode_snapshot(response.content)


def fresh_blocks(world: World, raw: TableApi, count: int) -> list[Block]:
    """Files that no table has, as blocks."""
    return blocks_of(world.store, current(raw), world.numbers(world.folder(), count))


def by_location(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Manifests of blocks in the order of their locations."""
    return sorted(blocks, key=lambda block: str(block["location"]))


def test_blocks_of_lists_are_as_those_of_the_body(world: World) -> None:
    """The manifests are the same, in one snapshot, whichever way the blocks came; the lists stay where they are."""
    by_body, by_lists, by_both = world.table(), world.table(), world.table()
    blocks = fresh_blocks(world, by_body, 5)
    by_body.commit(added=sent_blocks(blocks))
    sent = put_lists(world.store, by_lists.info()["location"], blocks)
    answer = by_lists.commit(added_from=sent)
    assert (answer["added"], answer["block_count"], answer["row_count"]) == (5, 5, 50)
    location = by_both.info()["location"]
    by_both.commit(added=sent_blocks(blocks[:2]), added_from=put_lists(world.store, location, blocks[2:]))
    assert [len(raw.history()) for raw in (by_body, by_lists, by_both)] == [2, 2, 2]
    wanted = by_location(by_body.blocks())
    assert by_location(by_lists.blocks()) == wanted
    assert by_location(by_both.blocks()) == wanted
    assert by_lists.locations("a = 17") == by_body.locations("a = 17") == [blocks[1].location]
    for each in sent:
        assert world.store.stat(each["location"]).size_bytes == each["size_bytes"]
    with Lamella(world.url) as lake:
        assert lake.table(f"{by_lists.namespace}.{by_lists.name}").verify(deep=True, sample=1.0).is_clean


def test_parts_of_indexes_count_positions_through_body_and_lists(local: World) -> None:
    """The places of a part's blocks go on from the body into the lists."""
    raw = local.table()
    with Lamella(local.url) as lake:
        table = lake.table(f"{raw.namespace}.{raw.name}")
        table.create_index("i", "value_set", "a")
        blocks = fresh_blocks(local, raw, 5)
        parts = [built(local.store, raw.info()["location"], current(raw), "i", blocks)]
        body: dict[str, Any] = {
            "added": sent_blocks(blocks[:2]),
            "added_from": put_lists(local.store, raw.info()["location"], blocks[2:]),
        }
        beyond = [msgspec.structs.replace(parts[0].parts[0], blocks=(0, 1, 2, 3, 5))]
        wrong = {**body, "index_parts": sent_parts([msgspec.structs.replace(parts[0], parts=tuple(beyond))])}
        assert raw.api.problem("POST", f"{raw.path}/commits", wrong).code == InvalidRequest.code
        raw.commit(**body, index_parts=sent_parts(parts))
        coverage = table.index("i").coverage
        assert coverage is not None
        assert (coverage.indexed, coverage.not_indexed) == (5, 0)
        assert table.verify(deep=True, sample=1.0).is_clean


def test_many_blocks_are_cut_into_segments(local: World) -> None:
    """Segments are as full as those of any commit, whatever the lists' lengths, and blocks keep their order."""
    raw = local.table()
    one = fresh_blocks(local, raw, 1)[0]
    folder = local.folder()
    names = [local.put(f"{folder}/{number:05}.parquet", b"x") for number in range(2_300)]
    blocks = [msgspec.structs.replace(one, location=name) for name in names]
    raw.commit(added_from=put_lists(local.store, raw.info()["location"], blocks, each=700))
    segments = raw.snapshot()["segments"]
    assert [ref["summary"]["block_count"] for ref in segments] == [1000, 1000, 300]
    assert [block["location"] for block in raw.blocks()] == names


def wrong_lists(world: World, raw: TableApi, other: TableApi) -> dict[str, tuple[Any, str]]:
    """Bodies' ``added_from`` that are refused, by what is wrong, with the code."""
    location = raw.info()["location"]
    good = put_lists(world.store, location, fresh_blocks(world, raw, 2))
    (theirs,) = put_lists(world.store, other.info()["location"], fresh_blocks(world, raw, 2))
    (sent,) = good

    def said(**changes: Any) -> list[Any]:
        return [{**sent, **changes}]

    def broken(*lines: bytes) -> list[Any]:
        name = TableLayout(location).block_list(Ids().new())
        data = b"\n".join(lines)
        world.store.put(name, data)
        hashed = msgspec.to_builtins(msgspec.structs.replace(_sent(data, len(lines)), location=name))
        return [*good, hashed]

    line = msgspec.json.encode(fresh_blocks(world, raw, 1)[0])
    return {
        "another table's": ([theirs], InvalidRequest.code),
        "not a list": (said(location=f"{location}/_ss/{Ids().new()}_v3.json"), InvalidRequest.code),
        "somewhere else": (said(location="file:///etc/passwd"), InvalidRequest.code),
        "no location": (said(location="x"), InvalidRequest.code),
        "not there": (said(location=TableLayout(location).block_list(Ids().new())), ObjectNotFound.code),
        "one of two not there": (
            [*good, *said(location=TableLayout(location).block_list(Ids().new()))],
            ObjectNotFound.code,
        ),
        "twice": (good * 2, InvalidRequest.code),
        "a smaller size": (said(size_bytes=sent["size_bytes"] - 1), InvalidRequest.code),
        "a larger size": (said(size_bytes=sent["size_bytes"] + 1), InvalidRequest.code),
        "another checksum": (said(sha256="0" * 64), InvalidRequest.code),
        "another number of blocks": (said(block_count=3), InvalidRequest.code),
        "too many blocks": (said(block_count=10**7), LimitExceeded.code),
        "too large": (said(size_bytes=10**12), LimitExceeded.code),
        "an unknown member": (said(more=1), InvalidRequest.code),
        "damaged": (broken(line, line[:-1]), InvalidRequest.code),
        "no blocks": (broken(b"1"), InvalidRequest.code),
        "nested": (broken(b'{"location":' + b"[" * 100_000), InvalidRequest.code),
    }


def _sent(data: bytes, count: int) -> BlockListSent:
    return BlockListSent(location="", size_bytes=len(data), sha256=content_hash(data), block_count=count)


def test_wrong_lists_refuse_the_whole_commit(local: World) -> None:
    """Each with a code that says whose mistake it is, and where there is a place, with the place; nothing changes."""
    raw, other = local.table(), local.table()
    before = raw.info()
    for what, (lists, code) in wrong_lists(local, raw, other).items():
        problem = raw.api.problem("POST", f"{raw.path}/commits", {"added_from": lists, "properties": {"k": "v"}})
        assert (problem.code, 400 <= problem.status < 500) == (code, True), (what, problem.detail)
        if what not in ("too many blocks", "twice", "an unknown member"):
            assert problem.details["location"] == lists[-1]["location"], what
        if what == "damaged":
            assert problem.details["index"] == 1
    assert raw.info() == before
    assert raw.api.problem("POST", f"{raw.path}/commits", {"added_from": []}).code == InvalidRequest.code


def test_a_refused_block_is_named_with_its_list_and_position(local: World) -> None:
    """What is refused of a list says where it stands there; what is refused of the body stands nowhere else."""
    raw = local.table()
    blocks = fresh_blocks(local, raw, 4)
    gone = msgspec.structs.replace(blocks[2], location=f"{local.root}/nothing.parquet")
    wrong = msgspec.structs.replace(blocks[3], row_count=-1)
    before = raw.info()["snapshot_id"]
    sent = put_lists(local.store, raw.info()["location"], [blocks[0], blocks[1], gone, wrong])
    bad = msgspec.structs.replace(blocks[0], location=f"{local.root}/no.parquet")
    problem = raw.api.problem("POST", f"{raw.path}/commits", {"added": sent_blocks([bad]), "added_from": sent})
    assert problem.code == "blocks_refused"
    positions = [(each["code"], each.get("listed_in"), each.get("listed_at")) for each in problem.details["refused"]]
    assert positions == [
        ("object_not_found", None, None),
        ("object_not_found", sent[1]["location"], 0),
        ("invalid_request", sent[1]["location"], 1),
    ]
    problem = raw.api.problem("POST", f"{raw.path}/commits", {"added_from": sent})
    assert f"block 0 of {sent[1]['location']}" in problem.detail
    assert raw.info()["snapshot_id"] == before


def test_a_block_that_is_there_already_or_twice_is_a_duplicate(local: World) -> None:
    """Twice in the lists, once in the body and once in a list, in the table: nothing is committed."""
    raw = local.table()
    location = raw.info()["location"]
    blocks = fresh_blocks(local, raw, 3)
    bodies = [
        {"added_from": put_lists(local.store, location, [*blocks, blocks[0]])},
        {"added": sent_blocks(blocks[:1]), "added_from": put_lists(local.store, location, blocks, each=3)},
    ]
    for body in bodies:
        problem = raw.api.problem("POST", f"{raw.path}/commits", body)
        assert (problem.code, problem.details["blocks"]) == (DuplicateBlock.code, [blocks[0].location])
    raw.register(blocks[2].location)
    problem = raw.api.problem("POST", f"{raw.path}/commits", {"added_from": bodies[1]["added_from"]})
    assert (problem.code, problem.details["blocks"]) == (DuplicateBlock.code, [blocks[2].location])
    assert raw.info()["block_count"] == 1


def test_a_retry_is_answered_without_the_lists(local: World) -> None:
    """The stored answer comes before anything is read; other lists under the same key are another request."""
    raw = local.table()
    location = raw.info()["location"]
    blocks = fresh_blocks(local, raw, 4)
    body = {"added_from": put_lists(local.store, location, blocks)}
    first = raw.api.send("POST", f"{raw.path}/commits", body, key="once")
    local.store.delete_many([each["location"] for each in body["added_from"]])
    again = raw.api.send("POST", f"{raw.path}/commits", body, key="once")
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.content == first.content
    other = {"added_from": [{**body["added_from"][0], "sha256": "0" * 64}, body["added_from"][1]]}
    assert raw.api.problem("POST", f"{raw.path}/commits", other, key="once").code == "idempotency_mismatch"
    # A list that is not there decides nothing: the key can be used again when it is.
    left = {"added_from": put_lists(local.store, location, fresh_blocks(local, raw, 1))}
    data = local.store.read(left["added_from"][0]["location"])
    local.store.delete(left["added_from"][0]["location"])
    assert raw.api.problem("POST", f"{raw.path}/commits", left, key="twice").code == ObjectNotFound.code
    local.store.put(left["added_from"][0]["location"], data)
    assert raw.api.call("POST", f"{raw.path}/commits", left, key="twice")["added"] == 1


def test_lists_come_with_removals_and_conflicts(local: World) -> None:
    """What is removed with them is looked at as always: a conflict leaves all of it undone."""
    raw = local.table()
    old = local.numbers(local.folder(), 2)
    raw.register(*old)
    base = raw.info()["snapshot_id"]
    body = {
        "added_from": put_lists(local.store, raw.info()["location"], fresh_blocks(local, raw, 3)),
        "removed": old,
        "base_snapshot_id": base,
        "operation": "compact",
    }
    assert raw.commit(**body)["block_count"] == 3
    problem = raw.api.problem("POST", f"{raw.path}/commits", body)
    assert (problem.code, sorted(problem.details["blocks"])) == ("commit_conflict", sorted(old))
    assert raw.info()["block_count"] == 3


def test_the_settings_bound_what_is_read(new_own: NewOwn) -> None:
    """One block more, or a list larger than a body may be, is refused before anything is read."""
    own = new_own(commit_list_blocks=4, max_body_bytes=2_000)
    assert own.commit(own.lists(4)).status_code == 200
    refused = own.commit(own.lists(5))
    assert (refused.status_code, refused.json()["code"]) == (400, LimitExceeded.code)
    large = own.lists(1)
    large[0]["size_bytes"] = 2_001
    refused = own.commit(large)
    assert (refused.json()["code"], refused.json()["details"]["maximum"]) == (LimitExceeded.code, 2_000)
    assert own.info()["block_count"] == 4


def test_lists_that_a_clean_up_removed_are_not_there(new_own: NewOwn) -> None:
    """They are garbage when they are old enough; the commit says that they are gone, and nothing happened."""
    own = new_own(vacuum_min_age_s=0)
    lists = own.lists(4)
    before = own.info()
    assert own.clean_up()["garbage"]["temporary"]["objects"] == 2
    refused = own.commit(lists)
    assert (refused.status_code, refused.json()["code"]) == (404, ObjectNotFound.code)
    assert refused.json()["details"]["location"] == lists[0]["location"]
    assert own.info() == before


def test_a_young_list_is_left_alone(new_own: NewOwn) -> None:
    """Its name has no time, so its age is the store's."""
    own = new_own()
    lists = own.lists(2)
    assert own.clean_up()["garbage"] == {}
    assert own.commit(lists).status_code == 200


@pytest.mark.slow
def test_a_clean_up_while_segments_are_written_refuses_the_commit(new_own: NewOwn) -> None:
    """The segments of a long commit are no part of any snapshot yet: when they were deleted, it is not made."""
    own = new_own(vacuum_min_age_s=0)
    lists = own.lists(1_100, each=1_100)
    before = own.info()
    written = own.clean_up_at_segment(2)
    refused = own.commit(lists)
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert len(written) == 2
    assert own.info() == before
    own.before = lambda _: None
    assert own.commit(lists).json()["code"] == ObjectNotFound.code  # the clean-up took the list, too


def test_a_commit_that_loses_the_race_keeps_its_segments(race: Race) -> None:
    """They are written once, and are in the snapshot that follows the winner's."""
    table = race.app.get(TABLE).json()
    files = [race.file(f"x{number}", number) for number in range(3)]
    blocks = [Block(location=file, row_count=1, file_size=1) for file in files]
    lists = put_lists(FsspecStore(), table["location"], blocks)
    winner = race.file("winner", 9)
    race.meanwhile = lambda: race.other.post(f"{TABLE}/register", json={"paths": [winner]})
    answer = race.app.post(f"{TABLE}/commits", json={"added_from": lists})
    assert answer.status_code == 200, answer.text
    assert sorted(race.locations()) == sorted([winner, *files])
    assert "lamella_commit_retries_total 1.0" in race.app.get("/metrics").text


def test_commits_with_lists_share_a_snapshot_with_others(pausable: PausableService) -> None:
    """Each has its own answer; who is refused does not hinder the others."""
    location = pausable.app.get(TABLE).json()["location"]
    there = pausable.file("there")
    pausable.app.post(f"{TABLE}/register", json={"paths": [there]})

    def body(*files: str) -> dict[str, Any]:
        blocks = [Block(location=file, row_count=1, file_size=1) for file in files]
        return {"added_from": put_lists(FsspecStore(), location, blocks, each=1)}

    bodies = [body(pausable.file("x"), pausable.file("y")), body(pausable.file("z"), there)]
    plain = {"added": [{"location": pausable.file("plain"), "row_count": 1, "file_size": 1}]}
    first = pausable.hold()
    sent = [pausable.send("commits", each) for each in (*bodies, plain)]
    pausable.queued(3)
    pausable.go.set()
    fine, refused, other = (future.result(WAIT_S) for future in sent)
    assert (first.result(WAIT_S).status_code, fine.status_code, refused.status_code) == (200, 200, 409)
    assert (fine.json()["added"], other.json()["added"]) == (2, 1)
    assert fine.json()["snapshot_id"] == other.json()["snapshot_id"]


def test_a_commit_with_lists_can_die_before_each_object_that_it_writes_and_each_transaction(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has all of the blocks or none; the same request then goes through, or is a replay."""
    warehouse = tmp_path / "warehouse"
    server = start_server(warehouse=warehouse)
    processes = dying.processes(monkeypatch)
    deaths: dict[dying.Step, int] = {"write": 0, "commit": 0}
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world, Lamella(server.url) as lake:
        for step in deaths:
            raw = world.table()
            raw.register(*world.numbers(world.folder(), 2))
            body = {"added_from": put_lists(world.store, raw.info()["location"], fresh_blocks(world, raw, 3))}
            path = f"{raw.path}/commits"
            while True:
                process = processes.Process(
                    target=dying.post, args=(str(warehouse), path, body, "k", step, deaths[step] + 1)
                )
                process.start()
                process.join()
                assert raw.info()["block_count"] in (2, 5)
                if process.exitcode == 0:
                    break
                deaths[step] += 1
            assert raw.info()["block_count"] == 5
            assert raw.api.send("POST", path, body, key="k").headers.get("idempotency-replayed") == "true"
            assert lake.table(f"{raw.namespace}.{raw.name}").verify(deep=True, sample=1.0).is_clean
    assert deaths["write"] >= 4
    assert deaths["commit"] >= 1
