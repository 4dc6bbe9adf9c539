"""Every state that a machine can get into, breadth first."""

from __future__ import annotations

from typing import NamedTuple

from commit.model import Machine
from commit.state import State


class Found(NamedTuple):
    """What was seen. ``wrong`` is None when every state is right; ``trace`` then is empty, else the shortest way there.

    ``ends``: how many states have nothing left to do but wait; ``resolved``: how many have an answer for every request.
    """

    states: int
    steps: int
    ends: int
    resolved: int
    wrong: str | None = None
    trace: tuple[str, ...] = ()


def explore(machine: Machine, *, max_states: int = 20_000_000) -> Found:
    """Look at every state; stop at the first that is wrong.

    A state is remembered by its 64-bit hash, so two states are taken for one with a chance of about n * n / 2**65:
    below one in a million for six million states.

    Raises:
        RuntimeError: more than ``max_states`` states.
    """
    start = machine.start()
    predecessors: dict[int, tuple[int, str]] = {hash(start): (0, "")}
    frontier: list[State] = [start]
    steps = ends = resolved = 0
    while frontier:
        following: list[State] = []
        for state in frontier:
            if (wrong := machine.wrong(state)) is not None:
                return Found(len(predecessors), steps, ends, resolved, wrong, _trace(predecessors, hash(state)))
            resolved += None not in state.reported
            here = hash(state)
            moved = False
            for name, after in machine.steps(state):
                steps += 1
                seen = hash(after)
                moved |= seen != here
                if seen not in predecessors:
                    predecessors[seen] = (here, name)
                    following.append(after)
            ends += not moved
        if len(predecessors) > max_states:
            raise RuntimeError(f"more than {max_states} states")
        frontier = following
    return Found(len(predecessors), steps, ends, resolved)


def _trace(predecessors: dict[int, tuple[int, str]], at: int) -> tuple[str, ...]:
    names = []
    while (step := predecessors[at])[1]:
        names.append(step[1])
        at = step[0]
    return tuple(reversed(names))
