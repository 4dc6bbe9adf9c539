"""Filters that are kept read and bound."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fuzz.sql_grammar import CORPUS
from fuzz.tables import schema
from fuzz.test_json_filters import CORPUS as TREES
from lamella.snapshot.errors import InvalidFilter, InvalidRequest, UnknownColumn
from lamella.snapshot.expression import Filters, bind, read_filter
from lamella.snapshot.schema import Column, Schema


def one(kind: str) -> Schema:
    return Schema.assign([Column(name="a", type=kind)])


@pytest.mark.parametrize("given", [None, *CORPUS, *TREES], ids=str)
def test_a_cached_filter_is_the_filter(given: Any) -> None:
    """What was read or bound before equals what is read and bound now."""
    filters = Filters()
    fresh = read_filter(given)
    for _ in range(2):
        predicate = filters.read(given)
        assert repr(predicate) == repr(fresh)  # NaN is not equal to itself
        assert repr(filters.bound(predicate, schema())) == repr(bind(fresh, schema()))


def test_the_same_question_is_read_and_bound_once() -> None:
    """Equal texts and equal trees give one predicate, and that one bound filter for each schema."""
    filters = Filters()
    first = filters.read("a > 5 AND f(a) = 1")
    assert filters.read("a > 5 AND " + "f(a) = 1") is first
    assert filters.bound(first, one("int")) is filters.bound(first, one("int"))
    tree = {"type": "eq", "term": "a", "value": 1}
    assert filters.read(dict(tree)) is filters.read(dict(tree))
    assert len(filters) == 2


def test_what_decides_the_meaning_tells_filters_apart() -> None:
    """The schema, the time zone, the rule for cases, and values that JSON writes alike."""
    filters = Filters()
    text = "a > TIMESTAMP '2020-01-01 00:00:00'"
    for zone in ("UTC", "Europe/Berlin"):
        predicate = filters.read(text, time_zone=zone)
        assert predicate == read_filter(text, time_zone=zone)
        for kind in ("timestamp", "timestamp_ntz", "date", "timestamp(ms)", "string", "timestamp"):
            found = filters.bound(predicate, one(kind), time_zone=zone)
            assert found == bind(predicate, one(kind), time_zone=zone)
    predicate = filters.read("A = 1")
    assert filters.bound(predicate, one("int")) == bind(predicate, one("int"))
    with pytest.raises(UnknownColumn):
        filters.bound(predicate, one("int"), case_sensitive=True)
    for value in (1, 1.0, True, None, math.nan, "1", 0.0, -0.0):
        tree = {"type": "eq", "term": "a", "value": value}
        assert repr(filters.read(tree)) == repr(read_filter(tree))


def test_errors_are_raised_each_time() -> None:
    """A filter that cannot be read or bound is an error whenever it is asked."""
    filters = Filters()
    for _ in range(2):
        with pytest.raises(InvalidFilter):
            filters.read("a >")
        with pytest.raises(InvalidFilter):
            filters.read(b"a > 1")
        with pytest.raises(UnknownColumn):
            filters.bound(filters.read("b = 1"), one("int"))
        with pytest.raises(InvalidRequest):
            filters.bound(filters.read("a = 1"), one("int"), time_zone="nowhere")


@pytest.mark.parametrize(
    "given",
    [
        {"type": "eq", "term": "a", "value": 10**30},
        {"type": "in", "term": "a", "values": list(range(10_000))},
        "a IN (" + ", ".join(["12345"] * 1_000) + ")",
    ],
    ids=["beyond 64 bits", "long JSON", "long SQL"],
)
def test_what_is_not_cached_is_read_all_the_same(given: Any) -> None:
    """Long filters, and numbers that MessagePack cannot write, are read and bound each time."""
    filters = Filters()
    predicate = filters.read(given)
    assert predicate == read_filter(given)
    assert filters.bound(predicate, one("bigint")) == bind(predicate, one("bigint"))
    assert len(filters) == 0


def test_the_oldest_are_evicted() -> None:
    """However many are asked, the kept ones stay within their bound, and the latest of them stay."""
    filters = Filters(characters=10_000)
    cached = filters.read("a = -1")
    for value in range(1_000):
        filters.read(f"a = {value}")
        assert filters.read("a = -1") is cached
    assert 10 < len(filters) < 40
    assert filters.read("a = 999") is filters.read("a = 999")


def test_threads_share_them() -> None:
    """Many threads that ask few filters, with room for fewer, all get the right ones."""
    filters = Filters(characters=3_000)
    columns = one("bigint")
    expected = [bind(read_filter(f"a = {value}"), columns) for value in range(30)]

    def ask(start: int) -> bool:
        return all(
            filters.bound(filters.read(f"a = {value}"), columns) == expected[value]
            for step in range(300)
            for value in [(start * 7 + step) % 30]
        )

    with ThreadPoolExecutor(max_workers=8) as pool:
        assert all(pool.map(ask, range(8)))
    assert len(filters) < 30
