"""A file's schema as columns: every logical type, and lists and maps in all the forms that writers gave them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.snapshot.errors import CorruptParquet, InvalidSchema
from lamella.snapshot.parquet import read_footer, schema_of
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore
from parquet.crafted import (
    BOOLEAN,
    BYTE_ARRAY,
    DOUBLE,
    FIXED,
    FLOAT,
    I8,
    INT32,
    INT64,
    INT96,
    REPEATED,
    REQUIRED,
    element,
    file_bytes,
    metadata,
    stored,
)

UTC = True
MS: dict[int, Any] = {1: {}}
US: dict[int, Any] = {2: {}}
NS: dict[int, Any] = {3: {}}


def schema(*elements: dict[int, Any], top: int | None = None) -> Schema:
    """The schema of a file without row groups."""
    return schema_of(read_footer(*stored(file_bytes(metadata(elements, [], top=top)))))


def tree(column: Column) -> Any:
    """A column as nested text: ``name: type``, with ``?`` when it may be null, and its fields."""
    text = f"{column.name}: {column.type}{'?' if column.nullable else ''}"
    return [text, *map(tree, column.fields)] if column.fields else text


@pytest.mark.parametrize(
    ("leaf", "kind"),
    [
        (element("c", BOOLEAN), "boolean"),
        (element("c", INT32), "int32"),
        (element("c", INT64), "int64"),
        (element("c", INT96), "timestamp(us)"),
        (element("c", FLOAT), "float32"),
        (element("c", DOUBLE), "float64"),
        (element("c", BYTE_ARRAY), "binary"),
        (element("c", FIXED, length=7), "fixed(7)"),
        # logical types
        (element("c", BYTE_ARRAY, logical={1: {}}), "string"),
        (element("c", BYTE_ARRAY, logical={4: {}}), "enum"),
        (element("c", INT32, logical={5: {1: 2, 2: 9}}), "decimal(9,2)"),
        (element("c", INT64, logical={5: {1: 2, 2: 18}}), "decimal(18,2)"),
        (element("c", BYTE_ARRAY, logical={5: {1: 10, 2: 38}}), "decimal(38,10)"),
        (element("c", FIXED, length=16, logical={5: {1: 0, 2: 38}}), "decimal(38,0)"),
        (element("c", FIXED, length=16, logical={5: {2: 38}}), "decimal(38,0)"),
        (element("c", BYTE_ARRAY, logical={5: {1: 2, 2: 77}}), "unknown"),
        (element("c", INT32, logical={6: {}}), "date"),
        (element("c", INT32, logical={7: {1: UTC, 2: MS}}), "time(ms)"),
        (element("c", INT64, logical={7: {1: UTC, 2: US}}), "time(us)"),
        (element("c", INT64, logical={7: {1: False, 2: NS}}), "time(ns)"),
        (element("c", INT64, logical={8: {1: UTC, 2: MS}}), "timestamp(ms)"),
        (element("c", INT64, logical={8: {1: UTC, 2: US}}), "timestamp(us)"),
        (element("c", INT64, logical={8: {1: UTC, 2: NS}}), "timestamp(ns)"),
        (element("c", INT64, logical={8: {1: False, 2: MS}}), "timestamp_ntz(ms)"),
        (element("c", INT64, logical={8: {1: False, 2: US}}), "timestamp_ntz(us)"),
        (element("c", INT64, logical={8: {1: False, 2: NS}}), "timestamp_ntz(ns)"),
        (element("c", INT64, logical={8: {1: UTC, 2: {4: {}}}}), "unknown"),
        (element("c", INT64, logical={8: {2: US}}), "unknown"),
        (element("c", INT32, logical={10: {1: I8(8), 2: True}}), "int8"),
        (element("c", INT32, logical={10: {1: I8(16), 2: True}}), "int16"),
        (element("c", INT32, logical={10: {1: I8(32), 2: True}}), "int32"),
        (element("c", INT64, logical={10: {1: I8(64), 2: True}}), "int64"),
        (element("c", INT32, logical={10: {1: I8(8), 2: False}}), "uint8"),
        (element("c", INT32, logical={10: {1: I8(16), 2: False}}), "uint16"),
        (element("c", INT32, logical={10: {1: I8(32), 2: False}}), "uint32"),
        (element("c", INT64, logical={10: {1: I8(64), 2: False}}), "uint64"),
        (element("c", INT32, logical={11: {}}), "null"),
        (element("c", BYTE_ARRAY, logical={12: {}}), "json"),
        (element("c", BYTE_ARRAY, logical={13: {}}), "bson"),
        (element("c", FIXED, length=16, logical={14: {}}), "uuid"),
        (element("c", FIXED, length=2, logical={15: {}}), "float16"),
        (element("c", BYTE_ARRAY, logical={17: {1: "OGC:CRS84"}}), "geometry"),
        (element("c", BYTE_ARRAY, logical={18: {2: 1}}), "geography"),
        (element("c", INT64, logical={77: {}}), "unknown"),
        (element("c", INT64, logical={}), "unknown"),
        # converted types
        (element("c", BYTE_ARRAY, converted=0), "string"),
        (element("c", BYTE_ARRAY, converted=4), "enum"),
        (element("c", INT32, converted=5, scale=2, precision=9), "decimal(9,2)"),
        (element("c", INT64, converted=5, precision=18), "decimal(18,0)"),
        (element("c", INT32, converted=6), "date"),
        (element("c", INT32, converted=7), "time(ms)"),
        (element("c", INT64, converted=8), "time(us)"),
        (element("c", INT64, converted=9), "timestamp(ms)"),
        (element("c", INT64, converted=10), "timestamp(us)"),
        (element("c", INT32, converted=11), "uint8"),
        (element("c", INT32, converted=12), "uint16"),
        (element("c", INT32, converted=13), "uint32"),
        (element("c", INT64, converted=14), "uint64"),
        (element("c", INT32, converted=15), "int8"),
        (element("c", INT32, converted=16), "int16"),
        (element("c", INT32, converted=17), "int32"),
        (element("c", INT64, converted=18), "int64"),
        (element("c", BYTE_ARRAY, converted=19), "json"),
        (element("c", BYTE_ARRAY, converted=20), "bson"),
        (element("c", FIXED, length=12, converted=21), "interval"),
        (element("c", INT32, converted=22), "unknown"),
        # the logical type decides
        (element("c", INT64, converted=10, logical={8: {1: False, 2: US}}), "timestamp_ntz(us)"),
    ],
)
def test_every_annotation_has_a_type(leaf: dict[int, Any], kind: str) -> None:
    """All logical and converted types of Parquet are read; those of later versions are unknown, not errors."""
    assert schema(leaf).columns[0].type == kind


@pytest.mark.parametrize(
    "leaf",
    [
        element("c", INT64, logical={1: {}}),
        element("c", INT64, logical={6: {}}),
        element("c", INT64, logical={10: {1: I8(32), 2: True}}),
        element("c", INT32, logical={10: {1: I8(64), 2: True}}),
        element("c", INT64, logical={10: {1: I8(24), 2: True}}),
        element("c", INT64, logical={10: {1: I8(64)}}),
        element("c", INT32, logical={8: {1: UTC, 2: MS}}),
        element("c", INT64, logical={7: {1: UTC, 2: MS}}),
        element("c", DOUBLE, logical={5: {1: 0, 2: 9}}),
        element("c", INT64, logical={5: {1: 3, 2: 2}}),
        element("c", INT64, logical={5: {1: -1, 2: 2}}),
        element("c", INT64, logical={5: {1: 0, 2: 0}}),
        element("c", INT64, logical={5: {}}),
        element("c", BYTE_ARRAY, logical={14: {}}),
        element("c", FIXED, length=15, logical={14: {}}),
        element("c", FIXED, length=4, logical={15: {}}),
        element("c", FIXED, length=13, converted=21),
        element("c", FIXED),
        element("c", FIXED, length=0),
        element("c", FIXED, length=-5),
        element("c", DOUBLE, converted=0),
        element("c", INT32, converted=10),
    ],
)
def test_an_annotation_that_cannot_be_is_corrupt(leaf: dict[int, Any]) -> None:
    """A type that its physical type cannot hold contradicts itself."""
    with pytest.raises(CorruptParquet) as caught:
        schema(leaf)
    assert caught.value.details["column"] == "c"


LIST: dict[int, Any] = {3: {}}
MAP: dict[int, Any] = {2: {}}


@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        (  # today's form
            [
                element("l", logical=LIST, children=1),
                element("list", repetition=REPEATED, children=1),
                element("element", INT32),
            ],
            ["l: list?", "element: int32?"],
        ),
        (  # other names, required element, converted type only
            [
                element("l", converted=3, children=1, repetition=REQUIRED),
                element("bag", repetition=REPEATED, children=1),
                element("item", INT32, repetition=REQUIRED),
            ],
            ["l: list", "element: int32"],
        ),
        (  # two levels, primitive
            [element("l", converted=3, children=1), element("array", INT32, repetition=REPEATED)],
            ["l: list?", "element: int32"],
        ),
        (  # two levels, a group of several fields
            [
                element("l", converted=3, children=1),
                element("element", repetition=REPEATED, children=2),
                element("x", INT32),
                element("y", INT64),
            ],
            ["l: list?", ["element: struct", "x: int32?", "y: int64?"]],
        ),
        (  # two levels, a group of one field by the name "array"
            [
                element("l", converted=3, children=1),
                element("array", repetition=REPEATED, children=1),
                element("x", INT32),
            ],
            ["l: list?", ["element: struct", "x: int32?"]],
        ),
        (  # ... or by the list's name with _tuple
            [
                element("l", converted=3, children=1),
                element("l_tuple", repetition=REPEATED, children=1),
                element("x", INT32),
            ],
            ["l: list?", ["element: struct", "x: int32?"]],
        ),
        (  # two levels, a group of one repeated field
            [
                element("l", converted=3, children=1),
                element("bag", repetition=REPEATED, children=1),
                element("x", INT32, repetition=REPEATED),
            ],
            ["l: list?", ["element: struct", ["x: list", "element: int32"]]],
        ),
        (  # two levels, a list in a list
            [
                element("l", converted=3, children=1),
                element("array", repetition=REPEATED, converted=3, children=1),
                element("array", INT32, repetition=REPEATED),
            ],
            ["l: list?", ["element: list", "element: int32"]],
        ),
        (  # repeated without an annotation
            [element("l", INT32, repetition=REPEATED)],
            ["l: list", "element: int32"],
        ),
        (
            [element("l", repetition=REPEATED, children=2), element("x", INT32), element("y", BYTE_ARRAY)],
            ["l: list", ["element: struct", "x: int32?", "y: binary?"]],
        ),
        (  # maps: today's form, and the legacy annotation
            [
                element("m", logical=MAP, children=1),
                element("key_value", repetition=REPEATED, children=2),
                element("key", BYTE_ARRAY, repetition=REQUIRED, logical={1: {}}),
                element("value", INT32),
            ],
            ["m: map?", "key: string", "value: int32?"],
        ),
        (
            [
                element("m", converted=2, children=1),
                element("map", repetition=REPEATED, converted=2, children=2),
                element("k", INT32, repetition=REQUIRED),
                element("v", children=1),
                element("x", DOUBLE),
            ],
            ["m: map?", "key: int32", ["value: struct?", "x: float64?"]],
        ),
        (  # a map without values, a list of nothing that is known: opaque
            [
                element("m", logical=MAP, children=1),
                element("key_value", repetition=REPEATED, children=1),
                element("key", INT32, repetition=REQUIRED),
            ],
            "m: unknown?",
        ),
        ([element("l", logical=LIST, children=2), element("x", INT32), element("y", INT32)], "l: unknown?"),
        (
            [
                element("v", logical={16: {}}, children=2),
                element("metadata", BYTE_ARRAY, repetition=REQUIRED),
                element("value", BYTE_ARRAY, repetition=REQUIRED),
            ],
            "v: variant?",
        ),
        ([element("f", logical={55: {}}, children=1), element("x", INT32)], "f: unknown?"),
        (
            [element("s", children=2), element("x", INT32), element("t", children=1), element("y", INT64)],
            ["s: struct?", "x: int32?", ["t: struct?", "y: int64?"]],
        ),
    ],
)
def test_groups_become_columns(elements: list[dict[int, Any]], expected: Any) -> None:
    """The extra levels of lists and maps disappear, in every form of the format's compatibility rules."""
    assert tree(schema(*elements, top=1).columns[0]) == expected


