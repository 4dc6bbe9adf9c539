"""The filter language: nodes, the SQL and JSON readers, and binding to a schema."""

from __future__ import annotations

from lamella.snapshot.expression.bind import bind
from lamella.snapshot.expression.bound import BoundPredicate, column_ids, leaves_of
from lamella.snapshot.expression.filters import Filters, read_filter
from lamella.snapshot.expression.json_filters import read_tree
from lamella.snapshot.expression.nodes import Predicate
from lamella.snapshot.expression.sql import check_together, read_sql
from lamella.snapshot.expression.text import sql_of, text_of, tree_of, value_text

__all__ = [
    "BoundPredicate",
    "Filters",
    "Predicate",
    "bind",
    "check_together",
    "column_ids",
    "leaves_of",
    "read_filter",
    "read_sql",
    "read_tree",
    "sql_of",
    "text_of",
    "tree_of",
    "value_text",
]
