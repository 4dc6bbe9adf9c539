"""Upserts: rows with equal keys are replaced, others inserted, and nothing else is touched."""

from __future__ import annotations

import datetime as dt
import math
import random
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures_server import ServerProcess
from lamella.client import Lamella
from lamella.client.http import Table
from lamella.client.jobs.context import JobContext, Sizes
from lamella.client.jobs.rewrite import compact
from lamella.client.rewrite.engine import SerialEngine
from lamella.client.write import keys as module
from lamella.client.write.keys import MAX_LISTED, KeySet, joined, key_leaves
from lamella.snapshot.errors import InvalidRequest, SchemaConflict, SchemaMismatch, UnknownColumn
from lamella.snapshot.expression import read_filter
from lamella.snapshot.row_filter import RowFilter
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.arrow import conform_leaf
from lamella.snapshot.schema.evolution import AddColumn
from support.service_api import fresh_name
from write.conftest import MakeTable

TYPES: dict[str, tuple[str, list[Any]]] = {
    "boolean": ("boolean", [True, False]),
    "int8": ("int8", [-128, 0, 127]),
    "int64": ("int64", [-(2**63), -1, 2**63 - 1]),
    "uint64": ("uint64", [0, 2**63, 2**64 - 1]),
    "float32": ("float32", [math.nan, 0.5, -math.inf]),
    "float64": ("float64", [math.nan, 0.0, math.inf, -1.5]),
    "decimal": ("decimal(30,4)", [Decimal("-1.5000"), Decimal(0), Decimal("12345678901234567890.1234")]),
    "string": ("string", ["", "a", "ä", "\U0001f600"]),
    "binary": ("binary", [b"", b"\x00", b"\xff"]),
    "fixed": ("fixed(2)", [b"\x00\x00", b"\xff\xff"]),
    "date": ("date", [dt.date(1, 1, 1), dt.date(2024, 1, 1)]),
    "timestamp": ("timestamp(us)", [dt.datetime(1500, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]),
    "fine": ("timestamp(ns)", [dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]),
    "time": ("time(us)", [dt.time(0), dt.time(23, 59, 59)]),
}


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    """All rows, ordered by their text."""
    return sorted((tuple(row.values()) for row in table.scan().to_arrow().to_pylist()), key=repr)


def test_rows_with_equal_keys_are_replaced_and_others_inserted(make_table: MakeTable) -> None:
    """In one commit; without a match it is an append, without rows nothing."""
    table = make_table(id="int64", v="string")
    first = table.upsert({"id": [1, 2, 3], "v": ["a", "b", "c"]}, ["id"])
    assert (first.rows_inserted, first.rows_updated, first.rows_removed, first.committed) == (3, 0, 0, True)
    second = table.upsert([{"ID": 3, "v": "C"}, {"ID": 4, "v": "D"}], on=["Id"])
    assert (second.rows_inserted, second.rows_updated, second.rows_removed) == (1, 1, 1)
    assert second.snapshot_id == table.info().snapshot_id
    assert rows_of(table) == [(1, "a"), (2, "b"), (3, "C"), (4, "D")]
    third = table.upsert([], ["id"])
    assert (third.committed, third.snapshot_id) == (False, second.snapshot_id)
    assert [entry.operation for entry in table.snapshots()] == ["upsert", "upsert", "create"]
    assert table.verify(deep=True, sample=1.0).is_clean


def test_an_upsert_again_changes_no_row(make_table: MakeTable) -> None:
    """So it needs no idempotency key."""
    table = make_table(id="int64", v="string")
    for _ in range(3):
        table.upsert({"id": [1, 2], "v": ["a", None]}, ["id"])
    assert rows_of(table) == [(1, "a"), (2, None)]


def test_all_rows_of_a_key_are_replaced_by_one(make_table: MakeTable) -> None:
    """The table itself does not keep keys unique."""
    table = make_table(id="int64", v="string")
    table.append({"id": [1, 1, 2], "v": ["a", "b", "c"]}, target_block_rows=1)
    result = table.upsert({"id": [1], "v": ["z"]}, ["id"])
    assert (result.rows_updated, result.rows_removed, result.rows_inserted) == (1, 2, 0)
    assert rows_of(table) == [(1, "z"), (2, "c")]


@pytest.mark.parametrize("kind", TYPES)
def test_keys_of_every_type_match(make_table: MakeTable, kind: str) -> None:
    """Also extremes, NaN and zeros; nulls in the table stay."""
    type_text, values = TYPES[kind]
    table = make_table(k=type_text, v="int64")
    table.append([{"k": value, "v": 0} for value in [*values, None]])
    result = table.upsert([{"k": value, "v": 1} for value in values], ["k"])
    assert (result.rows_updated, result.rows_inserted) == (len(values), 0)
    rows = table.scan().to_arrow().to_pylist()
    assert sorted(row["v"] for row in rows) == [0] + [1] * len(values)
    assert [row["k"] for row in rows if row["v"] == 0] == [None]
    assert table.verify(deep=True, sample=1.0).is_clean


def test_signs_of_zero_and_kinds_of_nan_are_one_key(make_table: MakeTable) -> None:
    """As in Spark; so two of them in the data are one key twice."""
    table = make_table(k="float64", v="int64")
    table.append({"k": [-0.0, math.nan], "v": [1, 2]})
    assert table.upsert({"k": [0.0, math.nan], "v": [3, 4]}, ["k"]).rows_updated == 2
    assert sorted(row[1] for row in rows_of(table)) == [3, 4]
    with pytest.raises(InvalidRequest, match="several rows"):
        table.upsert({"k": [0.0, -0.0], "v": [1, 2]}, ["k"])


def test_a_key_may_have_several_columns_and_lie_in_structs(make_table: MakeTable) -> None:
    """Rows match if all columns do."""
    inner = Column(name="st", type="struct", fields=(Column(name="b", type="string"),))
    table = make_table(inner, a="int32", v="int64")
    pairs = [(a, b) for a in (1, 2) for b in ("x", "y")]
    table.append([{"a": a, "st": {"b": b}, "v": 0} for a, b in pairs] + [{"a": 1, "st": None, "v": 0}])
    result = table.upsert([{"a": 1, "st": {"b": "y"}, "v": 1}, {"a": 3, "st": {"b": "x"}, "v": 1}], ["a", "st.b"])
    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    found = sorted(
        (row["a"], str(row["st"] and row["st"]["b"]), row["v"]) for row in table.scan().to_arrow().to_pylist()
    )
    assert found == [(1, "None", 0), (1, "x", 0), (1, "y", 1), (2, "x", 0), (2, "y", 0), (3, "x", 1)]


@pytest.mark.parametrize(
    ("rows", "on", "error", "message"),
    [
        ([{"id": 1}, {"id": 2}, {"id": 1}], ["id"], InvalidRequest, "'id': 1"),
        ([{"id": 1, "v": "a"}, {"id": 1, "v": "a"}], ["id", "v"], InvalidRequest, "'v': 'a'"),
        ([{"id": 1}, {"id": None}], ["id"], InvalidRequest, "null in 'id'"),
        ([{"id": 1}], [], InvalidRequest, "at least one column"),
        ([{"id": 1}], ["id", "ID"], InvalidRequest, "each once"),
        ([{"id": 1}], ["l.element"], InvalidRequest, "cannot be a key"),
        ([{"id": 1}], ["l"], UnknownColumn, "l"),
        ([{"id": 1}], ["other"], UnknownColumn, "other"),
        ([{"id": "x"}], ["id"], SchemaMismatch, "id"),
        ([{"id": 1}], "id", InvalidRequest, "list of strings"),
    ],
)
def test_keys_that_cannot_be_decided_change_nothing(
    make_table: MakeTable, rows: Any, on: Any, error: type[Exception], message: str
) -> None:
    """Two rows of one key, a null in a key, no such column."""
    table = make_table(
        Column(name="l", type="list", fields=(Column(name="element", type="int64"),)), id="int64", v="string"
    )
    table.append([{"id": 1, "v": "old"}])
    before = table.info()
    with pytest.raises(error, match=message):
        table.upsert(rows, on)
    assert table.info() == before


def test_only_blocks_that_may_have_a_key_are_read(make_table: MakeTable) -> None:
    """And only those that have one are changed; few rows go without rewriting a block."""
    table = make_table(id="int64", v="int64", cluster_key=["id"])
    table.append({"id": range(10_000), "v": [0] * 10_000}, target_block_rows=100)
    blocks = {location for page in table.prune_pages(None, page_size=1_000) for location in page.locations}
    result = table.upsert({"id": [5, 5_000, 20_000], "v": [1, 1, 1]}, ["id"])
    assert (result.blocks_read, result.blocks_changed, result.blocks) == (2, 2, 1)
    after = table.prune(None, reader_features=("deletes", "constants")).locations
    assert blocks < set(after)
    assert sorted(row[0] for row in rows_of(table) if row[1] == 1) == [5, 5_000, 20_000]
    assert table.info().row_count == 10_003
    assert table.scan().count() == 10_001


@pytest.mark.parametrize(
    ("mode", "rewritten", "stay"), [("auto", 1, 1), ("copy-on-write", 2, 0), ("merge-on-read", 0, 2)]
)
def test_blocks_are_rewritten_as_the_table_says(make_table: MakeTable, mode: str, rewritten: int, stay: int) -> None:
    """By default those that lose many rows; a block of which all rows are replaced goes."""
    table = make_table(id="int64", v="int64", cluster_key=["id"], properties={"write.delete.mode": mode})
    table.create_index("by_v", "bloom", "v")
    table.append({"id": range(30), "v": [0] * 30}, target_block_rows=10)
    before = set(table.prune(None).locations)
    changed = [0, *range(10, 16), *range(20, 30)]
    result = table.upsert({"id": changed, "v": [1] * len(changed)}, ["id"])
    assert (result.rows_updated, result.blocks_changed, result.blocks_rewritten) == (len(changed), 3, rewritten)
    assert len(before & set(table.prune(None, reader_features=("deletes",)).locations)) == stay
    assert rows_of(table) == sorted([(n, int(n in changed)) for n in range(30)], key=repr)
    assert table.verify(deep=True, sample=1.0).is_clean


@pytest.mark.parametrize("kind", ["int64", "string", "float64"])
def test_more_keys_than_a_list_holds_are_covered_by_ranges(make_table: MakeTable, kind: str) -> None:
    """Blocks between the ranges are not read, and every key is found."""
    makers: dict[str, Callable[[int], Any]] = {"int64": int, "string": "{:08}".format, "float64": float}
    make = makers[kind]
    count = MAX_LISTED + 2_000
    table = make_table(k=kind, v="int64", cluster_key=["k"])
    keys = [make(n) for n in (*range(count), *range(10**6, 10**6 + count))]
    table.append({"k": keys, "v": [0] * len(keys)}, target_block_rows=2_000)
    blocks = table.info().block_count
    changed = [make(n) for n in range(count)]
    result = table.upsert({"k": changed, "v": [1] * count}, ["k"])
    assert (result.rows_updated, result.rows_inserted) == (count, 0)
    assert result.blocks_read <= blocks // 2 + 1
    assert table.scan("v = 0").count() == count
    assert table.scan().count() == 2 * count


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_more_text_than_an_array_holds_is_one_set_of_keys(kind: str) -> None:
    """With longer offsets, in which the table's values are found all the same."""
    leaves = key_leaves(Schema.assign([Column(name="k", type=kind)]), ["k"])
    short = pa.array(["a", "b", "c"]).cast(kind)
    long = joined([short.slice(0, 1), short.slice(1)], max_bytes=1)
    assert long.type in (pa.large_string(), pa.large_binary())
    keys = KeySet(leaves, [long])
    assert keys.positions([pa.array(["c", None, "x", "a"]).cast(kind)]).tolist() == [2, -1, -1, 0]
    assert keys.filter() == KeySet(leaves, [joined([short])]).filter()


def test_a_filter_covers_all_keys() -> None:
    """Lists, ranges and NaN; a column whose values have no spelling is left out."""
    schema = Schema.assign([Column(name="f", type="float64"), Column(name="n", type="timestamp(ns)")])
    leaves = key_leaves(schema, ["f"])
    many = pa.array([float(n) for n in range(MAX_LISTED + 1)] + [math.nan, math.inf, -math.inf])
    tree = KeySet(leaves, [many]).filter()
    assert tree["type"] == "or"
    assert len(tree["children"]) == 501
    fine = KeySet(key_leaves(schema, ["n"]), [pa.array([1], pa.timestamp("ns", "UTC"))])
    assert fine.filter() is None  # such a time has no spelling in a filter, so every block is a candidate
    both = KeySet(key_leaves(schema, ["f", "n"]), [pa.array([1.0]), pa.array([1], pa.timestamp("ns", "UTC"))])
    assert both.filter() == {
        "type": "in",
        "term": "f",
        "values": [{"type": "literal", "data-type": "double", "value": 1.0}],
    }


_NUMBERS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int64": (pa.int64(), [-(2**63), -(2**63) + 1, -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1]),
    "uint64": (pa.uint64(), [0, 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]),
    "float64": (pa.float64(), [-math.inf, -1e308, -5e-324, -0.0, 5e-324, 1.5, 1e308, math.inf, math.nan]),
    "decimal(38,2)": (pa.decimal128(38, 2), [Decimal(f"{n}E-2") for n in (-(10**37), -1, 0, 1, 10**37, 10**37 + 1)]),
    "string": (pa.string(), ["", "a", "a\x00", "b", "ä", "\U0001f600"]),
}


