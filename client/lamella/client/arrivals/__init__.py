"""Watches queues and directories for files that arrive."""
