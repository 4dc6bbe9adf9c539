"""Commits that rest on no new row matching a filter: refused when such a row may have come, whoever was first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from lamella.client.http import Lamella, Table
from lamella.snapshot.errors import (
    CommitConflict,
    FilterTypeMismatch,
    InvalidFilter,
    InvalidRequest,
    LamellaError,
    NewMatches,
    SchemaConflict,
    UnknownColumn,
)
from lamella.snapshot.schema.evolution import AddColumn, RenameColumn
from lamella.snapshot.wire import NoNewMatches
from support.built_parts import blocks_of, sent_blocks
from support.pausable_service import WAIT_S, PausableService
from support.race import TABLE, Race
from support.service_api import TableApi, World, read_problem


class Rewriter:
    """A job that read a table at some snapshot, and replaces blocks of it."""

    def __init__(self, world: World, raw: TableApi, table: Table) -> None:
        self.world = world
        self.raw = raw
        self.table = table
        self.base = table.info().snapshot_id
        self.folder = world.folder()

    def block(self, *values: int) -> Any:
        """A new block of these values of ``a``."""
        number = len(list(self.world.store.list(self.folder + "/"))) if values else 0
        file = self.world.put(f"{self.folder}/{number}.parquet", a=list(values), s=["x"] * len(values))
        (block,) = blocks_of(self.world.store, self.table.snapshot(self.base), [file])
        return block

    def commit(self, filter: Any, removed: list[str], *values: int, **more: Any) -> Any:
        """Replace blocks, if nothing came that may match the filter."""
        return self.table.commit(
            [self.block(*values)],
            removed,
            base_snapshot_id=self.base,
            operation="update",
            no_new_matches=NoNewMatches(filter=filter, **more),
        )


@pytest.fixture
def rewriter(local: World) -> Any:
    """Over a table of two blocks: a from 0 to 9, and from 10 to 19."""
    raw = local.table()
    raw.register(*local.numbers(local.folder(), 2))
    with Lamella(local.url) as lake:
        yield Rewriter(local, raw, lake.table(f"{raw.namespace}.{raw.name}"))


def appended(rewriter: Rewriter, *values: int) -> str:
    """Somebody else's append."""
    file = rewriter.world.put(f"{rewriter.world.folder()}/x.parquet", a=list(values), s=["y"] * len(values))
    rewriter.raw.register(file)
    return file


def test_what_cannot_match_does_not_matter(rewriter: Rewriter) -> None:
    """Appends beside the filter's range go through, and so do removals of other blocks."""
    first, second = rewriter.raw.locations()
    appended(rewriter, 30, 40)
    rewriter.raw.commit(removed=[second])
    answer = rewriter.commit("a < 5", [first], 100)
    assert (answer.added, answer.removed) == (1, 1)
    assert rewriter.raw.locations("a < 20") == []


@pytest.mark.parametrize("filter", ["a < 50", {"type": "lt", "term": "a", "value": 50}, "s = 'y'", "a & 1 = 0", None])
def test_a_block_that_may_match_is_a_conflict_and_is_named(rewriter: Rewriter, filter: Any) -> None:
    """Also where statistics cannot tell, and where nothing at all may have come; the table stays as it was."""
    first, _ = rewriter.raw.locations()
    added = appended(rewriter, 30, 40)
    before = rewriter.raw.info()["snapshot_id"]
    with pytest.raises(NewMatches) as caught:
        rewriter.commit(filter, [first], 100)
    assert isinstance(caught.value, CommitConflict)
    assert caught.value.details["blocks"] == [added]
    assert (caught.value.details["snapshot_id"], caught.value.details["snapshot_is"]) == (before, "current")
    assert rewriter.raw.info()["snapshot_id"] == before


def test_blocks_that_were_added_and_removed_again_do_not_matter(rewriter: Rewriter) -> None:
    """What counts is the state that is committed upon."""
    first, _ = rewriter.raw.locations()
    added = appended(rewriter, 1)
    rewriter.raw.commit(removed=[added])
    assert rewriter.commit("a < 5", [first], 100).removed == 1


def test_blocks_that_a_fold_moved_are_no_new_ones(rewriter: Rewriter) -> None:
    """Segments are written anew for others' blocks; theirs are known again."""
    first, _ = rewriter.raw.locations()
    for number in range(10):
        appended(rewriter, 1_000 + number)
    assert len(rewriter.raw.snapshot()["segments"]) < 10
    assert rewriter.commit("a < 1000", [first], 5_000).removed == 1


def test_a_compaction_counts_as_new_rows(rewriter: Rewriter) -> None:
    """Its block holds rows that the job did read; to know that nothing else is in it is left to a later release."""
    first, second = rewriter.raw.locations()
    rewriter.table.commit([rewriter.block(*range(10, 20))], [second], operation="compact")
    with pytest.raises(NewMatches):
        rewriter.commit("a >= 10", [first], 5)
    assert rewriter.commit("a < 10", [first], 5).removed == 1


def test_a_file_that_was_replaced_is_a_new_block(rewriter: Rewriter) -> None:
    """Its location was there; its rows were not."""
    first, second = rewriter.raw.locations()
    rewriter.raw.commit(removed=[second])
    rewriter.world.store.delete(second)
    rewriter.world.put(second, a=[3], s=["z"])
    rewriter.raw.register(second)
    with pytest.raises(NewMatches):
        rewriter.commit("a < 5", [first], 100)


def test_other_columns_are_a_conflict_of_the_schema(rewriter: Rewriter) -> None:
    """A name may mean another column by now, so the filter is not asked again."""
    first, _ = rewriter.raw.locations()
    rewriter.table.evolve([RenameColumn(column="a", name="b"), AddColumn(name="a", type="int64")])
    with pytest.raises(SchemaConflict):
        rewriter.commit("a < 5", [first], 100)