@given(data=st.data())
def test_no_key_is_outside_of_the_filter(data: st.DataObject) -> None:
    """Listed or in ranges, at the ends of each type; equal keys are found."""
    kind = data.draw(st.sampled_from(sorted(_NUMBERS)))
    arrow, values = _NUMBERS[kind]
    chosen = data.draw(st.lists(st.sampled_from(range(len(values))), min_size=1, max_size=2 * len(values)))
    schema = Schema.assign([Column(name="k", type=kind)])
    keys = pa.array([values[number] for number in chosen], arrow)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_LISTED", data.draw(st.integers(0, len(values))))
        patch.setattr(module, "MAX_RANGES", 2)
        if len(set(chosen)) < len(chosen):
            with pytest.raises(InvalidRequest, match="several rows have the key"):
                KeySet(key_leaves(schema, ["k"]), [keys])
            return
        made = KeySet(key_leaves(schema, ["k"]), [keys])
        # There are more values than ranges wherever there are ranges.
        tree = made.filter() if len(chosen) > 3 or len(chosen) <= module.MAX_LISTED else None
    assert sorted(made.positions([keys]).tolist()) == list(range(len(chosen)))
    if tree is None:
        return
    row_filter = RowFilter(read_filter(tree), schema)
    leaf = schema.leaf("k")
    assert row_filter.matches({leaf.id: conform_leaf(keys, leaf.dtype, leaf.name)}, len(keys)).all()


