"""Statistics that a writer measures on the rows it holds: they contain every value, and count exactly."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.client.rewrite.block_writer import encode, write_block
from lamella.client.rewrite.target import arrow_schema
from lamella.client.spark.python_blocks import spark_arrow_schema
from lamella.snapshot.errors import InvalidSchema, ObjectNotFound
from lamella.snapshot.ids import Ids
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.spark_types import columns_of, spark_schema
from lamella.snapshot.stats import ColumnStats, from_bound
from lamella.snapshot.stats.measure import measure
from lamella.snapshot.storage import FsspecStore, TableLayout


def scaled(unscaled: int, scale: int) -> Decimal:
    """The decimal of these digits, exactly, whatever the context's precision."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int8": st.integers(-128, 127),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "uint32": st.integers(0, (1 << 32) - 1),
    "uint64": st.integers(0, (1 << 64) - 1),
    "float32": st.floats(width=32),
    "float64": st.floats(),
    "decimal(38,10)": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda unscaled: scaled(unscaled, 10)),
    "decimal(5,0)": st.integers(-99999, 99999).map(Decimal),
    "string": st.text(max_size=90),
    "binary": st.binary(max_size=90),
    "fixed(3)": st.binary(min_size=3, max_size=3),
    "date": st.integers(-719162, 2932896),
    "timestamp(us)": st.integers(-(1 << 62), 1 << 62),
    "timestamp(ms)": st.integers(-(1 << 50), 1 << 50),
    "timestamp_ntz(us)": st.integers(-(1 << 62), 1 << 62),
    "time(us)": st.integers(0, 86_399_999_999),
}
_AS_INTEGER = {"date": pa.int32(), "timestamp(us)": pa.int64(), "timestamp(ms)": pa.int64()}
_AS_INTEGER |= {"timestamp_ntz(us)": pa.int64(), "time(us)": pa.int64()}


def table_of(kind: str, values: list[Any]) -> tuple[pa.Table, Schema]:
    """A table of one column ``c``; dates and times are given as integers."""
    schema = Schema.assign([Column(name="c", type=kind)])
    target = arrow_schema(schema)
    raw = pa.array(values, _AS_INTEGER.get(kind, target.field(0).type))
    return pa.table([raw.cast(target.field(0).type)], schema=target), schema


def in_order(value: Any) -> Any:
    """The value in the domain that bounds are compared in."""
    if isinstance(value, Decimal):
        sign, digits, _ = value.as_tuple()
        return (-1 if sign else 1) * int("".join(map(str, digits)))
    if isinstance(value, str):
        return value.encode()
    return value


@given(st.data())
def test_bounds_contain_every_value_and_counts_are_exact(data: st.DataObject) -> None:
    """For every type: min and max surround the values, nulls, NaN and distinct values are counted."""
    kind = data.draw(st.sampled_from(sorted(VALUES)))
    values = data.draw(st.lists(st.one_of(st.none(), VALUES[kind]), min_size=1, max_size=30))
    table, schema = table_of(kind, values)
    stats = measure(table, schema)[1]
    dtype = schema.columns[0].dtype
    present = [in_order(value) for value in values if value is not None]
    numbers = [value for value in present if not (isinstance(value, float) and math.isnan(value))]
    assert stats.null_count == values.count(None)
    assert stats.source == "scan"
    if dtype.is_float:
        nan = len(present) - len(numbers)
        assert stats.nan == ("none" if not nan else "all" if not numbers else "maybe")
    if not numbers:
        assert (stats.min, stats.max) == (None, None)
        return
    assert stats.min is not None
    assert stats.max is not None
    low, high = from_bound(dtype, stats.min), from_bound(dtype, stats.max)
    assert all(low <= value <= high for value in numbers)
    if stats.min_exact:
        assert low == min(numbers)
    if stats.max_exact:
        assert high == max(numbers)
    assert stats.distinct_of_values == len(set(numbers)) + (len(numbers) < len(present))


