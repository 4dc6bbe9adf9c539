"""Each file once: messages that come twice, late, in any order, from consumers that die and run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from support.app_client import AppClient
from support.service_api import fresh_name, parquet_bytes

_FILES = 6
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


class Deliveries(RuleBasedStateMachine):
    """A folder that files arrive in, a queue that forgets nothing, and a table.

    Every value is written once, so that two rows with one value are a row that was registered twice. The model has, by
    location, the values in the store and those in the table.
    """

    app: ClassVar[AppClient]
    folder: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.name = fresh_name("t")
        body = {"name": self.name, "schema": [{"name": "a", "type": "int64"}]}
        made = self.app.post("/v1/namespaces/db/tables", json=body)
        assert made.status_code == 201, made.text
        self.path = f"/v1/namespaces/db/tables/{self.name}"
        self.home = self.folder / self.name
        self.home.mkdir()
        self.next = 0
        self.stored: dict[str, tuple[int, ...]] = {}
        #: Blocks of the table. A block whose file was overwritten keeps the values that it was registered with.
        self.rows: dict[str, tuple[int, ...]] = {}
        #: Files whose rows are in another block by now: nothing at their place is taken.
        self.rewritten: set[str] = set()
        #: Values of files that were removed from the table: such a file is not taken, but another one at its place is.
        self.dropped: dict[str, set[tuple[int, ...]]] = {}
        #: Messages: all that ever were. Each may be delivered at any time, any number of times.
        self.messages: list[str] = []

    def write(self, location: str) -> None:
        """New values at a location, and a message about them."""
        values = tuple(range(self.next, self.next + 3))
        self.next += 3
        Path(location.removeprefix("file://")).write_bytes(parquet_bytes({"a": list(values)}))
        self.stored[location] = values
        self.messages.append(location)

    @rule(number=st.integers(0, _FILES - 1))
    def arrive(self, number: int) -> None:
        """A file is written, or overwritten by another one."""
        self.write(f"file://{self.home}/{number}.parquet")

    @precondition(lambda self: self.stored)
    @rule(pick=st.integers(0, 99))
    def lose(self, pick: int) -> None:
        """Somebody deletes a file of which the table has no block."""
        free = sorted(set(self.stored) - set(self.rows))
        if free:
            location = free[pick % len(free)]
            Path(location.removeprefix("file://")).unlink()
            del self.stored[location]

    def expected(self, files: list[str]) -> dict[str, int]:
        """What an answer has to tell of a delivery; the model takes the new files."""
        outcome = {"registered": 0, "duplicates": 0, "earlier": 0, "gone": 0, "refused": 0}
        for file in dict.fromkeys(files):
            now = self.stored.get(file)
            if file in self.rows:
                outcome["refused" if now not in (None, self.rows[file]) else "duplicates"] += 1
            elif file in self.rewritten:
                outcome["earlier"] += 1
            elif now is None:
                outcome["gone"] += 1
            elif now in self.dropped.get(file, ()):
                outcome["earlier"] += 1
            else:
                outcome["registered"] += 1
                self.rows[file] = now
        return outcome

    @precondition(lambda self: self.messages)
    @rule(picks=st.lists(st.integers(0, 999), min_size=1, max_size=6))
    def deliver(self, picks: list[int]) -> None:
        """Some messages, old and new, in one request. Whether they are deleted afterwards makes no difference."""
        files = [self.messages[pick % len(self.messages)] for pick in picks]
        expected = self.expected(files)
        answer = self.app.post(f"{self.path}/arrivals", json={"files": files})
        assert answer.status_code == 200, answer.text
        assert outcome(answer.json()) == expected

    @precondition(lambda self: self.messages)
    @rule(picks=st.lists(st.integers(0, 999), min_size=1, max_size=4), more=st.integers(0, 999))
    def deliver_to_two(self, picks: list[int], more: int) -> None:
        """Two consumers at the same time, with some messages in common: each file is registered by one of them."""
        files = [self.messages[pick % len(self.messages)] for pick in picks]
        parts = [files, [*files, self.messages[more % len(self.messages)]]]
        expected = self.expected([*files, *parts[1]])
        answers: list[dict[str, Any]] = []

        def send(part: list[str]) -> None:
            answer = self.app.post(f"{self.path}/arrivals", json={"files": part})
            assert answer.status_code == 200, answer.text
            answers.append(outcome(answer.json()))

        threads = [threading.Thread(target=send, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(answer["registered"] for answer in answers) == expected["registered"]
        assert sum(sum(answer.values()) for answer in answers) == sum(len(set(part)) for part in parts)

    @precondition(lambda self: self.rows)
    @rule(pick=st.integers(0, 99))
    def rewrite(self, pick: int) -> None:
        """A compaction moves the rows of a block into a file of its own."""
        live = sorted(each for each in self.rows if not each.endswith("-made.parquet"))
        if not live:
            return
        location = live[pick % len(live)]
        made = f"file://{self.home}/{self.next}-made.parquet"
        self.next += 1
        Path(made.removeprefix("file://")).write_bytes(parquet_bytes({"a": list(self.rows[location])}))
        body = {
            "removed": [location],
            "added": [{"location": made, "row_count": 3, "file_size": 0}],
            "operation": "compact",
        }
        answer = self.app.post(f"{self.path}/commits", json=body)
        assert answer.status_code == 200, answer.text
        self.stored[made] = self.rows[made] = self.rows.pop(location)
        self.rewritten.add(location)

    @precondition(lambda self: self.rows)
    @rule(pick=st.integers(0, 99))
    def drop(self, pick: int) -> None:
        """All rows of a block are deleted."""
        location = sorted(self.rows)[pick % len(self.rows)]
        answer = self.app.post(f"{self.path}/commits", json={"removed": [location], "operation": "delete"})
        assert answer.status_code == 200, answer.text
        self.dropped.setdefault(location, set()).add(self.rows.pop(location))

    @rule()
    def clean_up(self) -> None:
        """What left the table is still known when its older snapshots are gone."""
        answer = self.app.post(f"{self.path}/vacuum", json={"execute": True, "older_than": "0s"})
        assert answer.status_code == 200, answer.text

    @invariant()
    def no_row_is_there_twice_and_none_is_missing(self) -> None:
        """The blocks are those of the model, and no two of them have a value in common."""
        found = self.app.post(f"{self.path}/prune", json={}).json()["blocks"]
        assert sorted(block["location"] for block in found) == sorted(self.rows)
        assert sum(block["row_count"] for block in found) == sum(map(len, self.rows.values()))
        every = [value for values in self.rows.values() for value in values]
        assert len(every) == len(set(every))

    def teardown(self) -> None:
        """After every message came once more, whatever is in the store is in the table, or was, or is reported."""
        files = list(dict.fromkeys(self.messages))
        if files:
            self.expected(files)
            answer = self.app.post(f"{self.path}/arrivals", json={"files": files})
            assert answer.status_code == 200, answer.text
            self.no_row_is_there_twice_and_none_is_missing()
            again = self.app.post(f"{self.path}/arrivals", json={"files": files}).json()
            assert not again["changed"]
            refused = {each["path"] for each in again["refused"]}
            for file in files:
                current = self.rows.get(file)
                now = self.stored.get(file)
                known = file in self.rewritten or now in self.dropped.get(file, ())
                assert now is None or now == current or known or file in refused


def outcome(answer: dict[str, Any]) -> dict[str, int]:
    """The numbers of an answer."""
    return {
        "registered": answer["registered"],
        "duplicates": answer["duplicates"],
        "earlier": answer["earlier"],
        "gone": answer["ignored"].get("gone", 0),
        "refused": len(answer["refused"]),
    }


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[Deliveries]]:
    """The lives, over a service of their own."""
    folder = tmp_path_factory.mktemp("once")
    options = Settings(warehouse=f"{folder}/warehouse", vacuum_min_age_s=0, retention_max_age_s=0)
    with AppClient(create_app(options)) as app:
        assert app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        Deliveries.app, Deliveries.folder = app, folder
        yield Deliveries


@pytest.mark.slow
def test_each_file_is_registered_once(lives: type[Deliveries]) -> None:
    """Tens of short lives of a table."""
    run_state_machine_as_test(
        lives, settings=settings(max_examples=10, stateful_step_count=20, deadline=None, suppress_health_check=_QUIET)
    )


@pytest.mark.soak
def test_each_file_is_registered_once_in_long_lives(lives: type[Deliveries]) -> None:
    """Hundreds of long lives."""
    run_state_machine_as_test(
        lives, settings=settings(max_examples=200, stateful_step_count=60, deadline=None, suppress_health_check=_QUIET)
    )
