"""What each change does to a schema, and what is refused."""

from __future__ import annotations

import msgspec
import pytest

from lamella.snapshot.errors import InvalidRequest, InvalidSchema, LamellaError, UnknownColumn
from lamella.snapshot.schema import Column, Schema, parse_type
from lamella.snapshot.schema.column import default_value
from lamella.snapshot.schema.evolution import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    SetDefault,
    SetDoc,
    SetNullable,
    WidenColumn,
    can_widen,
    evolve,
)

SCHEMA = Schema.assign(
    [
        Column(name="id", type="int64", nullable=False),
        Column(
            name="address",
            type="struct",
            fields=(Column(name="city", type="string"), Column(name="zip", type="int32")),
        ),
        Column(name="tags", type="list", fields=(Column(name="element", type="int32"),)),
        Column(
            name="attributes",
            type="map",
            fields=(Column(name="key", type="string", nullable=False), Column(name="value", type="float32")),
        ),
        Column(name="a.b", type="string"),
    ]
)


def names(schema: Schema) -> list[str]:
    """The names of the top level."""
    return [column.name for column in schema.columns]


def test_a_change_makes_a_schema_of_its_own_and_leaves_ids_alone() -> None:
    """The next schema has a new id; renaming, moving and widening keep column ids."""
    changes: list[SchemaChange] = [
        RenameColumn(column="id", name="key"),
        MoveColumn(column="tags", first=True),
        MoveColumn(column="key", after="address"),
        WidenColumn(column="address.zip", type="bigint"),
        SetNullable(column="key", nullable=True),
        SetDoc(column=("address", "city"), doc="where"),
    ]
    after = evolve(SCHEMA, changes)
    assert (after.schema_id, after.last_column_id) == (1, SCHEMA.last_column_id)
    assert names(after) == ["tags", "address", "key", "attributes", "a.b"]
    assert dict(after.paths()).keys() == dict(SCHEMA.paths()).keys()
    key = after.leaf("key")
    assert (key.id, key.nullable) == (SCHEMA.leaf("id").id, True)
    assert str(after.leaf("address.zip").dtype) == "int64"
    assert after.columns[1].fields[0].doc == "where"


def test_the_default_of_new_rows_changes_and_that_of_old_files_stays() -> None:
    """A default that is the same as that of files is not written down; widening spells both anew."""
    schema = Schema.assign([Column(name="a", type="int32", default="1"), Column(name="b", type="int32")])
    changed = evolve(
        schema,
        [
            SetDefault(column="a", default="02"),
            SetDefault(column="b", default="3"),
            WidenColumn(column="a", type="decimal(12,1)"),
        ],
    )
    a, b = changed.columns
    assert (a.default, a.write_default, a.default_of_new_rows) == ("1.0", "2.0", "2.0")
    assert (b.default, b.default_of_new_rows) == (None, "3")
    none = evolve(changed, [SetDefault(column="A", default=None), SetDefault(column="b", default=None)])
    assert (none.columns[0].write_default, none.columns[0].default) == (None, "1.0")
    assert none.columns[1] == schema.columns[1]
    back = evolve(none, [SetDefault(column="a", default="1")], history=[changed])
    assert back.columns[0].write_default is msgspec.UNSET
    decoded = msgspec.json.decode(msgspec.json.encode(changed), type=Schema)
    assert decoded == changed
    with pytest.raises(InvalidSchema, match="the default of column 'b'"):
        evolve(schema, [SetDefault(column="b", default="x")])
    with pytest.raises(InvalidSchema, match="top level"):
        evolve(SCHEMA, [SetDefault(column="address.zip", default="1")])


def test_ids_are_never_given_again() -> None:
    """A column that is dropped and added again is another one, within one request and over several."""
    once = evolve(SCHEMA, [DropColumn(column="a.b"), AddColumn(name="a.b", type="string")])
    assert once.leaf("a.b").id == SCHEMA.last_column_id + 1
    twice = evolve(evolve(once, [DropColumn(column="a.b")]), [AddColumn(name="a.b", type="string")])
    assert twice.leaf("a.b").id == SCHEMA.last_column_id + 2
    assert [once.schema_id, twice.schema_id] == [1, 3]


