"""Filters as requests carry them."""

from __future__ import annotations

from typing import Any

from lamella.snapshot.errors import InvalidFilter
from lamella.snapshot.expression.nodes import TRUE, Predicate
from lamella.snapshot.expression.sql import read_sql
from lamella.snapshot.expression.tree import read_tree


def read_filter(given: Any, *, time_zone: str = "UTC", now_us: int | None = None) -> Predicate:
    """A filter as requests carry it: None (every row), SQL text, or a JSON tree.

    ``now_us``: what ``now()`` and its like are in SQL text; see :func:`~lamella.snapshot.expression.sql.read_sql`.

    Raises:
        InvalidFilter: cannot be read; LimitExceeded: too large.
    """
    if given is None:
        return TRUE
    if isinstance(given, str):
        return read_sql(given, time_zone=time_zone, now_us=now_us)
    if isinstance(given, dict | bool):
        return read_tree(given)
    raise InvalidFilter("a filter is SQL text or a JSON expression", position="$")
