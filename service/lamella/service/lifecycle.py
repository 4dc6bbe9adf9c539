"""Where a service process stands: not started yet, serving, or being stopped."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import Unavailable

#: What answers carry while the process is being stopped, so that clients ask elsewhere on a new connection.
_LAST_ANSWER: Final = ((b"connection", b"close"),)


class Lifecycle:
    """Read by the probes and by every answer. Changed from a signal handler, so it takes no lock."""

    def __init__(self) -> None:
        self.is_started = False
        self.is_draining = False
        #: Headers that every answer gets.
        self.headers: tuple[tuple[bytes, bytes], ...] = ()

    def drain(self) -> None:
        """From now on the process is not ready, whatever else it still does."""
        self.is_draining = True
        self.headers = _LAST_ANSWER

    def require_serving(self) -> None:
        """Raises Unavailable once the process is being stopped."""
        if self.is_draining:
            raise Unavailable("the service is being stopped; ask another replica", retry_after_s=1, reason="draining")
