"""Commits that bring blocks and what skip indexes know of them: one snapshot has both, or neither."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fixtures_server import StartServer
from lamella.client.http import Lamella, Table
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.manifest import Snapshot, decode_snapshot
from lamella.snapshot.schema.evolution import DropColumn
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import Coverage
from support import dying
from support.built_parts import blocks_of, built, sent_blocks, sent_parts
from support.pausable_service import WAIT_S, PausableService
from support.race import TABLE, Race
from support.service_api import TableApi, World, fresh_name


@pytest.fixture
def indexed(local: World) -> Iterator[tuple[World, TableApi, Table]]:
    """A table with two indexes that know its two blocks."""
    yield from _indexed(local)


@pytest.fixture
def everywhere(world: World) -> Iterator[tuple[World, TableApi, Table]]:
    """The same for each kind of catalog and store."""
    yield from _indexed(world)


def _indexed(world: World) -> Iterator[tuple[World, TableApi, Table]]:
    raw = world.table()
    raw.register(*world.numbers(world.folder(), 2))
    with Lamella(world.url) as lake:
        table = lake.table(f"{raw.namespace}.{raw.name}")
        for name, column in (("i", "a"), ("s", "s")):
            table.create_index(name, "value_set", column)
            table.refresh_index(name)
        yield world, raw, table


def snapshot(table: Table) -> Snapshot:
    """The current one."""
    return table.snapshot(table.info().snapshot_id)


def known(table: Table, name: str = "i") -> tuple[int, int]:
    """Blocks that an index knows, and that it does not."""
    coverage = table.index(name).coverage
    assert isinstance(coverage, Coverage)
    return coverage.indexed, coverage.not_indexed


@pytest.mark.parametrize("by_keys", [False, True])
@pytest.mark.few(3)
def test_one_snapshot_has_the_blocks_and_their_entries(
    everywhere: tuple[World, TableApi, Table], by_keys: bool
) -> None:
    """The index is complete the moment the blocks are there, and prunes by what the parts know."""
    world, raw, table = everywhere
    now = snapshot(table)
    folder = world.folder()
    gap = world.put(f"{folder}/gap.parquet", a=[1_000, 3_000], s=["x", "z"])
    blocks = blocks_of(world.store, now, [*world.numbers(folder, 2), gap])
    if by_keys:
        stats = [world.store.stat(block.location) for block in blocks]
        blocks = [
            msgspec.structs.replace(block, file_size=stat.size_bytes, content_id=stat.content_id)
            for block, stat in zip(blocks, stats, strict=True)
        ]
    parts = [built(world.store, table.info().location, now, name, blocks, by_keys=by_keys) for name in ("i", "s")]
    before = len(raw.history())
    answer = table.commit(blocks, index_parts=parts)
    assert (answer.added, answer.left_out_parts) == (3, {})
    assert len(raw.history()) == before + 1
    assert (known(table, "i"), known(table, "s")) == ((5, 0), (5, 0))
    assert (table.prune("a = 2000").locations, table.prune("a = 3000").locations) == ([], [gap])
    assert (table.prune("s = 'y'").locations, table.prune("s = 'z'").locations) == ([], [gap])
    assert table.verify(deep=True, sample=1.0).is_clean


def test_a_part_may_be_about_some_of_the_blocks(indexed: tuple[World, TableApi, Table]) -> None:
    """The others are not known, and kept by every query."""
    world, _, table = indexed
    now = snapshot(table)
    blocks = blocks_of(world.store, now, world.numbers(world.folder(), 3))
    part = built(world.store, table.info().location, now, "i", blocks[1:])
    moved = msgspec.structs.replace(part.parts[0], blocks=(1, 2))
    answer = table.commit(blocks, index_parts=[msgspec.structs.replace(part, parts=(moved,))])
    assert answer.left_out_parts == {}
    assert known(table) == (4, 1)
    assert table.verify(deep=True, sample=1.0).is_clean


@pytest.mark.parametrize("change", ["dropped", "made anew", "column gone"])
def test_parts_of_an_index_that_is_no_longer_that_one_are_left_out(
    indexed: tuple[World, TableApi, Table], change: str
) -> None:
    """The blocks are committed, the answer says why, and the other index gets its parts."""
    world, raw, table = indexed
    now = snapshot(table)
    blocks = blocks_of(world.store, now, world.numbers(world.folder(), 2))
    parts = [built(world.store, table.info().location, now, name, blocks) for name in ("i", "s")]
    if change == "column gone":
        table.evolve([DropColumn(column="a")])
    else:
        table.drop_index("i")
    if change == "made anew":
        table.vacuum_index("i")
        table.create_index("i", "value_set", "a")
    answer = table.commit(blocks, index_parts=parts)
    assert list(answer.left_out_parts) == ["i"]
    assert answer.left_out_parts["i"]
    assert raw.info()["block_count"] == 4
    assert known(table, "s") == (4, 0)
    if change == "dropped":
        table.restore_index("i")
        assert known(table) == (2, 2)
    elif change == "made anew":
        assert known(table) == (0, 4)
    assert len(table.prune("s >= ''").locations) == 4


def wrong_parts(parts: Any, blocks: int) -> dict[str, Any]:
    """Bodies' ``index_parts`` that cannot be taken up, by what is wrong."""
    (sent,) = parts

    def other(**changes: Any) -> Any:
        return [{**sent, "parts": [{**sent["parts"][0], **changes}]}]

    return {
        "not in the table's folder": other(location="file:///tmp/x.part"),
        "not there": other(location=sent["parts"][0]["location"].replace("_v1.part", "0_v1.part")),
        "another size": other(size_bytes=1),
        "another tail": other(tail_sha256="0" * 64),
        "no blocks": other(blocks=[]),
        "too few blocks": other(blocks=[0]),
        "a block twice": other(blocks=[0, 0]),
        "a block that is not there": other(blocks=[0, blocks]),
        "a block below the first": other(blocks=[-1, 0]),
        "keys and places": other(keys="A" * 43 + "="),
        "half a key": other(blocks=[], keys="AAAA"),
        "twice": [{**sent, "parts": sent["parts"] * 2}],
        "another name": [{**sent, "name": "s"}],
        "no parts": [{**sent, "parts": []}],
        "an unknown member": other(more=1),
    }


