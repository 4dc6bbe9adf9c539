"""Samples of rows, which the service reads from the files of tables."""
