"""Deciding what need not be read: verdicts, range tests on zone maps, and the three-layer pipeline."""

from lamella.snapshot.prune.evaluate import Outcome, evaluate
from lamella.snapshot.prune.verdict import ALL, NONE, SOME, UNKNOWN, VERDICT_NAMES, verdicts

__all__ = ["ALL", "NONE", "SOME", "UNKNOWN", "VERDICT_NAMES", "Outcome", "evaluate", "verdicts"]
