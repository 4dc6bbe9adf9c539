"""What is asked of a table: recorded filters, and how the values that they name are distributed over its blocks."""
