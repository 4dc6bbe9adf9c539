"""Group commit through the whole service: what callers get when their commits share a snapshot."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from support.app_client import AppClient
from support.pausable_service import TABLE, WAIT_S, NewPausable, PausableService
from support.service_api import TableApi, World, read_problem


def test_commits_that_wait_become_one_snapshot_and_each_gets_its_own_answer(pausable: PausableService) -> None:
    """Counts are the caller's own, the snapshot is shared, and the appends share one segment."""
    old = [pausable.file("old0"), pausable.file("old1")]
    pausable.app.post(f"{TABLE}/register", json={"paths": old})
    new = [pausable.file(f"new{i}") for i in range(6)]
    first = pausable.hold()
    block = {"location": new[5], "row_count": 1, "file_size": 0}
    sent = [
        pausable.send("register", {"paths": new[:2]}, key="a"),
        pausable.send("register", {"paths": new[2:5]}, key="b"),
        pausable.send("commits", {"added": [block], "removed": old[:1], "operation": "compact"}, key="c"),
        pausable.send("commits", {"removed": old[1:], "operation": "delete"}, key="d"),
    ]
    pausable.queued(4)
    pausable.puts.clear()
    pausable.go.set()
    a, b, c, d = (future.result(WAIT_S) for future in sent)
    assert [answer.status_code for answer in (first.result(WAIT_S), a, b, c, d)] == [200] * 5
    assert len({answer.json()["snapshot_id"] for answer in (a, b, c, d)}) == 1
    assert [a.json()["registered"], b.json()["registered"]] == [2, 3]
    assert [(x.json()["added"], x.json()["removed"]) for x in (c, d)] == [(1, 1), (0, 1)]
    history = pausable.history()
    assert (history[0]["operation"], history[0]["block_count"], len(history)) == ("several", 7, 4)
    assert pausable.locations() >= set(new)
    for key, future in zip("abcd", sent, strict=True):
        route = "register" if key in "ab" else "commits"
        stored = pausable.catalog.answer(key, f"POST {TABLE}/{route}")
        assert stored is not None
        assert stored.body == future.result().content


def test_many_small_appends_of_a_group_are_one_segment(pausable: PausableService) -> None:
    """Twenty files by twenty callers: one segment is written for them, and at most one more to fold small ones."""
    files = [pausable.file(f"f{i}") for i in range(20)]
    pausable.hold()
    sent = [pausable.send("register", {"paths": [file]}) for file in files]
    pausable.queued(20)
    pausable.puts.clear()
    pausable.go.set()
    assert {future.result(WAIT_S).status_code for future in sent} == {200}
    assert sum("/_sg/" in put and put.endswith(".json") for put in pausable.puts) <= 2
    assert pausable.locations() >= set(files)


def test_what_fails_in_a_group_fails_alone(pausable: PausableService) -> None:
    """A duplicate, a conflict and a strict registration are refused; their neighbours land in the same snapshot."""
    old, shared, good = pausable.file("old"), pausable.file("shared"), pausable.file("good")
    pausable.app.post(f"{TABLE}/register", json={"paths": [old]})
    pausable.hold()
    bodies: list[tuple[str, Any]] = [
        ("register", {"paths": [shared]}),
        ("register", {"paths": [shared], "strict": True}),
        ("commits", {"removed": [old]}),
        ("commits", {"removed": [old]}),
        ("register", {"paths": [good]}),
        ("commits", {"removed": [pausable.file("never")]}),
    ]
    sent = []
    for number, (route, body) in enumerate(bodies):
        sent.append(pausable.send(route, body))
        pausable.queued(number + 1)
    pausable.go.set()
    answers = [future.result(WAIT_S) for future in sent]
    assert [answer.status_code for answer in answers] == [200, 409, 200, 409, 200, 409]
    codes = [read_problem(answers[i]).code for i in (1, 3, 5)]
    assert codes == ["duplicate_block", "commit_conflict", "commit_conflict"]
    assert len({answers[i].json()["snapshot_id"] for i in (0, 2, 4)}) == 1
    assert pausable.locations() >= {shared, good}
    assert old not in pausable.locations()


