"""Whoever listens to a store, and remembers what it was told."""

from __future__ import annotations

from lamella.snapshot.storage.observed import StoreOperation, StoreOutcome

#: Operation, outcome, bytes read, bytes written.
Call = tuple[StoreOperation, StoreOutcome, int, int]


class CallLog:
    """``calls`` in the order in which they ended, ``took_s`` how long each was said to have taken."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.took_s: list[float] = []

    def store_called(
        self,
        operation: StoreOperation,
        outcome: StoreOutcome,
        took_s: float,
        /,
        *,
        read_bytes: int = 0,
        written_bytes: int = 0,
    ) -> None:
        """Remember it."""
        self.calls.append((operation, outcome, read_bytes, written_bytes))
        self.took_s.append(took_s)
