"""Deleting rows: exactly those that match, nothing read that need not be, whoever else is at work."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from jobs.conftest import MakeTable
from lamella.client.jobs.delete import delete_rows
from lamella.client.rewrite.engine import SerialEngine
from lamella.client.rewrite.stages import Stage
from lamella.snapshot.errors import FilterNotEvaluable
from support.event_tables import EventTable, as_texts, events


def left_of(tables: list[pa.Table], mask_of: Any) -> Counter[str]:
    """The rows for which a mask is not true."""
    whole = pa.concat_tables(tables)
    remaining = pc.invert(pc.fill_null(mask_of(whole), False))
    return as_texts(whole.filter(remaining))


def sorted_by_day(rng: random.Random, blocks: int, size: int) -> list[pa.Table]:
    """Blocks of ten days each, one after another."""
    return [events(rng, size, days=(10 * at, 10 * at + 10)) for at in range(blocks)]


def day(number: int) -> Any:
    """A day as Arrow has it."""
    return pa.scalar(number, pa.int32()).cast(pa.date32())


def test_only_matching_rows_go_and_only_their_blocks_are_read(make_table: MakeTable) -> None:
    """Blocks between the ends go by metadata, those at the ends are read, the others are left alone."""
    rng = random.Random(1)
    tables = [t.filter(pc.is_valid(t["day"])) for t in sorted_by_day(rng, 12, 300)]
    table = make_table()
    table.add(*tables)
    before = {block.location for block in table.blocks()}
    done = delete_rows(table.context(), "day >= DATE '1970-01-26' AND day < DATE '1970-03-05'")
    expected = left_of(
        tables, lambda rows: pc.and_(pc.greater_equal(rows["day"], day(25)), pc.less(rows["day"], day(63)))
    )
    assert table.rows() == expected
    assert (done.dropped, done.read, done.rewritten) == (3, 2, 2)
    assert done.rows == sum(t.num_rows for t in tables) - sum(expected.values())
    assert len(before & {block.location for block in table.blocks()}) == 7
    assert table.handle.info().snapshot_id == done.snapshot_id


def test_rows_for_which_the_filter_is_null_stay(make_table: MakeTable) -> None:
    """SQL deletes where the condition is true, which it is not where a value is missing."""
    tables = [events(random.Random(seed), 400) for seed in range(3)]
    table = make_table()
    table.add(*tables)
    delete_rows(table.context(), "NOT (user = 'u0001') AND amount >= 0")
    expected = left_of(
        tables,
        lambda rows: pc.and_kleene(
            pc.invert(pc.equal(rows["user"], "u0001")),
            pc.or_kleene(pc.is_nan(rows["amount"]), pc.greater_equal(rows["amount"], 0.0)),
        ),
    )
    assert table.rows() == expected


def test_a_filter_that_matches_nothing_changes_nothing(make_table: MakeTable) -> None:
    """No snapshot is made, whether blocks had to be read or not."""
    table = make_table()
    table.add(events(random.Random(3), 200))
    before = table.handle.info().snapshot_id
    assert delete_rows(table.context(), "id < 0").rows == 0
    read = delete_rows(table.context(), "user = 'u0001x'")
    assert (read.rows, read.rewritten) == (0, 0)
    assert table.handle.info().snapshot_id == before


def test_everything_can_be_deleted_without_reading(make_table: MakeTable) -> None:
    """A filter that is true everywhere is metadata only, and the empty table is one."""
    table = make_table()
    table.add(*[events(random.Random(seed), 100) for seed in range(3)])
    done = delete_rows(table.context(), "id >= 0")
    assert (done.rows, done.dropped, done.read) == (300, 3, 0)
    assert table.rows() == Counter()


def test_a_condition_that_cannot_be_decided_is_refused_before_anything_is_read(make_table: MakeTable) -> None:
    """Rows are never deleted, nor kept, by a guess."""
    table = make_table()
    table.add(events(random.Random(5), 50))
    before = table.rows()
    with pytest.raises(FilterNotEvaluable):
        delete_rows(table.context(), "user RLIKE 'u00.*'")
    assert table.rows() == before


class _Interrupted(SerialEngine):
    """Another writer comes first, so many times, while blocks are looked at."""

    def __init__(self, table: EventTable, times: int) -> None:
        self.table = table
        self.times = times
        self.source_counts: list[int] = []

    def run(self, stage: Stage, tasks: Any) -> Any:
        self.source_counts.append(sum(len(task.sources) for task in tasks))
        yield from super().run(stage, tasks)
        if self.times:
            self.times -= 1
            self.table.copy_first()


def test_a_delete_that_lost_a_race_looks_only_at_what_replaced_the_blocks(make_table: MakeTable) -> None:
    """Blocks that are still there are not read again, and the rows are right in the end."""
    tables = [events(random.Random(seed), 150) for seed in range(5)]
    table = make_table()
    table.add(*tables)
    engine = _Interrupted(table, times=2)
    done = delete_rows(table.context(engine), "user < 'u0250'")
    assert done.tries == 3
    assert engine.source_counts == [5, 1, 1]
    assert table.rows() == left_of(tables, lambda rows: pc.less(rows["user"], "u0250"))


def test_new_blocks_are_in_the_indexes_with_the_commit_that_adds_them(make_table: MakeTable) -> None:
    """No block that a job writes has to wait for a refresh, and what its entries say is what its rows are."""
    tables = [events(random.Random(seed), 300) for seed in range(4)]
    table = make_table()
    table.add(*tables)
    for name, kind, expression in (
        ("by_id", "bloom", "id"),
        ("by_user", "value_set", "lower(user)"),
        ("by_city", "keys", "place.city"),
        ("by_text", "ngram", "user"),
    ):
        table.handle.create_index(name, kind, expression)
        table.handle.refresh_index(name)
    before = table.handle.info().snapshot_id
    done = delete_rows(table.context(), "user < 'u0250'")
    assert done.rewritten == 4
    assert [entry.snapshot_id for entry in table.handle.snapshots()][:2] == [done.snapshot_id, before]
    for index in table.handle.indexes():
        assert index.coverage is not None
        assert (index.coverage.indexed, index.coverage.not_indexed) == (4, 0), index.name
    rest = pa.concat_tables([pq.read_table(b.location.removeprefix("file://")) for b in table.blocks()])
    for row in rest.slice(0, 20).to_pylist():
        pruned = table.handle.prune(f"id = {row['id']}")
        assert any(row["id"] in _ids(location) for location in pruned.locations)
        if row["user"] is not None:
            found = table.handle.prune(f"lower(user) = '{row['user']}' AND user LIKE '%{row['user'][1:4]}%'")
            assert any(row["id"] in _ids(location) for location in found.locations)
    gone = pa.concat_tables(tables).filter(pc.less(pa.concat_tables(tables)["user"], "u0250"))["id"].to_pylist()
    assert sum(len(table.handle.prune(f"id = {one}").locations) for one in gone[:40]) <= 8


def _ids(location: str) -> set[int]:
    return set(pq.read_table(location.removeprefix("file://"), columns=["id"])["id"].to_pylist())
