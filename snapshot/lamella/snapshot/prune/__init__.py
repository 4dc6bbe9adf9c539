"""Deciding what need not be read: verdicts, range tests on zone maps, and the three-layer pipeline."""

from lamella.snapshot.prune.evaluate import evaluate
from lamella.snapshot.prune.outcome import ALL, NONE, SOME, UNKNOWN, VERDICT_NAMES, Outcome, verdicts

__all__ = ["ALL", "NONE", "SOME", "UNKNOWN", "VERDICT_NAMES", "Outcome", "evaluate", "verdicts"]
