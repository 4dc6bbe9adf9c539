"""A table's columns as an Iceberg schema: every type, what cannot be one, and the names that files call columns by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table.name_mapping import NameMapping, apply_name_mapping

from lamella.snapshot.errors import NotExpressible
from lamella.snapshot.iceberg.types import name_mapping, schema_json, type_name
from lamella.snapshot.schema import Column, Schema, parse_type, types
from lamella.snapshot.schema.evolution import AddColumn, DropColumn, RenameColumn, SchemaChange, WidenColumn, evolve

TYPES = {
    **{"boolean": "boolean", "date": "date", "uuid": "uuid"},
    **dict.fromkeys(("int8", "int16", "int32"), "int"),
    **{"int64": "long", "float32": "float", "float64": "double"},
    **{"decimal(9,2)": "decimal(9, 2)", "decimal(38,0)": "decimal(38, 0)"},
    **dict.fromkeys(("string", "enum", "json", "varchar(3)", "char(3)"), "string"),
    **dict.fromkeys(("binary", "bson"), "binary"),
    **{"fixed(3)": "fixed[3]", "time(us)": "time"},
    **{"timestamp(us)": "timestamptz", "timestamp_ntz(us)": "timestamp"},
}
REFUSED = {
    **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), "unsigned"),
    **dict.fromkeys(("time(ms)", "timestamp(ms)", "timestamp_ntz(ms)"), "milliseconds"),
    **dict.fromkeys(("time(ns)", "timestamp(ns)", "timestamp_ntz(ns)"), "nanoseconds"),
    **dict.fromkeys(("decimal(39,2)", "float16", "interval", "geometry", "geography", "null"), "no such"),
    "unknown": "no such",
    "variant": "format version 3",
}
NESTED = (
    Column(name="id", type="int64", nullable=False, doc="the key"),
    Column(name="s", type="struct", fields=(Column(name="x", type="int32"), Column(name="y", type="string"))),
    Column(name="l", type="list", fields=(Column(name="element", type="date"),)),
    Column(
        name="m",
        type="map",
        fields=(
            Column(name="key", type="string", nullable=False),
            Column(name="value", type="list", fields=(Column(name="element", type="float64"),)),
        ),
    ),
)


def history(columns: Sequence[Column], *changes: SchemaChange) -> list[Schema]:
    """Every schema that a table has had, the newest first, with one change at a time."""
    found = [Schema.assign(columns)]
    for change in changes:
        found.insert(0, evolve(found[0], [change], history=found[1:]))
    return found


def mapped(schemas: list[Schema]) -> dict[str, Any]:
    """The names of each column of the top level, by the column's name of now."""
    found = name_mapping(schemas[0], schemas[1:])
    return {column.name: each["names"] for column, each in zip(schemas[0].columns, found, strict=True)}


@pytest.mark.parametrize(("ours", "theirs"), TYPES.items())
def test_types_have_their_name_in_iceberg(ours: str, theirs: str) -> None:
    """Each as a type that holds all of its values, and as one that pyiceberg reads."""
    assert type_name(parse_type(ours)) == theirs
    read = IcebergSchema.model_validate(schema_json(Schema.assign([Column(name="a", type=ours)])))
    assert str(read.fields[0].field_type) == theirs


@pytest.mark.parametrize(("ours", "reason"), REFUSED.items())
@pytest.mark.parametrize("nesting", ["top", "struct", "list", "map"])
def test_columns_without_an_iceberg_type_are_refused(ours: str, reason: str, nesting: str) -> None:
    """Wherever they stand: the error names the column and says why."""
    assert type_name(parse_type(ours)) is None
    bad = Column(name="bad", type=ours)
    columns, path = {
        "top": (bad, "bad"),
        "struct": (Column(name="a", type="struct", fields=(bad,)), "a.bad"),
        "list": (Column(name="a", type="list", fields=(Column(name="element", type=ours),)), "a.element"),
        "map": (
            Column(name="a", type="map", fields=(Column(name="key", type="string"), Column(name="value", type=ours))),
            "a.value",
        ),
    }[nesting]
    with pytest.raises(NotExpressible, match=reason) as refused:
        schema_json(Schema.assign([Column(name="good", type="int64"), columns]))
    assert refused.value.details["column"] == path


def test_every_type_is_decided() -> None:
    """No type of ours is missing in the two tables above."""
    names = {parse_type(each).name for each in (*TYPES, *REFUSED)} | {"struct", "list", "map"}
    assert names == {*types._ORDERS, *types._UNORDERED, "decimal"}


def test_a_default_is_refused() -> None:
    """Files that lack the column would read as null."""
    with pytest.raises(NotExpressible, match="default") as refused:
        schema_json(Schema.assign([Column(name="a", type="int32", default="7")]))
    assert refused.value.details["column"] == "a"


def test_nested_columns_keep_their_ids() -> None:
    """Structs, lists and maps as pyiceberg reads them; nothing is required: no file proves that it has no null."""
    schema = Schema.assign(NESTED)
    read = IcebergSchema.model_validate(schema_json(schema))
    assert read.schema_id == schema.schema_id
    assert {number: read.find_column_name(number) for number in schema.paths()} == {
        number: ".".join(path) for number, path in schema.paths().items()
    }
    assert not any(field.required for field in read.fields)
    assert [field.doc for field in read.fields] == ["the key", None, None, None]


def test_renamed_columns_have_all_their_names() -> None:
    """The name of now first, and those that older files have; a widened column keeps its one."""
    schemas = history(
        NESTED,
        RenameColumn(column="id", name="number"),
        RenameColumn(column="s.x", name="wide"),
        WidenColumn(column="s.wide", type="int64"),
        RenameColumn(column="number", name="key"),
        AddColumn(name="new", type="date"),
    )
    found = name_mapping(schemas[0], schemas[1:])
    assert mapped(schemas) == {"key": ["key", "number", "id"], "s": ["s"], "l": ["l"], "m": ["m"], "new": ["new"]}
    of_old_file = schema_json(schemas[-1])
    read = apply_name_mapping(IcebergSchema.model_validate(of_old_file), NameMapping.model_validate(found))
    assert {number: read.find_column_name(number) for number in schemas[-1].paths()} == {
        number: ".".join(path) for number, path in schemas[-1].paths().items()
    }


def test_a_dropped_column_has_no_names() -> None:
    """Files that still have it are read without it, and other columns may have been beside it all along."""
    schemas = history(NESTED, DropColumn(column="s.x"), DropColumn(column="id"))
    assert list(mapped(schemas)) == ["s", "l", "m"]
    assert [each["names"] for each in name_mapping(schemas[0], schemas[1:])[0]["fields"]] == [["y"]]


@pytest.mark.parametrize(
    "changes",
    [
        [DropColumn(column="id"), AddColumn(name="id", type="int64")],
        [RenameColumn(column="id", name="old"), AddColumn(name="id", type="int64")],
        [RenameColumn(column="s.x", name="z"), RenameColumn(column="s.y", name="x")],
    ],
)
def test_a_name_that_stood_for_two_columns_is_refused(changes: list[SchemaChange]) -> None:
    """Files say only the name, so that no mapping would be right for all of them."""
    schemas = history(NESTED, *changes)
    with pytest.raises(NotExpressible, match="two columns"):
        name_mapping(schemas[0], schemas[1:])


def test_one_name_in_two_positions_is_no_reuse() -> None:
    """A field of a struct may be called as a column beside it is."""
    schemas = history(NESTED, RenameColumn(column="s.x", name="id"))
    assert mapped(schemas)["id"] == ["id"]
