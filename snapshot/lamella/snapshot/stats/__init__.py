"""Statistics of columns: typed lossless bounds, and the rules for merging layers."""

from lamella.snapshot.stats.bound import Bound, from_bound, to_bound
from lamella.snapshot.stats.column import ColumnStats, Nan, all_null, merge, unknown

__all__ = ["Bound", "ColumnStats", "Nan", "all_null", "from_bound", "merge", "to_bound", "unknown"]
