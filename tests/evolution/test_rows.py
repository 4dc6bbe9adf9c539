"""Rows of old files in terms of the columns of today, as pyarrow gives them to readers."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.client.spark.lake import identified_struct, layouts, written_struct
from lamella.snapshot.errors import SchemaMismatch, UnknownColumn
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.arrow import arrow_default, conformed, file_columns
from lamella.snapshot.schema.evolution import (
    AddColumn,
    AllowExtraColumns,
    DropColumn,
    RenameColumn,
    WidenColumn,
    evolve,
)

OLD = Schema.assign(
    [
        Column(name="a", type="int32"),
        Column(name="s", type="struct", fields=(Column(name="x", type="int32"), Column(name="y", type="string"))),
        Column(
            name="l",
            type="list",
            fields=(Column(name="element", type="struct", fields=(Column(name="p", type="int32"),)),),
        ),
        Column(
            name="m",
            type="map",
            fields=(Column(name="key", type="string", nullable=False), Column(name="value", type="int32")),
        ),
    ]
)
NEW = evolve(
    OLD,
    [
        RenameColumn(column="a", name="b"),
        AddColumn(name="a", type="int64", default="5"),
        WidenColumn(column="b", type="int64"),
        RenameColumn(column="s.x", name="z"),
        RenameColumn(column="s.y", name="x"),
        RenameColumn(column="s.z", name="y"),
        RenameColumn(column="l.element.p", name="count"),
        AddColumn(name="p", type="string", parent="l.element"),
        WidenColumn(column="m.value", type="int64"),
    ],
)
FILE = pa.table(
    {
        "A": pa.array([1, 2, None], pa.int32()),
        "s": pa.array(
            [{"x": 1, "y": "one"}, None, {"x": None, "y": "z"}], pa.struct([("x", pa.int32()), ("y", pa.string())])
        ),
        "l": pa.array([[{"p": 1}, None], None, []], pa.list_(pa.struct([("p", pa.int32())]))),
        "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
    }
)
TARGET = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.int64()),
        ("s", pa.struct([("x", pa.string()), ("y", pa.int32())])),
        ("l", pa.list_(pa.field("element", pa.struct([("p", pa.string()), ("count", pa.int32())])))),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"a": 5, "b": 1, "s": {"x": "one", "y": 1}, "l": [{"p": None, "count": 1}, None], "m": [("k", 1)]},
    {"a": 5, "b": 2, "s": None, "l": None, "m": None},
    {"a": 5, "b": None, "s": {"x": "z", "y": None}, "l": [], "m": []},
]


@pytest.mark.parametrize("start", [0, 1, 2])
def test_values_stay_with_their_column(start: int) -> None:
    """Renamed, swapped, added and widened, at every depth, also in a slice of what was read."""
    (batch,) = FILE.to_batches()
    rows = conformed(batch.slice(start), TARGET, OLD, NEW)
    rows.validate(full=True)
    assert rows.schema == TARGET
    assert rows.to_pylist() == ROWS[start:]


def test_only_columns_of_the_file_that_are_wanted_are_named() -> None:
    """By id, in the file's own spelling; a name that now means another column is not taken."""
    assert file_columns(["a", "B", "s"], FILE.column_names, OLD, NEW) == ["A", "s"]
    assert file_columns(["a"], FILE.column_names, OLD, NEW) == []
    with pytest.raises(UnknownColumn):
        file_columns(["nope"], FILE.column_names, OLD, NEW)


def test_a_value_that_does_not_fit_is_an_error() -> None:
    """Nothing is cut or turned into null."""
    narrow = pa.schema([("b", pa.int8())])
    (batch,) = pa.table({"a": pa.array([1000], pa.int32())}).to_batches()
    with pytest.raises(SchemaMismatch, match="'b'"):
        conformed(batch, narrow, OLD, NEW)


@pytest.mark.parametrize(
    ("dtype", "text", "value"),
    [
        ("uint64", str(2**64 - 1), 2**64 - 1),
        ("boolean", "true", True),
        ("float32", "0.5", 0.5),
        ("binary", "00ff", b"\x00\xff"),
        ("string", "ä", "ä"),
    ],
)
def test_a_default_is_a_value_of_arrow(dtype: str, text: str, value: object) -> None:
    """The same value that the default stands for."""
    schema = evolve(OLD, [AddColumn(name="d", type=dtype, default=text)])
    assert arrow_default(schema.leaf("d").dtype, text).as_py() == value


