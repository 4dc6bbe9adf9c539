"""Sketches of the distinct values of columns: about how many there are, in a block and in everything above it.

They are estimates. Nothing that decides which rows are read may use them.
"""

from lamella.snapshot.sketch.hll import Sketch, Sketcher, check, estimate, family_of, united

__all__ = ["Sketch", "Sketcher", "check", "estimate", "family_of", "united"]
