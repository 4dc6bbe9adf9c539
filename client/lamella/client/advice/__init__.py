"""Advice about indexes and cluster keys: HTTP calls, methods and commands. No other package depends on it."""
