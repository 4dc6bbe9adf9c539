"""Updating and merging: the rows are those that SQL says, and only blocks that change are written anew."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lamella.client.spark import merge, update, write
from lamella.snapshot.errors import InvalidFilter, InvalidRequest
from lamella.snapshot.manifest import FEATURES
from spark.lakes import CATALOG, Lakes, fresh

pytestmark = pytest.mark.spark

#: Blocks that lose rows are rewritten.
REWRITE = {"write.delete.mode": "copy-on-write"}
SCHEMA = "id bigint, name string, qty int, price decimal(10,2)"
Row = tuple[int | None, str | None, int | None, Any]


def table_of(spark: SparkSession, lakes: Lakes, rows: list[Row], blocks: int = 4) -> str:
    """A table of such rows, sorted by id."""
    name = f"{fresh('merged')}.t"
    frame = spark.createDataFrame(rows, SCHEMA)
    write(frame, name, client=lakes.lake, cluster_by=["id"], target_block_rows=max(1, len(rows) // blocks))
    return name


def rows_of(spark: SparkSession, name: str) -> list[Row]:
    """All rows, through the catalog, by id."""
    found = [tuple(row) for row in spark.table(f"{CATALOG}.{name}").collect()]
    return sorted(found, key=repr)


def numbered(count: int) -> list[Row]:
    """Rows with the ids from 0 on."""
    return [(at, f"n{at}", at % 10, None) for at in range(count)]


def test_a_merge_changes_deletes_inserts_and_leaves_the_rest(spark: SparkSession, lakes: Lakes) -> None:
    """Each clause does its own, in the order in which they were given, and blocks without a match stay."""
    name = table_of(spark, lakes, numbered(400), blocks=8)
    before = {block.location for block in _blocks(lakes, name)}
    source = spark.createDataFrame(
        [(10, "ten", False), (11, "eleven", True), (1000, "new", False), (None, "nobody", False)],
        "id bigint, label string, gone boolean",
    )
    done = (
        merge(source, name, "t.id = s.id", client=lakes.lake)
        .when_matched_delete(condition="s.gone")
        .when_matched_update({"name": "s.label", "qty": "t.qty + 1"})
        .when_not_matched_insert({"id": "s.id", "name": "s.label"}, condition="s.id IS NOT NULL")
        .execute()
    )
    assert (done.rows_updated, done.rows_deleted, done.rows_inserted) == (1, 1, 1)
    assert (done.blocks_read, done.blocks_removed, done.blocks_with_vectors) == (1, 0, 1)
    expected: list[Row] = [row for row in numbered(400) if row[0] not in (10, 11)]
    expected += [(10, "ten", 1, None), (1000, "new", None, None)]
    assert rows_of(spark, name) == sorted(expected, key=repr)
    assert before < {block.location for block in _blocks(lakes, name)}


@pytest.mark.parametrize("merges", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_merges_keep_the_number_of_blocks_of_a_table_that_says_how_large_they_are(
    spark: SparkSession, lakes: Lakes, merges: int
) -> None:
    """Merges of a few rows each rewrite about the blocks that they touch, into about as many."""
    name = f"{fresh('merged')}.t"
    frame = spark.createDataFrame(numbered(880), SCHEMA)
    write(frame, name, client=lakes.lake, cluster_by=["id"], properties=REWRITE | {"target_block_rows": "20"})
    assert len(_blocks(lakes, name)) == 44
    rng = random.Random(3)
    expected = {row[0]: row for row in numbered(880)}
    for turn in range(merges):
        # Keys of a few blocks; the first time of all of them.
        keys = range(0, 880, 20) if turn == 0 else sorted(rng.sample(range(300), 3))
        changes: list[Row] = [(key, f"m{turn}", turn, None) for key in [*keys, 880 + turn]]
        source = spark.createDataFrame(changes, SCHEMA)
        done = (
            merge(source, name, "t.id = s.id", client=lakes.lake)
            .when_matched_update()
            .when_not_matched_insert()
            .execute()
        )
        expected |= {row[0]: row for row in changes}
        assert done.blocks_removed <= len(changes)
        assert done.rows_copied <= 40 * len(changes)
        assert abs(done.blocks_added - done.blocks_removed) <= max(2, done.blocks_removed // 8)
    assert 40 <= len(_blocks(lakes, name)) <= 66
    assert rows_of(spark, name) == sorted(expected.values(), key=repr)
    update(spark, name, {"qty": "-1"}, "id < 400", client=lakes.lake)
    assert 40 <= len(_blocks(lakes, name)) <= 66


@pytest.mark.parametrize("mode", ["auto", "copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))])
@pytest.mark.few(1)
def test_a_random_merge_does_what_a_loop_over_rows_does(
    spark: SparkSession, lakes: Lakes, seed: int, mode: str
) -> None:
    """Random rows with null and repeated keys, all five kinds of clauses, held to plain Python."""
    rng = random.Random(seed)
    target: list[Row] = [
        (rng.choice([None, *range(60)]), rng.choice(["a", "b", None]), rng.randrange(100), None) for _ in range(120)
    ]
    keys = rng.sample(range(90), 30)
    source = [(key, rng.choice(["x", "y"]), rng.randrange(100)) for key in keys] + [(None, "z", 1)]
    name = table_of(spark, lakes, target, blocks=6)
    lakes.lake.table(name).commit(operation="alter", properties={"write.delete.mode": mode})
    lakes.lake.table(name).delete("id = 7", mode="merge-on-read")
    target = [row for row in target if row[0] != 7]
    done = (
        merge(spark.createDataFrame(source, "id bigint, kind string, n int"), name, "t.id = s.id", client=lakes.lake)
        .when_matched_update({"qty": "s.n"}, condition="s.kind = 'x' AND t.name = 'a'")
        .when_matched_delete(condition="t.name = 'b'")
        .when_not_matched_insert({"id": "s.id", "qty": "s.n", "name": "s.kind"}, condition="s.n >= 50")
        .when_not_matched_by_source_update({"name": "'lost'"}, condition="t.qty < 30")
        .when_not_matched_by_source_delete(condition="t.qty > 90")
        .execute()
    )
    by_key = {key: (kind, n) for key, kind, n in source if key is not None}
    expected: list[Row] = []
    deleted = 0
    for key, label, qty, price in target:
        match = by_key.get(key) if key is not None else None
        if match is not None and match[0] == "x" and label == "a":
            expected.append((key, label, match[1], price))
        elif (match is not None and label == "b") or (match is None and qty is not None and qty > 90):
            deleted += 1
        elif match is None and qty is not None and qty < 30:
            expected.append((key, "lost", qty, price))
        else:
            expected.append((key, label, qty, price))
    present = {row[0] for row in target}
    expected += [(key, kind, n, None) for key, kind, n in source if (key is None or key not in present) and n >= 50]
    assert rows_of(spark, name) == sorted(expected, key=repr)
    assert done.rows_deleted == deleted
    assert (done.blocks_with_vectors > 0) >= (mode == "merge-on-read")
    assert (done.blocks_with_vectors == 0) >= (mode == "copy-on-write")
    assert lakes.lake.table(name).verify(deep=True, sample=1.0).findings == ()


def test_an_insert_only_merge_writes_nothing_anew(spark: SparkSession, lakes: Lakes) -> None:
    """Rows that are there already are left alone, and so are their blocks."""
    name = table_of(spark, lakes, numbered(100))
    before = {block.location for block in _blocks(lakes, name)}
    source = spark.createDataFrame([(5, "five", 1, None), (500, "new", 2, None)], SCHEMA)
    done = merge(source, name, "t.id = s.id", client=lakes.lake).when_not_matched_insert().execute()
    assert (done.rows_inserted, done.blocks_removed) == (1, 0)
    assert before < {block.location for block in _blocks(lakes, name)}
    assert rows_of(spark, name) == sorted([*numbered(100), (500, "new", 2, None)], key=repr)


def test_two_source_rows_for_one_row_are_refused(spark: SparkSession, lakes: Lakes) -> None:
    """Which of them wins would be chance."""
    name = table_of(spark, lakes, numbered(20))
    source = spark.createDataFrame([(5, "x"), (5, "y")], "id bigint, label string")
    with pytest.raises(InvalidRequest, match="2 rows of the source match one row"):
        merge(source, name, "t.id = s.id", client=lakes.lake).when_matched_update({"name": "s.label"}).execute()
    assert rows_of(spark, name) == sorted(numbered(20), key=repr)
    done = merge(source, name, "t.id = s.id", client=lakes.lake).when_matched_delete().execute()
    assert done.rows_deleted == 1
    assert rows_of(spark, name) == sorted((row for row in numbered(20) if row[0] != 5), key=repr)


def test_an_update_reads_only_blocks_that_may_match(spark: SparkSession, lakes: Lakes) -> None:
    """SQL computes the new values; rows for which the condition is null are left alone."""
    rows: list[Row] = [*numbered(200), (None, "nobody", 3, None)]
    name = table_of(spark, lakes, rows, blocks=10)
    done = update(spark, name, {"name": "upper(name)", "qty": "qty * 2"}, "id BETWEEN 50 AND 59", client=lakes.lake)
    assert done.rows_updated == 10
    assert done.blocks_read <= 2
    expected = [
        (key, label.upper(), (qty or 0) * 2, price)
        if key is not None and label and 50 <= key <= 59
        else (key, label, qty, price)
        for key, label, qty, price in rows
    ]
    assert rows_of(spark, name) == sorted(expected, key=repr)
    before = lakes.lake.table(name).info().snapshot_id
    assert update(spark, name, {"qty": "0"}, "id = -1", client=lakes.lake).rows_updated == 0
    assert lakes.lake.table(name).info().snapshot_id == before


def test_rows_that_come_meanwhile_make_it_start_again(spark: SparkSession, lakes: Lakes, lake_url: str) -> None:
    """A key that another writer inserts while the merge is at work is found in the end, not inserted twice."""
    from lamella.client import Lamella
    from lamella.client.http.fake_transport import FakeTransport
    from lamella.client.http.transport import HttpRequest, HttpResponse, PooledTransport

    name = table_of(spark, lakes, numbered(40))
    service = PooledTransport(lake_url, timeout_s=30)
    commits: list[int] = []

    def send(request: HttpRequest) -> HttpResponse:
        if request.path.endswith("/commits"):
            commits.append(1)
            if len(commits) == 1:
                write(spark.createDataFrame([(777, "early", 1, None)], SCHEMA), name, client=lakes.lake)
        answer = service.send(request)
        assert isinstance(answer, HttpResponse)
        return answer

    source = spark.createDataFrame([(777, "late", 2, None)], SCHEMA)
    client = Lamella(lake_url, transport=FakeTransport(send))
    done = merge(source, name, "t.id = s.id", client=client).when_matched_update().when_not_matched_insert().execute()
    service.close()
    assert (done.tries, done.rows_updated, done.rows_inserted) == (2, 1, 0)
    assert [row for row in rows_of(spark, name) if row[0] == 777] == [(777, "late", 2, None)]


def test_a_value_that_does_not_fit_changes_nothing(spark: SparkSession, lakes: Lakes) -> None:
    """Overflow is an error, as in ANSI SQL, and there is no merge without ANSI mode."""
    name = table_of(spark, lakes, numbered(10))
    with pytest.raises(Exception, match=r"(?i)overflow|out of range"):
        update(spark, name, {"qty": "id + 3000000000"}, client=lakes.lake)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(InvalidRequest, match="ansi"):
            update(spark, name, {"qty": "1"}, client=lakes.lake)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    with pytest.raises(InvalidRequest, match="no column 'nothing'"):
        update(spark, name, {"nothing": "1"}, client=lakes.lake)
    assert rows_of(spark, name) == sorted(numbered(10), key=repr)


def test_an_empty_condition_is_not_every_row(spark: SparkSession, lakes: Lakes) -> None:
    """Every row changes when there is no condition, and not when a text for one came out empty."""
    name = table_of(spark, lakes, numbered(3))
    for blank in ("", " "):
        with pytest.raises(InvalidFilter, match="empty"):
            update(spark, name, {"qty": "0"}, blank, client=lakes.lake)
    assert rows_of(spark, name) == sorted(numbered(3), key=repr)
    assert update(spark, name, {"qty": "0"}, None, client=lakes.lake).rows_updated == 3


def _blocks(lakes: Lakes, name: str) -> list[Any]:
    table = lakes.lake.table(name)
    snapshot = table.snapshot(table.info().snapshot_id)
    return [
        block for ref in snapshot.segments for block in table.segment(ref.segment_id, reader_features=FEATURES).blocks
    ]
