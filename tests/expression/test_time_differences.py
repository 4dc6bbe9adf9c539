"""Differences of timestamps are those of the clocks of the time zone, as Spark computes them."""

from __future__ import annotations

import datetime as dt

import pytest

from lamella.snapshot.columnar import Sidecar, build_blocks
from lamella.snapshot.expression import bind, read_sql
from lamella.snapshot.manifest import Block
from lamella.snapshot.prune import ALL, NONE, evaluate, verdicts
from lamella.snapshot.schema import Column, Schema
from support import generate

ZONE = "Europe/Berlin"


@pytest.mark.parametrize(
    ("hour", "minute", "difference"),
    [(0, 30, 30), (1, 0, 0), (1, 30, 30), (2, 0, 60)],  # clocks go back from 3:00 to 2:00 at 1:00 UTC
)
def test_an_hour_that_clocks_repeat_is_no_difference(hour: int, minute: int, difference: int) -> None:
    """Minutes from 0:00 UTC on 27 October 2024, when clocks in Berlin show 2:00."""
    schema = Schema.assign([Column(name="t", type="timestamp(us)")])
    (leaf,) = schema.leaves()
    at = int(dt.datetime(2024, 10, 27, hour, minute, tzinfo=dt.UTC).timestamp() * 1_000_000)
    stats = {leaf.id: generate.exact_stats(leaf.dtype, [at])}
    sidecar = Sidecar(build_blocks(schema, [Block(location="memory://b", row_count=1, file_size=1, col_stats=stats)]))
    for minutes in (0, 30, 60, 90, 120):
        text = f"timestampdiff(MINUTE, TIMESTAMP '2024-10-27 00:00:00Z', t) = {minutes}"
        bound = bind(read_sql(text, time_zone=ZONE), schema, time_zone=ZONE)
        outcome = evaluate(bound, lambda each: sidecar.zones(each.id, each.dtype), len(sidecar))
        (code,) = verdicts(outcome, sidecar.numbers("row_count"))
        assert code == (ALL if minutes == difference else NONE), text