def _struct(*fields: tuple[str, Any]) -> dict[str, Any]:
    made = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
    return {"type": "struct", "fields": made}


def test_spark_is_given_the_names_of_the_files() -> None:
    """Same places, names of then; what the files lack gets a name that none of them has."""
    wanted = _struct(
        ("a", "long"),
        ("b", "long"),
        ("s", _struct(("x", "string"), ("y", "integer"))),
        ("l", {"type": "array", "elementType": _struct(("count", "integer"), ("p", "string")), "containsNull": True}),
    )
    old = written_struct(wanted, NEW, OLD)
    assert [field["name"] for field in old["fields"]] == ["_lamella_absent_11", "a", "s", "l"]
    assert [field["name"] for field in old["fields"][2]["type"]["fields"]] == ["y", "x"]
    element = old["fields"][3]["type"]["elementType"]
    assert [field["name"] for field in element["fields"]] == ["p", "_lamella_absent_12"]
    assert len(layouts(wanted, (OLD, NEW), [0, 1, 0])) == 2
    by_id = identified_struct(wanted, NEW)
    assert [field["metadata"]["parquet.field.id"] for field in by_id["fields"]] == [11, 1, 2, 5]


#: What Delta names a column in its files that is added to a table with column mapping.
RANDOM = "col-5875387c-c6b2-499c-9b5b-8124597b17d4"


def test_a_column_that_files_may_have_by_chance_is_not_read() -> None:
    """Files with extra columns may still have a dropped one; a new column with its name is not found in them."""
    files = evolve(OLD, [DropColumn(column="a"), AllowExtraColumns()])
    current = evolve(files, [AddColumn(name="a", type="date")])
    (field,) = written_struct(_struct(("a", "date")), current, files)["fields"]
    assert field["name"].startswith("_lamella_absent_")


@given(
    st.lists(st.sampled_from(["x", "y", RANDOM, RANDOM.replace("5", "6")]), min_size=1, max_size=4, unique=True),
    st.integers(0, 4),
    st.booleans(),
)
def test_names_for_absent_columns_are_unused_ones(names: list[str], known: int, extra: bool) -> None:
    """Blocks of each schema: columns that they have under the names of then, others under names that no file has."""
    history = [evolve(OLD, [AllowExtraColumns()]) if extra else OLD]
    for name in names:
        history.append(evolve(history[-1], [AddColumn(name=name, type="date")], history=history))
    current = history[-1]
    for name in names[:known]:
        current = evolve(current, [RenameColumn(column=name, name=f"new {name}")], history=history)
        history.append(current)
    ids = {column.id: column.name for column in current.columns if column.id > OLD.last_column_id}
    wanted = _struct(*((name, "date") for name in ids.values()))
    for text, schema_ids in layouts(wanted, history, [schema.schema_id for schema in history]).items():
        given_names = [field["name"] for field in json.loads(text)["fields"]]
        assert len({name.lower() for name in given_names}) == len(given_names)
        for schema in (schema for schema in history if schema.schema_id in schema_ids):
            there = {column.id: column.name for column in schema.columns}
            for column_id, name in zip(ids, given_names, strict=True):
                if column_id in there:
                    assert name == there[column_id]
                else:
                    assert name.lower() not in {each.lower() for each in there.values()}
                    assert not extra or name.startswith(("_lamella_absent_", "col-"))


def test_changes_that_leave_names_alone_need_no_other_names() -> None:
    """After adding, dropping, widening and moving, old and new files are read in one way."""
    evolved = evolve(
        OLD, [DropColumn(column="s"), AddColumn(name="t", type="date"), WidenColumn(column="a", type="int64")]
    )
    wanted = _struct(("a", "long"), ("t", "date"))
    assert list(layouts(wanted, (OLD, evolved), [0, 1]).values()) == [[0, 1]]
    again = evolve(evolved, [AddColumn(name="s", type="date")], history=[OLD])
    assert len(layouts(_struct(("s", "date")), (OLD, evolved, again), [0, 2])) == 2