def test_rows_beyond_64_bits_are_refused_alone_and_the_table_stays_readable(pausable: PausableService) -> None:
    """The neighbours of a commit whose rows do not fit the table's count land, whether it could share their segment or
    not; another process reads the table."""
    blocks = [{"location": pausable.file(f"b{i}"), "row_count": 1 << 62, "file_size": 0} for i in range(4)]
    good = [pausable.file(f"good{i}") for i in range(3)]
    assert pausable.send("commits", {"added": blocks[:1]}).result(WAIT_S).status_code == 200
    pausable.hold()
    bodies: list[tuple[str, Any]] = [
        ("register", {"paths": good[:1]}),
        ("commits", {"added": blocks[1:2]}),
        ("commits", {"added": blocks[2:], "operation": "compact"}),
        ("register", {"paths": good[1:2]}),
        ("commits", {"removed": [blocks[0]["location"]], "added": blocks[3:], "operation": "compact"}),
        ("register", {"paths": good[2:]}),
    ]
    sent = []
    for number, (route, body) in enumerate(bodies):
        sent.append(pausable.send(route, body))
        pausable.queued(number + 1)
    pausable.go.set()
    answers = [future.result(WAIT_S) for future in sent]
    assert [answer.status_code for answer in answers] == [200, 400, 400, 200, 200, 200]
    assert {read_problem(answers[i]).code for i in (1, 2)} == {"limit_exceeded"}
    settings = Settings(warehouse=str(pausable.folder / "warehouse"))
    with AppClient(create_app(settings, catalog=pausable.catalog)) as fresh:
        assert fresh.get(f"{TABLE}/snapshots").json()["snapshots"][0]["row_count"] == (1 << 62) + 4
        found = {block["location"] for block in fresh.post(f"{TABLE}/prune", json={}).json()["blocks"]}
    assert found >= {*good, blocks[3]["location"]}


def test_a_damaged_segment_fails_only_those_who_need_it(pausable: PausableService) -> None:
    """One removal has to read a manifest that is gone: it gets a 500, the appends beside it land."""
    old = [pausable.file("old0"), pausable.file("old1")]
    snapshot = pausable.app.post(f"{TABLE}/register", json={"paths": old}).json()["snapshot_id"]
    segment = pausable.app.get(f"{TABLE}/snapshots/{snapshot}").json()["segments"][0]["manifest"]["location"]
    new = [pausable.file("new0"), pausable.file("new1")]
    with AppClient(
        create_app(Settings(warehouse=str(pausable.folder / "warehouse")), catalog=pausable.catalog)
    ) as fresh:
        # Another process: it has not the segment in memory.
        pausable.app, original = fresh, pausable.app
        Path(segment.removeprefix("file://")).unlink()
        with ThreadPoolExecutor(3) as pool:
            sent = [
                pool.submit(fresh.post, f"{TABLE}/commits", json={"removed": old[:1]}),
                *(pool.submit(fresh.post, f"{TABLE}/register", json={"paths": [file]}) for file in new),
            ]
            answers = [future.result(WAIT_S) for future in sent]
        pausable.app = original
    assert [answer.status_code for answer in answers] == [500, 200, 200]
    assert read_problem(answers[0]).code == "manifest_error"


def test_a_store_that_fails_once_fails_that_group_and_nobody_waits(pausable: PausableService) -> None:
    """All that share the segment which could not be written hear of it; the next group goes through."""
    pausable.hold()
    sent = [pausable.send("register", {"paths": [pausable.file(f"f{i}")]}) for i in range(3)]
    pausable.queued(3)

    def fail(location: str) -> None:
        pausable.failing = None
        raise OSError(f"the disk broke at {location}")

    pausable.failing = fail
    pausable.go.set()
    statuses = {future.result(WAIT_S).status_code for future in sent}
    assert statuses <= {200, 500, 502}
    assert pausable.send("register", {"paths": [pausable.file("later")]}).result(WAIT_S).status_code == 200