def test_a_schema_id_differs_from_all_earlier_ones() -> None:
    """Also when the schema at hand is not the newest that the table ever had."""
    newest = evolve(evolve(SCHEMA, [DropColumn(column="id")]), [AddColumn(name="x", type="date")])
    again = evolve(SCHEMA, [AddColumn(name="y", type="date")], history=[newest])
    assert (again.schema_id, again.leaf("y").id) == (3, newest.last_column_id + 1)


def test_a_column_is_added_where_it_is_requested() -> None:
    """Last, first, behind another, inside a struct; nested types come with their fields."""
    point = (Column(name="x", type="double"), Column(name="y", type="double", nullable=False))
    after = evolve(
        SCHEMA,
        [
            AddColumn(name="last", type="date"),
            AddColumn(name="first", type="int", nullable=False, default="7", first=True),
            AddColumn(name="second", type="struct", fields=point, after="FIRST"),
            AddColumn(name="country", type="string", parent="address", first=True),
        ],
    )
    assert names(after) == ["first", "second", "id", "address", "tags", "attributes", "a.b", "last"]
    assert [field.name for field in after.columns[3].fields] == ["country", "city", "zip"]
    assert (after.leaf("first").default, after.leaf("first").nullable) == ("7", False)
    ids = list(after.paths())
    assert len(ids) == len(set(ids))
    assert after.last_column_id == max(ids) == SCHEMA.last_column_id + 6


def test_parts_of_lists_and_maps_can_be_reached() -> None:
    """Their types widen, and structs inside them take fields."""
    nested = evolve(
        SCHEMA,
        [
            WidenColumn(column="tags.element", type="int64"),
            WidenColumn(column="attributes.value", type="double"),
            AddColumn(
                name="lines",
                type="list",
                fields=(Column(name="element", type="struct", fields=(Column(name="n", type="int32"),)),),
            ),
            AddColumn(name="price", type="decimal(10,2)", parent="lines.element"),
            RenameColumn(column="lines.element.n", name="count"),
        ],
    )
    assert {leaf.name: str(leaf.dtype) for leaf in nested.leaves() if leaf.repeated} == {
        "tags.element": "int64",
        "attributes.key": "string",
        "attributes.value": "float64",
        "lines.element.count": "int32",
        "lines.element.price": "decimal(10,2)",
    }


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (DropColumn(column="nope"), UnknownColumn, "'nope'"),
        (DropColumn(column="address.nope"), UnknownColumn, "'address.nope'"),
        (DropColumn(column="tags.element"), InvalidSchema, "'element'"),
        (DropColumn(column="attributes.key"), InvalidSchema, "'attributes'"),
        (RenameColumn(column="id", name="TAGS"), InvalidSchema, "'TAGS'"),
        (RenameColumn(column="id", name=""), InvalidSchema, "name"),
        (RenameColumn(column="tags.element", name="item"), InvalidSchema, "'tags'"),
        (WidenColumn(column="id", type="int32"), InvalidSchema, "'id'"),
        (WidenColumn(column="id", type="string"), InvalidSchema, "'id'"),
        (WidenColumn(column="attributes.key", type="json"), InvalidSchema, "'attributes'"),
        (WidenColumn(column="address", type="string"), InvalidSchema, "'address'"),
        (MoveColumn(column="id"), InvalidRequest, "'id'"),
        (MoveColumn(column="id", after="id"), UnknownColumn, "'id'"),
        (MoveColumn(column="id", first=True), InvalidRequest, "as it is"),
        (AddColumn(name="ID", type="int32"), InvalidSchema, "'ID'"),
        (AddColumn(name="x", type="int32", nullable=False), InvalidSchema, "'x'"),
        (AddColumn(name="x", type="int32", default="1.5"), InvalidSchema, "'x'"),
        (AddColumn(name="x", type="nonsense"), InvalidSchema, "nonsense"),
        (AddColumn(name="x", type="int32", default="1", parent="address"), InvalidSchema, "'x'"),
        (AddColumn(name="x", type="int32", parent="id"), InvalidSchema, "'id'"),
        (AddColumn(name="x", type="int32", parent="tags"), InvalidSchema, "'tags'"),
        (AddColumn(name="x", type="int32", after="nope"), UnknownColumn, "'nope'"),
        (AddColumn(name="x", type="int32", first=True, after="id"), InvalidRequest, "'x'"),
        (AddColumn(name="x", type="struct", fields=(Column(name="y", type="int8", id=1),)), InvalidSchema, "'x'"),
    ],
)
def test_a_change_that_cannot_be_made_says_why(change: SchemaChange, error: type[LamellaError], says: str) -> None:
    """The error is typed, and names the column."""
    with pytest.raises(error, match=says):
        evolve(SCHEMA, [change])


