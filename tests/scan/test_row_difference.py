"""The rows that only one of two sets has: exact for every type, in memory and in temporary files."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections import Counter
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lamella.client.scan.row_difference import RowDifference, row_codes, row_hashes

_INNER = pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.list_(pa.string()))])
SCHEMA = pa.schema(
    [
        pa.field("i", pa.int64()),
        pa.field("f", pa.float64()),
        pa.field("g", pa.float32()),
        pa.field("b", pa.bool_()),
        pa.field("s", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("fixed", pa.binary(2)),
        pa.field("d", pa.decimal128(38, 10)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("t", _INNER),
        pa.field("l", pa.list_(_INNER)),
        pa.field("m", pa.map_(pa.string(), pa.int32())),
        pa.field("n", pa.null()),
    ]
)


def _inner(random: Random) -> dict[str, Any] | None:
    if random.random() < 0.2:
        return None
    texts = random.choice([None, [], ["a"], ["a", None], [None, "a"], ["", "a"]])
    return {"x": random.choice([None, 0.0, -0.0, math.nan, 1.5]), "y": texts}


def _row(random: Random) -> dict[str, Any]:
    return {
        "i": random.choice([None, 0, -1, 2**62]),
        "f": random.choice([None, 0.0, -0.0, math.nan, math.inf]),
        "g": random.choice([None, 0.5]),
        "b": random.choice([None, True, False]),
        "s": random.choice([None, "", "a", "é"]),
        "raw": random.choice([None, b"", b"\0"]),
        "fixed": random.choice([None, b"ab"]),
        "d": random.choice([None, Decimal("1.5"), Decimal("-1.5")]),
        "day": random.choice([None, dt.date(2026, 1, 1)]),
        "at": random.choice([None, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]),
        "t": _inner(random),
        "l": random.choice([None, [], [_inner(random)], [_inner(random), _inner(random)]]),
        "m": random.choice([None, [], [("k", 1)], [("k", None)]]),
        "n": None,
    }


def _key(value: Any) -> Any:
    """A value as it can be compared by its bits."""
    if isinstance(value, float):
        return struct.pack("d", value)
    if isinstance(value, dict):
        return tuple((name, _key(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return ("list", *map(_key, value))
    return value


def _counted(rows: pa.Table) -> Counter[Any]:
    return Counter(_key(row) for row in rows.to_pylist())


def _tables(random: Random, rows: list[dict[str, Any]]) -> list[pa.Table]:
    """The rows as tables of several sizes, some of them slices of larger ones."""
    found = []
    while rows:
        size = random.randint(1, 7)
        some, rows = rows[:size], rows[size:]
        table = pa.Table.from_pylist([_row(random), *some, _row(random)], SCHEMA)
        found.append(table.slice(1, len(some)))
    return found


@pytest.mark.parametrize("memory_bytes", [1 << 30, 1])
@pytest.mark.parametrize("seed", range(25))
def test_the_difference_is_that_of_multisets(seed: int, memory_bytes: int) -> None:
    """Whatever types the columns have, however often a row occurs, and wherever it is kept meanwhile."""
    random = Random(seed)
    base = [_row(random) for _ in range(random.randint(0, 25))]
    before = [row for row in base for _ in range(random.randint(0, 2))]
    after = [row for row in base for _ in range(random.randint(0, 2))] + [_row(random) for _ in range(3)]
    random.shuffle(before)
    random.shuffle(after)
    with RowDifference(SCHEMA, range(len(SCHEMA)), memory_bytes) as difference:
        for table in _tables(random, before):
            difference.add("before", table)
        for table in _tables(random, after):
            difference.add("after", table)
        parts = list(difference.result())
    old, new = (pa.concat_tables([part[at] for part in parts]) for at in (0, 1))
    wanted_old, wanted_new = (_counted(pa.Table.from_pylist(rows, SCHEMA)) for rows in (before, after))
    assert _counted(old) == wanted_old - wanted_new
    assert _counted(new) == wanted_new - wanted_old


def test_only_the_compared_columns_make_rows_equal() -> None:
    """The others come along."""
    schema = pa.schema([pa.field("shown", pa.string()), pa.field("key", pa.int64())])
    with RowDifference(schema, [1], 1 << 20) as difference:
        difference.add("before", pa.table({"shown": ["x", "y"], "key": [1, 2]}, schema=schema))
        difference.add("after", pa.table({"shown": ["other", "z"], "key": [1, 3]}, schema=schema))
        ((old, new),) = difference.result()
    assert (old.to_pylist(), new.to_pylist()) == ([{"shown": "y", "key": 2}], [{"shown": "z", "key": 3}])


def test_equal_rows_have_equal_hashes_in_every_table() -> None:
    """Or they would not meet in one file."""
    random = Random(1)
    rows = [_row(random) for _ in range(60)]
    one = pa.Table.from_pylist(rows, SCHEMA)
    other = pa.Table.from_pylist([_row(random), *rows], SCHEMA).slice(1)
    assert (row_hashes(one) == row_hashes(other)).all()
    both = row_codes(pa.concat_tables([one, other]))
    assert (both[:60] == both[60:]).all()
    distinct = len({_key(row) for row in rows})
    assert len(np.unique(both)) == distinct
    assert row_codes(pa.table({})).tolist() == []
