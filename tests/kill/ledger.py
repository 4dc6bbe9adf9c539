"""What clients asked for and what they were told: the record that a table's state is held against."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from lamella.snapshot.wire import VacuumAnswer

Kind = Literal["append", "delete", "compact"]


@dataclass(frozen=True)
class Intent:
    """One mutation of a table, by its idempotency key. ``path`` and ``body`` are the request."""

    key: str
    table: str
    kind: Kind
    path: str
    body: dict[str, Any]
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Resolved:
    """An intent with its final answer. ``snapshot_id`` is None when it was refused."""

    intent: Intent
    snapshot_id: str | None
    code: str = ""


@dataclass
class Ledger:
    """Thread-safe. ``believed``: blocks that some client thinks are in a table; ``newest``: a snapshot of each."""

    resolved: list[Resolved] = field(default_factory=list)
    open: dict[str, Intent] = field(default_factory=dict)
    believed: dict[str, set[str]] = field(default_factory=dict)
    newest: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, intent: Intent) -> None:
        """The intent will be sent."""
        with self.lock:
            self.open[intent.key] = intent

    def unknown(self, intent: Intent) -> None:
        """No answer, or one that does not say whether it happened."""
        with self.lock:
            self.counts["unknown"] += 1
            self.counts[f"unknown {intent.key}"] += 1

    def acknowledge(self, intent: Intent, snapshot_id: str, *, replayed: bool) -> None:
        """It happened."""
        with self.lock:
            del self.open[intent.key]
            self.resolved.append(Resolved(intent, snapshot_id))
            self.believed[intent.table].update(intent.added)
            self.believed[intent.table].difference_update(intent.removed)
            self.newest[intent.table] = snapshot_id
            self.counts["acknowledged"] += 1
            self.counts[f"acknowledged {intent.kind}"] += 1
            self.counts["resolved: had happened"] += replayed
            self.counts["resolved: had not"] += not replayed and self.counts[f"unknown {intent.key}"] > 0

    def refuse(self, intent: Intent, code: str) -> None:
        """It did not happen and never will."""
        with self.lock:
            del self.open[intent.key]
            self.resolved.append(Resolved(intent, None, code))
            self.believed[intent.table].difference_update(intent.removed)
            self.counts[f"refused {code}"] += 1

    def violation(self, text: str) -> None:
        """Something that must never be was seen."""
        with self.lock:
            self.wrong.append(text)

    def count(self, what: str, number: int = 1) -> None:
        """Something worth a figure."""
        with self.lock:
            self.counts[what] += number

    def cleaned(self, part: VacuumAnswer) -> None:
        """A clean-up, or a part of one, was answered."""
        self.count("clean-up parts")
        if part.unknowns:
            self.violation(f"a clean-up did not understand {part.unknowns}")
        if not part.executed:
            return
        self.count("snapshots expired", sum(disposition.expires for disposition in part.snapshots))
        self.count("objects deleted", part.deleted.objects)
        for kind, of_kind in part.garbage.items():
            self.count(f"objects deleted, {kind}", of_kind.objects)
        self.count("snapshots without a manifest before their external files were known", len(part.left))

    def figures(self) -> dict[str, int]:
        """The counts, without those of single keys."""
        with self.lock:
            return {name: count for name, count in sorted(self.counts.items()) if "k-" not in name}
