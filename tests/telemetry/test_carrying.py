"""Threads that take the caller's context along."""

from __future__ import annotations

from contextvars import ContextVar, copy_context

from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.concurrency import ContextThreadPool

_WHO: ContextVar[int] = ContextVar("who", default=-1)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20), st.integers(1, 4))
def test_work_sees_the_context_of_its_request(requests: list[tuple[int, int]], threads: int) -> None:
    """As it was when the work was asked for, whichever thread does it; what work changes nobody else sees."""

    def work(own: int) -> int:
        found = _WHO.get()
        _WHO.set(own)
        return found

    def ask(who: int, own: int) -> list[int]:
        _WHO.set(who)
        submitted = pool.submit(work, own)
        mapped = list(pool.map(work, [own, own]))
        assert _WHO.get() == who
        return [submitted.result(), *mapped]

    with ContextThreadPool(threads) as pool:
        found = [copy_context().run(ask, who, own) for who, own in requests]
        assert pool.submit(work, 5).result() == -1
    assert found == [[who] * 3 for who, _ in requests]
