"""Values as people read them are SQL that reads as the same value."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.expression import bind, read_sql
from lamella.snapshot.expression.bound import Comparison
from lamella.snapshot.expression.text import value_text
from lamella.snapshot.schema import Column, Schema, parse_type
from support import generate

#: Types whose every value but a few has a literal that a column of the type is compared with.
SPELLED = [kind for kind in generate.TYPES if kind not in ("time(us)", "uuid", "boolean", "timestamp(ns)")]


@given(seed=st.integers(0, 2**48))
def test_a_value_reads_back_as_itself(seed: int) -> None:
    """Of every type that filters compare: the text beside an equals sign is that value."""
    rng = Random(seed)
    kind = rng.choice(SPELLED)
    dtype = generate.dtype_of(kind)
    value = generate.value(rng, dtype)
    if value != value:  # NaN is no bound
        return
    shown = value_text(dtype, value)
    if "nfinity" in shown.text or "_micros" in shown.text or "unix_date" in shown.text:
        return
    literal = f"{shown.text}BD" if dtype.name == "decimal" else shown.text
    found = bind(read_sql(f"c = {literal}"), Schema.assign([Column(name="c", type=kind)]))
    assert isinstance(found, Comparison), (kind, shown)
    assert found.value == value, (kind, shown)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("boolean", 1, "true"),
        ("int64", -(2**63), "-9223372036854775808"),
        ("decimal(5,2)", -7, "-0.07"),
        ("decimal(38,10)", 12345678901234567890123456789, "1234567890123456789.0123456789"),
        ("decimal(4,0)", 12, "12"),
        ("float64", float("-inf"), "-Infinity"),
        ("float32", 0.5, "0.5"),
        ("date", 8767, "'1994-01-02'"),
        ("date", 2**31 - 1, "date_from_unix_date(2147483647)"),
        ("time(ms)", 3_723_050, "'01:02:03.05'"),
        ("timestamp(us)", 1_500_000, "'1970-01-01 00:00:01.5+00:00'"),
        ("timestamp(ns)", -1, "'1969-12-31 23:59:59.999999999+00:00'"),
        ("timestamp_ntz(ms)", 0, "'1970-01-01 00:00:00'"),
        ("timestamp(ms)", 2**62, "timestamp_micros(4611686018427387904000)"),
        ("string", b"it's", "'it''s'"),
        ("string", b"ab\xc3", "X'6162C3'"),
        ("binary", b"\x00\xff", "X'00FF'"),
        ("uuid", bytes(range(16)), "'00010203-0405-0607-0809-0a0b0c0d0e0f'"),
    ],
)
def test_values_are_spelled_plainly(kind: str, value: int | float | bytes, text: str) -> None:
    """As SQL would, without a type's name where the column says it."""
    shown = value_text(parse_type(kind), value)
    assert (shown.text, shown.is_cut) == (text, False)


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_long_values_are_cut_and_say_so(kind: str) -> None:
    """What ends in an ellipsis is marked."""
    dtype = parse_type(kind)
    size = 60 if kind == "string" else 30
    assert not value_text(dtype, b"x" * size).is_cut
    shown = value_text(dtype, b"x" * (size + 1))
    assert shown.is_cut
    assert shown.text.endswith("…'")