def test_a_missing_table_is_created_on_request(lake: Lamella) -> None:
    """As by an append."""
    name = f"{fresh_name('made')}.t"
    assert lake.table(name).upsert({"id": [1]}, ["id"], create=True, cluster_by=["id"]).rows_inserted == 1
    assert lake.table(name).upsert({"id": [1]}, ["id"], create=True).rows_updated == 1


def test_rows_that_were_deleted_stay_deleted(make_table: MakeTable) -> None:
    """A key whose row was deleted before is new."""
    table = make_table(id="int64", v="int64")
    table.append({"id": range(10), "v": [0] * 10})
    table.upsert({"id": [3, 4], "v": [1, 1]}, ["id"])
    table.delete("id = 3")
    result = table.upsert({"id": [3, 4, 5], "v": [2, 2, 2]}, ["id"])
    assert (result.rows_inserted, result.rows_updated) == (1, 2)
    assert rows_of(table) == [(0, 0), (1, 0), (2, 0), (3, 2), (4, 2), (5, 2), (6, 0), (7, 0), (8, 0), (9, 0)]
    assert table.verify(deep=True, sample=1.0).is_clean


def test_a_key_that_someone_inserts_meanwhile_is_replaced(make_table: MakeTable, lake: Lamella) -> None:
    """Otherwise the key would be in the table twice."""
    table = make_table(id="int64", v="int64", cluster_key=["id"])
    table.append({"id": range(100), "v": [0] * 100}, target_block_rows=10)
    other = lake.table(str(table))
    barrier = threading.Barrier(4)
    results: list[Any] = []

    def run(value: int) -> None:
        def rows() -> Iterator[dict[str, int]]:
            barrier.wait()
            yield from ({"id": n, "v": value} for n in (5, 55, 500, 501))

        results.append(other.upsert(rows(), ["id"]))

    threads = [threading.Thread(target=run, args=(value,)) for value in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    rows = {row[0]: row[1] for row in rows_of(table)}
    assert table.scan().count() == len(rows) == 102
    assert len({rows[n] for n in (5, 55, 500, 501)}) == 1  # those of the last upsert
    assert sum(result.rows_inserted for result in results) == 2
    assert table.verify(deep=True, sample=1.0).is_clean


def test_an_upsert_is_refused_when_the_columns_change_meanwhile(make_table: MakeTable, lake: Lamella) -> None:
    """The written rows lack the new column's values, which their writer did not know of."""
    table = make_table(id="int64", v="int64")

    def rows() -> Iterator[dict[str, int]]:
        yield {"id": 1, "v": 1}
        lake.table(str(table)).evolve([AddColumn(name="w", type="int64")])

    with pytest.raises(SchemaConflict):
        table.upsert(rows(), ["id"])
    assert table.info().row_count == 0


def test_index_entries_help_to_find_keys(make_table: MakeTable) -> None:
    """Blocks that statistics cannot rule out are ruled out by a skip index."""
    table = make_table(id="string", v="int64")
    table.create_index("by_id", "bloom", "id")
    ids = [f"{n * 7_919 % 1_000:04}" for n in range(1_000)]
    table.append({"id": ids, "v": [0] * 1_000}, target_block_rows=50)
    result = table.upsert({"id": ["0500", "x"], "v": [1, 1]}, ["id"])
    assert result.rows_updated == 1
    assert result.blocks_read < 5


def test_keys_stay_unique_beside_compactions_and_deletes(make_table: MakeTable, shared_server: ServerProcess) -> None:
    """Whoever wins: each key is in the table once at most, with a value that someone wrote."""
    table = make_table(id="int64", v="int64", cluster_key=["id"])
    table.append({"id": range(40), "v": [0] * 40}, target_block_rows=4)
    errors: list[Exception] = []

    def repeat(work: Callable[[Lamella, int], object], times: int) -> None:
        try:
            with Lamella(shared_server.url) as lake:
                for n in range(times):
                    work(lake, n)
        except Exception as error:  # the main thread raises it
            errors.append(error)

    def upsert(writer: int) -> Callable[[Lamella, int], object]:
        rng = random.Random(writer)
        return lambda lake, n: lake.table(str(table)).upsert(
            [{"id": id, "v": 100 * writer + n} for id in rng.sample(range(50), 5)], ["id"]
        )

    def compacted(lake: Lamella, _: int) -> object:
        context = JobContext(lake=lake, table=str(table), engine=SerialEngine(), sizes=Sizes(block_rows=8))
        return compact(context)

    def delete(lake: Lamella, n: int) -> object:
        return lake.table(str(table)).delete(f"id IN ({n}, {n + 7}, {n + 20})")

    work = [(upsert(1), 8), (upsert(2), 8), (upsert(3), 8), (compacted, 6), (delete, 8)]
    threads = [threading.Thread(target=repeat, args=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    rows = table.scan().to_arrow()
    assert len(set(rows["id"].to_pylist())) == rows.num_rows
    assert {v // 100 for v in rows["v"].to_pylist()} <= {0, 1, 2, 3}
    assert table.verify(deep=True, sample=1.0).is_clean


def test_registered_files_and_older_columns_are_searched(lake: Lamella, tmp_path: Path) -> None:
    """A key may be a constant of its folder, or a column that the file lacks, with its default or null."""
    for year in (2023, 2024):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(pa.table({"id": [1, 2]}), tmp_path / f"year={year}" / "0.parquet")
    namespace = fresh_name("folders")
    lake.create_namespace(namespace)
    lake.create_table(f"{namespace}.t", schema_from=f"{tmp_path}/")
    table = lake.table(f"{namespace}.t")
    table.register([f"{tmp_path}/"])
    table.evolve([AddColumn(name="n", type="int64", default="7"), AddColumn(name="t", type="string")])
    rows = [{"id": 1, "year": 2024, "n": 7, "t": "new"}, {"id": 1, "year": 2024, "n": 8}]
    result = table.upsert(rows, ["id", "year", "n"])
    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    found = sorted((row["year"], row["id"], row["n"], row["t"] or "") for row in table.scan().to_arrow().to_pylist())
    assert found == [(2023, 1, 7, ""), (2023, 2, 7, ""), (2024, 1, 7, "new"), (2024, 1, 8, ""), (2024, 2, 7, "")]
    assert table.upsert([{"id": 3, "year": 2025, "t": "x"}], ["t"]).rows_inserted == 1
    assert table.delete("year = 2023 AND id = 1").rows == 1
    assert table.overwrite([{"id": 9, "year": 2030}], "n = 8").rows_removed == 1
    assert table.scan().count() == 5