def test_zero_bounds_of_floats_take_in_both_zeros() -> None:
    """A column of zeros has the bounds -0.0 and 0.0, whichever sign the values have."""
    for zero in (0.0, -0.0):
        table, schema = table_of("float64", [zero])
        stats = measure(table, schema)[1]
        assert stats.min is not None
        assert stats.max is not None
        assert (str(stats.min.float64), str(stats.max.float64)) == ("-0.0", "0.0")
        assert stats.min_exact  # some zero occurs
        assert stats.max_exact


def test_nested_leaves_count_the_nulls_of_their_parents() -> None:
    """A leaf inside a struct is null where the struct is; leaves below lists and maps are not measured."""
    inner = Column(name="in", type="struct", fields=(Column(name="b", type="string"),))
    item = Column(name="element", type="int64")
    schema = Schema.assign(
        [
            Column(name="s", type="struct", fields=(Column(name="a", type="int64"), inner)),
            Column(name="l", type="list", fields=(item,)),
        ]
    )
    rows = [
        {"s": None, "l": [1]},
        {"s": {"a": 1, "in": None}, "l": None},
        {"s": {"a": None, "in": {"b": "x"}}, "l": [None]},
        {"s": {"a": 7, "in": {"b": None}}, "l": []},
    ]
    table = pa.Table.from_pylist(rows, schema=arrow_schema(schema))
    by_name = {leaf.name: leaf.id for leaf in schema.leaves()}
    stats = measure(table, schema)
    assert stats[by_name["s.a"]].null_count == 2
    assert stats[by_name["s.in.b"]].null_count == 3
    assert by_name["l.element"] not in stats


def test_a_block_is_written_once_with_all_that_is_known(tmp_path: Any) -> None:
    """The entry has the store's size, the measured statistics and the footer's facts; the file reads back equal."""
    schema = Schema.assign(
        [
            Column(name="id", type="int64"),
            Column(name="kind", type="string"),
            Column(name="at", type="timestamp(us)", nullable=False),
            Column(name="d", type="decimal(12,2)"),
            Column(name="l", type="list", fields=(Column(name="element", type="string"),)),
        ]
    )
    rows = pa.Table.from_pylist(
        [
            {
                "id": i * 37 % 1009,
                "kind": f"k{i % 3}",
                "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=i),
                "d": Decimal(i) / 100,
                "l": [f"v{i}"],
            }
            for i in range(1000)
        ],
        schema=arrow_schema(schema),
    )
    store = FsspecStore()
    block = write_block(store, TableLayout(f"file://{tmp_path}"), Ids(), rows, schema)
    path = block.location.removeprefix("file://")
    assert block.row_count == 1000
    assert block.file_size == store.stat(block.location).size_bytes
    assert block.compression == "zstd"
    assert block.page_index_location is not None
    assert sum(meta.num_values for meta in block.col_metas[1]) == 1000
    assert {stats.source for column_id, stats in block.col_stats.items() if column_id < 5} == {"scan"}
    assert pq.read_table(path).cast(rows.schema).equals(rows)
    metadata = pq.ParquetFile(path).metadata.row_group(0)
    encodings = {metadata.column(i).path_in_schema: metadata.column(i).encodings for i in range(5)}
    assert "RLE_DICTIONARY" in encodings["kind"]
    assert "DELTA_BINARY_PACKED" in encodings["id"]
    assert metadata.column(3).physical_type == "INT64"
    assert pq.ParquetFile(path).schema_arrow.field("id").metadata == {b"PARQUET:field_id": b"1"}
    assert not pq.ParquetFile(path).schema_arrow.field("at").nullable


