"""Files and the table that they are to belong to: which columns fit which, and which files do not fit."""

from __future__ import annotations

from typing import Any

import pytest

from lamella.snapshot.errors import SchemaMismatch
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import Bound, ColumnStats
from parquet.crafted import (
    BYTE_ARRAY,
    DOUBLE,
    FIXED,
    INT32,
    INT64,
    INT96,
    OPTIONAL,
    REPEATED,
    REQUIRED,
    block,
    chunk,
    element,
    flat,
    metadata,
    statistics,
)


def at(value: int) -> dict[int, Any]:
    """Statistics of a column of one INT64 value."""
    raw = value.to_bytes(8, "little", signed=True)
    return statistics(raw, raw, nulls=0)


def table(**types: str) -> Schema:
    """A table of nullable columns."""
    return Schema.assign([Column(name=name, type=kind) for name, kind in types.items()])


def minima(names: str, schema: Schema) -> dict[str, int | None]:
    """The minimum that each column of the table gets from a file whose columns hold 1, 2, 3, ... in turn."""
    chunks = [chunk([name], INT64, at(i)) for i, name in enumerate(names, 1)]
    found, _ = block(metadata(flat(names), [(10, chunks)]), schema)
    return {leaf.name: bound.int64 if (bound := found.col_stats[leaf.id].min) else None for leaf in schema.leaves()}


def mismatch(footer: dict[int, Any], schema: Schema) -> str:
    """The message of the mismatch that must come."""
    with pytest.raises(SchemaMismatch) as caught:
        block(footer, schema)
    return caught.value.message


def test_columns_are_matched_by_name_not_by_position() -> None:
    """The file's order does not matter."""
    assert minima("ba", table(a="int64", b="int64")) == {"a": 2, "b": 1}


def test_names_match_without_regard_to_case_if_one_fits() -> None:
    """Exactly first; another case only where nothing else has that name."""
    assert minima("A", table(a="int64")) == {"a": 1}
    for names in ("aA", "Aa"):
        with pytest.raises(SchemaMismatch, match=r"\['A'\]"):
            minima(names, table(a="int64"))


def test_a_nested_name_is_not_a_dotted_name() -> None:
    """``s.x`` as one name and ``x`` within ``s`` are two columns."""
    dotted = Schema.assign([Column(name="s.x", type="int64")])
    nested = Schema.assign([Column(name="s", type="struct", fields=(Column(name="x", type="int64"),))])
    flat_file = metadata(flat(["s.x"]), [(10, [chunk(["s.x"], INT64, at(1))])])
    deep_file = metadata(
        [element("s", children=1), element("x", INT64)], [(10, [chunk(["s", "x"], INT64, at(1))])], top=1
    )
    assert block(flat_file, dotted)[0].col_stats[1].min == Bound(int64=1)
    assert block(deep_file, nested)[0].col_stats[2].min == Bound(int64=1)
    for footer, schema in ((flat_file, nested), (deep_file, dotted)):
        with pytest.raises(SchemaMismatch):
            block(footer, schema)


def test_a_column_that_the_file_lacks_is_null() -> None:
    """All rows of it are, which is not the same as unknown (F7); below a list nothing is said."""
    schema = Schema.assign(
        [
            Column(name="a", type="int64"),
            Column(name="b", type="float64"),
            Column(name="s", type="struct", fields=(Column(name="x", type="int64", nullable=False),)),
            Column(name="l", type="list", fields=(Column(name="element", type="int64"),)),
        ]
    )
    found, _ = block(metadata(flat("a"), [(10, [chunk(["a"], INT64, at(1))])] * 2), schema)
    by_name = {leaf.name: found.col_stats[leaf.id] for leaf in schema.leaves()}
    assert by_name["b"] == by_name["s.x"] == ColumnStats(null_count=20, source="schema")
    assert by_name["l.element"].null_count is None
    assert set(found.col_metas) == {1}


def test_a_column_that_the_file_lacks_must_be_nullable() -> None:
    """A required column cannot be filled with nulls."""
    schema = Schema.assign([Column(name="a", type="int64"), Column(name="b", type="int64", nullable=False)])
    assert "['b']" in mismatch(metadata(flat("a"), [(10, [chunk(["a"], INT64)])]), schema)


def test_a_column_that_the_table_lacks_is_a_mismatch() -> None:
    """Nothing of a file is left out silently; every such column is named."""
    message = mismatch(metadata(flat("axy"), []), table(a="int64"))
    assert "['x', 'y']" in message


