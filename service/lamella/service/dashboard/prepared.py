"""Figures that take longer than a page may: made beside the requests, kept, and shown once they are there."""

from __future__ import annotations

import copy
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, Generic, TypeVar

from lamella.snapshot.errors import Overloaded

_T = TypeVar("_T")

#: Answers to what somebody typed that are kept, what a page waits for one that is not there yet, and how long one is
#: shown that does not rest on a snapshot alone.
MOST_READY: Final = 64
WAIT_S: Final = 0.15
FRESH_S: Final = 60.0
#: A failure may pass. Until then it is told again: a page that is loaded anew must not begin the same work at once.
_FAILURE_S: Final = 10.0


class _Kept(Generic[_T]):
    """A value or a failure, there or being made; ``made_s``: since when it is there."""

    def __init__(self, future: Future[_T], timer: Callable[[], float]) -> None:
        self.future = future
        self.made_s = math.inf
        future.add_done_callback(lambda _: setattr(self, "made_s", timer()))


class Prepared(Generic[_T]):
    """Keeps the last ``most`` values by key; one thread makes them, one after another, until the service ends.

    A key stands for all that a value rests on, so that a value never goes stale; else it is made anew when it is asked
    for and older than ``fresh_s``. ``when_closing`` is told what to call when the service ends.
    ``timer`` gives seconds.
    """

    def __init__(
        self,
        when_closing: Callable[[Callable[[], None]], object],
        most: int,
        *,
        name: str,
        fresh_s: float = math.inf,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._name = name
        self._fresh_s = fresh_s
        self._timer = timer
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, _Kept[_T]] = OrderedDict()
        self._pool: ThreadPoolExecutor | None = None
        when_closing(self.close)

    def peek(self, key: Hashable, make: Callable[[], _T], *, wait_s: float = 0.0) -> _T | None:
        """The value, or None while it is being made and ``wait_s`` are over.

        Raises what ``make`` raised, for some seconds; and Overloaded when too many are being made.
        """
        future = self._future(key, make)
        wait([future], wait_s)
        if not future.done():
            return None
        error = future.exception()
        if error is not None:
            raise copy.copy(error) from error.__cause__  # else it would gather the frames of all who ask
        return future.result()

    def close(self) -> None:
        """Begin nothing more; what is being made ends by itself, and nobody waits for it."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _future(self, key: Hashable, make: Callable[[], _T]) -> Future[_T]:
        with self._lock:
            found = self._values.get(key)
            if found is not None and not self._is_over(found):
                self._values.move_to_end(key)
                return found.future
            if found is None and len(self._values) >= self._most:
                self._drop_oldest()
            if self._pool is None:  # made when it is needed, so that a fork before that does no harm
                self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self._name)
            made = self._pool.submit(make)
            self._values[key] = _Kept(made, self._timer)
            return made

    def _is_over(self, kept: _Kept[_T]) -> bool:
        if not kept.future.done():
            return False
        if kept.future.cancelled():
            return True
        longest_s = self._fresh_s if kept.future.exception() is None else _FAILURE_S
        return self._timer() - kept.made_s > longest_s

    def _drop_oldest(self) -> None:
        """Forget the value that was asked for the longest ago, but none that is being made."""
        for key, value in self._values.items():
            if value.future.done():
                del self._values[key]
                return
        raise Overloaded("too much is being worked out already; load the page again in a while", retry_after_s=5)
