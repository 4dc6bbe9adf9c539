"""Predicates written out and read again."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from lamella.snapshot.expression import bind, read_filter, read_sql, read_tree, sql_of, tree_of
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.schema import Column, Schema
from support import generate

A = n.Ref("a")


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.few(60)
def test_a_tree_reads_back_as_the_predicate_that_was_written(seed: int) -> None:
    """The JSON tree of a random predicate, through JSON text, is that predicate again."""
    rng = Random(seed)
    schema = generate.schema(rng)
    predicate = generate.predicate(rng, schema, {})
    again = read_tree(msgspec.json.decode(msgspec.json.encode(tree_of(predicate))))
    assert repr(again) == repr(predicate)  # as text, since NaN is not equal to itself


@pytest.mark.parametrize(
    "text",
    [
        "`a` > 4 AND (`b` = 'it\\'s \\\\' OR `c` IS NULL)",
        "NOT (`a` <=> 1.50BD)",
        "(`a`) IS TRUE",
        "`a` LIKE 'x!%%' ESCAPE '!'",
        "`a` IN (1, NULL, -3)",
        "year(`s`.`at`) = 2020",
        "CAST(`a` AS DATE) >= DATE '1999-12-31'",
        "`at` < TIMESTAMP '1969-12-31 23:59:59.999999+00:00'",
        "(`a` + 1) <= (`b` * 2)",
        "coalesce(`a`, 0) <> 4",
        "startswith(`a`, 'x')",
        "get_json_object(`a`, '$[\\'b c\\'].d[0]') = '1'",
        "isnan(`a`)",
    ],
)
def test_sql_reads_back_as_the_same_sql(text: str) -> None:
    """SQL in the form that is written is read and written unchanged."""
    assert sql_of(read_sql(text)) == text


def test_comparisons_with_null_are_null_in_a_tree() -> None:
    """A tree has no comparison with null (there it stands for infinity), so the constant null takes its place."""
    assert read_tree(tree_of(n.Compare("eq", A, n.Literal("null")))) == n.Constant(None)


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, 10**30, -(2**63) - 1, -(10**25)])
@pytest.mark.parametrize("column", ["a", "d", "x", "u"])
def test_integers_of_any_size_are_written_in_every_form(column: str, number: int) -> None:
    """MessagePack has none of more than 64 bits: these are decimals in a tree, and mean the same."""
    columns = {"a": "int64", "d": "decimal(38,0)", "x": "float64", "u": "uint64"}
    schema = Schema.assign(tuple(Column(name=name, type=type) for name, type in columns.items()))
    for given in (f"{column} > {number}", {"type": "gt", "term": column, "value": number}):
        predicate = read_filter(given)
        tree = msgspec.msgpack.decode(msgspec.msgpack.encode(tree_of(predicate)))
        assert bind(read_filter(tree), schema) == bind(predicate, schema)
