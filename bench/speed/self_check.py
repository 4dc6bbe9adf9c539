"""Tests the judge of the answers on wrong ones."""

from __future__ import annotations

import numpy as np

from speed.comparison import SelectedBlocks, WrongAnswer, compare
from speed.engine import FLOORS, OURS, PEERS


def check() -> None:
    """Raises AssertionError when a wrong answer would pass, or a right one would not."""
    truth = np.array([3, 5, 8])
    mine, floor, peer = OURS[0], FLOORS[0], PEERS[0]
    right: dict[str, SelectedBlocks] = {mine: truth, floor: truth, peer: np.array([3, 4, 5, 8]), PEERS[1]: 7}
    assert compare(right, truth, "right")[mine] == ""
    unsound_peer: dict[str, SelectedBlocks] = {mine: truth, peer: np.array([3])}
    assert "leaves out 2" in compare(unsound_peer, truth, "a peer that is not sound")[peer]
    wrong: dict[str, dict[str, SelectedBlocks]] = {
        "a block is left out": {mine: np.array([3, 5])},
        "another block stands in its place": {mine: np.array([3, 5, 9])},
        "the yardstick is wrong": {mine: truth, floor: np.array([3, 5])},
        "a peer rules out what is kept": {mine: np.array([3, 5, 6, 8]), peer: truth},
        "a peer that counts rules out what is kept": {mine: np.array([3, 5, 6, 8]), peer: 3},
    }
    for what, answers in wrong.items():
        try:
            compare(answers, truth, what)
        except WrongAnswer:
            continue
        raise AssertionError(f"{what}, and nobody noticed")
