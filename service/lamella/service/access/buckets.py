"""Token buckets by name: how often somebody may do something, and how much of it at once."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from lamella.snapshot.errors import RateLimited

#: Names that are remembered, those used last. Who is forgotten starts with a full bucket.
_MOST_NAMES: Final = 10_000
#: Nobody is told to come back later than that; a rate may be as good as none.
_LONGEST_S: Final = 86_400


class Buckets:
    """One bucket for each name, which holds what comes in ``burst_s`` seconds, and one token at least.

    Belongs to one event loop. ``clock`` gives seconds that only go up.
    """

    def __init__(self, burst_s: float, clock: Callable[[], float], most: int = _MOST_NAMES) -> None:
        self._burst_s = burst_s
        self._clock = clock
        self._most = most
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, rate_per_s: float) -> float | None:
        """Take a token; None when there was one, else the seconds until there is."""
        wait_s, level, now = self._look(name, rate_per_s)
        self._levels[name] = (level if wait_s is not None else level - 1, now)
        self._levels.move_to_end(name)
        if len(self._levels) > self._most:
            self._levels.popitem(last=False)
        return wait_s

    def give_back(self, name: str) -> None:
        """Put back the token that was taken last."""
        found = self._levels.get(name)
        if found is not None:
            self._levels[name] = (found[0] + 1, found[1])

    def wait_s(self, name: str, rate_per_s: float) -> float | None:
        """As :meth:`take`, and the token stays."""
        return self._look(name, rate_per_s)[0]

    def _look(self, name: str, rate_per_s: float) -> tuple[float | None, float, float]:
        now = self._clock()
        most = max(1.0, rate_per_s * self._burst_s)
        level, at = self._levels.get(name, (most, now))
        level = min(most, level + max(0.0, now - at) * rate_per_s)
        return (None if level >= 1 else (1 - level) / rate_per_s), level, now


def limited(what: str, wait_s: float) -> RateLimited:
    """The error that says when to come back."""
    return RateLimited(what, retry_after_s=max(1, math.ceil(min(wait_s, _LONGEST_S))), limit="rate")
