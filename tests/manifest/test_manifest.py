"""Manifests: lossless bounds, layered merge, versions, hashes."""

from __future__ import annotations

import json
import math
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.errors import HashMismatch, ManifestError, UnsupportedFormat
from lamella.snapshot.manifest import (
    FORMAT_VERSION,
    Block,
    Segment,
    Summary,
    content_hash,
    decode_segment,
    encode,
)
from lamella.snapshot.schema import parse_type
from lamella.snapshot.stats import Bound, ColumnStats, all_null, from_bound, merge, to_bound
from support import generate


@settings(max_examples=500)
@given(st.integers(0, 2**48))
def test_a_bound_survives_json_exactly(seed: int) -> None:
    """Every value of every ordered type comes back from JSON as itself: 38 digits, int64 extremes, -0.0, infinity."""
    rng = Random(seed)
    dtype = parse_type(rng.choice(generate.TYPES))
    value = generate.value(rng, dtype)
    if value != value:
        with pytest.raises(ManifestError):
            to_bound(dtype, value)
        return
    back = from_bound(dtype, msgspec.json.decode(msgspec.json.encode(to_bound(dtype, value)), type=Bound))
    assert back == value
    if isinstance(value, float):
        assert math.copysign(1, float(back)) == math.copysign(1, value)


def test_bounds_are_tagged_as_the_format_says() -> None:
    """The JSON of a bound names its type; text that is not valid UTF-8 is hexadecimal."""

    def spelled(kind: str, value: int | float | bytes) -> str:
        return msgspec.json.encode(to_bound(parse_type(kind), value)).decode()

    assert spelled("int32", -5) == '{"Int64":-5}'
    assert spelled("uint64", 2**64 - 1) == '{"UInt64":18446744073709551615}'
    assert spelled("decimal(38,10)", -(10**37)) == '{"Decimal":["-10000000000000000000000000000000000000",38,10]}'
    assert spelled("timestamp(us)", 7) == '{"TimestampMicros":7}'
    assert spelled("float64", math.inf) == '{"Float64":"Infinity"}'
    assert spelled("string", "ä".encode()) == '{"String":"ä"}'
    assert spelled("string", b"\xc3") == '{"Bytes":"c3"}'


@pytest.mark.parametrize(
    ("kind", "bound"),
    [
        ("int64", Bound(string="x")),
        ("int8", Bound(int64=128)),
        ("binary", Bound(bytes="zz")),
        ("float64", Bound(float64="NaN")),
        ("decimal(5,2)", Bound(decimal=("1", 5, 3))),
        ("decimal(5,2)", Bound(decimal=("one", 5, 2))),
    ],
)
def test_a_bound_of_another_type_is_refused(kind: str, bound: Bound) -> None:
    """A manifest whose bound does not fit the column is an error, never a guess."""
    with pytest.raises(ManifestError):
        from_bound(parse_type(kind), bound)


@settings(max_examples=400)
@given(st.integers(0, 2**48))
def test_a_merge_contains_its_children_and_its_counts(seed: int) -> None:
    """Merged statistics hold for all the children's rows together, and do not claim more than a scan."""
    rng = Random(seed)
    dtype = parse_type(rng.choice(generate.TYPES))
    parts = [[rng.choice([None, generate.value(rng, dtype)]) for _ in range(rng.randint(0, 4))] for _ in range(4)]
    children = [(len(cells), generate.weakened_stats(rng, dtype, cells)) for cells in parts]
    merged = merge(dtype, children)
    truth = generate.exact_stats(dtype, [cell for cells in parts for cell in cells])
    if merged.min is not None:
        assert truth.min is None or from_bound(dtype, merged.min) <= from_bound(dtype, truth.min)  # type: ignore[operator]  # one type
    if merged.max is not None:
        assert truth.max is None or from_bound(dtype, merged.max) >= from_bound(dtype, truth.max)  # type: ignore[operator]  # one type
    assert merged.null_count in (None, truth.null_count)
    assert merged.sum in (None, truth.sum)
    assert merged.nan == truth.nan or merged.nan == "maybe"
    if merged.min_exact:
        assert merged.min == truth.min or dtype.is_float


def test_children_without_values_do_not_hide_a_bound_and_unknown_ones_do() -> None:
    """All-null and empty children are neutral; one that may hold values and lacks a bound makes that side unknown."""
    dtype = parse_type("int64")
    known = generate.exact_stats(dtype, [1, 5])
    assert merge(dtype, [(2, known), (3, all_null(3)), (0, None)]).max == to_bound(dtype, 5)
    open_above = msgspec.structs.replace(known, max=None)
    merged = merge(dtype, [(2, known), (2, open_above)])
    assert (merged.min, merged.max) == (to_bound(dtype, 1), None)
    lost = merge(dtype, [(2, known), (2, None)])
    assert (lost.min, lost.max, lost.null_count, lost.sum) == (None, None, None, None)
    assert merge(dtype, [(2, known), (3, all_null(3)), (0, None)]).sum == "6"


def _segment(**changes: object) -> Segment:
    stats = ColumnStats(min=Bound(int64=1), max=Bound(int64=5), null_count=0)
    block = Block(location="s3://b/x.parquet", row_count=3, file_size=10, col_stats={1: stats})
    given = {"format_version": FORMAT_VERSION, "segment_id": "s", "summary": Summary(), "blocks": (block,)}
    return Segment(**{**given, **changes})  # type: ignore[arg-type]  # built from a table of fields


def test_a_segment_comes_back_from_its_json() -> None:
    """What was encoded decodes to the same value, checked against its hash."""
    data = encode(_segment())
    assert decode_segment(data, sha256=content_hash(data)) == _segment()


def test_changed_bytes_are_refused() -> None:
    """One changed byte under a recorded hash is an error before anything is believed."""
    data = encode(_segment())
    with pytest.raises(HashMismatch):
        decode_segment(data.replace(b'"row_count":3', b'"row_count":4'), sha256=content_hash(data))


def test_a_newer_format_is_refused_by_name() -> None:
    """A manifest of a later release is a clear error even when its fields would fit."""
    with pytest.raises(UnsupportedFormat):
        decode_segment(encode(_segment(format_version=FORMAT_VERSION + 1)))


@pytest.mark.parametrize("data", [b"", b"null", b"{}", b'{"format_version":1}', b'{"format_version":0}', b"\xff\xfe"])
def test_damaged_json_is_a_manifest_error(data: bytes) -> None:
    """Nothing but a typed error comes out of bytes that are no manifest."""
    with pytest.raises(ManifestError):
        decode_segment(data)


def test_members_of_a_newer_minor_release_are_passed_over() -> None:
    """An unknown member does not stop an older reader of the same version."""
    tree = json.loads(encode(_segment()))
    tree["a_later_member"] = 1
    tree["blocks"][0]["another"] = {"x": 1}
    assert decode_segment(json.dumps(tree).encode()) == _segment()
