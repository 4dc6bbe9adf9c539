"""Join keys from Python values: each form leaves every block that holds one of the keys."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from random import Random
from typing import Any

import pandas as pd
import pytest

from lamella.client.join import join_keys
from lamella.snapshot.errors import InvalidRequest, UnknownColumn
from lamella.snapshot.prune.join import read_join
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.wire import JoinKeys, PruneRequest
from support import stages

NOON = dt.datetime(2024, 3, 1, 12, tzinfo=dt.UTC)
KEYS: list[tuple[str, list[Any]]] = [
    ("boolean", [True, False]),
    ("int32", [-1, 0, 7]),
    ("uint64", [0, 2**64 - 1]),
    ("float64", [0.5, float("nan"), float("inf")]),
    ("decimal(20,2)", [Decimal("-1.25"), Decimal(3), 4]),
    ("date", [dt.date(1960, 1, 1), dt.date(2024, 2, 29)]),
    ("timestamp(us)", [NOON, NOON + dt.timedelta(days=1)]),
    ("timestamp(ns)", [NOON, NOON + dt.timedelta(days=1)]),
    ("timestamp_ntz(ms)", [NOON.replace(tzinfo=None)]),
    ("string", ["käse", "", "z"]),
    ("binary", [b"\0", b"\xff"]),
    ("uuid", [uuid.UUID(int=5)]),
]


@pytest.mark.parametrize(("kind", "keys"), KEYS, ids=[kind for kind, _ in KEYS])
@pytest.mark.parametrize("max_values", [100, 0])
def test_keys_of_every_type_are_understood(kind: str, keys: list[Any], max_values: int) -> None:
    """Whatever the type and the form, the service can use it."""
    schema = Schema.assign([Column(name="k", type=kind)])
    made = join_keys(schema, "k", [*keys, None], max_values=max_values)
    assert (made.values is None) == (max_values == 0)
    read = read_join(made, schema, time_zone="UTC", case_sensitive=False)
    assert read.not_used == ()


def selected_blocks(lake: stages.Lake, keys: JoinKeys) -> list[int]:
    """The blocks that keys leave."""
    answer = lake.warehouse.prune(lake.pointer, PruneRequest(join=(keys,)))
    return [stages.number_of(block.location) for block in answer.blocks or ()]


@pytest.mark.parametrize("column", ["a", "s", "x"])
@pytest.mark.parametrize(("max_values", "max_ranges"), [(1000, 10), (0, 10), (0, 3), (0, 1)])
def test_no_block_with_a_key_is_lost_and_gaps_are_not_read(column: str, max_values: int, max_ranges: int) -> None:
    """As values exactly their blocks; as ranges never fewer, and with enough ranges no others."""
    lake = stages.counting(blocks=20, rows=10, segment_blocks=5)
    rng = Random(3)
    rows = [row for index in (2, 3, 11, 17) for row in lake.rows[f"memory://blocks/{index}.parquet"]]
    chosen = [row[column] for row in rows if rng.random() < 0.8]
    keys = [key.decode() if isinstance(key, bytes) else key for key in chosen]
    made = join_keys(lake.schema, column, keys, max_values=max_values, max_ranges=max_ranges)
    found = selected_blocks(lake, made)
    assert set(found) >= {2, 3, 11, 17}
    if max_values or max_ranges == 10 or column == "a":  # a bloom filter rules out blocks of few whole numbers
        assert set(found) <= {2, 3, 11, 17}


def test_many_keys_become_few_ranges() -> None:
    """No more ranges than asked for, whatever the number of keys; the filter stays small."""
    schema = Schema.assign([Column(name="k", type="int64")])
    made = join_keys(schema, "k", range(0, 300_000, 3))
    assert made.values is None
    assert len(made.ranges or ()) <= 1000
    assert made.bloom is not None
    assert len(made.bloom) < 400_000


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("int32", "1"),
        ("int32", True),
        ("boolean", 1),
        ("date", NOON),
        ("timestamp(us)", NOON.replace(tzinfo=None)),
        ("timestamp_ntz(us)", NOON),
        ("string", b"x"),
        ("binary", "x"),
        ("decimal(5,2)", 0.1),
        ("decimal(5,2)", Decimal("NaN")),
    ],
)
def test_a_key_of_another_type_is_refused(kind: str, key: Any) -> None:
    """Guessing would lose rows."""
    schema = Schema.assign([Column(name="k", type=kind)])
    with pytest.raises(InvalidRequest, match="is not a value of type"):
        join_keys(schema, "k", [key])
    with pytest.raises(UnknownColumn):
        join_keys(schema, "nowhere", [])


@pytest.mark.parametrize("kind", ["timestamp(ns)", "timestamp(us)"])
def test_a_key_with_nanoseconds_is_refused(kind: str) -> None:
    """Keys have microseconds: the nearest one is another key, and its blocks are others."""
    schema = Schema.assign([Column(name="k", type=kind)])
    instant = pd.Timestamp(1_700_000_000_123_456_000, tz="UTC")
    assert join_keys(schema, "k", [instant]) == join_keys(schema, "k", [instant.to_pydatetime()])
    with pytest.raises(InvalidRequest, match="has nanoseconds"):
        join_keys(schema, "k", [instant + pd.Timedelta(1, "ns")])
