"""Chaos trials of a running stack: its services are killed, frozen and disconnected while clients commit, prune and run
jobs."""
