"""Compacting and reclustering: the same rows, better laid out, until nothing is left to do."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.conftest import MakeTable
from lamella.client.jobs.rewrite import Bounds, compact, plan, recluster
from lamella.client.rewrite.engine import LocalEngine
from lamella.snapshot.errors import InvalidRequest, JobCancelled, UnknownColumn
from lamella.snapshot.parquet import read_footer
from lamella.snapshot.schema.evolution import AddColumn, RenameColumn
from lamella.snapshot.storage import FsspecStore
from support.event_tables import EventTable, as_texts, events


def blocks_read(table: EventTable, filter: str) -> int:
    """Blocks that a filter reads."""
    return len(table.handle.prune(filter).locations)


def test_small_blocks_become_blocks_of_the_target_size(make_table: MakeTable) -> None:
    """Rows are kept, neighbours come together, and a second run finds nothing to do."""
    rng = random.Random(1)
    tables = [events(rng, 50, days=(10 * at, 10 * at + 10)) for at in range(20)]
    rng.shuffle(tables)
    table = make_table(cluster_key=["day"])
    table.add(*tables)
    before = table.rows()
    done = compact(table.context(block_rows=250))
    assert table.rows() == before
    assert (done.blocks_before, done.rows) == (20, 1_000)
    assert 3 <= done.blocks_after <= 5
    assert sum(table.sizes()) == 1_000
    again = compact(table.context(block_rows=250))
    assert (again.tasks, again.snapshot_id) == (0, None)
    assert blocks_read(table, "day = DATE '1970-01-26'") <= 2


def test_the_size_of_blocks_is_a_property_of_the_table(make_table: MakeTable) -> None:
    """Compaction, its plan and the count of small blocks go by it, unless a job says another size."""
    table = make_table(cluster_key=["day"], properties={"target_block_rows": "250"})
    table.add(*(events(random.Random(at), 50, days=(10 * at, 10 * at + 10)) for at in range(20)))
    before = table.rows()
    assert table.handle.clustering().small_blocks == 20
    done = compact(table.context())
    assert (done.blocks_before, 3 <= done.blocks_after <= 5) == (20, True)
    assert table.rows() == before
    assert (compact(table.context()).tasks, table.handle.clustering().small_blocks) == (0, 0)
    assert compact(table.context(block_rows=2_000)).blocks_after == 1
    assert compact(table.context()).blocks_after == 4


def test_the_bytes_of_blocks_are_a_property_of_the_table(make_table: MakeTable) -> None:
    """What is rewritten is cut at about so many bytes of file."""
    table = make_table(cluster_key=["id"], properties={"target_block_bytes": "20000"})
    table.add(events(random.Random(2), 5_000))
    done = compact(table.context())
    assert done.blocks_after > 3
    assert all(block.file_size < 60_000 for block in table.blocks())


@pytest.mark.parametrize("name", ["target_block_rows", "target_block_bytes"])
def test_a_size_that_no_block_can_have_is_refused(make_table: MakeTable, name: str) -> None:
    """When the table is made, and when a commit sets the property."""
    with pytest.raises(InvalidRequest, match=name):
        make_table(properties={name: "0"})
    table = make_table(properties={name: "250"})
    with pytest.raises(InvalidRequest, match=name):
        table.handle.commit(properties={name: "many"})
    assert table.handle.info().properties[name] == "250"


def test_large_blocks_are_split(make_table: MakeTable) -> None:
    """A block of several targets' rows becomes several blocks, in the order of the key."""
    table = make_table(cluster_key=["id"])
    table.add(events(random.Random(2), 1_000))
    before = table.rows()
    done = compact(table.context(block_rows=200))
    assert (done.blocks_before, done.blocks_after) == (1, 5)
    assert table.rows() == before
    values = [pq.read_table(b.location.removeprefix("file://"))["id"].to_pylist() for b in table.blocks()]
    assert [one for some in sorted(values) for one in some] == sorted(one for some in values for one in some)


@pytest.mark.parametrize("kind", ["linear", "zorder", "hilbert"])
def test_reclustering_brings_a_table_into_order(
    make_table: MakeTable, kind: Literal["linear", "zorder", "hilbert"]
) -> None:
    """Blocks in random order are read all; afterwards a range reads few, and nothing more is left to be done."""
    rng = random.Random(3)
    table = make_table(cluster_key=["id", "price"], cluster_kind=kind)
    table.add(*[events(rng, 400) for _ in range(16)])
    before = table.rows()
    low, high = 1 << 48, (1 << 48) + (1 << 46)
    assert blocks_read(table, f"id BETWEEN {low} AND {high}") == 16
    done = recluster(table.context(block_rows=400), max_runs=8)
    assert table.rows() == before
    assert done.rows >= 16 * 400
    assert blocks_read(table, f"id BETWEEN {low} AND {high}") <= (3 if kind == "linear" else 9)
    if kind != "linear":
        assert blocks_read(table, "price BETWEEN 250000 AND 312500") <= 9
        assert blocks_read(table, f"id BETWEEN {low} AND {high} AND price BETWEEN 250000 AND 312500") <= 5
    assert recluster(table.context(block_rows=400)).tasks == 0
    assert not table.handle.verify().findings


