"""The layout of a table's blocks by a cluster key: how good it is, what to rewrite next, and where rows go.

Values in, values out: zone maps and sizes of blocks, as arrays with an element for each. Nothing here reads or writes
anything, and nothing that decides which blocks a query skips depends on it.

- :mod:`.extent`: where blocks lie on a key, where the rows are, and what look-ups read.
- :mod:`.depth`: how many blocks lie over one another; :mod:`.health`: all of that in figures.
- :mod:`.selection`: what to sort next; :mod:`.compaction`: which small blocks to put together; :mod:`.regroup`: which
  blocks should be in one segment.
- :mod:`.curve`: places of rows along z-order and Hilbert curves.
"""
