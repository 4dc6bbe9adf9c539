"""Hostile JSON filters: an answer or an error of the request, in bounded time and memory."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.filters import swallow
from fuzz.guard import peak_bytes
from fuzz.mutation import mutated_json
from fuzz.tables import schema
from lamella.snapshot.errors import LimitExceeded
from lamella.snapshot.expression import bind, read_filter, text_of, tree_of
from support import generate

SEEDS = st.integers(0, 2**48)


def _literal(kind: str, value: Any) -> dict[str, Any]:
    return {"type": "literal", "data-type": kind, "value": value}


_YEAR = {"type": "apply", "function": "year", "arguments": ["day"]}
_SUM = {"type": "apply", "function": "add", "arguments": ["n", _literal("long", 1)]}
CORPUS: tuple[Any, ...] = (
    True,
    {"type": "eq", "term": "n", "value": 1},
    {"type": "gt", "left": {"type": "reference", "name": "st.x"}, "right": 4},
    {"type": "and", "left": {"type": "lt", "term": "d", "value": 0.5}, "right": {"type": "not-null", "term": "s"}},
    {"type": "or", "children": [{"type": "is-nan", "term": "f"}, {"type": "truth", "term": "b"}, False]},
    {"type": "not", "child": {"type": "in", "term": "n", "values": [1, 2, 3]}},
    {"type": "not-in", "term": "s", "values": ["a", "b", None]},
    {"type": "is-true", "child": {"type": "starts-with", "term": "s", "value": "ab"}},
    {"type": "like", "term": "s", "value": "a!%%", "escape": "!"},
    {"type": "eq-null-safe", "term": "day", "value": _literal("date", 18262)},
    {"type": "lt-eq", "term": "ts", "value": _literal("timestamp", 1577836800000000)},
    {"type": "eq", "term": "ts", "value": "2020-01-01T00:00:00.000001Z"},
    {"type": "not-eq", "term": "wide", "value": _literal("decimal", "1.5e10")},
    {"type": "eq", "term": "bin", "value": _literal("binary", "00ff")},
    {"type": "gt-eq", "term": "d", "value": _literal("double", "-Infinity")},
    {"type": "eq", "term": "id", "value": "00112233-4455-6677-8899-aabbccddeeff"},
    {"type": "eq", "term": {"type": "transform", "transform": "bucket[4]", "term": "n"}, "value": 1},
    {"type": "eq", "term": _YEAR, "value": 2020},
    {"type": "lt", "left": _SUM, "right": {"type": "reference", "name": "i"}},
    {"type": "gt", "term": {"type": "cast", "term": "ts", "to": "date"}, "value": "2020-01-01"},
    {"type": "unknown", "text": "f(n)", "reason": "a UDF"},
)


def hostile_tree(seed: int) -> Any:
    """A filter of the corpus, or a random one, damaged."""
    rng = Random(seed)
    tree: Any = rng.choice(CORPUS)
    if rng.random() < 0.5:
        columns = schema()
        tree = tree_of(generate.predicate(rng, columns, {leaf.name: [] for leaf in columns.leaves()}))
    return mutated_json(rng, tree, CORPUS)


@pytest.mark.parametrize("tree", CORPUS, ids=str)
def test_the_corpus_is_read(tree: Any) -> None:
    """What the mutations start from is used."""
    assert swallow(tree, 0)


@settings(max_examples=600)
@given(SEEDS)
def test_damaged_trees(seed: int) -> None:
    """Damaged trees are used or refused by an error of the request."""
    swallow(hostile_tree(seed), seed)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "term", "value", "values", "left", "right", "child"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json(tree: Any) -> None:
    """JSON that is no filter at all."""
    swallow(tree, 0)


@pytest.mark.soak
def test_a_lot_of_damaged_trees() -> None:
    """As above, 100,000 times; some of them are really used."""
    assert sum(swallow(hostile_tree(seed), seed) for seed in range(100_000)) > 5_000


def _nested(depth: int, around: str) -> Any:
    tree: Any = {"type": "eq", "term": "n", "value": 1}
    for _ in range(depth):
        tree = {"type": "and", "children": [tree]} if around == "and" else {"type": "not", "child": tree}
    return tree


def _nested_term(depth: int) -> Any:
    term: Any = "n"
    for _ in range(depth):
        term = {"type": "apply", "function": "abs", "arguments": [term]}
    return {"type": "eq", "term": term, "value": 1}


@pytest.mark.parametrize(
    "tree",
    [
        _nested(50_000, "and"),
        _nested(50_000, "not"),
        _nested_term(50_000),
        {"type": "or", "children": [{"type": "is-null", "term": "n"}] * 10_001},
        {"type": "in", "term": "n", "values": [1] * 1_000_001},
        {"type": "and", "children": [_nested_term(99)] * 200},
    ],
    ids=["and", "not", "terms", "predicates", "a list", "terms in all"],
)
def test_what_is_over_a_limit_is_refused_by_name(tree: Any) -> None:
    """Deeper, wider or longer than allowed: an error that says which limit, and no recursion error."""
    with pytest.raises(LimitExceeded):
        read_filter(tree)


@pytest.mark.parametrize("depth", [10, 50, 98])
def test_what_is_within_the_limits_is_used(depth: int) -> None:
    """Up to the permitted depth a filter is used, whoever calls: Python's own limit is not reached first."""
    for tree in (_nested(depth, "not"), _nested_term(depth)):
        assert swallow(tree, 0)


@pytest.mark.parametrize("count", [30_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_a_long_list_takes_bounded_memory(count: int) -> None:
    """Up to the permitted million values: some hundred bytes for each."""
    tree = {"type": "in", "term": "n", "values": list(range(count))}

    def whole() -> None:
        predicate = read_filter(tree)
        bind(predicate, schema())
        text_of(predicate)

    assert peak_bytes(whole) < 500 * count
