"""Advice about skip indexes and layouts."""
