"""The process: start and stop, forked workers, threads, deadlines, and health."""
