"""Branches of tables."""
