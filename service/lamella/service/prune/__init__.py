"""Prunes and aggregates over HTTP."""
