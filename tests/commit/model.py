"""The commit protocol as a finite machine, small enough to look at every order of its steps.

Requests (appends, a compaction, a delete, a rollback) are worked on by two services over one catalog, some are sent
twice under one key, services die, and a clean-up runs again and again. A service takes all that waits for it, writes
one snapshot for it, and swaps the pointer in one transaction. :class:`Guards` switches off one rule at a time, so that
a test can see that each is needed. docs/decisions/0017-commit-model.md says what the machine leaves out.

There is no time: the clean-up may take any object for old at once, however young it is. Its minimum age is thus not
what safety rests on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from commit.state import Attempt, Guards, Request, Round, State, normal, replaced

_SERVICES: Final = (0, 1)


class Machine:
    """The steps from each state, and what is wrong with one. ``crashes``: how often a service may die."""

    def __init__(
        self, requests: tuple[Request, ...], *, crashes: int = 0, vacuum: bool = False, guards: Guards | None = None
    ) -> None:
        self.requests = requests
        self.guards = guards if guards is not None else Guards()
        self.crashes = crashes
        self.vacuum = vacuum

    def start(self) -> State:
        """A table of two blocks."""
        return State(
            pointer=0,
            history=frozenset({0}),
            snapshots=(frozenset({"x", "y"}),),
            spec=(frozenset({"x", "y"}),),
            contents=frozenset({("x", frozenset("x")), ("y", frozenset("y"))}),
            there=frozenset({"s0", "x", "y"}),
            attempts=((),) * len(self.requests),
            plans=(None,) * len(self.requests),
            answers=(None,) * len(self.requests),
            reported=(None,) * len(self.requests),
            happened=(0,) * len(self.requests),
            rounds=(None,) * len(_SERVICES),
            ghosts=frozenset(),
            crashes=self.crashes,
            vacuum="idle" if self.vacuum else "never",
            noted=frozenset(),
        )

    def wrong(self, state: State) -> str | None:
        """What must never be so, if it is."""
        there = state.there
        for snapshot in state.history | {state.pointer}:
            if f"s{snapshot}" not in there or not there.issuperset(state.snapshots[snapshot]):
                return "a live object is gone"
        if any(count > 1 for count in state.happened):
            return "a commit happened twice"
        contents = dict(state.contents)
        parts = [contents[leaf] for leaf in state.snapshots[state.pointer]]
        if frozenset().union(*parts) != state.spec[state.pointer] or sum(map(len, parts)) != len(
            state.spec[state.pointer]
        ):
            return "a commit was lost, or undone"
        for reported, count in zip(state.reported, state.happened, strict=True):
            if reported is not None and reported != ("done" if count else "refused"):
                return "an answer is not true"
        return None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Every next state, with a name for the way there."""
        for name, after in self._steps(state):
            yield name, normal(after)

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        yield from self._sends(state)
        for service in _SERVICES:
            yield from self._serves(state, service)
        for ghost in state.ghosts:
            after = self._swapped(state, ghost, heard=False) or state
            name = f"the transaction of a dead service ends: {ghost.batch}"
            yield name, after._replace(ghosts=state.ghosts - {ghost})
        if self.vacuum:
            yield from self._cleans(state)

    def _sends(self, state: State) -> Iterator[tuple[str, State]]:
        for key, request in enumerate(self.requests):
            if state.reported[key] is not None or len(state.attempts[key]) == request.tries:
                continue
            if state.answers[key] is not None:
                yield (
                    f"{key} is answered again",
                    state._replace(reported=replaced(state.reported, key, state.answers[key])),
                )
                continue
            plan = state.plans[key]
            if plan is None:
                plan = self._plan(state, request)
            if plan is None:
                continue
            for service in _SERVICES if request.service is None else (request.service,):
                yield f"{key} is sent to {service}", self._queued(state, key, service, plan)

    def _plan(self, state: State, request: Request) -> frozenset[str] | None:
        """What a request removes, or the snapshot that a rollback goes back to; None: it cannot be made now."""
        now = state.snapshots[state.pointer]
        if request.kind == "compact":
            return now if len(now) > 1 else None
        if request.kind == "delete":
            return frozenset(sorted(now)[:1]) or None
        if request.kind == "rollback":
            earlier = sorted(state.history - {state.pointer})
            return frozenset({f"s{earlier[0]}"}) if earlier else None
        return frozenset()

    def _queued(self, state: State, key: int, service: int, plan: frozenset[str]) -> State:
        """The new block is written and the request waits for its service."""
        kind = self.requests[key].kind
        leaf, contents, there = "", state.contents, state.there
        if kind in ("append", "compact"):
            leaf = f"{key}.{len(state.attempts[key])}"
            known = dict(contents)
            content = frozenset(str(key)) if kind == "append" else frozenset().union(*(known[name] for name in plan))
            contents |= {(leaf, content)}
            there |= {leaf}
        sent = (*state.attempts[key], Attempt("queued", service, leaf))
        return state._replace(
            attempts=replaced(state.attempts, key, sent),
            plans=replaced(state.plans, key, plan),
            contents=contents,
            there=there,
        )

    def _serves(self, state: State, service: int) -> Iterator[tuple[str, State]]:
        active = state.rounds[service]
        mine = [
            (key, number)
            for key, sent in enumerate(state.attempts)
            for number, attempt in enumerate(sent)
            if attempt.stage != "over" and attempt.service == service
        ]
        if active is None:
            waiting = tuple(at for at in mine if state.attempt(at).stage == "queued")
            if waiting:
                yield f"service {service} takes {waiting}", self._taken(state, service, waiting)
        else:
            yield self._goes_on(state, service, active)
        if state.crashes and (active is not None or mine):
            gone = state._replace(rounds=replaced(state.rounds, service, None), crashes=state.crashes - 1)
            for at in mine:
                gone = gone.staged(at, "over")
            yield f"service {service} dies", gone
            if active is not None and active.stage == "ready":
                yield f"service {service} dies in its transaction", gone._replace(ghosts=gone.ghosts | {active})

    def _goes_on(self, state: State, service: int, active: Round) -> tuple[str, State]:
        """The next step of a round: its transaction, or what a machine without some rule does after that."""
        free = state._replace(rounds=replaced(state.rounds, service, None))
        if active.stage == "write":
            return f"service {service} writes late", free._replace(there=free.there | {f"s{active.snapshot}"})
        if active.stage == "remember":
            answers = free.answers
            for key, _ in active.batch:
                answers = replaced(answers, key, "done")
            return f"service {service} stores answers late", free._replace(answers=answers)
        after = self._swapped(free, active, heard=True)
        if after is not None:
            next_stage = "write" if not self.guards.snapshot_first else "" if self.guards.key_with_swap else "remember"
            if next_stage:
                after = after._replace(rounds=replaced(after.rounds, service, active._replace(stage=next_stage)))
            return f"service {service} swaps to s{active.snapshot}", after
        if not self.guards.rebase:
            again = active._replace(base=state.pointer)
            return f"service {service} tries again as it is", free._replace(
                rounds=replaced(free.rounds, service, again)
            )
        return f"service {service} loses", self._sent_back(free, active)

    def _taken(self, state: State, service: int, waiting: tuple[tuple[int, int], ...]) -> State:
        """One snapshot for all that waits, on the current pointer; what conflicts is refused, each for itself."""
        leaves, spec = state.snapshots[state.pointer], frozenset[str]()
        batch: list[tuple[int, int]] = []
        for at in waiting:
            key = at[0]
            plan = state.plans[key] or frozenset()
            if self.guards.one_per_key and any(other == key for other, _ in batch):
                continue  # it waits on, and will find the other's answer
            if self.requests[key].kind == "rollback":
                if batch:
                    continue  # a rollback is a group of its own
                target = state.target(key)  # found in the history when it was asked for, whatever came since
                leaves, spec, batch = state.snapshots[target], state.spec[target], [at]
                break
            if self.guards.conflicts and not plan <= leaves:
                state = self._refused(state, at)
                continue
            leaf = state.attempt(at).leaf
            leaves = leaves - plan | ({leaf} if leaf else frozenset())
            batch.append(at)
        if not batch:
            return state
        number = len(state.snapshots)
        for at in batch:
            state = state.staged(at, "taken")
        return state._replace(
            snapshots=(*state.snapshots, leaves),
            spec=(*state.spec, spec),
            there=state.there | {f"s{number}"} if self.guards.snapshot_first else state.there,
            rounds=replaced(state.rounds, service, Round(tuple(batch), state.pointer, number, "ready")),
        )

    def _refused(self, state: State, at: tuple[int, int]) -> State:
        """Tell the client that its request certainly did not happen, unless its key says otherwise."""
        key = at[0]
        answer = state.answers[key] or "refused"
        if self.guards.refusals_stored:
            state = state._replace(answers=replaced(state.answers, key, answer))
        return state.staged(at, "over").hears(key, answer)

    def _swapped(self, state: State, active: Round, *, heard: bool) -> State | None:
        """The state after the transaction; None when it fails, and then nothing has changed."""
        if self.guards.cas and state.pointer != active.base:
            return None
        if self.guards.key_unique and any(state.answers[key] is not None for key, _ in active.batch):
            return None
        if self.guards.barred and self._marked(state, active):
            return None
        first = active.batch[0][0]
        rolls_back = self.requests[first].kind == "rollback"
        if self._target_gone(state, first):
            return None
        spec = state.spec[active.snapshot] if rolls_back else self._expected(state, active)
        state = state._replace(
            pointer=active.snapshot,
            history=state.history | {active.snapshot},
            spec=replaced(state.spec, active.snapshot, spec),
        )
        for at in active.batch:
            key = at[0]
            state = state._replace(happened=replaced(state.happened, key, state.happened[key] + 1))
            if self.guards.key_with_swap:
                state = state._replace(answers=replaced(state.answers, key, "done"))
            if heard:
                state = state.staged(at, "over").hears(key, "done")
        return state

    def _target_gone(self, state: State, key: int) -> bool:
        """Whether the snapshot that a rollback goes back to has left the history."""
        rolls_back = self.requests[key].kind == "rollback" and self.guards.target_checked
        return rolls_back and state.target(key) not in state.history

    def _marked(self, state: State, active: Round) -> bool:
        """Whether the clean-up has an object of the round on its list, or has removed it."""
        names = {leaf for at in active.batch if (leaf := state.attempt(at).leaf)}
        if self.guards.snapshot_first:
            names.add(f"s{active.snapshot}")
        deletion_marks = state.noted if state.vacuum in ("look", "sweep") else frozenset()
        return bool(names & deletion_marks) or not names <= state.there

    def _sent_back(self, state: State, active: Round) -> State:
        """Back into the queue; whose key has an answer gets that one, and what is condemned is given up."""
        deletion_marks = self.guards.barred and self._marked(state, active)
        for at in active.batch:
            answer = state.answers[at[0]]
            if self._target_gone(state, at[0]):
                state = self._refused(state, at)
            elif answer is not None and self.guards.key_unique:
                state = state.staged(at, "over").hears(at[0], answer)
            else:
                state = state.staged(at, "over" if deletion_marks else "queued")
        return state

    def _expected(self, state: State, active: Round) -> frozenset[str]:
        """What the table should hold after these requests, whatever snapshot was made for them."""
        contents = dict(state.contents)
        expected = state.spec[state.pointer]
        for key, _ in active.batch:
            if self.requests[key].kind == "append":
                expected |= {str(key)}
            elif self.requests[key].kind == "delete":
                expected -= frozenset().union(*(contents[leaf] for leaf in state.plans[key] or ()))
        return expected

    def _cleans(self, state: State) -> Iterator[tuple[str, State]]:
        """Expire, note what is live, condemn the rest, look again, remove what is on the list one by one."""
        expires = self.guards.expire_first
        retained = state.history if expires else frozenset({state.pointer})
        live = frozenset({f"s{s}" for s in retained} | {leaf for s in retained for leaf in state.snapshots[s]})
        if state.vacuum == "idle":
            history = frozenset({state.pointer}) if expires else state.history
            yield "the history expires", state._replace(history=history, vacuum="mark")
        elif state.vacuum == "mark":
            yield "mark", state._replace(noted=live, vacuum="condemn")
        elif state.vacuum == "condemn":
            yield "condemn", state._replace(noted=state.there - state.noted, vacuum="look")
        elif state.vacuum == "look":
            noted = state.noted - live if self.guards.look_again else state.noted
            yield "look again", state._replace(noted=noted, vacuum="sweep")
        elif state.noted:
            name = min(state.noted)
            yield f"sweep {name}", state._replace(there=state.there - {name}, noted=state.noted - {name})
            yield "the clean-up starts again from its list", state._replace(vacuum="look")
        else:
            yield "swept", state._replace(vacuum="idle")
