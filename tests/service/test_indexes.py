"""The life of skip indexes over real HTTP."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fixtures_server import StartServer
from lamella.client.http import Lamella, Table
from lamella.snapshot.errors import (
    AlreadyExists,
    IndexNotFound,
    InvalidPageToken,
    InvalidRequest,
    LamellaError,
    UnknownColumn,
)
from lamella.snapshot.storage import FsspecStore, TableLayout
from lamella.snapshot.wire import IndexInfo, RefreshAnswer
from support import dying
from support.service_api import TableApi, World, fresh_name, parquet_bytes

BLOCKS = 12


@pytest.fixture
def filled(local: World) -> Iterator[tuple[World, TableApi, Table]]:
    """A table of some blocks in three segments, without an index."""
    yield from _filled(local)


@pytest.fixture
def everywhere(world: World) -> Iterator[tuple[World, TableApi, Table]]:
    """The same for each kind of catalog and store."""
    yield from _filled(world)


def _filled(world: World) -> Iterator[tuple[World, TableApi, Table]]:
    table, folder = world.table(), world.folder()
    for part in range(3):
        table.register(*world.numbers(f"{folder}/{part}", BLOCKS // 3))
    with Lamella(world.url) as lake:
        yield world, table, lake.table(f"{table.namespace}.{table.name}")


def known(info: IndexInfo) -> tuple[int, int, int]:
    """Indexed, not indexed and stale blocks."""
    assert info.coverage is not None
    coverage = info.coverage
    assert coverage.indexed + coverage.not_indexed == coverage.blocks
    return coverage.indexed, coverage.not_indexed, coverage.stale


def operations(table: TableApi) -> list[str]:
    """The operations of the history, newest first."""
    return [entry["operation"] for entry in table.history()]


def test_an_index_is_made_filled_looked_at_dropped_restored_and_removed(
    everywhere: tuple[World, TableApi, Table],
) -> None:
    """Each change is a snapshot of its own; the blocks are never touched."""
    _, raw, table = everywhere
    before = raw.info()
    made = table.create_index("by_s", "bloom", "lower(s)", options={"false_positives": 0.01})
    assert (made.name, made.kind, made.expression, made.dtype) == ("by_s", "bloom", "lower(s)", "string")
    assert made.options["false_positives"] == 0.01
    assert known(made) == (0, BLOCKS, 0)
    answer = table.refresh_index("by_s")
    assert (answer.indexed, answer.row_count, answer.left_out, answer.remaining, answer.done) == (
        BLOCKS,
        BLOCKS // 3 * 10 * 3,
        (),
        0,
        True,
    )
    shown = table.index("BY_S")
    assert known(shown) == (BLOCKS, 0, 0)
    assert shown.size_bytes == answer.size_bytes > 0
    assert shown.bytes_per_block == shown.size_bytes / BLOCKS
    assert table.indexes() == (shown,)
    dropped = table.drop_index("by_s")
    assert dropped.dropped_ms is not None
    assert table.indexes() == ()
    assert [index.name for index in table.indexes(dropped=True)] == ["by_s"]
    restored = table.restore_index("by_s")
    assert restored.dropped_ms is None
    assert known(table.index("by_s")) == (BLOCKS, 0, 0)
    table.drop_index("by_s")
    removed = table.vacuum_index("by_s")
    assert removed.name == "by_s"
    assert table.indexes(dropped=True) == ()
    with pytest.raises(IndexNotFound):
        table.index("by_s")
    after = raw.info()
    assert {name: after[name] for name in ("row_count", "block_count", "segment_count", "schema")} == {
        name: before[name] for name in ("row_count", "block_count", "segment_count", "schema")
    }
    assert operations(raw)[:6] == ["index"] * 6


def test_the_kinds_are_listed_with_their_options(local: World) -> None:
    """Every kind says what it is for; defaults lie within the bounds."""
    with Lamella(local.url) as lake:
        kinds = {kind.name: kind for kind in lake.index_kinds()}
    assert {"bloom", "value_set", "ngram"} <= set(kinds)
    for kind in kinds.values():
        assert kind.text
        for option in kind.options:
            assert option.text
            assert option.minimum is None or option.minimum <= option.default
            assert option.maximum is None or option.default <= option.maximum


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda t: t.create_index("1x", "bloom", "s"), InvalidRequest),
        (lambda t: t.create_index("x", "none_such", "s"), InvalidRequest),
        (lambda t: t.create_index("x", "bloom", "nothing"), UnknownColumn),
        (lambda t: t.create_index("x", "bloom", "1 + 1"), InvalidRequest),
        (lambda t: t.create_index("x", "bloom", "s = "), InvalidRequest),
        (lambda t: t.create_index("x", "bloom", "s", options={"false_positives": 2}), InvalidRequest),
        (lambda t: t.create_index("x", "bloom", "s", options={"colour": 1}), InvalidRequest),
        (lambda t: t.create_index("x", "ngram", "a"), InvalidRequest),
        (lambda t: t.create_index("x", "bloom", "s", time_zone="Nowhere/At_all"), InvalidRequest),
        (lambda t: t.create_index("I", "bloom", "s"), AlreadyExists),
        (lambda t: t.create_index("gone", "bloom", "s"), AlreadyExists),
        (lambda t: t.drop_index("none"), IndexNotFound),
        (lambda t: t.drop_index("gone"), IndexNotFound),
        (lambda t: t.restore_index("i"), IndexNotFound),
        (lambda t: t.vacuum_index("i"), IndexNotFound),
        (lambda t: t.refresh_index("none"), IndexNotFound),
        (lambda t: t.refresh_index("gone"), IndexNotFound),
        (lambda t: t.refresh_index("i", "slow"), InvalidRequest),
        (lambda t: t.refresh_index("i", max_blocks=0), InvalidRequest),
        (lambda t: t.refresh_index("i", max_blocks=10**9), InvalidRequest),
        (lambda t: t.refresh_index("i", max_ms=-1), InvalidRequest),
        (lambda t: t.refresh_index("i", max_ms=1e9), InvalidRequest),
        (lambda t: t.optimise_index("none"), IndexNotFound),
        (lambda t: t.optimise_index("i", max_ms=0), InvalidRequest),
        (lambda t: t.add_index_parts("i", "x", []), InvalidRequest),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    filled: tuple[World, TableApi, Table], call: Any, kind: type[LamellaError]
) -> None:
    """Each mistake is an error of its own class, and the table stays at its snapshot."""
    _, raw, table = filled
    table.create_index("i", "bloom", "s")
    table.create_index("gone", "bloom", "s")
    table.drop_index("gone")
    before = raw.info()["snapshot_id"]
    with pytest.raises(kind):
        call(table)
    assert raw.info()["snapshot_id"] == before


def test_a_refresh_goes_on_where_it_ended(filled: tuple[World, TableApi, Table]) -> None:
    """Each part is committed and counted; `remaining` goes down to nothing, and no block is indexed twice."""
    _, raw, table = filled
    table.create_index("i", "value_set", "a")
    seen: list[RefreshAnswer] = []
    whole = table.refresh_index("i", max_blocks=5, on_part=seen.append)
    assert [part.indexed for part in seen] == [5, 5, 2]
    assert [part.remaining for part in seen] == [7, 2, 0]
    assert [part.coverage is None for part in seen] == [True, True, False]
    assert (whole.indexed, whole.parts) == (BLOCKS, 3)
    before = raw.info()["snapshot_id"]
    again = table.refresh_index("i")
    assert (again.indexed, again.remaining, again.snapshot_id) == (0, 0, before)


def test_a_time_budget_ends_a_part_but_not_before_one_block(filled: tuple[World, TableApi, Table]) -> None:
    """The shortest budget there is still comes to an end."""
    _, _, table = filled
    table.create_index("i", "value_set", "a")
    seen: list[RefreshAnswer] = []
    table.refresh_index("i", max_ms=1e-6, on_part=seen.append)
    assert sum(part.indexed for part in seen) == BLOCKS
    assert all(part.indexed >= 1 for part in seen)


def test_prunes_use_an_index_and_keep_what_it_does_not_know(local: World) -> None:
    """From the first part on; a new block, a replaced one, and those of a part that is gone are kept."""
    table, folder = local.table(), local.folder()
    locations = [local.put(f"{folder}/{i}.parquet", a=[i, 1_000 - i], s=["x", "y"]) for i in range(6)]
    table.register(*locations)
    with Lamella(local.url) as lake:
        handle = lake.table(f"{table.namespace}.{table.name}")
        handle.create_index("i", "value_set", "a")
        assert table.locations("a = 5") == locations
        handle.refresh_index("i", max_blocks=6)
        assert table.locations("a = 5") == [locations[5]]
        assert table.locations("a = 500") == []
        (use,) = table.prune("a = 5")["report"]["indexes"]
        assert (use["name"], use["considered"], use["ruled_out"], use["not_indexed"]) == ("i", 6, 5, 0)
        appended = local.put(f"{folder}/later.parquet", a=[0, 1_000], s=["x", "y"])
        table.register(appended)
        table.commit(removed=[locations[1]], operation="delete")
        local.store.delete(locations[1])
        table.register(local.put(locations[1], a=[5, 999], s=["x", "y"]))
        assert sorted(table.locations("a = 5")) == sorted([locations[1], locations[5], appended])
        (use,) = table.prune("a = 5")["report"]["indexes"]
        assert use["not_indexed"] == 2
        handle.drop_index("i")
        assert len(table.locations("a = 5")) == 7
        handle.restore_index("i")
        assert len(table.locations("a = 5")) == 3


def test_a_page_token_is_of_one_refresh(filled: tuple[World, TableApi, Table]) -> None:
    """Another index, another mode, or no token at all is refused."""
    _, raw, table = filled
    table.create_index("i", "value_set", "a")
    table.create_index("j", "value_set", "a")
    first = raw.api.call("POST", f"{raw.path}/indexes/i/refresh", {"max_blocks": 1})
    token = first["next_page_token"]
    for index, body in (("j", {"page_token": token}), ("i", {"page_token": token, "mode": "full"})):
        assert raw.api.problem("POST", f"{raw.path}/indexes/{index}/refresh", body).code == InvalidPageToken.code
    for wrong in ("", "!", "bnVsbA", token[:-3]):
        body = {"page_token": wrong}
        assert raw.api.problem("POST", f"{raw.path}/indexes/i/refresh", body).code == InvalidPageToken.code


def test_a_refresh_that_is_repeated_with_its_key_builds_nothing_again(filled: tuple[World, TableApi, Table]) -> None:
    """The stored answer comes back."""
    _, raw, table = filled
    table.create_index("i", "value_set", "a")
    key, path = fresh_name("key"), f"{raw.path}/indexes/i/refresh"
    first = raw.api.call("POST", path, {"max_blocks": 4}, key=key)
    again = raw.api.send("POST", path, {"max_blocks": 4}, key=key)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first
    assert known(table.index("i")) == (4, BLOCKS - 4, 0)


@pytest.mark.parametrize("what", ["refresh", "optimise"])
def test_what_found_nothing_to_do_is_answered_the_same_by_its_key(
    filled: tuple[World, TableApi, Table], what: str
) -> None:
    """A repeated request does nothing although there is something to do by now."""
    world, raw, table = filled
    table.create_index("i", "value_set", "a")
    table.refresh_index("i")
    table.optimise_index("i")
    key, path = fresh_name("key"), f"{raw.path}/indexes/i/{what}"
    first = raw.api.call("POST", path, {}, key=key)
    for _ in range(2):
        raw.register(*world.numbers(world.folder(), 1))
        if what == "optimise":
            table.refresh_index("i")
    again = raw.api.send("POST", path, {}, key=key)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first
    assert (known(table.index("i"))[1] == 0) == (what == "optimise")
    assert raw.api.problem("POST", path, {"max_ms": 5}, key=key).code == "idempotency_mismatch"


def test_blocks_that_cannot_be_indexed_are_left_out_with_the_reason_and_tried_once(
    filled: tuple[World, TableApi, Table],
) -> None:
    """A file that is gone, or another one by now, does not hold up the others."""
    world, raw, table = filled
    locations = raw.locations()
    world.store.delete(locations[1])
    world.store.delete(locations[4])
    world.put(locations[4], a=[1], s=["x"])
    table.create_index("i", "value_set", "a")
    seen: list[RefreshAnswer] = []
    answer = table.refresh_index("i", max_blocks=3, on_part=seen.append)
    assert {left.location for left in answer.left_out} == {locations[1], locations[4]}
    assert all(left.reason for left in answer.left_out)
    assert answer.indexed == BLOCKS - 2
    assert len(seen) == BLOCKS // 3
    assert known(table.index("i")) == (BLOCKS - 2, 2, 0)


def test_a_block_whose_file_was_replaced_is_stale_until_it_is_indexed_again(
    filled: tuple[World, TableApi, Table],
) -> None:
    """What was known of the old file is never believed of the new one."""
    world, raw, table = filled
    table.create_index("i", "value_set", "a")
    table.refresh_index("i")
    location = raw.locations()[2]
    raw.commit(removed=[location], operation="delete")
    world.store.delete(location)
    world.put(location, a=[9_999], s=["new"])
    raw.register(location)
    assert known(table.index("i")) == (BLOCKS - 1, 1, 1)
    assert table.refresh_index("i").indexed == 1
    shown = table.index("i")
    assert known(shown) == (BLOCKS, 0, 0)
    assert shown.coverage is not None
    assert shown.coverage.unused_entries == 1
    table.refresh_index("i", "quick")
    shown = table.index("i")
    assert shown.coverage is not None
    assert (known(shown), shown.coverage.unused_entries) == ((BLOCKS, 0, 0), 0)


def test_a_full_refresh_replaces_what_was_there(filled: tuple[World, TableApi, Table]) -> None:
    """All blocks are built again, and the old parts are not part of the index any more."""
    _, _, table = filled
    table.create_index("i", "value_set", "a")
    table.refresh_index("i", max_blocks=5)
    before = table.index("i")
    answer = table.refresh_index("i", "full", max_blocks=7)
    after = table.index("i")
    assert answer.indexed == BLOCKS
    assert known(after) == (BLOCKS, 0, 0)
    assert (before.parts, after.parts) == (3, 2)
    assert after.coverage is not None
    assert after.coverage.unused_entries == 0


def test_a_full_refresh_forgets_what_it_cannot_build_again(filled: tuple[World, TableApi, Table]) -> None:
    """What was known of a block whose file is gone does not count any more; an incremental one lets it be."""
    world, raw, table = filled
    table.create_index("i", "value_set", "a")
    table.refresh_index("i")
    world.store.delete(raw.locations()[3])
    assert table.refresh_index("i").left_out == ()
    assert known(table.index("i")) == (BLOCKS, 0, 0)
    assert len(table.refresh_index("i", "full", max_blocks=5).left_out) == 1
    assert known(table.index("i")) == (BLOCKS - 1, 1, 0)


def test_a_quick_refresh_reads_no_rows(local: World) -> None:
    """It takes the bloom filters that files have, and leaves the others out; a kind that has no use for them does
    nothing."""
    table, folder = local.table(), local.folder()
    values = {"a": list(range(100)), "s": [f"v{value}" for value in range(100)]}
    filters = {"s": {"ndv": 100, "fpp": 0.01}}
    local.put(f"{folder}/with.parquet", parquet_bytes(values, bloom_filter_options=filters))
    table.register(*local.numbers(folder, 3), f"{folder}/with.parquet")
    with Lamella(local.url) as lake:
        handle = lake.table(f"{table.namespace}.{table.name}")
        handle.create_index("b", "bloom", "s")
        answer = handle.refresh_index("b", "quick")
        assert (answer.indexed, len(answer.left_out)) == (1, 3)
        assert known(handle.index("b")) == (1, 3, 0)
        assert handle.refresh_index("b").indexed == 3
        assert handle.verify(deep=True, sample=1.0).is_clean
        handle.create_index("v", "value_set", "s")
        answer = handle.refresh_index("v", "quick")
        assert (answer.indexed, answer.left_out) == (0, ())


def test_an_index_outlives_appends_removals_rollback_and_time_travel(filled: tuple[World, TableApi, Table]) -> None:
    """Entries count wherever their blocks are: nothing is built twice, and every snapshot has its own state."""
    world, raw, table = filled
    table.create_index("i", "value_set", "a")
    table.refresh_index("i")
    full = raw.info()["snapshot_id"]
    locations = raw.locations()
    raw.register(*world.numbers(world.folder(), 2))
    assert known(table.index("i")) == (BLOCKS, 2, 0)
    raw.commit(removed=locations[:6], operation="compact")
    assert known(table.index("i")) == (BLOCKS - 6, 2, 0)
    assert known(table.index("i", snapshot_id=full)) == (BLOCKS, 0, 0)
    table.rollback(full)
    assert known(table.index("i")) == (BLOCKS, 0, 0)
    assert table.refresh_index("i").indexed == 0


def test_an_index_outlives_drop_and_undrop_of_its_table(filled: tuple[World, TableApi, Table]) -> None:
    """An undropped table has its indexes as they were."""
    world, _, table = filled
    table.create_index("i", "value_set", "a")
    table.refresh_index("i")
    with Lamella(world.url) as lake:
        lake.drop_table(str(table))
        with pytest.raises(LamellaError):
            table.index("i")
        lake.undrop_table(str(table))
    assert known(table.index("i")) == (BLOCKS, 0, 0)


def test_optimising_gives_each_part_its_segments_and_drops_what_left(filled: tuple[World, TableApi, Table]) -> None:
    """Small parts become one, and entries of blocks that left go; then there is nothing more to do."""
    _, raw, table = filled
    table.create_index("i", "value_set", "a")
    table.refresh_index("i", max_blocks=2)
    raw.commit(removed=raw.locations()[:3], operation="delete")
    before = table.index("i")
    assert before.parts == 6
    answer = table.optimise_index("i")
    assert (answer.remaining, answer.lost) == (0, 0)
    after = table.index("i")
    assert (after.parts, known(after)) == (1, (BLOCKS - 3, 0, 0))
    assert after.coverage is not None
    assert after.coverage.unused_entries == 0
    snapshot_id = raw.info()["snapshot_id"]
    again = table.optimise_index("i")
    assert (again.regrouped, again.snapshot_id) == (0, snapshot_id)
    assert raw.info()["snapshot_id"] == snapshot_id


def test_refreshes_and_commits_at_once_all_land(filled: tuple[World, TableApi, Table]) -> None:
    """Several refreshes and appends beside each other: nothing fails, nothing is lost."""
    world, raw, table = filled
    table.create_index("i", "value_set", "a")
    errors: list[BaseException] = []

    def run(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    folders = [world.numbers(world.folder(), 2) for _ in range(3)]
    work: list[Callable[[], object]] = [lambda: table.refresh_index("i", max_blocks=2)] * 3
    work += [partial(raw.register, *files) for files in folders]
    work.append(lambda: table.optimise_index("i"))
    threads = [threading.Thread(target=run, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    table.refresh_index("i")
    assert known(table.index("i")) == (BLOCKS + 6, 0, 0)


def test_an_index_over_a_column_that_was_dropped_says_that_it_is_not_used(
    filled: tuple[World, TableApi, Table],
) -> None:
    """It stays, and can be refreshed again when a rollback brings the column back."""
    _, raw, table = filled
    table.create_index("i", "value_set", "a")
    table.refresh_index("i")
    before = raw.info()["snapshot_id"]
    raw.api.call("POST", f"{raw.path}/schema", {"changes": [{"change": "drop", "column": "a"}]})
    assert table.index("i").not_usable is not None
    with pytest.raises(InvalidRequest):
        table.refresh_index("i")
    assert raw.prune("s = 'v000001'")["blocks"]
    table.rollback(before)
    assert known(table.index("i")) == (BLOCKS, 0, 0)


def test_an_index_follows_a_column_that_is_renamed(filled: tuple[World, TableApi, Table]) -> None:
    """It is over the column, not over its name."""
    world, raw, table = filled
    table.create_index("i", "value_set", "a")
    table.refresh_index("i", max_blocks=BLOCKS)
    raw.api.call("POST", f"{raw.path}/schema", {"changes": [{"change": "rename", "column": "a", "name": "n"}]})
    assert table.index("i").not_usable is None
    raw.register(world.put(f"{world.folder()}/x.parquet", n=[1], s=["x"]))
    assert table.refresh_index("i").indexed == 1


def test_parts_from_elsewhere_are_checked(filled: tuple[World, TableApi, Table]) -> None:
    """Only whole parts of this index, in the table's own folder, are taken up; each of them once counts."""
    world, raw, table = filled
    made = table.create_index("i", "value_set", "a")
    table.refresh_index("i")
    root = raw.info()["location"]
    parts = [found for found in world.store.list(f"{root}/_ix/") if found.location.endswith(".part")]
    assert parts
    part = parts[0]
    data = world.store.read(part.location)
    good = {
        "location": part.location,
        "size_bytes": len(data),
        "tail_bytes": 100,
        "tail_sha256": "0" * 64,
        "keys": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    elsewhere = world.put(f"{world.folder()}/x.part", data)
    before = raw.info()["snapshot_id"]
    path = f"{raw.path}/indexes/i/parts"
    for change in (
        {},  # its tail is another one
        {"location": elsewhere},
        {"location": TableLayout(root).index_part("0190a0b0-0000-7000-8000-000000000000")},
        {"location": f"{root}/_ix/../x"},
        {"size_bytes": 1},
        {"tail_bytes": 0},
        {"tail_bytes": 1 << 40},
        {"keys": ""},
        {"keys": "AAAA"},
    ):
        body = {"index_id": made.index_id, "parts": [{**good, **change}]}
        answer = raw.api.send("POST", path, body)
        assert 400 <= answer.status_code < 500, answer.text
    body = {"index_id": "0190a0b0-0000-7000-8000-000000000000", "parts": [good]}
    assert raw.api.problem("POST", path, body).code == IndexNotFound.code
    assert raw.info()["snapshot_id"] == before


def test_a_service_that_is_killed_in_a_refresh_leaves_the_old_or_the_new_state(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Whatever the moment: the index knows some whole parts, and a new refresh completes it."""
    server = start_server(warehouse=tmp_path / "warehouse")
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world:
        raw = world.table()
        raw.register(*world.numbers(world.folder(), BLOCKS))
        with Lamella(server.url) as lake:
            table = lake.table(f"{raw.namespace}.{raw.name}")
            for turn in range(4):
                name = f"i{turn}"
                table.create_index(name, "value_set", "a")
                sent = threading.Thread(target=_refresh_and_forget, args=(server.url, str(table), name))
                sent.start()
                sent.join(timeout=0.01 * turn)
                server.kill()
                sent.join()
                server.restart()
                indexed, left, stale = known(table.index(name))
                assert (indexed + left, stale) == (BLOCKS, 0)
                assert len(raw.locations("a >= 0")) == BLOCKS
                table.refresh_index(name)
                assert known(table.index(name)) == (BLOCKS, 0, 0)


def test_a_refresh_can_die_before_each_object_that_it_writes_and_each_commit(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the part and the commit the index is as it was; then the same request goes through, or is a replay."""
    warehouse = tmp_path / "warehouse"
    server = start_server(warehouse=warehouse)
    processes = dying.processes(monkeypatch)
    deaths: dict[dying.Step, list[bool]] = {"write": [], "commit": []}
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world, Lamella(server.url) as lake:
        for step, outcomes in deaths.items():
            raw = world.table()
            raw.register(*world.numbers(world.folder(), 3))
            table = lake.table(f"{raw.namespace}.{raw.name}")
            table.create_index("i", "value_set", "a")
            while True:
                path = f"{raw.path}/indexes/i/refresh"
                process = processes.Process(
                    target=dying.post, args=(str(warehouse), path, {}, "k", step, len(outcomes) + 1)
                )
                process.start()
                process.join()
                if process.exitcode == 0:
                    break
                assert process.exitcode == -signal.SIGKILL
                assert known(table.index("i")) in ((0, 3, 0), (3, 0, 0))
                outcomes.append(known(table.index("i")) == (3, 0, 0))
            assert known(table.index("i")) == (3, 0, 0)
            again = world.api.send("POST", path, {}, key="k")
            assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    # The part, its directory, and two objects for the snapshot.
    assert deaths["write"] == [False] * 4
    # The commit itself, then that of forgetting old answers.
    assert deaths["commit"] == [False, True]


def _refresh_and_forget(url: str, table: str, name: str) -> None:
    from lamella.client.http import NO_RETRY

    with Lamella(url, policy=NO_RETRY) as lake:
        try:
            lake.table(table).refresh_index(name, max_blocks=2)
        except LamellaError:
            return
