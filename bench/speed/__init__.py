"""Pruning compared with other engines; see ``bench/run.py``."""
