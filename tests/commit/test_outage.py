"""Storage is full, the catalog is away, the clock goes back: nothing happens by half, and all goes on afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from commit import actions
from commit.subject import TABLES, Subject
from support.faulty_store import Fault
from support.service_api import read_problem

TABLE = f"{TABLES}/t"


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[Subject]:
    """A service with a table of two blocks."""
    subject = Subject(tmp_path)
    actions.create(subject, "t")
    actions.register(subject, "t", 2)
    yield subject
    subject.close()


def test_a_full_disk_refuses_commits_and_answers_questions(subject: Subject) -> None:
    """Each commit is a 502 and has not happened; with space again, the same requests go through."""
    requests = [({"paths": [subject.file()[0]]}, subject.key()) for _ in range(3)]
    subject.arm(Fault(how="full", operation="put", times=1_000))
    for body, key in requests:
        problem = read_problem(subject.send("POST", f"{TABLE}/register", body, key))
        assert (problem.status, problem.code) == (502, "store_error")
        assert "No space left on device" in problem.detail
        subject.check("t", 15)
    assert subject.disarm()
    for body, key in requests:
        assert subject.send("POST", f"{TABLE}/register", body, key).status_code == 200
    assert subject.send("GET", TABLE).json()["block_count"] == 5


def test_a_full_catalog_database_refuses_commits(subject: Subject) -> None:
    """SQLite can grow no further: 503, and nothing has happened; with space again, the same request goes through."""
    pages = [0]

    def limit(connection: Any, _record: object) -> None:
        connection.execute(f"PRAGMA max_page_count={pages[0] or 1_000_000}")

    engine = subject.catalog._engine
    event.listen(engine, "connect", limit)
    engine.dispose()
    pages[0] = 1  # SQLite takes it for: no more than there are
    block_count = subject.send("GET", TABLE).json()["block_count"]
    for _ in range(300):
        body, key = {"paths": [subject.file()[0]]}, subject.key()
        answer = subject.send("POST", f"{TABLE}/register", body, key)
        if answer.status_code != 200:
            break
        block_count += 1
    problem = read_problem(answer)
    assert (problem.status, problem.code) in ((503, "unavailable"), (503, "outcome_unknown"))
    assert subject.send("GET", TABLE).json()["block_count"] == block_count
    pages[0] = 0
    engine.dispose()
    assert subject.send("POST", f"{TABLE}/register", body, key).status_code == 200
    assert subject.send("GET", TABLE).json()["block_count"] == block_count + 1


def test_a_catalog_that_is_away_is_a_503_until_it_is_back(subject: Subject) -> None:
    """Every request says when to try again; no restart is needed afterwards, and the key finds nothing done."""
    body, key = {"paths": [subject.file()[0]]}, subject.key()
    subject.catalog_faults.is_down = True
    for method, path, sent in (
        ("GET", "/health/ready", None),
        ("GET", TABLE, None),
        ("POST", f"{TABLE}/prune", {}),
        ("POST", f"{TABLE}/register", body),
    ):
        answer = subject.send(method, path, sent, key if sent is body else None)
        problem = read_problem(answer)
        assert (problem.status, problem.code) == (503, "unavailable")
        assert int(answer.headers["retry-after"]) >= 1
    subject.disarm()
    answer = subject.send("POST", f"{TABLE}/register", body, key)
    assert (answer.status_code, answer.headers.get("idempotency-replayed")) == (200, None)


def test_times_grow_although_the_clock_goes_back(subject: Subject) -> None:
    """By a day, in the middle of a history and over a restart; time travel finds what was current by those times."""
    for back_s in (0, 86_400, 0, 3_600):
        subject.now_ms -= back_s * 1_000
        subject.restart()
        actions.register(subject, "t", 1)
    subject.check("t", 15)
    history = subject.send("GET", f"{TABLE}/snapshots").json()["snapshots"]
    for entry in history:
        answer = subject.send("POST", f"{TABLE}/prune", {"timestamp": entry["timestamp_ms"]})
        assert answer.json()["snapshot_id"] == entry["snapshot_id"]
