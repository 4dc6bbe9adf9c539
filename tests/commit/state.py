"""The values that the model of the commit protocol consists of, and one spelling for states that cannot differ."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

_T = TypeVar("_T")
#: An attempt, by its key and which one of that key it is.
At = tuple[int, int]


class Guards(NamedTuple):
    """The rules of the protocol; a machine without one of them must be found at fault."""

    cas: bool = True  # the pointer moves only from the snapshot that the new one was made on
    rebase: bool = True  # who lost the race makes its snapshot anew
    conflicts: bool = True  # a removed block must be in the base
    snapshot_first: bool = True  # objects are written before the pointer moves
    key_with_swap: bool = True  # the answer is stored in the transaction that moves the pointer
    key_unique: bool = True  # the transaction fails when the key has an answer
    one_per_key: bool = True  # a group holds one request of each key
    refusals_stored: bool = True  # a refusal is an answer of its key, too
    barred: bool = True  # the transaction fails when an object of its own is condemned or gone
    look_again: bool = True  # the clean-up reads the history again after it has condemned
    expire_first: bool = True  # snapshots leave the history before their objects are removed
    target_checked: bool = True  # a rollback's transaction checks that its target is in the history


class Request(NamedTuple):
    """What a client asks for under one key. ``tries``: how often it may send it; ``service``: None is any."""

    kind: str
    tries: int = 1
    service: int | None = None


class Attempt(NamedTuple):
    """One time that a request was sent. ``stage``: queued, taken or over; ``leaf``: the block that it wrote."""

    stage: str
    service: int
    leaf: str = ""


class Round(NamedTuple):
    """What a service is about to commit: the attempts, the snapshot it stands on, the snapshot it made."""

    batch: tuple[At, ...]
    base: int
    snapshot: int
    stage: str


class State(NamedTuple):
    """Everything. By snapshot: its leaves, and what the table should hold there. By leaf: what it holds.

    ``there``: the objects in storage. ``noted``: what the clean-up holds for live, and later what it condemned. By key:
    attempts, plan, stored answer, what the client was told, and how often it happened.
    """

    pointer: int
    history: frozenset[int]
    snapshots: tuple[frozenset[str], ...]
    spec: tuple[frozenset[str], ...]
    contents: frozenset[tuple[str, frozenset[str]]]
    there: frozenset[str]
    attempts: tuple[tuple[Attempt, ...], ...]
    plans: tuple[frozenset[str] | None, ...]
    answers: tuple[str | None, ...]
    reported: tuple[str | None, ...]
    happened: tuple[int, ...]
    rounds: tuple[Round | None, ...]
    ghosts: frozenset[Round]
    crashes: int
    vacuum: str
    noted: frozenset[str]

    def attempt(self, at: At) -> Attempt:
        """One attempt."""
        return self.attempts[at[0]][at[1]]

    def staged(self, at: At, stage: str) -> State:
        """With an attempt in another stage."""
        key, number = at
        sent = replaced(self.attempts[key], number, self.attempts[key][number]._replace(stage=stage))
        return self._replace(attempts=replaced(self.attempts, key, sent))

    def hears(self, key: int, answer: str) -> State:
        """With a client that was told this, unless it knows already."""
        return self if self.reported[key] is not None else self._replace(reported=replaced(self.reported, key, answer))

    def target(self, key: int) -> int:
        """The snapshot that a rollback goes back to."""
        return int(min(self.plans[key] or {"s-1"})[1:])


def replaced(values: tuple[_T, ...], at: int, value: _T) -> tuple[_T, ...]:
    """The values with another one at a place."""
    return (*values[:at], value, *values[at + 1 :])


def normal(state: State) -> State:
    """The state without what can have no effect any more, its snapshots numbered on.

    Objects that nothing refers to, and nothing will, are forgotten: the clean-up may remove them at any time.
    """
    active = [each for each in (*state.rounds, *state.ghosts) if each is not None]
    targets = {state.target(key) for key, plan in enumerate(state.plans) if _is_target(plan)}
    used = sorted(state.history | {state.pointer} | {each.snapshot for each in active} | targets)
    number = {old: new for new, old in enumerate(used)}
    attempts = tuple(
        tuple(
            attempt if attempt.stage != "over" or _is_under_way(state, (key, i)) else Attempt("over", 0)
            for i, attempt in enumerate(sent)
        )
        for key, sent in enumerate(state.attempts)
    )
    plans = tuple(_renamed(plan, number) for plan in state.plans)
    leaves = {leaf for old in used for leaf in state.snapshots[old]}
    leaves.update(attempt.leaf for sent in attempts for attempt in sent)
    known = leaves.union(*(plan for plan in plans if plan is not None))
    names = {f"s{old}": f"s{new}" for old, new in number.items()} | {leaf: leaf for leaf in leaves}

    def renumbered(each: Round) -> Round:
        return each._replace(base=number.get(each.base, -1), snapshot=number[each.snapshot])

    return state._replace(
        pointer=number[state.pointer],
        history=frozenset(number[old] for old in state.history),
        snapshots=tuple(state.snapshots[old] for old in used),
        spec=tuple(state.spec[old] for old in used),
        contents=frozenset(each for each in state.contents if each[0] in known),
        there=frozenset(names[name] for name in state.there if name in names),
        attempts=attempts,
        plans=plans,
        rounds=tuple(each and renumbered(each) for each in state.rounds),
        ghosts=frozenset(renumbered(each) for each in state.ghosts),
        noted=frozenset(names[name] for name in state.noted if name in names),
    )


def _is_under_way(state: State, at: At) -> bool:
    """Whether a transaction that is still under way holds the attempt."""
    return any(at in ghost.batch for ghost in state.ghosts)


def _is_target(plan: frozenset[str] | None) -> bool:
    return plan is not None and any(name.startswith("s") for name in plan)


def _renamed(plan: frozenset[str] | None, number: dict[int, int]) -> frozenset[str] | None:
    if plan is None or not _is_target(plan):
        return plan
    return frozenset(f"s{number[int(name[1:])]}" for name in plan)