def test_what_repeats_is_marked() -> None:
    """Only what is inside a list or map is repeated; a struct is not, nor is a list hidden in an opaque column."""
    found = schema(
        element("s", children=1),
        element("x", INT32),
        element("l", logical=LIST, children=1),
        element("list", repetition=REPEATED, children=1),
        element("element", INT32),
        element("v", logical={16: {}}, children=1),
        element("deep", INT32, repetition=REPEATED),
        top=3,
    )
    assert {leaf.name: leaf.repeated for leaf in found.leaves()} == {"s.x": False, "l.element": True, "v": False}


def test_ids_are_given_depth_first() -> None:
    """The schema is one of a new table."""
    found = schema(element("s", children=1), element("x", INT32), element("y", INT32), top=2)
    assert [(leaf.name, leaf.id) for leaf in found.leaves()] == [("s.x", 2), ("y", 3)]
    assert found.last_column_id == 3


@pytest.mark.parametrize("names", [["a", "a"], ["a", "A"], [""], []])
def test_schemas_that_no_table_can_have(names: list[str]) -> None:
    """Doubled names, empty names and no columns at all are refused."""
    with pytest.raises(InvalidSchema):
        schema(*(element(name, INT32) for name in names))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int8(), "int8"),
        (pa.uint64(), "uint64"),
        (pa.float16(), "float16"),
        (pa.date32(), "date"),
        (pa.time32("ms"), "time(ms)"),
        (pa.time64("ns"), "time(ns)"),
        (pa.timestamp("us"), "timestamp_ntz(us)"),
        (pa.timestamp("ns", tz="Europe/Zurich"), "timestamp(ns)"),
        (pa.timestamp("s"), "timestamp_ntz(ms)"),
        (pa.decimal128(38, 10), "decimal(38,10)"),
        (pa.decimal256(76, 5), "decimal(76,5)"),
        (pa.binary(5), "fixed(5)"),
        (pa.large_string(), "string"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.null(), "null"),
        (pa.duration("us"), "int64"),
        (pa.uuid(), "uuid"),
        (pa.json_(), "json"),
        (pa.list_(pa.struct({"x": pa.map_(pa.string(), pa.list_(pa.int8()))})), "list"),
    ],
)
def test_pyarrows_types(tmp_path: Any, kind: pa.DataType, expected: str) -> None:
    """What the most used writer makes of its types is what we read."""
    path = f"{tmp_path}/x.parquet"
    pq.write_table(pa.table({"c": pa.array([], kind)}), path)
    assert schema_of(read_footer(FsspecStore(), path)).columns[0].type == expected
