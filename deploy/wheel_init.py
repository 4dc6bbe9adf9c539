"""Lamella: a layered snapshot metadata service for tables of Parquet blocks."""