def test_the_last_column_stays() -> None:
    """A table and a struct keep at least one."""
    lone = Schema.assign([Column(name="s", type="struct", fields=(Column(name="x", type="int8"),))])
    for column in ("s", "s.x"):
        with pytest.raises(InvalidSchema, match="last column"):
            evolve(lone, [DropColumn(column=column)])
    with pytest.raises(InvalidRequest):
        evolve(lone, [])


def test_a_name_with_dots_is_distinguished_from_a_path() -> None:
    """A whole name comes first; parts one by one always mean a path; letters' case does not matter."""
    both = evolve(SCHEMA, [AddColumn(name="a", type="struct", fields=(Column(name="b", type="date"),))])
    assert str(evolve(both, [RenameColumn(column="A.B", name="c")]).leaf("c").dtype) == "string"
    assert str(evolve(both, [RenameColumn(column=("a", "B"), name="c")]).leaf("a.c").dtype) == "date"


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        ("int8", "int64", True),
        ("uint32", "int64", True),
        ("uint32", "int32", False),
        ("int32", "float64", True),
        ("int64", "float64", False),
        ("int16", "float32", False),
        ("uint16", "float64", False),
        ("int8", "decimal(10,0)", True),
        ("int32", "decimal(12,3)", False),
        ("int64", "decimal(20,0)", True),
        ("int64", "decimal(19,0)", False),
        ("date", "timestamp_ntz(us)", True),
        ("date", "timestamp_ntz(ns)", False),
        ("decimal(5,0)", "float64", False),
        ("float32", "float64", True),
        ("decimal(5,2)", "decimal(10,2)", True),
        ("decimal(5,2)", "decimal(7,4)", True),
        ("decimal(5,2)", "decimal(6,4)", False),
        ("timestamp(ms)", "timestamp(us)", True),
        ("timestamp(us)", "timestamp(ms)", False),
        ("date", "timestamp(us)", False),
        ("timestamp(us)", "timestamp_ntz(us)", False),
        ("string", "binary", False),
        ("uuid", "binary", True),
    ],
)
def test_types_widen_only_where_every_value_is_preserved(source: str, target: str, allowed: bool) -> None:
    """As the rules of widening say, and for times only to a finer unit."""
    assert can_widen(parse_type(source), parse_type(target)) is allowed


@pytest.mark.parametrize(
    ("dtype", "given", "stored", "value"),
    [
        ("int64", "5", "5", 5),
        ("uint64", str(2**64 - 1), str(2**64 - 1), 2**64 - 1),
        ("decimal(5,2)", "1.5", "1.50", 150),
        ("decimal(38,10)", "1" * 28 + ".0123456789", "1" * 28 + ".0123456789", int("1" * 28 + "0123456789")),
        ("float32", "0.1", "0.10000000149011612", 0.10000000149011612),
        ("float64", "-0.0", "-0.0", -0.0),
        ("boolean", "TRUE", "true", 1),
        ("date", "1969-12-31", "1969-12-31", -1),
        ("timestamp(us)", "1970-01-01T01:00:00.5+01:00", "1970-01-01T00:00:00.500000Z", 500_000),
        ("timestamp_ntz(ns)", "1970-01-01T00:00:01", "1970-01-01T00:00:01", 10**9),
        ("time(ms)", "00:00:01", "00:00:01", 1000),
        ("string", "", "", b""),
        ("string", "ä", "ä", "ä".encode()),
        ("binary", "00FF", "00ff", b"\x00\xff"),
    ],
)
def test_a_default_has_one_spelling_and_a_value(dtype: str, given: str, stored: str, value: object) -> None:
    """Whatever way it is written, the schema holds one form, which reads back as the value."""
    column = evolve(SCHEMA, [AddColumn(name="x", type=dtype, default=given)]).leaf("x")
    assert column.default == stored
    assert default_value(column.dtype, stored) == value