@pytest.mark.parametrize("kind", ["linear", "zorder"])
def test_reclustering_goes_by_expressions_of_the_key(make_table: MakeTable, kind: Literal["linear", "zorder"]) -> None:
    """Rows of a year are together, by user inside of it: a look-up in a year reads one block of it, and those at its
    ends. Nothing more is left to be done, also after a rename."""
    rng = random.Random(13)
    table = make_table(cluster_key=["trunc(day, 'YEAR')", "user"], cluster_kind=kind)
    assert table.handle.cluster_key().columns == ("trunc(day, 'YEAR')", "user")
    table.add(*[events(rng, 400) for _ in range(16)])
    before = table.rows()
    look_up = "day = DATE '1971-02-03' AND user = 'u0123'"
    assert blocks_read(table, look_up) == 16
    depth = table.handle.clustering().depth.average_depth
    recluster(table.context(block_rows=400), max_runs=8)
    assert table.rows() == before
    assert blocks_read(table, look_up) <= (3 if kind == "linear" else 5)
    assert blocks_read(table, "user = 'u0123'") <= 9
    assert table.handle.clustering().depth.average_depth < depth / 3
    assert recluster(table.context(block_rows=400)).tasks == 0
    assert not table.handle.verify().findings
    table.handle.evolve([RenameColumn(column="day", name="date")])
    assert table.handle.cluster_key().columns[0] == "trunc(date, 'YEAR')"
    assert recluster(table.context(block_rows=400)).tasks == 0
    table.add(events(rng, 400).rename_columns(["id", "date", "user", "amount", "price", "place"]))
    assert sum(table.sizes()) == 17 * 400
    compact(table.context(block_rows=400))
    assert not table.handle.verify().findings


def test_rows_beyond_memory_are_sorted_outside_of_it(make_table: MakeTable) -> None:
    """The result does not depend on how many rows a task may hold."""
    rng = random.Random(4)
    table = make_table(cluster_key=["day", "user"])
    table.add(*[events(rng, 300) for _ in range(10)])
    before = table.rows()
    with LocalEngine(2) as engine:
        done = recluster(table.context(engine, block_rows=300, memory_bytes=20_000), max_runs=4)
    assert done.tasks >= 1
    assert table.rows() == before
    assert blocks_read(table, "day = DATE '1970-05-01'") <= 3


def test_blocks_of_one_value_are_not_rewritten_again_and_again(make_table: MakeTable) -> None:
    """A hot key fills many blocks; no order tells them apart, so they are left alone."""
    rng = random.Random(5)
    hot = [events(rng, 200).set_column(2, "user", pa.array(["u0001"] * 200)) for _ in range(8)]
    table = make_table(cluster_key=["user"])
    table.add(*hot, *[events(rng, 200) for _ in range(4)])
    before = table.rows()
    recluster(table.context(block_rows=200), max_runs=6)
    assert recluster(table.context(block_rows=200)).tasks == 0
    assert table.rows() == before


def test_a_part_of_a_table_is_reclustered(make_table: MakeTable) -> None:
    """With a filter only blocks that may match it are touched."""
    rng = random.Random(6)
    old = [events(rng, 200, days=(0, 100)) for _ in range(6)]
    new = [events(rng, 200, days=(500, 600)) for _ in range(6)]
    table = make_table(cluster_key=["day"])
    table.add(*[t.filter(pa.compute.is_valid(t["day"])) for t in (*old, *new)])
    before, locations = table.rows(), {b.location for b in table.blocks()}
    done = recluster(table.context(block_rows=200), Bounds(where="day >= DATE '1971-01-01'"))
    assert done.blocks_before == 6
    assert len(locations & {b.location for b in table.blocks()}) == 6
    assert table.rows() == before


def test_a_block_that_cannot_be_read_is_left_and_named(make_table: MakeTable) -> None:
    """Its task fails, the others are done."""
    rng = random.Random(7)
    table = make_table(cluster_key=["day"])
    table.add(*[events(rng, 50, days=(100 * at, 100 * at + 100)) for at in range(12)])
    victim = sorted(block.location for block in table.blocks())[3]
    path = Path(victim.removeprefix("file://"))
    pq.write_table(events(rng, 51), path)
    done = compact(table.context(block_rows=150))
    assert any(victim in failure.reason for failure in done.failures)
    assert victim in {block.location for block in table.blocks()}
    assert done.tasks >= 1


