"""The layout of tables: cluster keys, how well blocks lie on them, and what jobs rewrite."""
