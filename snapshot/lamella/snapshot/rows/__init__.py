"""Which rows of Arrow data match a filter, exactly, by Spark SQL's rules in its ANSI mode.

Pruning may leave a question open; a reader may not. What cannot be decided here is refused with an error that names it.
"""

from lamella.snapshot.rows.filter import RowFilter

__all__ = ["RowFilter"]
