"""Filters are as sharp as was asked for, and as small as they can be for that."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lamella.snapshot.bloom.split_block import false_positives, keys_per_slot, slots_for
from lamella.snapshot.expression.bound import Prefix
from lamella.snapshot.function.base import Vector
from lamella.snapshot.index import Kind, kinds
from lamella.snapshot.schema import DataType, parse_type
from support import index_cases
from support.index_cases import Opened, opened, probe

ROWS = range(100)


def filters(kind: Kind, dtype: DataType, blocks: list[Vector], **given: Any) -> Opened:
    """A part without a filter above its blocks."""
    options = kind.options(dtype, {"above_bytes": 0, **given})
    builder = kind.builder(dtype, options)
    for block in blocks:
        builder.add(block)
        builder.end_block()
    return opened(kind.name, dtype, options, *builder.sections(), len(blocks))


def numbers(text: str, values: np.ndarray[Any, Any]) -> Vector:
    """Numbers as values of a type."""
    everything = np.ones(len(values), dtype=bool)
    if text == "string":
        return Vector(pa.array([b"key %d" % value for value in values.tolist()], pa.large_binary()), everything)
    if text == "float64":
        return Vector(values / 7, everything)
    if text == "decimal(38,10)":
        return Vector(values.astype(object) * 10**20, everything)
    return Vector(values, everything)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["int64", "float64", "string", "decimal(38,10)"])
@pytest.mark.parametrize(("rate", "look_ups"), [(0.1, 600), (0.01, 2000), (0.002, 6000)])
@pytest.mark.few(3)
def test_the_rate_of_false_positives_is_the_requested_one(text: str, rate: float, look_ups: int) -> None:
    """Of values that no block has, as many blocks are kept as the option says, within a tenth of it."""
    kind, dtype = kinds()["bloom"], parse_type(text)
    blocks = [numbers(text, np.arange(1000 + 15 * at) * 1000 + at) for at in ROWS]
    of = probe(filters(kind, dtype, blocks, false_positives=rate).part)
    strangers = numbers(text, 10**9 + np.arange(look_ups) * 3)
    values = strangers.values.to_pylist() if strangers.is_bytes else strangers.values.tolist()
    hits = sum(int(index_cases.claimed(of, index_cases.equal(dtype, value), ROWS).true.sum()) for value in values)
    assert hits / (look_ups * len(ROWS)) == pytest.approx(rate, rel=0.1)


def test_the_rate_holds_for_grams_too() -> None:
    """A pattern of one gram that no block has is kept as often as the option says."""
    kind, dtype, rng = kinds()["ngram"], parse_type("string"), Random(6)
    letters = "abcdefghijklmnopqrstuvwxyz"
    blocks = [
        index_cases.vector(dtype, ["".join(rng.choices(letters, k=60)).encode() for _ in range(30 + at // 2)])
        for at in ROWS
    ]
    of = probe(filters(kind, dtype, blocks, false_positives=0.05).part)
    hits = look_ups = 0
    for first in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        for second in letters:
            piece = f"{first}{second}x"
            test = Prefix(index_cases.leaf_of(dtype), b"", False, "c LIKE", (0, piece, 0))
            hits += int(index_cases.claimed(of, test, ROWS).true.sum())
            look_ups += len(ROWS)
    assert hits / look_ups == pytest.approx(0.05, rel=0.1)


def test_lists_are_looked_up_value_by_value_without_a_limit() -> None:
    """An IN list of thousands keeps the blocks that have one of its values, and as few others as their number says."""
    kind, dtype = kinds()["bloom"], parse_type("int64")
    blocks = [numbers("int64", np.arange(500) * 1000 + at) for at in ROWS]
    of = probe(filters(kind, dtype, blocks, false_positives=1e-7).part)
    listed = (*range(10**9, 10**9 + 5000), 10**12)
    assert not index_cases.claimed(of, index_cases.listed(dtype, listed), ROWS).true.any()
    found = index_cases.claimed(of, index_cases.listed(dtype, (3007, *listed)), ROWS).true
    assert np.flatnonzero(found).tolist() == [7]


@pytest.mark.parametrize("rate", [0.3, 0.1, 0.01, 0.001, 1e-6])
def test_sizes_and_rates_fit_together(rate: float) -> None:
    """The size for a rate has that rate, and one slot less has not."""
    assert false_positives(keys_per_slot(rate)) == pytest.approx(rate, rel=1e-6)
    slots = slots_for(10_000, rate)
    assert false_positives(10_000 / slots) <= rate * (1 + 1e-9)
    assert false_positives(10_000 / (slots - 1)) > rate
