"""Constants and the statistics that follow from them."""

from __future__ import annotations

import math
from random import Random

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.columnar.sidecar import constants_of
from lamella.snapshot.errors import ManifestError
from lamella.snapshot.schema import Column, Schema, parse_type
from lamella.snapshot.schema.arrow import arrow_scalar, leaf_type, repeated
from lamella.snapshot.stats import Bound
from lamella.snapshot.stats.constant import constant_stats, from_constant, to_constant
from lamella.snapshot.stats.measure import leaf_stats
from support import generate


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**48))
def test_a_constant_has_the_statistics_of_its_rows(seed: int) -> None:
    """The same bounds, null count and NaN as a scan of rows that all have the value."""
    rng = Random(seed)
    dtype = parse_type(rng.choice(generate.TYPES))
    if dtype.name == "uuid":
        return
    leaf = Schema.assign([Column(name="c", type=str(dtype))]).leaf("c")
    value = None if rng.random() < 0.2 else generate.value(rng, dtype)
    constant = to_constant(dtype, value)
    assert constants_of(pa.array([msgspec.json.encode({1: constant}).decode()])) == [{1: constant}]
    back = from_constant(dtype, constant)
    assert back == value or (isinstance(back, float) and math.isnan(back) and value != value)
    scalar = pa.scalar(None) if value is None else arrow_scalar(dtype, value)
    rows = repeated(scalar, 3, leaf_type(dtype, "c"))
    measured = leaf_stats(leaf, pa.chunked_array([rows]))
    expected = msgspec.structs.replace(measured, source="constant", ranges=())
    assert constant_stats(dtype, constant, 3) == expected


def test_a_long_text_is_stored_whole_and_has_truncated_bounds() -> None:
    """Readers need the value, the layers only bounds."""
    dtype, text = parse_type("string"), "ä" * 100
    constant = to_constant(dtype, text.encode())
    assert constant == Bound(string=text)
    stats = constant_stats(dtype, constant, 1)
    assert stats.min is not None
    assert not stats.min_exact
    assert not stats.max_exact


@pytest.mark.parametrize(
    ("type_text", "constant"),
    [
        ("int32", Bound(int64=1 << 31)),
        ("int32", Bound(string="1")),
        ("string", Bound(bytes="ff")),
        ("float32", Bound(float64=0.1)),
        ("int64", Bound(float64="NaN")),
        ("fixed(2)", Bound(bytes="ff")),
        ("uuid", Bound(bytes="ff")),
        ("decimal(3,1)", Bound(decimal=("1000", 4, 1))),
        ("decimal(3,1)", Bound(decimal=("10", 3, 2))),
        ("interval", Bound(bytes="ff")),
        ("int64", Bound()),
    ],
)
def test_what_is_no_value_of_the_type_is_refused(type_text: str, constant: Bound) -> None:
    """A reader could not supply it."""
    with pytest.raises(ManifestError):
        from_constant(parse_type(type_text), constant)
