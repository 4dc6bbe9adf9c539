"""Vectors: one block, one filter, and what Spark 4.3 finds in it; each was once left out, or wrongly called ALL."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lamella.snapshot.columnar.zones import zones_of
from lamella.snapshot.expression import bind, read_sql
from lamella.snapshot.prune import ALL, NONE, evaluate, verdicts
from lamella.snapshot.schema import Column, Schema
from support.generate import exact_stats


def verdict(kind: str, cells: list[Any], text: str, time_zone: str = "UTC") -> int:
    """The verdict over one block whose only column ``a`` holds these values."""
    schema = Schema.assign([Column(name="a", type=kind)])
    leaf = schema.leaf("a")
    zones = zones_of(leaf.dtype, [(len(cells), exact_stats(leaf.dtype, cells))])
    outcome = evaluate(bind(read_sql(text, time_zone=time_zone), schema, time_zone=time_zone), lambda _: zones, 1)
    return int(verdicts(outcome, np.array([len(cells)]))[0])


@pytest.mark.parametrize(
    ("kind", "cells", "text"),
    [
        ("bigint", [None], "a > -9223372036854775809"),  # true for null too: Spark folds it to a constant
        ("int", [None], "NOT (a > 9223372036854775807.5)"),
        ("string", [b"b"], "a NOT LIKE 'x%'"),
        ("string", [b"b"], "a NOT LIKE 'x/%' ESCAPE '/'"),
        ("bigint", [-(2**31)], "a = -(-2147483648)"),  # without ANSI the sign wraps around
        ("int", [16_777_217], "a = 16777216F"),  # without ANSI in single precision
        ("int", [16_777_216], "a IN (16777217, 1.5F)"),
        ("tinyint", [5], "(a < '300') IS NOT TRUE"),  # without ANSI '300' is null as a tinyint
        ("double", [10.0], "(a = '1_0') IS NOT TRUE"),
        ("decimal(10,2)", [101], "a IN (1.00, 99999999999999999999999999999999999999)"),
        ("float", [1.0000001192092896], "a = 1.00000017881393432617187499F"),
        ("date", [18_262], "a NOT IN ('2020-1-01 ')"),  # without ANSI compared as text
        ("bigint", [1], "a = 1 -- c\\\n AND a = 2"),
        ("timestamp", [1_577_836_800_000_000], "(a = '2020-01-01 01:00 Europe/Berlin') IS NOT TRUE"),
        ("string", [b"??"], "a = '\\U00110000'"),
    ],
)
def test_a_block_with_a_match_is_kept(kind: str, cells: list[Any], text: str) -> None:
    """Every value here matches in Spark, at least under one of its settings."""
    assert verdict(kind, cells, text) != NONE


@pytest.mark.parametrize(
    ("kind", "cells", "text"),
    [
        ("string", [b"xy"], "a NOT LIKE 'x%'"),
        ("bigint", [5], "a < -(-9223372036854775808)"),
        ("tinyint", [5], "a < '300'"),
        ("int", [16_777_217], "a > 16777216F"),
        ("bigint", [1], "a = 5 -- c\\\n OR a = 1"),
    ],
)
def test_a_block_without_a_match_is_not_called_all(kind: str, cells: list[Any], text: str) -> None:
    """No value here matches in Spark, at least under one of its settings."""
    assert verdict(kind, cells, text) != ALL
