# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/runner.py: change that file.
"""The part of the client that its methods use."""

from __future__ import annotations

from typing import Protocol

from lamella.client.http.call import Answer, Call


class CallRunner(Protocol):
    """The members of :class:`lamella.client.Lamella` that its parts use."""

    @property
    def url(self) -> str:
        """The service's base URL."""
        ...

    def run(self, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        """Carry out a call."""
        ...
