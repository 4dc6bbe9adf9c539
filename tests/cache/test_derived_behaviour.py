"""What every cache of derived columns must do, run over both that ship."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamella.snapshot.cache import Buffer, DerivedCache
from lamella.snapshot.errors import StoreError
from support.cache_folder import plain

MakeCache = Callable[[int], DerivedCache]


def counted(buffers: Sequence[Buffer], calls: list[int]) -> Callable[[], Sequence[Buffer]]:
    """A maker of ``buffers`` that adds to ``calls``."""

    def make() -> Sequence[Buffer]:
        calls.append(1)
        return buffers

    return make


def never() -> Sequence[Buffer]:
    raise AssertionError("the cache has it")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(key=st.text(max_size=300), buffers=st.lists(st.binary(max_size=200), max_size=5))
def test_what_was_made_comes_back(cache: DerivedCache, key: str, buffers: list[bytes]) -> None:
    """Any key, any number of buffers, any lengths: the same bytes, made at most once."""
    key = f"{key} {buffers}"
    first = cache.derived(key, lambda: buffers)
    again = cache.derived(key, never)
    assert [bytes(view) for view in first] == [bytes(view) for view in again] == buffers
    assert cache.has_derived(key)
    assert not cache.has_derived(key + "?")


def test_keys_may_be_any_text(cache: DerivedCache) -> None:
    """Long ones, ones that differ little, and lone surrogates, as paths may hold them."""
    keys = ["", " ", "a", "a" * 100_000, "a" * 100_000 + "b", "\udc80", "../../x", "x/y", "\0"]
    for number, key in enumerate(keys):
        cache.derived(key, lambda number=number: [b"%d" % number])  # type: ignore[misc]  # bound by default
    assert [bytes(cache.derived(key, never)[0]) for key in keys] == [b"%d" % number for number in range(len(keys))]


def test_arrays_of_every_type_are_buffers(cache: DerivedCache) -> None:
    """Numbers come back bit by bit, NaN and signed zero too; masks and matrices are bytes like all others."""
    arrays = [
        np.array([-1, 2**62], dtype=np.int64),
        np.array([2**64 - 1], dtype=np.uint64),
        np.array([np.nan, -0.0, np.inf]),
        np.array([True, False, True]),
        np.arange(12, dtype=np.int32).reshape(3, 4),
        np.zeros(0),
        np.zeros((0, 3), dtype=np.uint8),
    ]
    for _ in range(2):
        views = cache.derived("arrays", lambda: arrays)
        for array, view in zip(arrays, views, strict=True):
            assert view.readonly
            assert view.format == "B"
            assert np.frombuffer(view, dtype=array.dtype).tobytes() == array.tobytes()


def test_a_buffer_with_holes_is_refused(cache: DerivedCache) -> None:
    """What has no bytes in a row is an error of the caller's, and nothing is kept of it."""
    with pytest.raises(TypeError):
        cache.derived("holes", lambda: [np.arange(10)[::2]])
    assert plain(cache.derived("holes", lambda: [b"whole"])) == (b"whole",)


def test_nobody_can_write_into_a_cached_buffer(cache: DerivedCache) -> None:
    """Neither in memory nor in a mapped file."""
    for _ in range(2):
        (view,) = cache.derived("x", lambda: [bytearray(b"abc")])
        with pytest.raises(TypeError):
            view[0] = 1


def test_a_maker_that_fails_leaves_nothing(cache: DerivedCache) -> None:
    """The error is the maker's own, and the next one to ask makes it."""

    def fail() -> Sequence[Buffer]:
        raise StoreError("no", location="x")

    with pytest.raises(StoreError, match="no"):
        cache.derived("x", fail)
    assert plain(cache.derived("x", lambda: [b"yes"])) == (b"yes",)


def test_threads_that_want_the_same_make_it_once(cache: DerivedCache) -> None:
    """One makes, the others wait and get the same."""
    threads = 8
    calls: list[int] = []
    ready = threading.Barrier(threads)

    def ask(_: int) -> bytes:
        ready.wait()
        return bytes(cache.derived("x", counted([b"x" * 100_000], calls))[0])

    with ThreadPoolExecutor(threads) as pool:
        assert set(pool.map(ask, range(threads))) == {b"x" * 100_000}
    assert len(calls) == 1


def test_threads_share_a_failure_each_with_an_error_of_its_own(cache: DerivedCache) -> None:
    """Whoever waits for a maker that fails gets its error, and may add to the details without the others seeing it."""
    entered = threading.Event()
    go_on = threading.Event()

    def fail() -> Sequence[Buffer]:
        entered.set()
        go_on.wait(30)
        raise StoreError("no", location="x")

    def ask(number: int) -> StoreError:
        with pytest.raises(StoreError) as caught:
            cache.derived("x", fail)
        caught.value.details["number"] = number
        return caught.value

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(ask, 0)]
        assert entered.wait(30)
        futures += [pool.submit(ask, number) for number in range(1, 4)]
        go_on.set()
        errors = [future.result() for future in futures]
    assert [error.details for error in errors] == [{"location": "x", "number": number} for number in range(4)]


def test_a_maker_may_ask_for_other_keys(cache: DerivedCache) -> None:
    """Columns are made of columns."""
    (view,) = cache.derived("sum", lambda: [bytes(cache.derived("part", lambda: [b"ab"])[0]) + b"c"])
    assert bytes(view) == b"abc"
    assert plain(cache.derived("part", never)) == (b"ab",)


def test_what_is_larger_than_the_cache_is_handed_out_all_the_same(make_cache: MakeCache) -> None:
    """It is made each time, and what the cache held stays."""
    cache = make_cache(50_000)
    cache.derived("small", lambda: [b"s"])
    calls: list[int] = []
    for _ in range(2):
        assert plain(cache.derived("large", counted([b"x" * 60_000], calls))) == (b"x" * 60_000,)
    assert len(calls) == 2
    assert plain(cache.derived("small", never)) == (b"s",)


def test_what_was_used_last_stays(make_cache: MakeCache) -> None:
    """Room is made by what was not used for longest, and what was handed out stays readable."""
    cache = make_cache(100_000)
    views = [cache.derived(f"x{number}", lambda number=number: [bytes([number]) * 20_000])[0] for number in range(50)]  # type: ignore[misc]  # bound by default
    assert [bytes(view) for view in views] == [bytes([number]) * 20_000 for number in range(50)]
    calls: list[int] = []
    cache.derived("x49", counted([bytes([49]) * 20_000], calls))
    assert not calls
    del views
    cache.derived("x0", counted([bytes([0]) * 20_000], calls))
    assert calls
