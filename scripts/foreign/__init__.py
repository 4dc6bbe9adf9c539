"""Suites of other projects, run against Lamella; see ``conformance.py``."""
