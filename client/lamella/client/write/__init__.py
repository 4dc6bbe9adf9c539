"""Writing rows: from Python without Spark, and what Spark's writer has in common with it.

Rows become sorted blocks with exact statistics (:mod:`lamella.client.rewrite`), and one commit adds them, or replaces
other rows by them.
"""
