"""Registrations and commits: blocks, the queue of a table, group commit."""
