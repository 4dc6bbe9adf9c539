"""What the methods of the client need of it."""

from __future__ import annotations

from typing import Protocol

from lamella.client.http.call import Answer, Call


class AsyncCallRunner(Protocol):
    """:class:`lamella.client.AsyncLamella`, as far as its parts need it."""

    @property
    def url(self) -> str:
        """The service's base URL."""
        ...

    async def run(self, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        """Carry out a call."""
        ...
