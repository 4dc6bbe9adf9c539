"""Jobs beside appends, deletes and each other, and killed at random moments: every row is there once, and no other.

Appends bring rows with fresh ids, deletes name ids that were there before they began. So whatever the order in which
things happened, the rows in the end are those appended by commits that landed, without those that were deleted.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.conftest import MakeTable
from lamella.client.http import Lamella
from lamella.client.http.fake_transport import FakeTransport, Handler
from lamella.client.http.transport import HttpRequest, HttpResponse, PooledTransport, TransportFailure
from lamella.client.jobs.context import JobContext, Sizes
from lamella.client.jobs.delete import delete_rows
from lamella.client.jobs.rewrite import compact, recluster
from lamella.client.rewrite.engine import SerialEngine
from lamella.client.rewrite.stages import Stage
from lamella.snapshot.errors import CommitConflict, JobCancelled, OutcomeUnknown, Unavailable
from support.event_tables import EventTable, as_texts, events


class Killed(BaseException):
    """What stands for the death of a job's process: nothing that comes after it is done."""


class MortalEngine(SerialEngine):
    """Dies before or after some task."""

    def __init__(self, rng: random.Random, chance: float) -> None:
        self._rng = rng
        self._chance = chance

    def run(self, stage: Stage, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """As of the other engine, until death."""
        for found in super().run(stage, tasks):
            if self._rng.random() < self._chance:
                raise Killed
            yield found


class _Closing(FakeTransport):
    """Closes the connections behind it."""

    def __init__(self, handler: Handler, behind: PooledTransport) -> None:
        super().__init__(handler)
        self._behind = behind

    def close(self) -> None:
        """As the other does."""
        super().close()
        self._behind.close()


def mortal_client(url: str, rng: random.Random, chance: float) -> Lamella:
    """A client that dies just before or just after a commit is sent."""
    service = PooledTransport(url, timeout_s=30)

    def send(request: HttpRequest) -> HttpResponse | TransportFailure:
        if request.path.endswith("/commits") and rng.random() < chance:
            if rng.random() < 0.5:
                service.send(request)
            raise Killed
        return service.send(request)

    return Lamella(url, transport=_Closing(send, service))


class Ledger:
    """What must be in the table."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[int, str] = {}
        self._taken: set[int] = set()

    def appended(self, rows: pa.Table) -> None:
        """These rows are in the table now."""
        texts = list(as_texts(rows).elements())
        with self._lock:
            self._rows.update(zip(rows["id"].to_pylist(), _in_order(rows, texts), strict=True))

    def some(self, rng: random.Random, count: int) -> list[int]:
        """Ids of rows that are in the table, which nobody else deletes."""
        with self._lock:
            free = sorted(set(self._rows) - self._taken)
            chosen = rng.sample(free, min(count, len(free)))
            self._taken.update(chosen)
        return chosen

    def deleted(self, ids: Sequence[int]) -> None:
        """These rows are gone."""
        with self._lock:
            for one in ids:
                del self._rows[one]

    @property
    def taken(self) -> set[int]:
        """Ids that somebody set out to delete."""
        return self._taken

    def rows(self) -> Counter[str]:
        """All rows."""
        return Counter(self._rows.values())


def _in_order(rows: pa.Table, _texts: list[str]) -> list[str]:
    return [next(iter(as_texts(rows.slice(at, 1)))) for at in range(rows.num_rows)]


def run_schedule(table: EventTable, url: str, seed: int, folder: Path, *, rounds: int = 4) -> dict[str, int]:
    """Everybody at work at once; returns how often each thing was done."""
    rng = random.Random(seed)
    ledger = Ledger()
    first = [events(rng, rng.randrange(20, 80)) for _ in range(8)]
    table.add(*first)
    for rows in first:
        ledger.appended(rows)
    counts: Counter[str] = Counter()
    unknown: list[list[int]] = []
    lock = threading.Lock()

    @contextmanager
    def context(mine: random.Random, *, mortal: bool) -> Iterator[JobContext]:
        engine = MortalEngine(mine, 0.1) if mortal else SerialEngine()
        sizes = Sizes(block_rows=mine.choice([60, 120]), memory_bytes=mine.choice([4_000, 1 << 20]))
        with mortal_client(url, mine, 0.25) if mortal else Lamella(url) as lake:
            yield JobContext(
                lake=lake, table=table.name, engine=engine, sizes=sizes, scratch=f"file://{folder}/scratch"
            )

    def append(mine: random.Random) -> None:
        rows = events(mine, mine.randrange(5, 40))
        table.add(rows)
        ledger.appended(rows)

    def delete(mine: random.Random) -> None:
        ids = ledger.some(mine, mine.randrange(1, 12))
        if not ids:
            return
        try:
            with context(mine, mortal=mine.random() < 0.3) as job_context:
                delete_rows(job_context, f"id IN ({', '.join(map(str, ids))})")
        except Killed:
            with lock:
                unknown.append(ids)
        else:
            ledger.deleted(ids)

    def job(work: Callable[[JobContext], object]) -> Callable[[random.Random], None]:
        def run(mine: random.Random) -> None:
            with context(mine, mortal=mine.random() < 0.6) as job_context:
                work(job_context)

        return run

    people: list[tuple[str, Callable[[random.Random], None]]] = [
        ("append", append),
        ("delete", delete),
        ("compact", job(compact)),
        ("recluster", job(recluster)),
        ("regroup", lambda _: (table.handle.regroup(), None)[1]),
    ]

    def work(name: str, do: Callable[[random.Random], None], mine: random.Random) -> None:
        for _ in range(rounds):
            try:
                do(mine)
            except Killed:
                name_done = f"{name} killed"
            except (CommitConflict, JobCancelled, OutcomeUnknown, Unavailable) as error:
                name_done = f"{name} {error.code}"
            else:
                name_done = name
            with lock:
                counts[name_done] += 1

    threads = [threading.Thread(target=work, args=(name, do, random.Random(rng.random()))) for name, do in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = table.rows()
    expected = ledger.rows()
    for ids in unknown:  # a delete that died: all of it happened, or none
        gone = Counter({text: 1 for text in expected if int(text[1:].split(",")[0]) in set(ids)})
        if not found & gone:
            expected -= gone
    assert found == expected
    assert len(table.handle.verify().findings) == 0
    return dict(counts)


@pytest.mark.parametrize("seed", range(6))
def test_no_row_is_lost_or_doubled(make_table: MakeTable, jobs_url: str, tmp_path: Path, seed: int) -> None:
    """Six random schedules; the long form runs more than a hundred."""
    table = make_table(cluster_key=["day"])
    counts = run_schedule(table, jobs_url, seed, tmp_path)
    assert sum(counts.values()) == 20


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 220))
def test_no_row_is_lost_or_doubled_over_many_schedules(
    make_table: MakeTable, jobs_url: str, tmp_path: Path, seed: int
) -> None:
    """A hundred and twenty random schedules."""
    run_schedule(make_table(cluster_key=["day"]), jobs_url, seed, tmp_path, rounds=6)
