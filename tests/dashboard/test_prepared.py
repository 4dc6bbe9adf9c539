"""Figures that are made beside the requests."""

from __future__ import annotations

import threading

import pytest

from lamella.service.dashboard.prepared import Prepared
from lamella.snapshot.errors import InvalidRequest, Overloaded


def test_a_value_is_made_once_and_kept() -> None:
    """However often it is asked for, and by whom, the work is done once."""
    made: list[int] = []
    kept: Prepared[int] = Prepared(4, name="test")

    def make() -> int:
        made.append(1)
        return 7

    assert [kept.peek("key", make, wait_s=60) for _ in range(3)] == [7, 7, 7]
    assert made == [1]


def test_nobody_waits_longer_than_told() -> None:
    """While it is being made there is None; afterwards there is the value."""
    go = threading.Event()
    kept: Prepared[bool] = Prepared(4, name="test")
    assert kept.peek("key", lambda: go.wait(60)) is None
    assert kept.peek("key", lambda: go.wait(60), wait_s=0.01) is None
    go.set()
    assert kept.peek("key", lambda: go.wait(60), wait_s=60) is True


def test_an_error_is_told_each_time() -> None:
    """Work that fails is not done again for the same key, and does not pass as work that goes on."""
    kept: Prepared[int] = Prepared(4, name="test")

    def fail() -> int:
        raise InvalidRequest("no")

    for _ in range(2):
        with pytest.raises(InvalidRequest, match="no"):
            kept.peek("key", fail, wait_s=60)


def test_only_so_many_are_kept_and_the_latest_stay() -> None:
    """Of more keys than there is room for, those that were asked for the longest ago are forgotten."""
    made: list[str] = []
    kept: Prepared[str] = Prepared(2, name="test")

    def ask(key: str) -> None:
        def make() -> str:
            made.append(key)
            return key

        kept.peek(key, make, wait_s=60)

    for key in ("a", "b", "a", "c", "a", "b"):
        ask(key)
    assert made == ["a", "b", "c", "b"]


def test_too_many_at_once_are_refused() -> None:
    """When every place is taken by work that goes on, one more is told to come back."""
    go = threading.Event()
    kept: Prepared[bool] = Prepared(2, name="test")
    for key in ("a", "b"):
        kept.peek(key, lambda: go.wait(60))
    with pytest.raises(Overloaded):
        kept.peek("c", lambda: go.wait(60))
    go.set()
