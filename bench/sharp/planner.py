"""The answer of every planner of the benchmark: which blocks it would read for a filter."""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from sharp.filters import Filter

Mask = npt.NDArray[np.bool_]


class Plan(msgspec.Struct, frozen=True):
    """Per block: whether it is read, and whether every row is known to match (False if a planner never reports it)."""

    selected: Mask
    all_rows: Mask


class Planner(Protocol):
    """One planner over one table's files."""

    name: str

    def plan(self, node: Filter) -> Plan | None:
        """Return the plan; None when the filter cannot be expressed in the planner's language."""
        ...
