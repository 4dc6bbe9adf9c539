# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/runner.py: change that file.
"""What the methods of the client need of it."""

from __future__ import annotations

from typing import Protocol

from lamella.client.http.call import Answer, Call


class CallRunner(Protocol):
    """:class:`lamella.client.Lamella`, as far as its parts need it."""

    @property
    def url(self) -> str:
        """The service's base URL."""
        ...

    def run(self, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        """Carry out a call."""
        ...
