"""The format and the pruning core: pure values and functions, no HTTP, no SQL database, no Spark."""
