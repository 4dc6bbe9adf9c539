"""The filter language: nodes, the SQL and JSON readers, and binding to a schema."""

from __future__ import annotations

from typing import Any

from lamella.snapshot.errors import InvalidFilter
from lamella.snapshot.expression.bind import bind
from lamella.snapshot.expression.bound import BoundPredicate, column_ids, leaves_of
from lamella.snapshot.expression.nodes import TRUE, Predicate
from lamella.snapshot.expression.spelling import sql_of, tree_of
from lamella.snapshot.expression.sql import read_sql
from lamella.snapshot.expression.text import text_of
from lamella.snapshot.expression.tree import read_tree

__all__ = [
    "BoundPredicate",
    "Predicate",
    "bind",
    "column_ids",
    "leaves_of",
    "read_filter",
    "read_sql",
    "read_tree",
    "sql_of",
    "text_of",
    "tree_of",
]


def read_filter(given: Any, *, time_zone: str = "UTC") -> Predicate:
    """A filter as requests carry it: None (every row), SQL text, or a JSON tree.

    Raises:
        InvalidFilter: cannot be read; LimitExceeded: too large.
    """
    if given is None:
        return TRUE
    if isinstance(given, str):
        return read_sql(given, time_zone=time_zone)
    if isinstance(given, dict | bool):
        return read_tree(given)
    raise InvalidFilter("a filter is SQL text or a JSON expression", position="$")
