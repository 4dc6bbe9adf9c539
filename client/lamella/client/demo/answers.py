"""Are two answers the same: the same columns, and the same rows as often."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Row


def equal(left: list[Row], right: list[Row]) -> bool:
    """Rows in any order, compared whole. The demo's columns are integers, decimals, dates and text: all exact."""
    return Counter(map(_key, left)) == Counter(map(_key, right))


def _key(row: Row) -> tuple[object, ...]:
    return (*row.__fields__, *row)
