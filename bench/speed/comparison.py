"""Compares answers: nothing that may match is missing, nothing kept that a sound peer excludes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from speed.engine import FLOORS, OURS

SelectedBlocks = npt.NDArray[np.int64] | int


class WrongAnswer(AssertionError):
    """Lamella's answer lacks a block that may match, or contains one that a sound peer excludes."""


def remarks(name: str, selected: SelectedBlocks, truth: npt.NDArray[np.int64]) -> str:
    """Return remarks on one engine's answer compared with the truth; empty when they are equal."""
    if isinstance(selected, int):
        if selected == len(truth):
            return "counts only"
        if selected < len(truth):
            return f"keeps {selected:,} of {len(truth):,} that may match: leaves out {len(truth) - selected:,} or more"
        return f"keeps {selected:,}, {len(truth):,} may match; counts only"
    missing = len(np.setdiff1d(truth, selected, assume_unique=True))
    if missing and name in (*OURS, *FLOORS):
        raise WrongAnswer(f"{name} leaves out {missing:,} blocks that may hold a match")
    if missing:
        return f"leaves out {missing:,} blocks that may hold a match"
    return "" if len(selected) == len(truth) else f"keeps {len(selected):,}, {len(truth):,} may match"


def compare(answers: Mapping[str, SelectedBlocks], truth: npt.NDArray[np.int64], query: str) -> dict[str, str]:
    """Remarks by engine on their answers to one question.

    Raises:
        WrongAnswer: ours is no superset of ``truth``, or no subset of what a peer that is sound here keeps.
    """
    found = {name: remarks(name, selected, truth) for name, selected in answers.items()}
    for mine in OURS:
        ours = answers.get(mine)
        if ours is None or isinstance(ours, int):
            continue
        for name, selected in answers.items():
            if isinstance(selected, int):
                more = len(ours) - selected if selected >= len(truth) else 0
            elif "leaves out" in found[name]:  # not sound: not used for comparison
                more = 0
            else:
                more = len(np.setdiff1d(ours, selected, assume_unique=True))
            if more > 0:
                raise WrongAnswer(f"{query}: {mine} keeps {more:,} blocks that {name} rules out")
    return found
