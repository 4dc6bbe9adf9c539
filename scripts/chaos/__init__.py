"""Trials of a running stack: its parts are killed, frozen and cut off while clients commit, prune and run jobs."""
