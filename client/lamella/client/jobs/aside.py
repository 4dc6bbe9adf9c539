"""Work in a thread beside the one that must not wait for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Aside(Generic[T]):
    """Does one thing at a time in a thread of its own, until the block ends; what is under way then is left to end."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1)
        self._under_way: Future[T] | None = None

    def begin(self, work: Callable[[], T]) -> bool:
        """Begin, unless something is under way."""
        if self._under_way is not None:
            return False
        self._under_way = self._threads.submit(work)
        return True

    def result(self) -> T | None:
        """What came of it, once; None: nothing yet."""
        if self._under_way is None or not self._under_way.done():
            return None
        done, self._under_way = self._under_way, None
        return done.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False)