def test_a_schema_change_keeps_its_position_in_the_queue(pausable: PausableService) -> None:
    """It has a snapshot of its own, between those before and those behind it."""
    pausable.hold()
    sent = []
    change = {"changes": [{"change": "add", "name": "b", "type": "string"}]}
    requests: list[tuple[str, Any]] = [
        ("register", {"paths": [pausable.file("before")]}),
        ("schema", change),
        ("register", {"paths": [pausable.file("behind")]}),
    ]
    for number, (route, body) in enumerate(requests):
        sent.append(pausable.send(route, body))
        pausable.queued(number + 1)
    pausable.go.set()
    answers = [future.result(WAIT_S) for future in sent]
    assert [answer.status_code for answer in answers] == [200] * 3, [answer.text for answer in answers]
    ids = [answer.json()["snapshot_id"] for answer in answers]
    assert [entry["snapshot_id"] for entry in pausable.history()[:3]] == ids[::-1]


def test_a_full_queue_is_answered_with_429(new_pausable: NewPausable) -> None:
    """Beyond `mutation_queue` requests nothing is looked at; `Retry-After` says when to come back."""
    pausable = new_pausable(mutation_queue=3)
    first = pausable.hold()
    waiting = [pausable.send("register", {"paths": [pausable.file(f"f{i}")]}) for i in range(2)]
    pausable.queued(2)
    extra = pausable.file("late")
    refused = pausable.send("register", {"paths": [extra]}, key="k").result(WAIT_S)
    problem = read_problem(refused)
    assert (problem.status, problem.code, problem.details["limit"]) == (429, "overloaded", "table")
    assert int(refused.headers["retry-after"]) >= 1
    assert pausable.app.get(f"{TABLE}").status_code == 200
    pausable.go.set()
    assert {future.result(WAIT_S).status_code for future in (first, *waiting)} == {200}
    again = pausable.send("register", {"paths": [extra]}, key="k").result(WAIT_S)
    assert (again.status_code, again.headers.get("idempotency-replayed")) == (200, None)


def test_bodies_that_are_too_large_together_are_answered_with_429(new_pausable: NewPausable) -> None:
    """The bytes of all waiting bodies are bounded, over all tables."""
    pausable = new_pausable(mutation_queue_bytes=2048)
    first = pausable.hold()
    refused = pausable.send("commits", {"properties": {"k": "v" * 3000}}).result(WAIT_S)
    problem = read_problem(refused)
    assert (problem.status, problem.code, problem.details["limit"]) == (429, "overloaded", "bytes")
    pausable.go.set()
    assert first.result(WAIT_S).status_code == 200
    assert pausable.send("commits", {"properties": {"k": "v" * 3000}}).result(WAIT_S).status_code == 200


def test_a_turn_that_does_not_come_in_time_is_answered_with_503(new_pausable: NewPausable) -> None:
    """What the leader had not begun is not done later either; what it had begun is answered as it ends."""
    pausable = new_pausable(commit_deadline_s=0.5)
    first = pausable.hold()
    extra = pausable.file("late")
    answer = pausable.send("register", {"paths": [extra]}).result(WAIT_S)
    assert (read_problem(answer).status, read_problem(answer).code) == (503, "unavailable")
    pausable.go.set()
    assert first.result(WAIT_S).status_code == 200
    assert pausable.send("register", {"paths": [pausable.file("next")]}).result(WAIT_S).status_code == 200
    assert extra not in pausable.locations()


def clients(world: World, count: int, appends: int) -> tuple[TableApi, set[str]]:
    """So many clients at once, each registering so many files one after another; the table, and the files."""
    table, folder = world.table(), world.folder()
    files = world.numbers(folder, count * appends, rows=1)

    def run(number: int) -> None:
        for file in files[number::count]:
            assert table.register(file)["registered"] == 1

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(run, range(count)))
    return table, set(files)


@pytest.mark.few(1)
def test_of_64_clients_at_once_none_fails_and_no_append_is_lost(world: World) -> None:
    """Each registers three files: no error, every block once, and far fewer snapshots than appends."""
    table, files = clients(world, 64, 3)
    locations = table.locations()
    assert len(locations) == len(files) == 192
    assert set(locations) == files
    assert len(table.history()) < 100


@pytest.mark.soak
def test_of_64_clients_for_long_none_fails_and_no_append_is_lost(world: World) -> None:
    """The same with forty files each."""
    table, files = clients(world, 64, 40)
    locations = table.locations()
    assert len(locations) == len(files) == 2560
    assert set(locations) == files
