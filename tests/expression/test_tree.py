"""JSON filters: both spellings of the Iceberg grammar, typed literals, and refusals that name the place."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lamella.snapshot.errors import InvalidFilter, LimitExceeded
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.expression import read_filter

A = n.Ref("a")
FOUR = n.Literal("integer", 4)


def typed(kind: str, value: Any) -> dict[str, Any]:
    return {"type": "literal", "data-type": kind, "value": value}


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (True, n.Constant(True)),
        ({"type": "false"}, n.Constant(False)),
        ({"type": "gt", "term": "a", "value": 4}, n.Compare("gt", A, FOUR)),
        ({"type": "gt", "left": {"type": "reference", "name": "a"}, "right": 4}, n.Compare("gt", A, FOUR)),
        ({"type": "not-eq", "term": {"type": "reference", "term": "a"}, "value": 4}, n.Compare("ne", A, FOUR)),
        ({"type": "in", "term": "a", "values": [4]}, n.In(A, (FOUR,))),
        ({"type": "not-in", "term": "a", "values": [4]}, n.Not(n.In(A, (FOUR,)))),
        ({"type": "in", "term": "a", "values": []}, n.Constant(False)),
        ({"type": "is-null", "term": "a"}, n.IsNull(A)),
        ({"type": "not-null", "child": {"type": "reference", "name": "a"}}, n.Not(n.IsNull(A))),
        ({"type": "not-nan", "term": "a"}, n.Not(n.IsNan(A))),
        ({"type": "truth", "term": "a"}, n.Truth(A)),
        ({"type": "starts-with", "term": "a", "value": "x"}, n.StartsWith(A, n.Literal("text", "x"))),
        ({"type": "like", "term": "a", "value": "x%", "escape": ""}, n.Like(A, "x%", "")),
        ({"type": "eq-null-safe", "term": "a", "value": None}, n.NullSafeEqual(A, n.Literal("null"))),
        ({"type": "eq", "term": "a", "value": typed("date", -3)}, n.Compare("eq", A, n.Literal("date", -3))),
        ({"type": "eq", "term": "a", "value": typed("timestamp", 7)}, n.Compare("eq", A, n.Literal("timestamp", 7))),
        (
            {"type": "eq", "term": "a", "value": typed("decimal", "1.50")},
            n.Compare("eq", A, n.Literal("decimal", "1.50")),
        ),
        (
            {"type": "eq", "term": "a", "value": typed("binary", "00ff")},
            n.Compare("eq", A, n.Literal("binary", b"\0\xff")),
        ),
        (
            {"type": "eq", "term": "a", "value": typed("double", "-Infinity")},
            n.Compare("eq", A, n.Literal("double", -math.inf)),
        ),
        ({"type": "eq", "term": "a", "value": typed("string", "4")}, n.Compare("eq", A, n.Literal("string", "4"))),
        (
            {"type": "and", "left": True, "right": {"type": "not", "child": False}},
            n.And((n.TRUE, n.Not(n.Constant(False)))),
        ),
        ({"type": "or", "children": [True, True, False]}, n.Or((n.TRUE, n.TRUE, n.Constant(False)))),
        ({"type": "unknown", "text": "f(a)", "reason": "a UDF"}, n.Unknown("f(a)", "a UDF")),
    ],
)
def test_a_tree_becomes_the_predicate_it_spells(tree: Any, expected: n.Predicate) -> None:
    """Both spellings and the additions are read alike."""
    assert read_filter(tree) == expected


@pytest.mark.parametrize(
    "tree",
    [
        {"type": "lt", "term": "a", "value": None},
        {"type": "in", "term": "a", "values": [4, None]},
        {"type": "eq", "term": {"type": "transform", "transform": "bucket[4]", "term": "a"}, "value": 4},
    ],
)
def test_null_values_and_transforms_say_nothing(tree: Any) -> None:
    """Clients write infinity as null: such a comparison keeps every block instead of none."""
    assert isinstance(read_filter(tree), n.Unknown)


@pytest.mark.parametrize(
    ("tree", "position"),
    [
        ({"type": "gt", "term": "a"}, "$"),
        ({"type": "frobnicate", "term": "a"}, "$.type"),
        ({"type": "and", "left": True, "right": {"type": "in", "term": "a", "values": 4}}, "$.right.values"),
        ({"type": "or", "children": [True, 7]}, "$.children[1]"),
        ({"type": "eq", "term": 4, "value": 4}, "$.term"),
        ({"type": "eq", "term": "a", "value": typed("date", "x")}, "$.value"),
        ({"type": "eq", "term": "a", "value": typed("long", 2**63)}, "$.value"),
        ({"type": "eq", "term": "a", "value": [4]}, "$.value"),
        ([], "$"),
    ],
)
def test_a_wrong_tree_says_where(tree: Any, position: str) -> None:
    """A refusal carries the JSON path of the place."""
    with pytest.raises(InvalidFilter) as caught:
        read_filter(tree)
    assert caught.value.details["position"] == position


def test_depth_is_bounded() -> None:
    """A tree of a thousand levels is refused by name."""
    tree: Any = True
    for _ in range(1000):
        tree = {"type": "not", "child": tree}
    with pytest.raises(LimitExceeded):
        read_filter(tree)
