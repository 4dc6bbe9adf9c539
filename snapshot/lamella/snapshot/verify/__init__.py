"""Verification of a table: every claim of its manifests held against what it is derived from, down to the values."""

from lamella.snapshot.verify.checks import CHECKS, Check
from lamella.snapshot.verify.reading import Deep
from lamella.snapshot.verify.snapshot import Recorded
from lamella.snapshot.verify.verification import Options, Verification

__all__ = ["CHECKS", "Check", "Deep", "Options", "Recorded", "Verification"]
