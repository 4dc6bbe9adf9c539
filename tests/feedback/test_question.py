"""What two filters must share to have the same answer, and what keeps them apart."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest

from lamella.snapshot.expression import read_filter
from lamella.snapshot.reader_feedback import digest_of
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    WidenColumn,
    evolve,
)

SCHEMA = Schema.assign(
    [
        Column(name="a", type="int32"),
        Column(name="s", type="string"),
        Column(name="t", type="timestamp(us)"),
        Column(name="x", type="float64"),
        Column(name="st", type="struct", fields=(Column(name="y", type="int64"),)),
    ]
)


def digest(filter: Any, schema: Schema = SCHEMA, zone: str = "UTC", *, case: bool = False) -> bytes | None:
    """The digest of a filter as a whole."""
    return digest_of(read_filter(filter, time_zone=zone), schema, time_zone=zone, case_sensitive=case)


@pytest.mark.parametrize(
    "same",
    [
        ("a = 1", "A=1", "(a) = 1", "1 = a", "a = 1 AND a = 1"),
        ("a = 1 AND s = 'x'", "s = 'x' AND a = 1", "(S = 'x') and ((A = 1) and s='x')"),
        ("a = 1 OR (s = 'x' OR x > 1.5D)", "x > 1.5D OR a = 1 OR s = 'x'"),
        ("st.y IS NULL", "ST.Y is null"),
    ],
)
def test_spelling_does_not_matter(same: tuple[str, ...]) -> None:
    """Case, blanks, brackets, order and repetition of what is joined by AND or OR."""
    assert len({digest(text) for text in same}) == 1
    assert digest(same[0]) is not None


def test_meaning_does() -> None:
    """No two of these are the same question."""
    texts = [
        "a = 1",
        "a = 2",
        "a <=> 1",
        "a > 1",
        "a >= 1",
        "NOT a = 1",
        "(a = 1) IS TRUE",
        "a = 1.0",
        "a = '1'",
        "a IN (1)",
        "a IN (1, 2)",
        "a IN (1, NULL)",
        "x = 1",
        "x = 1.0D",
        "x = CAST('NaN' AS DOUBLE)",
        "s = '1'",
        "s LIKE '1%'",
        "s LIKE '1_'",
        "s LIKE '1%x'",
        "s LIKE '1\\\\%'",
        "startswith(s, '1')",
        "lower(s) = '1'",
        "upper(s) = '1'",
        "s IS NULL",
        "a IS NULL",
        "a + 1 = 1",
        "a = 1 AND s = '1'",
        "a = 1 OR s = '1'",
        "year(t) = 1",
        "month(t) = 1",
        "substring(s, 1, 1) = '1'",
        "substring(s, 1, 2) = '1'",
        "CAST(a AS BIGINT) = 1",
    ]
    found = {text: digest(text) for text in texts}
    assert None not in found.values()
    assert len(set(found.values())) == len(texts)


def test_time_zone_case_rule_and_columns_are_part_of_the_question() -> None:
    """Whatever a reader's answer depends on beside the filter's own form."""
    text = "t > '2024-01-31 12:00:00'"
    zones = {digest(text, zone=zone) for zone in ("UTC", "Europe/Berlin", "Asia/Tokyo")}
    assert len(zones) == 3
    assert digest("a = 1") != digest("a = 1", case=True)
    widened = evolve(SCHEMA, [WidenColumn(column="a", type="int64")])
    assert digest("a = 1", widened) != digest("a = 1")
    dropped = evolve(SCHEMA, [DropColumn(column="a")])
    again = evolve(dropped, [AddColumn(name="a", type="int32")], history=[SCHEMA])
    assert digest("a = 1", again) != digest("a = 1")
    default = evolve(dropped, [AddColumn(name="a", type="int32", default="7")], history=[SCHEMA])
    assert digest("a = 1", default) not in (digest("a = 1"), digest("a = 1", again))


def test_names_and_positions_are_not() -> None:
    """A column that is called otherwise, or stands elsewhere, is the same column."""
    other = evolve(SCHEMA, [RenameColumn(column="a", name="b"), MoveColumn(column="b", after="x")])
    assert digest("b = 1", other) == digest("a = 1")
    swapped = evolve(
        SCHEMA,
        [
            RenameColumn(column="a", name="z"),
            RenameColumn(column="x", name="a"),
            RenameColumn(column="z", name="x"),
        ],
    )
    assert digest("a = 1", swapped) == digest("x = 1")
    assert digest("x = 1", swapped) == digest("a = 1")


@pytest.mark.parametrize("filter", [None, "true", "a RLIKE '1.'", "rand() < 0.5", "a = 1 AND rand() < 0.5", "nope = 1"])
def test_what_no_reader_decides_has_no_digest(filter: str | None) -> None:
    """Constants, parts that are not known, and columns that are not there."""
    assert digest(filter) is None


def test_random_conjunctions_are_named_by_their_sets() -> None:
    """Over all orders and nestings: the same parts give the same digest, other parts another."""
    random = Random(5)
    parts = [f"a = {i}" for i in range(4)] + ["s IS NULL", "x > 0"]
    known: dict[frozenset[str], bytes | None] = {}
    for count in range(1, 5):
        for chosen in itertools.combinations(parts, count):
            for _ in range(3):
                order = random.sample(chosen, count)
                cut = random.randint(0, count - 1)
                text = " AND ".join([*order[:cut], "(" + " AND ".join(order[cut:]) + ")"])
                assert known.setdefault(frozenset(chosen), digest(text)) == digest(text)
    assert len(set(known.values())) == len(known)
