"""Pruning beside other engines; see ``bench/run.py``."""
