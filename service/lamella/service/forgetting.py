"""What is too old goes, some at a time, so that no transaction holds the database for long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_EVERY_MS: Final = 600_000
_AT_ONCE: Final = 1_000


class Forgetting:
    """Calls ``forget`` with a time and a number every ten minutes, and sooner while there was as much as that.

    ``clock`` gives Unix milliseconds; ``age_ms``: what is older may go.
    """

    def __init__(self, clock: Callable[[], int], age_ms: int, forget: Callable[[int, int], int]) -> None:
        self._clock = clock
        self._age_ms = age_ms
        self._forget = forget
        self._next_ms = 0

    @property
    def is_due(self) -> bool:
        """Whether it is time; for callers to whom a call in vain is dear."""
        return self._clock() >= self._next_ms

    def run(self) -> None:
        """Forget some, if it is time. Raises what ``forget`` raises, and the next call tries again."""
        now_ms = self._clock()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + _EVERY_MS  # first, so that those who come meanwhile do not forget the same
        forgotten = None
        try:
            forgotten = self._forget(now_ms - self._age_ms, _AT_ONCE)
        finally:
            if forgotten is None or forgotten >= _AT_ONCE:
                self._next_ms = 0
