"""Until when somebody waits for what is being done: known to all that is done for it, in whatever thread.

Work in a thread cannot be ended from outside. So it asks from time to time whether anybody still waits, and ends
itself.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import Final

from lamella.snapshot.errors import Unavailable

#: By the clock of :func:`time.monotonic`, in seconds.
_UNTIL: Final[ContextVar[float | None]] = ContextVar("lamella_waited_for_until", default=None)
#: What ``details.reason`` says of a request whose time is over.
_REASON: Final = "deadline"


def wait_until(until_s: float | None) -> None:
    """From now on, in this context, somebody waits until then (:func:`time.monotonic`; None: as long as it takes)."""
    _UNTIL.set(until_s)


def left_s() -> float | None:
    """How much longer somebody waits, in seconds, not below 0; None: as long as it takes."""
    until_s = _UNTIL.get()
    return None if until_s is None else max(0.0, until_s - time.monotonic())


def check_patience() -> None:
    """Raise Unavailable once nobody waits any more; to be called where work can end without harm."""
    until_s = _UNTIL.get()
    if until_s is not None and time.monotonic() >= until_s:
        raise too_late()


def too_late() -> Unavailable:
    """What is said of a request whose time is over."""
    return Unavailable("the request took longer than it may", retry_after_s=1, reason=_REASON)


def is_too_late(error: BaseException | None) -> bool:
    """Whether it says that nobody waited for the work any more: nothing was wrong with the work itself."""
    return isinstance(error, Unavailable) and error.details.get("reason") == _REASON
