"""The workload of a table: recorded filters, and the distribution of their values over its blocks."""
