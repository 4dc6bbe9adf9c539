"""Fitting rows to a table's columns: however Arrow encodes values, they come out equal, or are refused."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lamella.client.rewrite.target import arrow_schema
from lamella.client.write.arrow_types import columns_of
from lamella.client.write.columns import TableColumns
from lamella.client.write.data import CHUNK_ROWS, open_rows
from lamella.snapshot.errors import InvalidSchema, SchemaMismatch
from lamella.snapshot.schema import Column, Schema

TEXTS: Final = st.none() | st.text(st.characters(codec="utf-8"), max_size=4)
NUMBERS: Final = st.none() | st.integers(-(2**31), 2**31 - 1)
FLOATS: Final = st.none() | st.floats(allow_nan=False, width=32)
WHOLE_DECIMALS: Final = NUMBERS.map(lambda n: None if n is None else Decimal(n))
MILLISECONDS: Final = st.none() | st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)).map(  # noqa: DTZ001
    lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
)
SECONDS: Final = st.none() | st.times().map(lambda at: at.replace(microsecond=0))
#: A column's type, values of it, and other Arrow types that can hold them.
LEAVES: Final[tuple[tuple[str, st.SearchStrategy[Any], tuple[pa.DataType, ...]], ...]] = (
    ("int64", NUMBERS, (pa.int64(), pa.int32(), pa.dictionary(pa.int8(), pa.int32()))),
    ("int32", NUMBERS, (pa.int64(), pa.run_end_encoded(pa.int32(), pa.int64()))),
    ("uint64", st.none() | st.integers(0, 2**64 - 1), (pa.uint64(),)),
    ("decimal(25,3)", WHOLE_DECIMALS, (pa.decimal128(12, 1), pa.decimal256(40, 0))),
    ("float64", FLOATS, (pa.float32(), pa.float64())),
    ("float32", FLOATS, (pa.float64(),)),
    ("boolean", st.none() | st.booleans(), (pa.bool_(),)),
    ("string", TEXTS, (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.large_string()))),
    ("binary", st.none() | st.binary(max_size=3), (pa.large_binary(), pa.binary_view(), pa.binary())),
    ("date", st.none() | st.dates(), (pa.date64(), pa.date32())),
    ("timestamp_ntz(us)", MILLISECONDS, (pa.timestamp("ms"), pa.timestamp("ns"))),
    ("time(us)", SECONDS, (pa.time32("s"), pa.time64("ns"))),
)


def holds_encoded(kind: pa.DataType) -> bool:
    """Whether a dictionary or run-end encoded type is inside of a list or map, of which Arrow makes no arrays."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return True
    return pa.types.is_nested(kind) and any(holds_encoded(kind.field(at).type) for at in range(kind.num_fields))


@st.composite
def fields(draw: Any, depth: int = 2) -> tuple[Column, pa.DataType, st.SearchStrategy[Any]]:
    """A column, an Arrow type that can hold its values, and the values."""
    kind = draw(st.sampled_from(["leaf", "struct", "list", "map"] if depth else ["leaf"]))
    if kind == "leaf":
        name, values, types = draw(st.sampled_from(LEAVES))
        return Column(name="x", type=name), draw(st.sampled_from(types)), values
    column, arrow, values = draw(fields(depth=depth - 1))
    if kind == "struct":
        other, other_arrow, other_values = draw(fields(depth=depth - 1))
        parts = (renamed(column, "a"), renamed(other, "b"))
        given = pa.struct([pa.field("B", other_arrow), pa.field("a", arrow)])
        both = st.fixed_dictionaries({"B": other_values, "a": values})
        return Column(name="x", type="struct", fields=parts), given, st.none() | both
    assume(not holds_encoded(arrow))
    if kind == "list":
        make = draw(st.sampled_from([pa.list_, pa.large_list, pa.list_view, lambda of: pa.list_(of, 2)]))
        given = make(arrow)
        listed = st.lists(values, min_size=2 if pa.types.is_fixed_size_list(given) else 0, max_size=2)
        return Column(name="x", type="list", fields=(renamed(column, "element"),)), given, st.none() | listed
    pair = (Column(name="key", type="string", nullable=False), renamed(column, "value"))
    keys = st.text(st.characters(codec="utf-8"), max_size=2)
    pairs = st.lists(st.tuples(keys, values), max_size=2)
    return Column(name="x", type="map", fields=pair), pa.map_(pa.large_string(), arrow), st.none() | pairs