def test_wrong_parts_refuse_the_whole_commit(indexed: tuple[World, TableApi, Table]) -> None:
    """What a client got wrong is not a matter of what came meanwhile: nothing is committed."""
    world, raw, table = indexed
    now = snapshot(table)
    blocks = blocks_of(world.store, now, world.numbers(world.folder(), 2))
    parts = sent_parts([built(world.store, table.info().location, now, "i", blocks)])
    before = raw.info()["snapshot_id"]
    for what, wrong in wrong_parts(parts, len(blocks)).items():
        body = {"added": sent_blocks(blocks), "index_parts": wrong}
        response = raw.api.send("POST", f"{raw.path}/commits", body)
        assert 400 <= response.status_code < 500, (what, response.text)
    problem = raw.api.problem("POST", f"{raw.path}/commits", {"properties": {"k": "v"}, "index_parts": parts})
    assert problem.code == InvalidRequest.code
    path = f"{raw.path}/indexes/i/parts"
    alone = {"index_id": parts[0]["index_id"], "parts": parts[0]["parts"]}
    assert raw.api.problem("POST", path, alone).code == InvalidRequest.code  # places are of a commit
    assert raw.info()["snapshot_id"] == before
    assert table.commit(sent_blocks(blocks), index_parts=[]).added == 2


class Prepared:
    """Commits of new files with parts for the index of a race or a pausable service."""

    def __init__(self, app: Any, folder: Path) -> None:
        self.app = app
        self.store = FsspecStore()
        self.folder = folder

    def index(self, name: str) -> None:
        """Make an index."""
        body = {"name": name, "kind": "value_set", "expression": "a"}
        assert self.app.post(f"{TABLE}/indexes", json=body).status_code == 200

    def body(self, file: str, *names: str) -> dict[str, Any]:
        """A commit of a file, with parts for these indexes."""
        info = self.app.get(TABLE).json()
        now = decode_snapshot(self.app.get(f"{TABLE}/snapshots/{info['snapshot_id']}").content)
        blocks = blocks_of(self.store, now, [file])
        parts = [built(self.store, info["location"], now, name, blocks) for name in names]
        return {"added": sent_blocks(blocks), "index_parts": sent_parts(parts)}

    def known(self, name: str) -> tuple[int, int]:
        """Blocks that an index knows, and that it does not."""
        coverage = self.app.get(f"{TABLE}/indexes/{name}").json()["coverage"]
        return coverage["indexed"], coverage["not_indexed"]


def test_a_commit_that_loses_the_race_adds_its_parts_to_the_winners(race: Race) -> None:
    """Nothing that the winner's index knew is forgotten."""
    made = Prepared(race.app, race.folder)
    made.index("i")
    winner, loser = made.body(race.file("winner"), "i"), made.body(race.file("loser", 1), "i")
    race.meanwhile = lambda: race.other.post(f"{TABLE}/commits", json=winner)
    answer = race.app.post(f"{TABLE}/commits", json=loser)
    assert answer.status_code == 200, answer.text
    assert made.known("i") == (2, 0)
    assert "lamella_commit_retries_total 1.0" in race.app.get("/metrics").text


