"""Values in memory: how many there may be, which go first, and how threads share the work."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.cache import BoundedCache, CacheNamespace


@given(
    limit=st.integers(0, 100),
    steps=st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 120)), max_size=60),
)
def test_the_bound_holds_whatever_is_put(limit: int, steps: list[tuple[str, int]]) -> None:
    """After each step the sizes add up to at most the bound, and what fits was kept."""
    cache = BoundedCache(limit)
    sizes: dict[str, int] = {}
    for name, size in steps:
        cache.put(("kind", name), name + str(size), size)
        sizes[name] = size
        assert cache.size_bytes <= limit
        found = cache.get(("kind", name))
        assert found == (name + str(size) if size <= limit else None)
    present = [name for name in sizes if cache.get(("kind", name)) is not None]
    assert cache.size_bytes == sum(sizes[name] for name in present)
    assert len(cache) == len(present)


def test_what_was_not_used_for_longest_goes_first() -> None:
    """Reading counts as use."""
    cache = BoundedCache(30)
    namespace: CacheNamespace[str] = CacheNamespace(cache, "text")
    for name in "abc":
        namespace.put(name, name, 10)
    namespace.get("a")
    namespace.put("d", "d", 10)
    assert [namespace.get(name) for name in "abcd"] == ["a", None, "c", "d"]


def test_several_are_found_together_or_not_at_all() -> None:
    """In the order of the names, each of them used by that; None when one is not held."""
    cache = BoundedCache(30)
    namespace: CacheNamespace[str] = CacheNamespace(cache, "text")
    for name in "abc":
        namespace.put(name, name, 10)
    assert namespace.get_all("ba") == ["b", "a"]
    assert namespace.get_all("axb") is None
    assert namespace.get_all("") == []
    namespace.put("d", "d", 10)
    assert [namespace.get(name) for name in "abcd"] == ["a", "b", None, "d"]


def test_kinds_share_the_bound_and_not_the_names() -> None:
    """One budget for all, and a name means something else on each shelf."""
    cache = BoundedCache(10)
    numbers: CacheNamespace[int] = CacheNamespace(cache, "number")
    texts: CacheNamespace[str] = CacheNamespace(cache, "text")
    numbers.put("x", 1, 6)
    assert texts.get("x") is None
    texts.put("x", "one", 6)
    assert (numbers.get("x"), texts.get("x")) == (None, "one")


def test_a_value_is_loaded_once_by_threads_that_want_it_at_once() -> None:
    """The others wait for the one that loads, also when the value is too large to be kept."""
    for limit in (100, 0):
        namespace: CacheNamespace[list[int]] = CacheNamespace(BoundedCache(limit), "list")
        entered = threading.Event()
        calls: list[int] = []

        def make(entered: threading.Event = entered, calls: list[int] = calls) -> tuple[list[int], int]:
            calls.append(1)
            entered.wait(30)
            return [7], 10

        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(namespace.load, "x", make) for _ in range(4)]
            while not calls:
                threading.Event().wait(0.001)
            waiting = [future for future in futures if not future.done()]
            assert len(waiting) == 4
            entered.set()
            found = [future.result() for future in futures]
        assert all(value == [7] for value in found)
        if limit:
            assert len(calls) == 1


def test_a_load_that_fails_is_tried_again_by_the_next() -> None:
    """Nothing is remembered of a failure."""
    namespace: CacheNamespace[int] = CacheNamespace(BoundedCache(100), "number")

    def fail() -> tuple[int, int]:
        raise KeyError("x")

    for _ in range(2):
        with pytest.raises(KeyError):
            namespace.load("x", fail)
    assert namespace.load("x", lambda: (1, 1)) == 1
