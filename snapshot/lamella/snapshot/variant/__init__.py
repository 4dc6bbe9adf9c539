"""Variants: their binary encoding, and the columns in which files shred them."""

from lamella.snapshot.variant.paths import path_text, variant_steps

__all__ = ["path_text", "variant_steps"]
