"""Every state that a machine can get into, breadth first."""

from __future__ import annotations

from typing import NamedTuple

from commit.model import Machine
from commit.state import State


class Found(NamedTuple):
    """What was seen. ``wrong`` is None when every state is right; ``trace`` then is empty, else the shortest way there.

    ``ends``: how many states have nothing left to do but wait; ``settled``: how many have an answer for every request.
    """

    states: int
    steps: int
    ends: int
    settled: int
    wrong: str | None = None
    trace: tuple[str, ...] = ()


def explore(machine: Machine, *, most: int = 20_000_000) -> Found:
    """Look at every state; stop at the first that is wrong.

    A state is remembered by its 64-bit hash, so two states are taken for one with a chance of about n * n / 2**65:
    below one in a million for six million states.

    Raises:
        RuntimeError: more than ``most`` states.
    """
    start = machine.start()
    came_from: dict[int, tuple[int, str]] = {hash(start): (0, "")}
    frontier: list[State] = [start]
    steps = ends = settled = 0
    while frontier:
        following: list[State] = []
        for state in frontier:
            if (wrong := machine.wrong(state)) is not None:
                return Found(len(came_from), steps, ends, settled, wrong, _trace(came_from, hash(state)))
            settled += None not in state.told
            here = hash(state)
            moved = False
            for name, after in machine.steps(state):
                steps += 1
                seen = hash(after)
                moved |= seen != here
                if seen not in came_from:
                    came_from[seen] = (here, name)
                    following.append(after)
            ends += not moved
        if len(came_from) > most:
            raise RuntimeError(f"more than {most} states")
        frontier = following
    return Found(len(came_from), steps, ends, settled)


def _trace(came_from: dict[int, tuple[int, str]], at: int) -> tuple[str, ...]:
    names = []
    while (step := came_from[at])[1]:
        names.append(step[1])
        at = step[0]
    return tuple(reversed(names))