def test_an_index_that_is_dropped_between_check_and_commit_gets_no_parts(race: Race) -> None:
    """The commit goes through, and its answer says that the parts were left out."""
    made = Prepared(race.app, race.folder)
    made.index("i")
    made.index("j")
    body = made.body(race.file("x"), "i", "j")
    race.meanwhile = lambda: race.other.delete(f"{TABLE}/indexes/i")
    answer = race.app.post(f"{TABLE}/commits", json=body)
    assert answer.status_code == 200, answer.text
    assert list(answer.json()["left_out_parts"]) == ["i"]
    assert made.known("j") == (1, 0)
    assert race.other.post(f"{TABLE}/indexes/i/restore", json={}).status_code == 200
    assert made.known("i") == (0, 1)


def test_commits_with_parts_that_wait_together_share_a_snapshot(pausable: PausableService) -> None:
    """Each brings its own parts, for the same index and for others; plain appends are in the same snapshot."""
    made = Prepared(pausable.app, pausable.folder)
    made.index("i")
    made.index("j")
    bodies = [made.body(pausable.file(fresh_name("x")), *names) for names in (("i",), ("i", "j"), ("j",), ())]
    bodies[3].pop("index_parts")
    first = pausable.hold()
    sent = [pausable.send("commits", body) for body in bodies]
    pausable.queued(4)
    pausable.go.set()
    answers = [future.result(WAIT_S) for future in sent]
    assert [answer.status_code for answer in (first.result(WAIT_S), *answers)] == [200] * 5
    assert len({answer.json()["snapshot_id"] for answer in answers}) == 1
    assert [answer.json()["left_out_parts"] for answer in answers] == [{}] * 4
    assert (made.known("i"), made.known("j")) == ((2, 3), (2, 3))


def test_a_commit_that_is_refused_brings_no_parts_while_others_of_its_group_do(pausable: PausableService) -> None:
    """Blocks that are there already: their entries are not added a second time either."""
    made = Prepared(pausable.app, pausable.folder)
    made.index("i")
    there, fresh = pausable.file("there"), pausable.file("fresh")
    doubled = made.body(there, "i")
    doubled["operation"] = "replace"
    fine = made.body(fresh, "i")
    pausable.app.post(f"{TABLE}/register", json={"paths": [there]})
    first = pausable.hold()
    sent = [pausable.send("commits", doubled), pausable.send("commits", fine)]
    pausable.queued(2)
    pausable.go.set()
    refused, accepted = (future.result(WAIT_S) for future in sent)
    assert (first.result(WAIT_S).status_code, refused.status_code, accepted.status_code) == (200, 409, 200)
    assert made.known("i") == (1, 2)


def test_a_commit_with_parts_can_die_before_each_object_that_it_writes_and_each_transaction(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has the blocks and their entries, or neither; the same request then goes through, or is a replay."""
    warehouse = tmp_path / "warehouse"
    server = start_server(warehouse=warehouse)
    processes = dying.processes(monkeypatch)
    deaths: dict[dying.Step, list[bool]] = {"write": [], "commit": []}
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world, Lamella(server.url) as lake:
        for step, outcomes in deaths.items():
            raw = world.table()
            raw.register(*world.numbers(world.folder(), 2))
            table = lake.table(f"{raw.namespace}.{raw.name}")
            table.create_index("i", "value_set", "a")
            table.refresh_index("i")
            now = snapshot(table)
            blocks = blocks_of(world.store, now, world.numbers(world.folder(), 1))
            parts = [built(world.store, table.info().location, now, "i", blocks)]
            body = {"added": sent_blocks(blocks), "index_parts": sent_parts(parts)}
            path = f"{raw.path}/commits"
            while True:
                process = processes.Process(
                    target=dying.post, args=(str(warehouse), path, body, "k", step, len(outcomes) + 1)
                )
                process.start()
                process.join()
                indexed, left = known(table)
                assert (indexed, left) in ((2, 0), (3, 0))
                assert raw.info()["block_count"] == indexed
                if process.exitcode == 0:
                    break
                outcomes.append(indexed == 3)
            assert known(table) == (3, 0)
            assert raw.api.send("POST", path, body, key="k").headers.get("idempotency-replayed") == "true"
    assert len(deaths["write"]) >= 4
    assert deaths["commit"]


def test_parts_come_only_with_blocks(indexed: tuple[World, TableApi, Table]) -> None:
    """A commit that adds nothing has nothing that they could be about."""
    world, _, table = indexed
    now = snapshot(table)
    blocks = blocks_of(world.store, now, world.numbers(world.folder(), 1))
    part = built(world.store, table.info().location, now, "i", blocks)
    with pytest.raises(LamellaError):
        table.commit(removed=[table.prune().locations[0]], index_parts=[part])
