"""Cluster layout of a table's blocks: measures it, selects the blocks to rewrite next, and orders rows.

All functions work on values: zone maps and block sizes as arrays with one element per block. Nothing here reads or
writes storage, and pruning never depends on the results.

- :mod:`.extent`: block sizes, the range of the key that each block covers, and the expected cost of look-ups.
- :mod:`.depth`: how many blocks overlap; :mod:`.health`: a summary of the layout in figures.
- :mod:`.selection`: blocks to recluster next; :mod:`.compaction`: small blocks to merge; :mod:`.regroup`: how blocks
  are grouped into segments.
- :mod:`.curve`: positions of rows along z-order and Hilbert curves.
"""
