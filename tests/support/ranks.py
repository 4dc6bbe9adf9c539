"""How alike two orders are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's rank correlation; what ties has the mean of its ranks."""
    return float(np.corrcoef(_ranks(left), _ranks(right))[0, 1])


def _ranks(values: Sequence[float]) -> npt.NDArray[Any]:
    _, inverse, counts = np.unique(np.round(values, 9), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - counts / 2)[inverse])
