"""Advice about indexes and cluster keys: calls, methods and commands. It can be taken out."""