@pytest.mark.parametrize(
    ("dtype", "given"),
    [
        ("int8", "128"),
        ("int64", "1e99999999"),
        ("decimal(5,2)", "0.001"),
        ("float16", "1e9"),
        ("float64", "nan"),
        ("float64", "inf"),
        ("timestamp(us)", "2024-01-01T00:00:00"),
        ("timestamp_ntz(us)", "2024-01-01T00:00:00Z"),
        ("timestamp(us)", "2024-01-01T00:00:00.1234567Z"),
        ("timestamp(ms)", "2024-01-01T00:00:00.0001Z"),
        ("time(us)", "00:00:00+01:00"),
        ("date", "yesterday"),
        ("boolean", "1"),
        ("fixed(4)", "00"),
        ("binary", "zz"),
        ("interval", "1"),
        ("string", "x" * 1001),
    ],
)
def test_a_default_that_is_no_value_of_the_type_is_refused(dtype: str, given: str) -> None:
    """Out of range, too fine, not a number, or of a type without order."""
    with pytest.raises(InvalidSchema, match="'x'"):
        evolve(SCHEMA, [AddColumn(name="x", type=dtype, default=given)])


@pytest.mark.parametrize(
    ("types", "allowed"),
    [
        (("uint32", "int64", "decimal(24,4)"), False),
        (("uint8", "int32", "float64"), False),
        (("date", "timestamp_ntz(us)", "timestamp_ntz(ns)"), False),
        (("int8", "int32", "int64", "decimal(24,4)"), True),
        (("int16", "int32", "float64"), True),
        (("uint8", "uint16", "int64"), True),
    ],
)
def test_types_widen_in_steps_only_where_the_first_may_become_the_last(types: tuple[str, ...], allowed: bool) -> None:
    """Files of the first type remain, and have to be read as the last."""
    schema = Schema.assign([Column(name="a", type=types[0]), Column(name="b", type="string")])
    history = [schema]
    for dtype in types[1:-1]:
        schema = evolve(schema, [WidenColumn(column=("a",), type=dtype)], history=history)
        history.append(schema)
    last = [WidenColumn(column=("a",), type=types[-1])]
    if allowed:
        assert evolve(schema, last, history=history).columns[0].type == types[-1]
    else:
        with pytest.raises(InvalidSchema, match=rf"'a' was {types[0]}"):
            evolve(schema, last, history=history)


def test_a_default_follows_its_column_to_a_wider_type() -> None:
    """A single-precision default stays the very value that old rows held."""
    before = evolve(SCHEMA, [AddColumn(name="x", type="float32", default="0.1")])
    after = evolve(before, [WidenColumn(column="x", type="float64")])
    assert default_value(after.leaf("x").dtype, str(after.leaf("x").default)) == 0.10000000149011612


def test_changes_travel_as_json() -> None:
    """Each change names its kind, and reads back as itself."""
    changes: list[SchemaChange] = [
        AddColumn(name="x", type="int32", default="1"),
        DropColumn(column=("a", "b")),
        RenameColumn(column="x", name="y"),
        WidenColumn(column="y", type="int64"),
        MoveColumn(column="y", first=True),
        SetNullable(column="y", nullable=True),
        SetDoc(column="y", doc=None),
    ]
    data = msgspec.json.encode(changes)
    assert msgspec.json.decode(data, type=list[SchemaChange]) == changes
    assert b'{"change":"rename","column":"x","name":"y"}' in data
