"""The part of the client that its methods use."""

from __future__ import annotations

from typing import Protocol

from lamella.client.http.call import Answer, Call


class AsyncCallRunner(Protocol):
    """The members of :class:`lamella.client.AsyncLamella` that its parts use."""

    @property
    def url(self) -> str:
        """The service's base URL."""
        ...

    async def run(self, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        """Carry out a call."""
        ...
