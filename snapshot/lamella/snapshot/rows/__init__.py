"""Reads the rows of blocks: their files, the columns that are wanted, and only the rows that match a filter."""