@pytest.mark.parametrize(
    ("filter", "error"),
    [
        ("a <", InvalidFilter),
        ("nothing = 1", UnknownColumn),
        ("a = TRUE", FilterTypeMismatch),
        ({"x": 1}, InvalidFilter),
    ],
)
def test_a_filter_that_cannot_be_evaluated_is_refused(
    rewriter: Rewriter, filter: Any, error: type[LamellaError]
) -> None:
    """Whether something came or not."""
    first, _ = rewriter.raw.locations()
    for _ in range(2):
        with pytest.raises(error):
            rewriter.commit(filter, [first], 100)
        appended(rewriter, 1_000)


def test_letters_count_when_they_are_to(rewriter: Rewriter) -> None:
    """`case_sensitive` and `time_zone` are as of a prune."""
    first, _ = rewriter.raw.locations()
    with pytest.raises(UnknownColumn):
        rewriter.commit("A < 5", [first], 100, case_sensitive=True)
    with pytest.raises(LamellaError):
        rewriter.commit("a < 5", [first], 100, time_zone="Nowhere/Else")
    assert rewriter.commit("A < 5", [first], 100).removed == 1


def test_without_a_base_there_is_nothing_that_is_new(rewriter: Rewriter) -> None:
    """So it has to be said."""
    with pytest.raises(InvalidRequest):
        rewriter.table.commit(removed=rewriter.raw.locations()[:1], no_new_matches=NoNewMatches(filter="a < 5"))


def body(app: Any, removed: list[str], filter: str) -> dict[str, Any]:
    """A rewrite's body, read at the table as it is."""
    return {
        "removed": removed,
        "base_snapshot_id": app.get(TABLE).json()["snapshot_id"],
        "operation": "delete",
        "no_new_matches": {"filter": filter},
    }


@pytest.mark.parametrize(("value", "status"), [(1, 409), (1_000, 200)])
def test_it_is_looked_at_again_when_another_process_comes_first(race: Race, value: int, status: int) -> None:
    """What counts is the snapshot that is committed upon, not the one that was there when the request came."""
    old, new = race.file("old"), race.file("new", value)
    race.app.post(f"{TABLE}/register", json={"paths": [old]})
    rewrite = body(race.app, [old], "a < 5")
    race.meanwhile = lambda: race.other.post(f"{TABLE}/register", json={"paths": [new]})
    answer = race.app.post(f"{TABLE}/commits", json=rewrite)
    assert answer.status_code == status, answer.text
    if status == 409:
        problem = read_problem(answer)
        assert (problem.code, problem.details["blocks"]) == ("new_matches", [new])
        assert race.locations() == [old, new]
    else:
        assert race.locations() == [new]


def test_an_append_of_the_same_queue_comes_before_or_after_and_never_beside(pausable: PausableService) -> None:
    """A rewrite that waited behind a matching append is refused; an append behind a rewrite goes through."""
    old, first, last = pausable.file("old"), pausable.file("first"), pausable.file("last")
    pausable.app.post(f"{TABLE}/register", json={"paths": [old]})
    rewrite = body(pausable.app, [old], "a = 1")
    append = pausable.hold()
    sent = [
        pausable.send("register", {"paths": [first]}),
        pausable.send("commits", rewrite),
        pausable.send("register", {"paths": [last]}),
    ]
    pausable.queued(3)
    pausable.go.set()
    answers = [future.result(WAIT_S) for future in (append, *sent)]
    assert [answer.status_code for answer in answers] == [200, 200, 409, 200]
    assert read_problem(answers[2]).code == "new_matches"
    assert pausable.locations() >= {old, first, last}


def test_of_two_rewrites_that_read_the_same_only_one_goes_through(local: World) -> None:
    """Write skew: each would have seen the other's rows. Over random schedules the outcome is one of a serial order."""
    rng = Random(5)
    for _ in range(12):
        raw = local.table()
        raw.register(*local.numbers(local.folder(), 2))
        with Lamella(local.url) as lake:
            table = lake.table(f"{raw.namespace}.{raw.name}")
            jobs = [Rewriter(local, raw, table) for _ in range(3)]
            locations = raw.locations()
            # Each moves the rows that it read to where another one reads.
            ranges = [(0, 9), (10, 19), (0, 19)]
            works: list[Callable[[], Any]] = []
            for job, (low, high) in zip(jobs, ranges, strict=True):
                removed = [location for location, start in zip(locations, (0, 10), strict=True) if low <= start <= high]
                target = 15 if low == 0 and high == 9 else 5
                works.append(partial(job.commit, f"a BETWEEN {low} AND {high}", removed, target))
            rng.shuffle(works)
            committed = 0
            for work in works:
                try:
                    work()
                except CommitConflict:
                    continue
                committed += 1
            assert committed == 1


def test_sent_blocks_are_those_of_the_job(rewriter: Rewriter) -> None:
    """The plain body says the same as the client."""
    first, _ = rewriter.raw.locations()
    block = rewriter.block(100)
    body = {
        "added": sent_blocks([block]),
        "removed": [first],
        "base_snapshot_id": rewriter.base,
        "no_new_matches": {"filter": "a < 5"},
    }
    assert rewriter.raw.api.call("POST", f"{rewriter.raw.path}/commits", body)["left_out_parts"] == {}
    wrong = {**body, "no_new_matches": {"filter": "a < 5", "more": 1}}
    assert rewriter.raw.api.problem("POST", f"{rewriter.raw.path}/commits", wrong).code == "invalid_request"
