"""What every planner of the benchmark answers: which blocks it would read for a filter."""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from sharp.filters import Filter

Mask = npt.NDArray[np.bool_]


class Plan(msgspec.Struct, frozen=True):
    """Per block: is it read; and is every row known to match (always False where a planner never says so)."""

    kept: Mask
    all_rows: Mask


class Planner(Protocol):
    """One planner over one table's files."""

    name: str

    def plan(self, node: Filter) -> Plan | None:
        """The plan; None when the filter cannot be said in the planner's language."""
        ...
