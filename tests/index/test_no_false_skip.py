"""Every kind over every type: no row does what a part says that none does."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.index import kinds
from support import index_cases
from support.index_cases import built, false_claims, probe

#: Options under which parts of few rows do what those of many do.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "value_set": [{}, {"values": 2}, {"bytes": 16}],
    "ngram": [{}, {"n": 2}, {"ignore_case": True}, {"n": 1, "false_positives": 0.4}],
    "keys": [{}, {"records": 16}],
    "affix": [{}, {"prefix_chars": 1, "suffix_chars": 2}, {"suffix_chars": 0}, {"values": 3}],
    "ranges": [{}, {"ranges": 2}],
    "bloom": [{}, {"false_positives": 0.4, "above_bytes": 0}],
}


def check(name: str, seed: int, filters: int) -> int:
    """Index one random table with one kind, ask of it, and compare with the rows; returns the filters asked."""
    rng = Random(f"{name} {seed}")
    kind = kinds()[name]
    dtype = rng.choice(index_cases.types_of(kind))
    blocks = index_cases.blocks_of(rng, dtype)
    options = rng.choice(VARIANTS.get(name, [{}]))
    of = probe(built(kind, dtype, blocks, options).part)
    for _ in range(filters):
        predicate = index_cases.predicate(rng, dtype, blocks)
        rows = sorted(rng.sample(range(len(blocks)), rng.randint(0, len(blocks))))
        wrong = false_claims(of, dtype, blocks, predicate, rows)
        assert not wrong, f"seed {seed}, {name} over {dtype} with {options}: {wrong}"
    return filters


@pytest.mark.parametrize("name", sorted(kinds()))
@settings(max_examples=150)
@given(seed=st.integers(0, 2**48))
def test_no_kind_rules_out_what_rows_do(name: str, seed: int) -> None:
    """True, false and null: what some row of a block is, its claim allows, whatever the type and the filter."""
    check(name, seed, filters=12)


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(kinds()))
def test_a_hundred_thousand_filters_of_each_kind_hold_no_false_skip(name: str) -> None:
    """The same at length."""
    count = seed = 0
    while count < 100_000:
        count += check(name, seed, filters=40)
        seed += 1