def renamed(column: Column, name: str) -> Column:
    """The same column under another name."""
    return Column(name=name, type=column.type, fields=column.fields)


def plain(value: Any) -> Any:
    """A value without regard to the spelling and the order of struct fields."""
    if isinstance(value, dict):
        return sorted((name.lower(), plain(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return repr(value) if isinstance(value, float) else value


def make(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of any type; Arrow has no direct way to some of them."""
    if pa.types.is_run_end_encoded(kind):
        return pc.run_end_encode(pa.array(values, kind.value_type), kind.run_end_type)
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    if pa.types.is_struct(kind):
        parts = [make([None if v is None else v[f.name] for v in values], f.type) for f in kind]
        return pa.StructArray.from_arrays(
            parts, fields=list(kind), mask=pa.array([v is None for v in values], pa.bool_())
        )
    return pa.array(values, kind)


@given(field=fields(), data=st.data(), start=st.integers(0, 3))
def test_values_are_equal_however_they_are_encoded(
    field: tuple[Column, pa.DataType, st.SearchStrategy[Any]], data: st.DataObject, start: int
) -> None:
    """Dictionaries, views, runs, large and fixed lists, structs in another order; also in a part of an array."""
    column, kind, strategy = field
    values = data.draw(st.lists(strategy, min_size=start, max_size=6))
    batch = pa.record_batch({"X": make(values, kind)}).slice(start)
    schema = Schema.assign([column])
    fitted = TableColumns(schema).fit(batch)
    fitted.validate(full=True)
    assert fitted.schema == arrow_schema(schema)
    assert plain(fitted.column(0).to_pylist()) == plain(batch.column(0).to_pylist()) == plain(values[start:])


@pytest.mark.parametrize(
    ("kind", "given_type", "value"),
    [
        ("int8", pa.int64(), 128),
        ("uint8", pa.int64(), -1),
        ("int64", pa.uint64(), 2**63),
        ("int64", pa.float64(), 1.0),
        ("int64", pa.string(), "1"),
        ("int64", pa.bool_(), True),
        ("boolean", pa.int8(), 1),
        ("float64", pa.int64(), 2**53 + 1),
        ("float32", pa.float64(), 0.1),
        ("float32", pa.float64(), 1e300),
        ("float64", pa.decimal128(5, 2), Decimal("1.50")),
        ("decimal(5,2)", pa.decimal128(6, 3), Decimal("1.005")),
        ("decimal(5,2)", pa.decimal128(38, 0), Decimal(1000)),
        ("decimal(5,2)", pa.int64(), 1000),
        ("decimal(5,2)", pa.float64(), 1.5),
        ("string", pa.binary(), b"x"),
        ("binary", pa.string(), "x"),
        ("fixed(2)", pa.binary(), b"abc"),
        ("fixed(2)", pa.binary(3), b"abc"),
        ("date", pa.timestamp("us"), dt.datetime(2024, 1, 1)),  # noqa: DTZ001
        ("timestamp(us)", pa.timestamp("us"), dt.datetime(2024, 1, 1)),  # noqa: DTZ001
        ("timestamp_ntz(us)", pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
        ("timestamp_ntz(us)", pa.string(), "2024-01-01"),
        ("time(us)", pa.timestamp("us"), dt.datetime(2024, 1, 1)),  # noqa: DTZ001
        ("string", pa.list_(pa.string()), ["x"]),
        ("string", pa.duration("us"), dt.timedelta(1)),
    ],
)
def test_a_value_that_has_no_equal_is_refused(kind: str, given_type: pa.DataType, value: Any) -> None:
    """With the column's name; a null of the same type is refused or accepted by its type alone."""
    columns = TableColumns(Schema.assign([Column(name="x", type=kind)]))
    with pytest.raises(SchemaMismatch, match="'x'"):
        columns.fit(pa.record_batch({"x": pa.array([value, None], given_type)}))


def test_nanoseconds_are_stored_where_the_column_has_them() -> None:
    """And in microseconds if nothing is cut off; NaN stays NaN in a narrower type."""
    fine = pa.array([1_001, None], pa.int64()).cast(pa.timestamp("ns"))
    whole = pa.array([1_000, None], pa.int64()).cast(pa.timestamp("ns"))
    micros = TableColumns(Schema.assign([Column(name="x", type="timestamp_ntz(us)")]))
    nanos = TableColumns(Schema.assign([Column(name="x", type="timestamp_ntz(ns)")]))
    assert nanos.fit(pa.record_batch({"x": fine})).column(0).equals(fine)
    assert micros.fit(pa.record_batch({"x": whole})).column(0).cast(pa.int64()).to_pylist() == [1, None]
    with pytest.raises(SchemaMismatch):
        micros.fit(pa.record_batch({"x": fine}))
    narrow = TableColumns(Schema.assign([Column(name="x", type="float32")]))
    fitted = narrow.fit(pa.record_batch({"x": pa.array([math.nan, -0.0, math.inf, None])})).column(0).to_pylist()
    assert repr(fitted) == "[nan, -0.0, inf, None]"


@given(
    present=st.sets(st.sampled_from("abcd")),
    required=st.sets(st.sampled_from("abcd")),
    defaults=st.sets(st.sampled_from("abc")),
    count=st.integers(1, 3),
)
def test_a_frame_and_dictionaries_that_lack_columns_are_the_same_rows(
    present: set[str], required: set[str], defaults: set[str], count: int
) -> None:
    """A column that is missing has its default or nulls; a required one without a default is refused, and named."""
    struct = (Column(name="x", type="int64"), Column(name="y", type="string"))
    columns = TableColumns(
        Schema.assign(
            [
                *(
                    Column(name=name, type="int64", nullable=name not in required, write_default=default)
                    for name, default in ((name, "7" if name in defaults else None) for name in "abc")
                ),
                Column(name="d", type="struct", nullable="d" not in required, fields=struct),
            ]
        )
    )
    values = {"a": 1, "b": 2, "c": 3, "d": {"x": 4}}
    rows: list[dict[str, Any]] = [{name: values[name] for name in sorted(present)} for _ in range(count)]
    frame = pa.RecordBatch.from_arrays(
        [pa.array([values[name]] * count) for name in sorted(present)] or [pa.array([1] * count)],
        names=sorted(present) or ["a"],
    )
    if not present:
        rows = [{"a": 1}] * count
    missing = required - (present or {"a"}) - defaults
    if missing:
        for given_rows in (rows, frame):
            with pytest.raises(SchemaMismatch, match="required and missing in the data") as caught:
                columns.fit(next(iter(open_rows(given_rows))))
            assert set(caught.value.details["columns"]) == missing
        return
    fitted = [columns.fit(next(iter(open_rows(given_rows)))) for given_rows in (rows, frame)]
    assert fitted[0].equals(fitted[1])
    for name in set("abcd") - (present or {"a"}):
        assert fitted[0].column("abcd".index(name)).to_pylist() == [7 if name in defaults else None] * count


def test_a_struct_of_a_frame_may_lack_fields_that_can_be_null_only() -> None:
    """As one of dictionaries may."""
    parts = (Column(name="x", type="int64", nullable=False), Column(name="y", type="string"))
    columns = TableColumns(Schema.assign([Column(name="s", type="struct", fields=parts)]))
    values = [{"x": 1}, None]
    for rows in ([{"s": value} for value in values], pa.record_batch({"s": pa.array(values)})):
        fitted = columns.fit(next(iter(open_rows(rows))))
        assert fitted.column(0).to_pylist() == [{"x": 1, "y": None}, None]
    with pytest.raises(SchemaMismatch, match="field 'x' of 's' is required"):
        columns.fit(pa.record_batch({"s": pa.array([{"y": "a"}])}))
    with pytest.raises(SchemaMismatch, match="column 's' has no field 'z'; it has 'x', 'y'"):
        columns.fit(pa.record_batch({"s": pa.array([{"x": 1, "z": 1}])}))


@pytest.mark.parametrize("nested", ["struct", "list", "map"])
def test_required_parts_may_be_null_only_where_the_whole_is(nested: str) -> None:
    """A null struct has no fields, so a required one is not missing there."""
    part = Column(name="a", type="int64", nullable=False)
    makers: dict[str, tuple[tuple[Column, ...], Callable[[Any], Any]]] = {
        "struct": ((part,), lambda value: {"a": value}),
        "list": ((Column(name="element", type="int64", nullable=False),), lambda value: [value]),
        "map": (
            (
                Column(name="key", type="string", nullable=False),
                Column(name="value", type="int64", nullable=False),
            ),
            lambda value: {"k": value},
        ),
    }
    parts, wrap = makers[nested]
    columns = TableColumns(Schema.assign([Column(name="x", type=nested, fields=parts)]))
    assert columns.fit(next(iter(open_rows([{"x": wrap(1)}, {"x": None}])))).column(0).null_count == 1
    with pytest.raises(SchemaMismatch, match="required"):
        columns.fit(next(iter(open_rows([{"x": wrap(1)}, {"x": wrap(None)}]))))


def test_a_large_batch_is_taken_in_parts() -> None:
    """By rows and by bytes, so that memory does not depend on the sizes of the caller's batches."""
    rows = list(open_rows(pa.table({"id": range(3 * CHUNK_ROWS)})))
    assert [len(each) for each in rows] == [CHUNK_ROWS] * 3
    wide = list(open_rows(pa.table({"t": ["x" * 1_000_000] * 50})))
    assert len(wide) > 2
    assert sum(len(each) for each in wide) == 50


@pytest.mark.parametrize(
    ("given_type", "kind"),
    [
        (pa.int8(), "int8"),
        (pa.uint32(), "uint32"),
        (pa.float16(), "float32"),
        (pa.decimal128(10, 3), "decimal(10,3)"),
        (pa.large_string(), "string"),
        (pa.dictionary(pa.int8(), pa.string_view()), "string"),
        (pa.binary_view(), "binary"),
        (pa.binary(16), "fixed(16)"),
        (pa.uuid(), "fixed(16)"),
        (pa.date64(), "date"),
        (pa.time32("s"), "time(us)"),
        (pa.time64("ns"), "time(ns)"),
        (pa.timestamp("s"), "timestamp_ntz(us)"),
        (pa.timestamp("ns", "Asia/Tokyo"), "timestamp(us)"),
        (pa.list_view(pa.int8()), "list"),
    ],
)
def test_new_tables_have_types_that_hold_every_value(given_type: pa.DataType, kind: str) -> None:
    """Of Arrow's types those that a table has; others are refused."""
    (column,) = columns_of(pa.schema([pa.field("x", given_type)]))
    assert column.type == kind


@pytest.mark.parametrize(
    "given_type",
    [pa.null(), pa.duration("s"), pa.decimal128(5, -2), pa.month_day_nano_interval(), pa.list_(pa.null())],
)
def test_types_that_a_table_cannot_have_are_refused(given_type: pa.DataType) -> None:
    """With the column's name."""
    with pytest.raises(InvalidSchema, match="'x"):
        columns_of(pa.schema([pa.field("x", given_type)]))
