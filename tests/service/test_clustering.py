"""Figures of layouts and regroupings over real HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fixtures_server import StartServer
from lamella.client.http import Lamella, Table
from lamella.snapshot.errors import (
    FilterTypeMismatch,
    InvalidFilter,
    InvalidRequest,
    SnapshotNotFound,
    UnknownColumn,
)
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import RegroupAnswer
from support import dying
from support.own_app import NewOwn
from support.race import TABLE, Race
from support.service_api import TableApi, World

#: Blocks of a segment that no commit folds with others.
BLOCKS = 520


def interleaved(world: World, segments: int = 3) -> tuple[TableApi, Table, Lamella]:
    """A table of narrow blocks, each segment with some from everywhere. The files are none: nobody opens them."""
    raw = world.table(cluster_key=["a"])
    folder = world.folder()
    lows = list(range(0, segments * BLOCKS * 10, 10))
    Random(0).shuffle(lows)
    for low in lows:
        touch(f"{folder}/{low:06}")
    for number in range(segments):
        mine = lows[number * BLOCKS : (number + 1) * BLOCKS]
        raw.commit(added=[block(f"{folder}/{low:06}", low) for low in mine])
    lake = Lamella(world.url)
    return raw, lake.table(f"{raw.namespace}.{raw.name}"), lake


def touch(location: str) -> None:
    """A local file of one byte; a store would see to it that it outlives a loss of power."""
    path = Path(location.removeprefix("file://"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")


def block(location: str, low: int) -> dict[str, Any]:
    """A block of ten values of ``a``."""
    stats = {"min": {"Int64": low}, "max": {"Int64": low + 9}, "null_count": 0}
    return {"location": location, "row_count": 10, "file_size": 1, "col_stats": {"1": stats}}


@pytest.fixture
def mixed(local: World) -> Iterator[tuple[TableApi, Table]]:
    """Three segments, each with blocks from everywhere."""
    raw, table, lake = interleaved(local)
    with lake:
        yield raw, table


@pytest.fixture
def table(local: World) -> Iterator[Table]:
    """Twelve blocks that do not overlap, of which a third was written for the key."""
    raw = local.table(cluster_key=["a"])
    files = local.numbers(local.folder(), 12)
    blocks = []
    for number, file in enumerate(files):
        stats = {"min": {"Int64": 10 * number}, "max": {"Int64": 10 * number + 9}, "null_count": 0}
        text = {"min": {"String": f"v{10 * number:06}"}, "max": {"String": f"v{10 * number + 9:06}"}, "null_count": 0}
        said = {"key_id": 0, "level": number} if number % 3 == 0 else None
        blocks.append(
            {
                "location": file,
                "row_count": 10,
                "file_size": 1,
                "col_stats": {"1": stats, "2": text},
                "cluster_stats": said,
            }
        )
    raw.commit(added=blocks)
    with Lamella(local.url) as lake:
        yield lake.table(f"{raw.namespace}.{raw.name}")


def test_a_sorted_table_has_depth_one(table: Table) -> None:
    """For its key, the counts of blocks by what they are, and what look-ups read."""
    found = table.clustering()
    assert (found.columns, found.kind, found.key_id) == (("a",), "linear", 0)
    assert (found.blocks, found.blocks_total, found.row_count, found.segments_total) == (12, 12, 120, 1)
    assert (found.depth.average_depth, found.depth.max_depth, found.depth.histogram) == (1.0, 1, {1: 12})
    assert (found.depth.average_overlaps, found.segment_depth.max_depth) == (0.0, 1)
    assert (found.unclustered_blocks, found.levels) == (8, {0: 1, 3: 1, 6: 1, 9: 1})
    assert (found.small_blocks, found.constant_blocks, found.unknown_blocks) == (12, 0, 0)
    point = found.look_ups[0]
    assert (point.share, point.column) == (0.0, None)
    assert point.blocks == pytest.approx(1.0)
    assert point.ideal_blocks == pytest.approx(1.0)
    assert found.segments_opened == pytest.approx(1.0)


def test_any_other_key_can_be_measured(table: Table) -> None:
    """No block was written for it; a key of several columns along a curve has look-ups for each column."""
    found = table.clustering(["S", "a"], "hilbert")
    assert (found.columns, found.kind, found.key_id) == (("s", "a"), "hilbert", None)
    assert (found.unclustered_blocks, found.levels) == (12, {})
    assert {each.column for each in found.look_ups} == {"s", "a", None}
    assert table.clustering(["a"]).key_id == 0
    assert table.clustering(["a"], "zorder").key_id is None


def test_a_filter_leaves_the_blocks_that_may_match(table: Table) -> None:
    """All figures of blocks are of those alone."""
    found = table.clustering(where="a < 25")
    assert (found.blocks, found.blocks_total, found.unclustered_blocks) == (3, 12, 2)
    assert table.clustering(where="a < 0").blocks == 0
    assert table.clustering(where="a IS NULL").depth.histogram == {}


def test_an_older_snapshot_can_be_measured(table: Table) -> None:
    """With the key that it had."""
    then = table.info().snapshot_id
    table.cluster_by(["s"], "zorder")
    table.commit(removed=table.prune("a < 50").locations)
    now, before = table.clustering(), table.clustering(snapshot_id=then)
    assert (now.columns, now.key_id, now.blocks, now.unclustered_blocks) == (("s",), 1, 7, 7)
    assert (before.columns, before.key_id, before.blocks) == (("a",), 0, 12)
    assert before.snapshot_id == then


def test_recorded_filters_are_replayed(table: Table) -> None:
    """Each with what it reads now, of all blocks; filters whose column is gone are left out."""
    for _ in range(3):
        table.prune("a BETWEEN 20 AND 41")
    table.prune("s = 'v000001'")
    found = table.clustering()
    costs = {each.filter: each for each in found.recorded}
    assert len(costs) == 2
    ranged = next(each for text, each in costs.items() if "a" in text.split()[0])
    assert ranged.times == 3
    assert 1 <= ranged.cost.blocks <= 12
    assert ranged.cost.bytes > 0
    assert ranged.cost.skip == pytest.approx(1 - ranged.cost.blocks / 12)
    assert table.clustering(recorded=0).recorded == ()


def test_an_empty_table_has_a_layout_too(local: World) -> None:
    """Nothing lies anywhere."""
    raw = local.table(cluster_key=["a"])
    with Lamella(local.url) as lake:
        found = lake.table(f"{raw.namespace}.{raw.name}").clustering()
        assert (found.blocks, found.depth.average_depth, found.segments_opened, found.look_ups) == (0, 0.0, 0.0, ())
        done = lake.table(f"{raw.namespace}.{raw.name}").regroup()
        assert (done.replaced, done.remaining, done.measured_after) == (0, 0, None)


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda table: table.clustering(["x"]), UnknownColumn),
        (lambda table: table.clustering(["a", "a"]), InvalidRequest),
        (lambda table: table.clustering((), "zorder"), InvalidRequest),
        (lambda table: table.clustering(["a"], "sorted"), InvalidRequest),
        (lambda table: table.clustering(where="a <"), InvalidFilter),
        (lambda table: table.clustering(where="a = TRUE"), FilterTypeMismatch),
        (lambda table: table.clustering(where="x = 1"), UnknownColumn),
        (lambda table: table.clustering(where="A = 1", case_sensitive=True), UnknownColumn),
        (lambda table: table.clustering(recorded=5_000), InvalidRequest),
        (lambda table: table.clustering(snapshot_id="nothing"), SnapshotNotFound),
        (lambda table: table.regroup(["x"]), UnknownColumn),
        (lambda table: table.regroup((), "zorder"), InvalidRequest),
        (lambda table: table.regroup(max_segments=1), InvalidRequest),
        (lambda table: table.regroup(max_ms=-1), InvalidRequest),
        (lambda table: table.regroup(target_depth=0), InvalidRequest),
        (lambda table: table.regroup(min_gain=-1.0), InvalidRequest),
    ],
)
def test_what_cannot_be_requested_is_refused(table: Table, ask: Callable[[Table], Any], error: type[Exception]) -> None:
    """And nothing is changed."""
    before = table.info().snapshot_id
    with pytest.raises(error):
        ask(table)
    assert table.info().snapshot_id == before


def test_a_table_without_a_key_needs_one_in_the_question(local: World) -> None:
    """There is no order that it could be in."""
    raw = local.table()
    raw.register(*local.numbers(local.folder(), 2))
    with Lamella(local.url) as lake:
        table = lake.table(f"{raw.namespace}.{raw.name}")
        with pytest.raises(InvalidRequest):
            table.clustering()
        with pytest.raises(InvalidRequest):
            table.regroup()
        assert table.clustering(["a"]).blocks == 2


def selected(table: Table, low: int) -> tuple[set[str], int]:
    """The blocks that a range leaves, and into how many segments it has to look."""
    found = table.prune(f"a BETWEEN {low} AND {low + 50}", explain=True)
    segments = next(stage for stage in found.report.stages if stage.stage == "segment")
    return set(found.locations), segments.kept


def test_regrouping_lets_look_ups_skip_segments(mixed: tuple[TableApi, Table]) -> None:
    """Same blocks, same answers, fewer segments looked into; as predicted, and as the figures measure it."""
    raw, table = mixed
    lows = range(0, 15_000, 1_111)
    before, figures = {low: selected(table, low) for low in lows}, table.clustering()
    assert figures.segments_opened == pytest.approx(3, abs=0.1)
    assert {segments for _, segments in before.values()} == {3}
    parts: list[RegroupAnswer] = []
    done = table.regroup(on_part=parts.append)
    assert (done.groups, done.replaced, done.blocks, done.given_up, done.remaining) == (1, 3, 3 * BLOCKS, 0, 0)
    assert done.measured_before == pytest.approx(figures.segments_opened)
    after = table.clustering()
    assert done.measured_after == pytest.approx(after.segments_opened)
    assert done.predicted_after == pytest.approx(after.segments_opened, rel=0.1)
    assert after.segments_opened < 1.5
    assert after.segment_depth.max_depth == 1
    for low, (blocks, _) in before.items():
        found, segments = selected(table, low)
        assert found == blocks
        assert segments <= 2
    assert [entry["operation"] for entry in raw.history()][:1] == ["regroup"]
    assert (raw.info()["block_count"], raw.info()["row_count"]) == (3 * BLOCKS, 30 * BLOCKS)
    assert table.verify(files=False).is_clean
    assert parts[-1].snapshot_id == raw.info()["snapshot_id"]


def test_a_second_regrouping_finds_nothing_to_do(mixed: tuple[TableApi, Table]) -> None:
    """So repeated ones come to an end, and the answer says why."""
    raw, table = mixed
    table.regroup()
    before = raw.info()["snapshot_id"]
    again = table.regroup()
    assert (again.groups, again.replaced, again.remaining, again.measured_after) == (0, 0, 0, None)
    assert again.reason
    assert raw.info()["snapshot_id"] == again.snapshot_id == before


def test_a_dry_run_says_what_would_be_done(mixed: tuple[TableApi, Table]) -> None:
    """And writes nothing."""
    raw, table = mixed
    before = raw.info()["snapshot_id"]
    said = table.regroup(dry_run=True)
    assert (said.groups, said.replaced, said.blocks) == (1, 3, 3 * BLOCKS)
    assert said.predicted_after < said.predicted_before
    assert (said.measured_before, said.measured_after) == (None, None)
    assert raw.info()["snapshot_id"] == before
    done = table.regroup()
    assert (done.replaced, done.made) == (said.replaced, said.made)


def test_segments_can_be_put_in_order_of_another_key(mixed: tuple[TableApi, Table]) -> None:
    """A column without bounds gives nothing to go by."""
    raw, table = mixed
    assert table.regroup(["s"]).replaced == 0
    table.cluster_by([])
    assert table.regroup(["a"]).replaced == 3
    assert raw.info()["cluster_key"] == []


def test_an_index_knows_the_blocks_as_before(local: World) -> None:
    """Keys of blocks do not change with their segments."""
    raw = local.table(cluster_key=["a"])
    raw.register(*local.numbers(local.folder(), 3))
    with Lamella(local.url) as lake:
        table = lake.table(f"{raw.namespace}.{raw.name}")
        table.create_index("i", "value_set", "a")
        table.refresh_index("i")
        folder = local.folder()
        for number in range(2):
            names = [f"{folder}/{number}-{at:04}" for at in range(BLOCKS)]
            for name in names:
                local.store.put(name, b"x")
            lows = [100 + 10 * (2 * at + number) for at in range(BLOCKS)]
            raw.commit(added=[block(name, low) for name, low in zip(names, lows, strict=True)])
        before = table.index("i").coverage
        assert table.regroup(target_depth=1).replaced >= 2
        assert table.index("i").coverage == before
        assert table.prune("a = 15").block_count == 1


def regrouped(app: Any, **body: Any) -> dict[str, Any]:
    """One part, over HTTP."""
    response = app.post(f"{TABLE}/regroup", json={"key": ["a"], "target_depth": 1, **body})
    assert response.status_code == 200, response.text
    return dict(response.json())


@pytest.fixture
def contested(race: Race) -> Race:
    """A race over a table with two segments that lie over one another."""
    for number in range(2):
        locations = []
        for at in range(BLOCKS):
            location = f"file://{race.folder}/{number}-{at:04}"
            touch(location)
            locations.append(block(location, 10 * (2 * at + number)))
        assert race.app.post(f"{TABLE}/commits", json={"added": locations}).status_code == 200
    return race


def test_an_append_that_comes_first_costs_nothing(contested: Race) -> None:
    """The segments that are written are put into the snapshot that has it."""
    new = contested.file("new", 1_000_000)
    contested.meanwhile = lambda: contested.other.post(f"{TABLE}/register", json={"paths": [new]})
    answer = regrouped(contested.app)
    assert (answer["replaced"], answer["given_up"]) == (2, 0)
    assert new in contested.locations()
    assert len(contested.locations()) == 2 * BLOCKS + 1


def test_a_removal_that_comes_first_wins(contested: Race) -> None:
    """The group is given up, which the answer says; the next try has it."""
    gone = contested.locations()[0]
    contested.meanwhile = lambda: contested.other.post(f"{TABLE}/commits", json={"removed": [gone]})
    answer = regrouped(contested.app)
    assert (answer["groups"], answer["replaced"], answer["given_up"]) == (0, 0, 1)
    assert answer["remaining"] >= 2
    assert answer["measured_after"] is None
    assert gone not in contested.locations()
    assert regrouped(contested.app)["replaced"] == 2
    assert len(contested.locations()) == 2 * BLOCKS - 1


def test_a_clean_up_while_a_regrouping_writes_its_segments_refuses_it(new_own: NewOwn) -> None:
    """They are in no snapshot yet: when some were deleted, none is committed, and the next try has them all."""
    own = new_own(vacuum_min_age_s=0, retention_max_age_s=0)
    for number in range(2):
        locations = [f"file://{own.folder}/{number}-{at:04}" for at in range(BLOCKS)]
        for location in locations:
            touch(location)
        added = [block(location, 10 * (2 * at + number)) for at, location in enumerate(locations)]
        assert own.app.post(f"{TABLE}/commits", json={"added": added}).status_code == 200
    before = own.info()
    written = own.clean_up_at_segment(2)
    refused = own.app.post(f"{TABLE}/regroup", json={"key": ["a"], "target_depth": 1})
    assert (refused.status_code, len(written)) == (503, 2)
    assert own.info() == before
    own.before = lambda _: None
    assert regrouped(own.app)["replaced"] == 2
    found = own.app.post(f"{TABLE}/verify", json={}).json()["findings"]
    assert {finding["code"] for finding in found} == {"footer_unreadable"}  # the files are none; the manifests are well


@pytest.mark.slow
def test_a_regrouping_is_done_once_for_each_key(contested: Race) -> None:
    """A copy of the request is answered with what was done."""
    body = {"key": ["a"], "target_depth": 1}
    first = contested.app.post(f"{TABLE}/regroup", json=body, headers={"Idempotency-Key": "k"})
    again = contested.app.post(f"{TABLE}/regroup", json=body, headers={"Idempotency-Key": "k"})
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first.json()


def test_regroupings_beside_appends_and_removals_lose_nothing(mixed: tuple[TableApi, Table], local: World) -> None:
    """Several at once: every block that was not removed is there, once."""
    raw, table = mixed
    folder = local.folder()
    gone = sorted(raw.locations())[::400]
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    def append() -> None:
        for number in range(4):
            file = local.put(f"{folder}/{number}.parquet", a=[number], s=["x"])
            raw.register(file)

    def remove() -> None:
        for location in gone:
            raw.commit(removed=[location])

    expected = set(raw.locations()) - set(gone) | {f"{folder}/{number}.parquet" for number in range(4)}
    threads = [threading.Thread(target=run, args=(work,)) for work in (table.regroup, append, table.regroup, remove)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    found = raw.locations()
    assert sorted(found) == sorted(expected)
    table.regroup()
    assert sorted(raw.locations()) == sorted(expected)
    assert table.verify(files=False).is_clean


def test_a_regrouping_can_die_before_each_object_that_it_writes_and_each_transaction(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has its old segments or its new ones; the same request then goes through, or is a replay."""
    warehouse = tmp_path / "warehouse"
    server = start_server(warehouse=warehouse)
    processes = dying.processes(monkeypatch)
    deaths: dict[dying.Step, list[bool]] = {"write": [], "commit": []}
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world:
        for step, outcomes in deaths.items():
            raw, table, lake = interleaved(world, 2)
            blocks = sorted(raw.locations())
            path, body = f"{raw.path}/regroup", {"target_depth": 1}
            with lake:
                while True:
                    process = processes.Process(
                        target=dying.post, args=(str(warehouse), path, body, "k", step, len(outcomes) + 1)
                    )
                    process.start()
                    process.join()
                    assert sorted(raw.locations()) == blocks
                    done = raw.history()[0]["operation"] == "regroup"
                    if process.exitcode == 0:
                        break
                    outcomes.append(done)
                assert done
                assert raw.api.send("POST", path, body, key="k").headers.get("idempotency-replayed") == "true"
                assert table.verify(files=False).is_clean
    assert len(deaths["write"]) >= 6
    assert deaths["commit"]