def test_blocks_of_older_schemas_are_written_with_the_current_one(make_table: MakeTable) -> None:
    """Renamed, added and widened columns are in the new files as readers see them."""
    rng = random.Random(8)
    table = make_table(cluster_key=["id"])
    table.add(*[events(rng, 60) for _ in range(3)])
    table.handle.evolve(
        [
            RenameColumn(column="user", name="person"),
            AddColumn(name="extra", type="int32", default="7"),
        ]
    )
    compact(table.context(block_rows=1_000))
    (block,) = table.blocks()
    rows = pq.read_table(block.location.removeprefix("file://"))
    assert rows.column_names == ["id", "day", "person", "amount", "price", "place", "extra"]
    assert set(rows["extra"].to_pylist()) == {7}
    assert block.written_with == table.handle.info().history[-1].schema_id
    assert not table.handle.verify().findings


def test_a_plan_changes_nothing_and_says_what_is_gained(make_table: MakeTable) -> None:
    """The dry run of a job: the same tasks that the job then does."""
    rng = random.Random(9)
    table = make_table(cluster_key=["id"])
    table.add(*[events(rng, 200) for _ in range(10)])
    before = table.handle.info().snapshot_id
    planned = plan(table.context(block_rows=200), "recluster", Bounds())
    assert table.handle.info().snapshot_id == before
    assert planned.cluster_key == ("id",)
    assert sum(len(task.blocks) for task in planned.tasks) == 10
    assert planned.tasks[0].blocks_saved > 5
    done = recluster(table.context(block_rows=200))
    assert done.blocks_before == 10


def test_a_table_without_a_key_is_compacted_and_not_reclustered(make_table: MakeTable) -> None:
    """Rows keep their order; there is none to bring them into."""
    rng = random.Random(10)
    tables = [events(rng, 40) for _ in range(5)]
    table = make_table()
    table.add(*tables)
    with pytest.raises(InvalidRequest, match="no cluster key"):
        recluster(table.context())
    compact(table.context())
    (block,) = table.blocks()
    rows = pq.read_table(block.location.removeprefix("file://"))
    assert as_texts(rows) == as_texts(pa.concat_tables(tables))
    assert rows["id"].to_pylist() == [one for t in tables for one in t["id"].to_pylist()]


def test_a_cancelled_job_leaves_the_table_as_it_was(make_table: MakeTable) -> None:
    """Between two steps a job asks whether it is to end; what was not committed never was."""
    rng = random.Random(11)
    table = make_table(cluster_key=["id"])
    table.add(*[events(rng, 100) for _ in range(6)])
    before = table.handle.info().snapshot_id
    calls: list[Any] = []

    def cancelled() -> bool:
        calls.append(None)
        return len(calls) > 2

    with pytest.raises(JobCancelled):
        recluster(msgspec.structs.replace(table.context(block_rows=100), cancelled=cancelled))
    assert table.handle.info().snapshot_id == before


def test_what_a_job_wrote_says_which_key_it_was_written_for(make_table: MakeTable) -> None:
    """So that a later run knows it, and a changed key makes it unclustered again."""
    rng = random.Random(12)
    table = make_table(cluster_key=["id"])
    table.add(*[events(rng, 100) for _ in range(4)])
    recluster(table.context(block_rows=100))
    key_id = table.handle.cluster_key().key_id
    assert {block.cluster_stats.key_id for block in table.blocks() if block.cluster_stats} == {key_id}
    assert all(block.cluster_stats for block in table.blocks())
    table.handle.cluster_by(["user"])
    done = recluster(table.context(block_rows=100))
    assert done.blocks_before == 4
    assert blocks_read(table, "user = 'u0100'") <= 2


def test_new_files_get_the_bloom_filters_that_the_table_asks_for(make_table: MakeTable) -> None:
    """A property of the table names the columns; their chunks say where their filters are, sized by distinct values."""
    table = make_table(cluster_key=["id"], properties={"write.bloom_filters": "user, id=0.05"})
    table.add(*[events(random.Random(seed), 300) for seed in range(3)])
    compact(table.context())
    (block,) = table.blocks()
    footer = read_footer(FsspecStore(), block.location)
    (group,) = footer.metadata.row_groups
    names = [field.name for field in pq.read_schema(block.location.removeprefix("file://"))]
    with_filter = [names[at] for at in range(len(names)) if group.chunks[at].bloom_filter]
    assert with_filter == ["id", "user"]


def test_filters_of_unknown_columns_are_refused_before_anything_is_read(make_table: MakeTable) -> None:
    """A property that cannot be followed is an error, not a file without a filter."""
    table = make_table(properties={"write.bloom_filters": "nothing"})
    table.add(events(random.Random(1), 20), events(random.Random(2), 20))
    with pytest.raises(UnknownColumn):
        compact(table.context())
