"""Hints of recipients leave out no file with a row that a recipient of any kind would keep."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lamella.snapshot.columnar import Sidecar, build_blocks
from lamella.snapshot.expression import bind
from lamella.snapshot.prune import NONE, evaluate, verdicts
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.sharing.hints import read_json_hint, read_sql_hint
from support import generate, stages
from support.sharing_rows import json_of, keeps, random_hint, random_recipient, sql_of, without_casts

TYPES = (
    *("boolean", "int8", "int16", "int32", "int64", "uint32", "uint64", "float32", "float64", "decimal(9,2)"),
    *("date", "timestamp(ms)", "timestamp(us)", "timestamp_ntz(us)", "string", "string", "binary"),
)


def selected(predicate: Any, schema: Schema, blocks: list[generate.Block], stats: list[Any]) -> set[int]:
    """The numbers of the blocks that are left."""
    made = [stages.block(number, columns, stats[number]) for number, columns in enumerate(blocks)]
    sidecar = Sidecar(build_blocks(schema, made))
    outcome = evaluate(bind(predicate, schema), lambda leaf: sidecar.zones(leaf.id, leaf.dtype), len(sidecar))
    return set((verdicts(outcome, sidecar.numbers("row_count")) != NONE).nonzero()[0].tolist())


def check(seed: int, *, hints: int = 12) -> tuple[int, int]:
    """Check random hints over one random table; returns how many blocks were looked at, and how many left out."""
    rng = Random(seed)
    schema = generate.schema(rng, TYPES)
    types = {leaf.name: leaf.dtype for leaf in schema.leaves()}
    blocks = generate.table(rng, schema)
    seen = generate.seen_values(schema, blocks)
    stats = [
        stages.exact(schema, each) if rng.random() < 0.5 else stages.weakened(rng, schema, each) for each in blocks
    ]
    looked_at = left_out = 0
    for _ in range(hints):
        tree = random_hint(rng, schema, seen)
        plain = without_casts(tree, types)
        readings = (
            ("json", tree, read_json_hint(json_of(tree), schema)),
            ("sql", plain, read_sql_hint(sql_of(plain), schema)),
        )
        for form, hint, predicate in readings:
            left = selected(predicate, schema, blocks, stats)
            looked_at += len(blocks)
            left_out += len(blocks) - len(left)
            for number, block in enumerate(blocks):
                if number in left:
                    continue
                for row in generate.rows_of(block):
                    for _ in range(6):
                        who = random_recipient(rng)
                        case = f"seed {seed}, {form}: {json_of(hint)} loses {row} of {who}"
                        assert not keeps(hint, row, types, who, rng), case
    return looked_at, left_out


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**48))
@example(0)
def test_no_row_is_lost_that_any_recipient_keeps(seed: int) -> None:
    """Over random tables and hints in both spellings, whatever the recipient makes of nulls, NaN, zeros and casts."""
    check(seed)


@pytest.mark.soak
def test_no_row_is_lost_over_many_tables() -> None:
    """The same over 6,000 tables."""
    for seed in range(6_000):
        check(seed)


@pytest.mark.slow
def test_hints_leave_out_files() -> None:
    """The property would also hold of hints that are never used: a good part of all blocks is left out."""
    looked_at, left_out = (sum(each) for each in zip(*(check(seed) for seed in range(150)), strict=True))
    assert left_out > looked_at * 0.15


ONE_COLUMN: dict[str, tuple[str, list[Any]]] = {
    "int": ("int32", [5, 7]),
    "long": ("int64", [5, 7]),
    "big": ("int64", [2**60, 2**60 + 5]),
    "single": ("float32", [0.0, 1.0]),
    "double": ("float64", [0.0, 1.0]),
    "text": ("string", [b"b", b"d"]),
    "date": ("date", [10, 12]),
    "time": ("timestamp(us)", [1_000_000_500, 1_000_000_500]),
    "truth": ("boolean", [1, 1]),
    "wall": ("timestamp_ntz(us)", [0, 0]),
    "money": ("decimal(9,2)", [100, 200]),
    "huge": ("uint64", [5, 7]),
}


def is_selected(name: str, hint: Any, *, nulls: bool = False) -> bool:
    """Whether a block with these values in the one column is left by a JSON hint, or by SQL text."""
    kind, cells = ONE_COLUMN[name]
    schema = Schema.assign([Column(name=name, type=kind)])
    block: generate.Block = {name: [*cells, None] if nulls else cells}
    is_sql = isinstance(hint, str)
    predicate = read_sql_hint(hint, schema) if is_sql else read_json_hint(json.dumps(hint), schema)
    return selected(predicate, schema, [block], [stages.exact(schema, block)]) == {0}


def compared(op: str, name: str, kind: str, value: str) -> dict[str, Any]:
    """A column beside a value, both of a type."""
    return {
        "op": op,
        "children": [
            {"op": "column", "name": name, "valueType": kind},
            {"op": "literal", "value": value, "valueType": kind},
        ],
    }


def negated(node: dict[str, Any]) -> dict[str, Any]:
    """Not that."""
    return {"op": "not", "children": [node]}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("int", compared("greaterThan", "int", "int", "7")),
        ("int", compared("equal", "INT", "long", "8")),
        ("int", negated(compared("lessThan", "int", "int", "8"))),
        ("int", {"op": "isNull", "children": [{"op": "column", "name": "int", "valueType": "int"}]}),
        ("int", "int > 7 AND something(int) = 3"),
        ("int", "int IN (1, 2, 9)"),
        ("int", "NOT (int < 8)"),
        ("big", compared("lessThan", "big", "long", str(2**59))),
        ("double", compared("greaterThan", "double", "double", "1.5")),
        ("single", compared("lessThan", "single", "double", "-0.1")),
        ("text", compared("lessThan", "text", "string", "b")),
        ("text", "text = 'c c' AND text > 'd'"),
        ("date", compared("greaterThan", "date", "date", "1970-01-14")),
        ("date", "date >= '1970-01-14'"),
        ("time", compared("greaterThan", "time", "timestamp", "1970-01-01T00:16:41Z")),
        ("time", compared("lessThan", "time", "timestamp", "1970-01-01T02:16:39+02:00")),
        ("truth", compared("equal", "truth", "bool", "false")),
        ("truth", "NOT truth"),
    ],
)
def test_what_is_certain_leaves_out(name: str, hint: Any) -> None:
    """Each of these is false for all rows, to whoever asks."""
    assert not is_selected(name, hint)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        # pandas holds an int64 column with nulls as doubles
        ("big", compared("equal", "big", "long", str(2**60 + 80))),
        ("big", negated(compared("lessThanOrEqual", "big", "long", str(2**60 + 5)))),
        # 0.0 and -0.0 are two values to Java's order of doubles
        ("double", negated(compared("equal", "double", "double", "0.0"))),
        ("double", compared("lessThan", "double", "double", "0.0")),
        # 1.0 is 1.00000001 when that was rounded to 32 bits
        ("single", compared("equal", "single", "float", "1.00000001")),
        # JavaScript knows only milliseconds
        ("time", compared("equal", "time", "timestamp", "1970-01-01T00:16:40Z")),
        ("time", compared("lessThanOrEqual", "time", "timestamp", "1970-01-01T00:16:40Z")),
        # a time without a zone is one of the session's
        ("time", compared("greaterThan", "time", "timestamp", "1971-01-01T00:16:41")),
        ("time", "time > TIMESTAMP '1971-01-01 00:00:00'"),
        # UTF-16 has another order than UTF-8
        ("text", compared("greaterThan", "text", "string", "\uffff")),
        ("text", compared("lessThan", "text", "string", "\U0001f600")),
        # casts: that of a wider column wraps, that of a time depends on a zone, text is compared as text
        ("long", compared("equal", "long", "int", "99")),
        ("huge", compared("equal", "huge", "long", "99")),
        ("int", compared("greaterThan", "int", "string", "9")),
        ("time", compared("equal", "time", "date", "1980-01-01")),
        ("date", compared("equal", "date", "timestamp", "1980-01-01T00:00:00Z")),
        ("wall", compared("greaterThan", "wall", "timestamp", "1980-01-01T00:00:00Z")),
        ("double", compared("greaterThan", "double", "float", "99")),
        ("int", "int = 7.5"),
        ("int", "int = '99'"),
        ("money", "money > 99"),
        # what is no number, no time, no operation, no column
        ("double", compared("equal", "double", "double", "NaN")),
        ("double", compared("greaterThan", "double", "double", "Infinity")),
        ("int", compared("equal", "int", "int", "99999999999")),
        ("int", compared("equal", "int", "int", "9.0")),
        ("date", compared("equal", "date", "date", "1980-02-31")),
        ("truth", compared("lessThan", "truth", "bool", "true")),
        ("int", compared("startsWith", "int", "int", "99")),
        ("int", compared("equal", "none", "int", "99")),
        ("int", "none = 99"),
        ("int", "int ="),
        ("int", negated(compared("equal", "none", "int", "99"))),
        ("int", {"op": "equal", "children": [{"op": "literal", "value": "1", "valueType": "int"}] * 2}),
        ("int", {"op": "and", "children": []}),
        ("int", ["equal"]),
        ("int", None),
    ],
)
def test_what_is_not_certain_keeps(name: str, hint: Any) -> None:
    """Each of these is true for a row to some recipient, or cannot be told."""
    assert is_selected(name, hint)


def test_another_value_may_be_a_null() -> None:
    """``not (a = 7)`` holds for a null in pandas, so a block that may hold one stays; one without goes."""
    for hint in (negated(compared("lessThan", "int", "int", "9")), "int >= 9", "NOT (int < 9)", "int <> 5 AND int > 9"):
        assert not is_selected("int", hint)
    for hint in (negated(compared("lessThan", "int", "int", "9")), "NOT (int < 9)"):
        assert is_selected("int", hint, nulls=True)
    assert not is_selected("int", "int >= 9", nulls=True)


def test_a_hint_that_is_too_large_is_left_alone() -> None:
    """Whether deep, wide or long: it keeps everything, and is no error."""
    deep: dict[str, Any] = compared("equal", "int", "int", "99")
    for _ in range(150):
        deep = {"op": "and", "children": [deep]}
    wide = {"op": "or", "children": [compared("equal", "int", "int", "99")] * 11_000}
    assert is_selected("int", deep)
    assert is_selected("int", wide)
    assert is_selected("int", f"int IN ({', '.join(str(each) for each in range(100, 1_200))})")
    schema = Schema.assign([Column(name="int", type="int32")])
    for text in ("", "{", '{"op": "\ud800"}', "[" * 100_000):
        assert selected(read_json_hint(text, schema), schema, [{"int": [1]}], [{}]) == {0}