def test_nothing_is_left_when_a_block_cannot_be_written(tmp_path: Any) -> None:
    """A refused write leaves no half of a file."""
    schema = Schema.assign([Column(name="a", type="int64")])
    rows = pa.table({"a": [1]}, schema=arrow_schema(schema))
    blocked = tmp_path / "_b"
    blocked.write_text("a file where the folder should be")
    with pytest.raises(Exception, match="_b"):
        write_block(FsspecStore(), TableLayout(f"file://{tmp_path}"), Ids(), rows, schema)
    with pytest.raises(ObjectNotFound):
        FsspecStore().stat(f"file://{tmp_path}/nothing")


def test_the_same_rows_give_the_same_bytes() -> None:
    """Nothing of the time or the machine is in a file."""
    table, schema = table_of("int64", [3, 1, None])
    stats: dict[int, ColumnStats] = measure(table, schema)
    assert encode(table, schema, stats) == encode(table, schema, stats)


@pytest.mark.parametrize("kind", ["float16", "interval", "uuid", "bson", "decimal(50,2)"])
def test_types_that_cannot_be_written_are_named(kind: str) -> None:
    """A table may have such a column by registration; writing to it from Spark is refused."""
    with pytest.raises(InvalidSchema, match="'c'"):
        arrow_schema(Schema.assign([Column(name="c", type=kind)]))


def test_nanoseconds_are_preserved_by_jobs_and_not_taken_from_spark() -> None:
    """Compaction writes what was registered; Spark has no such type, and what it would write is refused."""
    schema = Schema.assign([Column(name="c", type="timestamp(ns)")])
    assert arrow_schema(schema).field("c").type == pa.timestamp("ns", tz="UTC")
    with pytest.raises(InvalidSchema, match=r"c \(timestamp\(ns\)\)"):
        spark_schema(schema, time_type=True).check(["c"])


def test_every_type_of_spark_has_one_of_ours_and_comes_back() -> None:
    """Spark's schema, ours, and Spark's again: the same types."""
    fields = ["boolean", "byte", "short", "integer", "long", "float", "double", "decimal(30,5)", "date", "timestamp"]
    fields += ["timestamp_ntz", "string", "binary", "variant"]
    made = [
        {"name": f"c{at}", "type": kind, "nullable": True, "metadata": {"comment": "x"}}
        for at, kind in enumerate(fields)
    ]
    array = {"type": "array", "elementType": "long", "containsNull": True}
    mapped = {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": True}
    struct = {"type": "struct", "fields": [{"name": "m", "type": mapped, "nullable": True, "metadata": {}}]}
    made.append({"name": "nested", "type": struct, "nullable": True, "metadata": {}})
    text = json.dumps({"type": "struct", "fields": made})
    schema = Schema.assign(columns_of(text))
    assert json.loads(spark_schema(schema).readable) == json.loads(text)
    assert [field.name for field in arrow_schema(schema)] == [f["name"] for f in made]
    assert len(spark_arrow_schema(text)) == len(made)


@pytest.mark.parametrize("kind", ["interval day to second", "void", "interval year to month"])
def test_types_of_spark_that_a_table_cannot_hold_are_named(kind: str) -> None:
    """Writing such a column is refused before anything runs."""
    field = {"name": "odd", "type": kind, "nullable": True, "metadata": {}}
    with pytest.raises(InvalidSchema, match="'odd'"):
        columns_of(json.dumps({"type": "struct", "fields": [field]}))


def test_unreadable_columns_are_shown_and_refused_by_name() -> None:
    """The schema for Spark keeps them as binary with a comment; asking for them names them and their types."""
    deep = Column(name="l", type="list", fields=(Column(name="element", type="float16"),))
    schema = Schema.assign([Column(name="a", type="int32"), deep, Column(name="t", type="time(us)")])
    mapped = spark_schema(schema)
    assert mapped.unreadable == {"l": "list<float16>", "t": "time(us)"}
    mapped.check(["A"])
    with pytest.raises(InvalidSchema, match=r"l \(list<float16>\)"):
        mapped.check(["L", "a"])
    assert list(spark_schema(schema, time_type=True).unreadable) == ["l"]
