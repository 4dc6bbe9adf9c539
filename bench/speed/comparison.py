"""Compares answers: nothing that may match is missing, nothing kept that a sound peer excludes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from speed.engine import FLOORS, OURS

KeptBlocks = npt.NDArray[np.int64] | int


class WrongAnswer(AssertionError):
    """Lamella's answer lacks a block that may match, or contains one that a sound peer excludes."""


def remarks(name: str, kept: KeptBlocks, truth: npt.NDArray[np.int64]) -> str:
    """Return remarks on one engine's answer compared with the truth; empty when they are equal."""
    if isinstance(kept, int):
        if kept == len(truth):
            return "counts only"
        return f"{kept:,} of {len(truth):,}, counts only"
    missing = len(np.setdiff1d(truth, kept, assume_unique=True))
    if missing and name in (*OURS, *FLOORS):
        raise WrongAnswer(f"{name} leaves out {missing:,} blocks that may hold a match")
    if missing:
        return f"leaves out {missing:,} blocks that may hold a match"
    return "" if len(kept) == len(truth) else f"keeps {len(kept):,}, {len(truth):,} may match"


def compare(answers: Mapping[str, KeptBlocks], truth: npt.NDArray[np.int64], query: str) -> dict[str, str]:
    """Remarks by engine on their answers to one question.

    Raises:
        WrongAnswer: ours is no superset of ``truth``, or no subset of what a peer that is sound here keeps.
    """
    found = {name: remarks(name, kept, truth) for name, kept in answers.items()}
    for mine in OURS:
        ours = answers.get(mine)
        if ours is None or isinstance(ours, int):
            continue
        for name, kept in answers.items():
            if isinstance(kept, int):
                more = len(ours) - kept if kept >= len(truth) else 0
            elif "leaves out" in found[name]:  # not sound: not used for comparison
                more = 0
            else:
                more = len(np.setdiff1d(ours, kept, assume_unique=True))
            if more > 0:
                raise WrongAnswer(f"{query}: {mine} keeps {more:,} blocks that {name} rules out")
    return found
