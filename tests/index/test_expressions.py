"""Indexes over expressions: matched with a filter's terms however these are spelled, exact however they are made."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.snapshot.errors import LamellaError
from lamella.snapshot.expression import read_filter
from lamella.snapshot.row_filter import RowFilter
from lamella.snapshot.schema.evolution import RenameColumn, WidenColumn
from lamella.snapshot.wire import PruneRequest
from support.real_tables import RealTable

WORDS = ("Ada", "ADA", "bob", "Çelik", "ŞAN", "zoë", "", "Straße")


def blocks(count: int) -> list[pa.Table]:
    """Files of a few rows with text, dates, instants, numbers and a nested column, all of them null now and then."""
    rng = Random(17)
    made = []
    for _ in range(count):
        rows = []
        for _ in range(3):
            day = dt.date(2020, 1, 1) + dt.timedelta(days=rng.randrange(2_000))
            at = dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=rng.randrange(40_000))
            number = rng.randrange(1_000)
            row = {
                "s": rng.choice(WORDS) + str(rng.randrange(30)),
                "d": day,
                "at": at,
                "n": number,
                "o": {"x": number % 7},
            }
            rows.append({name: value for name, value in row.items() if rng.random() > 0.05})
        kinds = pa.schema(
            [
                ("s", pa.string()),
                ("d", pa.date32()),
                ("at", pa.timestamp("us", tz="UTC")),
                ("n", pa.int64()),
                ("o", pa.struct([("x", pa.int64())])),
            ]
        )
        made.append(pa.Table.from_pylist(rows, schema=kinds))
    return made


#: Kind, expression, and filters over it, spelled otherwise.
CASES = [
    ("bloom", "lower(s)", ["LOWER( `s` ) = 'ada7'", "lower(S) IN ('bob3', 'çelik4')", "NOT lower(s) <> 'zoë9'"]),
    ("ngram", "lower(s)", ["lower(s) LIKE '%ada1%'", "LOWER(s) LIKE '%elik2%'"]),
    ("value_set", "year(d)", ["YEAR(d) = 2023", "year(d) <> 2021 AND n > 10", "year(d) IN (2020, 2024) OR n = 5"]),
    ("value_set", "to_date(at)", ["date(at) = DATE '2021-03-04'", "to_date(at) < DATE '2020-02-01'"]),
    ("minmax", "n * 3 + 1", ["n * 3 + 1 = 1501", "(N * 3) + 1 > 2500"]),
    ("keys", "o.x", ["o.x = 3", "`o`.`x` IN (6, 99)"]),
    ("bloom", "substr(s, 1, 2)", ["substring(s, 1, 2) = 'bo'"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "expression", "filters"), CASES)
def test_no_row_is_lost_by_an_index_over_an_expression(
    tmp_path: Path, kind: str, expression: str, filters: list[str]
) -> None:
    """Every block with a row that matches is kept, and some filter leaves out what minima and maxima do not."""
    files = blocks(40)
    table = RealTable(tmp_path, files)
    table.add_index("x", kind, expression)
    schema = table.warehouse.head(table.pointer).schema
    ids = {leaf.name: leaf.id for leaf in schema.leaves()}
    uses = 0
    for text in filters:
        answer = table.warehouse.prune(table.pointer, PruneRequest(filter=text))
        selected = {Path(block.location).name for block in answer.blocks or ()}
        uses += sum(use.name == "x" for use in answer.report.indexes)
        decide = RowFilter(read_filter(text), schema)
        for number, rows in enumerate(files):
            columns = {
                ids[name]: rows.column(name) if "." not in name else rows.column("o").combine_chunks().field("x")
                for name in ids
            }
            if decide.matches(columns, rows.num_rows).any():
                assert f"{number:05}.parquet" in selected, text
    assert uses == len(filters), "the index was asked for every spelling"


def test_time_zones_are_part_of_an_expression(tmp_path: Path) -> None:
    """The hour in Berlin is not the hour in UTC: an index over one says nothing of the other."""
    table = RealTable(tmp_path, blocks(10))
    warehouse = table.warehouse
    pointer = warehouse.indexing.create(
        table.pointer, name="x", kind="value_set", expression="hour(at)", time_zone="Europe/Berlin", now_ms=5
    ).pointer
    (index,) = warehouse.snapshot(pointer).skip_indexes
    assert index.time_zone == "Europe/Berlin"
    table.add_index("y", "value_set", "hour(at)")
    for zone, names in (("UTC", ["y"]), ("Europe/Berlin", [])):
        answer = warehouse.prune(table.pointer, PruneRequest(filter="hour(at) = 3", time_zone=zone))
        assert [use.name for use in answer.report.indexes] == names


@pytest.mark.parametrize(
    "expression", ["", "1", "a) IS NULL OR (b", "nothing", "sum(n)", "rand()", "n > 3; drop", "o", "n IN (1, 2)"]
)
def test_what_is_no_expression_of_a_row_is_refused(tmp_path: Path, expression: str) -> None:
    """Constants, aggregates, whole structs and text that is no expression: a clear error, and no index."""
    table = RealTable(tmp_path, blocks(1))
    with pytest.raises(LamellaError):
        table.warehouse.indexing.create(table.pointer, name="x", kind="bloom", expression=expression, now_ms=5)


def test_a_block_for_which_the_expression_fails_is_not_indexed(tmp_path: Path) -> None:
    """A row that overflows has no value: its block is left out and always kept."""
    from lamella.snapshot.index.building import build_part

    folder = tmp_path / "more"
    folder.mkdir()
    pq.write_table(pa.table({"n": [1]}), folder / "unused.parquet")
    table = RealTable(tmp_path, [pa.table({"n": [1, 2]}), pa.table({"n": [(1 << 63) - 1]})])
    warehouse = table.warehouse
    pointer = warehouse.indexing.create(table.pointer, name="x", kind="bloom", expression="n + 1", now_ms=5).pointer
    snapshot = warehouse.snapshot(pointer)
    (ref,) = warehouse.segments(pointer)
    built = build_part(table.store, snapshot.skip_indexes[0], snapshot, warehouse.segment(ref).blocks)
    assert built.part is not None
    assert len(built.part.keys) == 1
    (left_out,) = built.left_out
    assert "fails" in left_out.reason


def test_an_index_over_a_function_begins_anew_when_its_column_is_widened(tmp_path: Path) -> None:
    """Its old parts hold values of the old types; under the new names and types it is empty, and can be filled."""
    from lamella.snapshot.index.building import build_part

    numbers = [pa.table({"old i": pa.array([k * 10, k * 10 + 9], pa.int32()), "a.b": [k, k + 1]}) for k in range(4)]
    table = RealTable(tmp_path, numbers)
    table.add_index("next", "bloom", "`old i` + 1")
    table.add_index("other", "bloom", "`a.b` + 1")
    warehouse = table.warehouse
    before = warehouse.snapshot(table.pointer).skip_indexes
    assert table.skipped("`old i` + 1 = 15") > 0.7
    renamed = warehouse.evolve(table.pointer, [RenameColumn(column="old i", name="new.i")], now_ms=6)
    assert renamed.snapshot.skip_indexes == before  # a name changes nothing
    widened = warehouse.evolve(renamed.pointer, [WidenColumn(column="`new.i`", type="int64")], now_ms=7)
    index, other = widened.snapshot.skip_indexes
    assert other == before[1]
    assert (index.expression, index.dtype, index.directories) == ("(`new.i` + 1)", "int64", ())
    assert index.index_id != before[0].index_id  # what is being built of the old one is not added to it
    (ref,) = warehouse.segments(widened.pointer)
    built = build_part(table.store, index, widened.snapshot, warehouse.segment(ref).blocks)
    assert built.part is not None
    assert not built.left_out
    location = f"{table.root}/parts/anew"
    table.store.put(location, built.part.data)
    parts = [(built.part.ref(location), built.part.keys)]
    table.pointer = warehouse.indexing.add_parts(widened.pointer, index.index_id, parts, now_ms=8).pointer
    for text in ("`new.i` + 1 = 15", "`new.i` + 1L = 20"):
        assert table.skipped(text) > 0.7
    assert table.skipped("`new.i` + 1 = 20") < 1.0  # the block that has it is kept
