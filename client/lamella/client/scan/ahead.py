"""Work done ahead, in order and within bounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def ahead(pool: Executor, work: Callable[[Item], Made], items: Iterable[Item], depth: int) -> Iterator[Made]:
    """``map(work, items)``, with up to ``depth`` items under way; an error comes where its item would."""
    waiting: deque[Future[Made]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