def test_doubled_names_are_a_mismatch() -> None:
    """Which of the two would be read cannot be known."""
    chunks = [chunk(["a"], INT64, at(1)), chunk(["a"], INT64, at(2))]
    assert "'a'" in mismatch(metadata(flat("aa"), [(10, chunks)]), table(a="int64"))
    nested = [element("s", children=2), element("x", INT64), element("x", INT64)]
    wanted = Schema.assign([Column(name="s", type="struct", fields=(Column(name="x", type="int64"),))])
    assert "'s.x'" in mismatch(metadata(nested, [], top=1), wanted)


@pytest.mark.parametrize(
    ("leaf", "kind"),
    [
        (element("c", INT64), "int32"),
        (element("c", INT64), "float64"),
        (element("c", INT64), "decimal(19,0)"),
        (element("c", INT64), "timestamp(us)"),
        (element("c", INT64, converted=14), "int64"),
        (element("c", DOUBLE), "float32"),
        (element("c", BYTE_ARRAY), "string"),
        (element("c", BYTE_ARRAY, logical={1: {}}), "binary"),
        (element("c", INT64, logical={8: {1: False, 2: {2: {}}}}), "timestamp(us)"),
        (element("c", INT32, logical={5: {1: 2, 2: 9}}), "decimal(9,1)"),
        (element("c", INT32, logical={5: {1: 2, 2: 9}}), "decimal(9,3)"),
        (element("c", FIXED, length=5), "fixed(6)"),
        (element("c", BYTE_ARRAY, logical={17: {}}), "binary"),
    ],
)
def test_types_that_do_not_widen_are_a_mismatch(leaf: dict[int, Any], kind: str) -> None:
    """A file is refused when a value of it could not be read as the table's type; the message names both."""
    message = mismatch(metadata([leaf], []), table(c=kind))
    assert "'c'" in message
    assert kind in message


def test_int96_is_read_as_a_timestamp() -> None:
    """Without bounds, in any unit of the table."""
    for kind in ("timestamp(us)", "timestamp(ns)"):
        footer = metadata([element("c", INT96)], [(10, [chunk(["c"], INT96, statistics(nulls=2))])])
        found, _ = block(footer, table(c=kind))
        assert (found.col_stats[1].min, found.col_stats[1].null_count) == (None, 2)


def test_a_list_is_not_its_element() -> None:
    """A struct by the field names of a list is not that list."""
    a_list = [
        element("c", logical={3: {}}, children=1),
        element("list", repetition=REPEATED, children=1),
        element("element", INT64),
    ]
    struct = Schema.assign([Column(name="c", type="struct", fields=(Column(name="element", type="int64"),))])
    assert "in a list" in mismatch(metadata(a_list, [], top=1), struct)


@pytest.mark.parametrize("nulls", [None, 3])
def test_nulls_do_not_fit_a_required_column(nulls: int | None) -> None:
    """Neither known ones nor, when the count is missing, possible ones."""
    schema = Schema.assign([Column(name="c", type="int64", nullable=False)])
    footer = metadata([element("c", INT64)], [(10, [chunk(["c"], INT64, statistics(nulls=nulls))])])
    assert "'c'" in mismatch(footer, schema)


def test_an_optional_column_without_nulls_fits_a_required_one() -> None:
    """What matters is the values, not the declaration."""
    schema = Schema.assign([Column(name="c", type="int64", nullable=False)])
    for repetition in (OPTIONAL, REQUIRED):
        leaf = element("c", INT64, repetition=repetition)
        found, _ = block(metadata([leaf], [(10, [chunk(["c"], INT64, at(4))])]), schema)
        assert found.col_stats[1].null_count == 0


@pytest.mark.parametrize(("nulls", "fits"), [(0, True), (3, False), (None, False)])
def test_required_parts_of_a_list_fit_only_if_nothing_is_null(nulls: int | None, fits: bool) -> None:
    """Null counts in lists also count empty ones; only 0 proves that the list and its elements are never null."""
    element_column = Column(name="element", type="int64", nullable=False)
    schema = Schema.assign([Column(name="l", type="list", nullable=False, fields=(element_column,))])
    leaves = [
        element("l", logical={3: {}}, children=1),
        element("list", repetition=REPEATED, children=1),
        element("element", INT64),
    ]
    footer = metadata(leaves, [(10, [chunk(["l", "list", "element"], INT64, statistics(nulls=nulls))])], top=1)
    if fits:
        assert block(footer, schema)[0].col_stats[2].null_count is None  # of rows, which is not known
    else:
        assert "'l' is required" in mismatch(footer, schema)


