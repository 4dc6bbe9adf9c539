"""Verification of a table: compares every statement of its manifests with its source, down to the values."""

from lamella.snapshot.verify.checks import CHECKS, Check
from lamella.snapshot.verify.reading import Deep
from lamella.snapshot.verify.snapshot import Recorded
from lamella.snapshot.verify.verification import Options, Verification

__all__ = ["CHECKS", "Check", "Deep", "Options", "Recorded", "Verification"]
