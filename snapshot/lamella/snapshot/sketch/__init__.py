"""Sketches of the distinct values of columns: approximate counts for a block and every layer above it.

They are estimates. Code that decides which rows are read must not use them.
"""

from lamella.snapshot.sketch.hll import Sketch, check, estimate, family_of, united

__all__ = ["Sketch", "check", "estimate", "family_of", "united"]
