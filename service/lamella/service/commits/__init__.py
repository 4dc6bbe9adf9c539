"""Registrations and commits: checks of blocks, the commit queue of a table, group commit."""