@pytest.mark.parametrize(("nulls", "fits"), [(0, True), (3, False), (None, False)])
def test_a_required_field_of_an_optional_struct_fits_only_without_nulls(nulls: int | None, fits: bool) -> None:
    """A null count above 0 does not tell a missing field from a missing struct."""
    field = Column(name="x", type="int64", nullable=False)
    schema = Schema.assign([Column(name="s", type="struct", fields=(field,))])
    declared = [element("s", children=1), element("x", INT64)]
    footer = metadata(declared, [(10, [chunk(["s", "x"], INT64, statistics(nulls=nulls))])], top=1)
    if fits:
        assert block(footer, schema)[0].col_stats[2].null_count == 0
    else:
        assert "'s.x' is required" in mismatch(footer, schema)


def test_a_field_that_the_file_requires_fits_where_the_struct_is_null() -> None:
    """The file declares that the field is there whenever the struct is."""
    field = Column(name="x", type="int64", nullable=False)
    schema = Schema.assign([Column(name="s", type="struct", fields=(field,))])
    declared = [element("s", children=1), element("x", INT64, repetition=REQUIRED)]
    footer = metadata(declared, [(10, [chunk(["s", "x"], INT64, statistics(nulls=3))])], top=1)
    assert block(footer, schema)[0].col_stats[2].null_count == 3


def test_leaves_below_lists_and_maps_are_unknown_but_placed() -> None:
    """Their bounds and null counts are about elements, not rows (G10); where their bytes are is recorded."""
    leaves = [
        element("l", logical={3: {}}, children=1),
        element("list", repetition=REPEATED, children=1),
        element("element", INT64),
    ]
    footer = metadata(leaves, [(10, [chunk(["l", "list", "element"], INT64, at(1), num_values=25)])], top=1)
    found, schema = block(footer)
    (leaf,) = schema.leaves()
    stats = found.col_stats[leaf.id]
    assert (stats.min, stats.max, stats.null_count, stats.reason) == (None, None, None, "inside a list or map")
    assert found.col_metas[leaf.id][0].num_values == 25


def test_leaves_of_a_struct_have_bounds() -> None:
    """A struct that is null counts as a null of each of its leaves, which is what a filter on it means."""
    leaves = [element("s", children=1), element("x", INT64)]
    raw = {**at(5), 3: 4}
    found, schema = block(metadata(leaves, [(10, [chunk(["s", "x"], INT64, raw)])], top=1))
    stats = found.col_stats[schema.leaf("s.x").id]
    assert (stats.min, stats.null_count) == (Bound(int64=5), 4)


def test_a_variant_is_one_column_of_several_leaves() -> None:
    """It has no bounds, and no one place; its metadata is null where it is."""
    leaves = [
        element("v", logical={16: {}}, children=2),
        element("metadata", BYTE_ARRAY, repetition=REQUIRED),
        element("value", BYTE_ARRAY),
        element("a", INT64),
    ]
    chunks = [
        chunk(["v", "metadata"], BYTE_ARRAY, statistics(nulls=3)),
        chunk(["v", "value"], BYTE_ARRAY, statistics(b"a", b"b", nulls=0)),
        chunk(["a"], INT64, at(1)),
    ]
    found, schema = block(metadata(leaves, [(10, chunks)], top=2))
    variant, number = schema.leaves()
    assert found.col_stats[variant.id].null_count == 3
    assert found.col_stats[variant.id].reason == "variant has no reliable order"
    assert found.col_stats[number.id].min == Bound(int64=1)
    assert set(found.col_metas) == {number.id}


def test_the_same_schema_is_matched_with_each_table_anew() -> None:
    """What was planned for one table is not used for another."""
    footer = metadata(flat("a"), [(10, [chunk(["a"], INT64, at(1))])])
    other = Schema.assign([Column(name="b", type="int64"), Column(name="a", type="int64")])

    def ids(found: Block) -> list[int]:
        return [column for column, stats in found.col_stats.items() if stats.min is not None]

    assert ids(block(footer, table(a="int64"))[0]) == [1]
    assert ids(block(footer, other)[0]) == [2]
    with pytest.raises(SchemaMismatch):
        block(footer, table(a="string"))
