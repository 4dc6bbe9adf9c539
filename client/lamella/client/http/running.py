"""What carries out calls: a client, or its async twin. The parts of both are written against these."""

from __future__ import annotations

from typing import Protocol, TypeVar

from lamella.client.http.call import Call

Answer = TypeVar("Answer")


class Runs(Protocol):
    """:class:`lamella.client.Lamella`, as far as its parts need it."""

    @property
    def url(self) -> str:
        """The service's base URL."""
        ...

    def run(self, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        """Carry out a call."""
        ...


class RunsAsync(Protocol):
    """The asyncio twin of :class:`Runs`."""

    async def run(self, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        """Carry out a call."""
        ...
