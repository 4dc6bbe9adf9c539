"""One random history of a table: changes of two writers, some of them killed, and what the table must have after each.

After each change, and after what another writer did in the middle of it, every new snapshot is read. Each must be the
result of exactly one change to the rows of the snapshot before it; a rewrite leaves them as they are. A change that was
acknowledged must be there, one that was refused must not, and one that was cut off is there as a whole or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final, Literal

import msgspec

from histories.changes import (
    COLUMNS,
    FILTERS,
    Append,
    Change,
    Delete,
    Numbers,
    Overwrite,
    Register,
    Regroup,
    Rewrite,
    Rollback,
    Rows,
    Update,
    Upsert,
    rows_of,
)
from histories.world import Killed, World, Writer
from lamella.client.http import Table
from lamella.snapshot.errors import BlocksGone, CommitConflict, InvalidRequest, LamellaError
from support.faulty_store import Fault, How, Script

#: What became of a change. "cut off": its writer was killed, or does not know.
Outcome = Literal["done", "refused", "cut off"]
_HOW: Final[tuple[How, ...]] = ("before", "after", "partial", "full", "denied")
#: Changes have from 2 to about 60 steps.
_LAST_STEPS: Final = (6, 18, 36, 60)


class State(msgspec.Struct, frozen=True):
    """A snapshot and its rows."""

    snapshot_id: str
    rows: Rows


class Pending(msgspec.Struct, frozen=True):
    """A change whose effect is looked for. ``first``: the number of the state at which it began."""

    change: Change
    outcome: Outcome
    first: int


class Counts(Counter[str]):
    """What happened in some histories. ``killed``: the steps at which changes were killed, by kind."""

    def __init__(self) -> None:
        super().__init__()
        self.killed: set[tuple[str, int]] = set()

    def shown(self) -> str:
        """One line."""
        parts = ", ".join(f"{count} {what}" for what, count in sorted(self.items()))
        return f"{parts}; changes were killed at {len(self.killed)} different steps"


class History:
    """A table in a world, and what is known about it."""

    def __init__(self, world: World, seed: int, counts: Counts) -> None:
        self.world, self.seed, self.counts = world, seed, counts
        self.rng = Random(seed)
        self.numbers = Numbers(self.rng)
        self.log: list[str] = []
        self.name = f"h{seed}.t"
        lake = world.operator.lake
        lake.create_namespace(f"h{seed}")
        key = self.rng.choice([(), ("id",), ("id", "v"), ("g", "id")])
        self.has_key = bool(key)
        lake.create_table(
            self.name,
            schema=COLUMNS,
            cluster_key=key,
            cluster_kind=self.rng.choice(["linear", "hilbert"]) if len(key) > 1 else "linear",
            properties={
                "write.delete.mode": self.rng.choice(["auto", "auto", "merge-on-read", "copy-on-write"]),
                "write.delete.max_deleted_share": self.rng.choice(["0.25", "0.9"]),
            },
        )
        self.table: Table = lake.table(self.name)
        if self.rng.random() < 0.3:
            self.table.create_index("by_g", "bloom", "g")
        self.states = [State(self.table.info().snapshot_id, frozenset())]
        self.tags: dict[str, State] = {}
        #: The number of the first state whose snapshot was not cleaned up.
        self.oldest = 0

    @property
    def rows(self) -> Rows:
        """The rows that the table has now."""
        return self.states[-1].rows

    def step(self) -> None:
        """Change something, perhaps with another writer in the middle, and look what there is."""
        dice = self.rng.random()
        if dice < 0.05:
            self._clean_up()
        elif dice < 0.10:
            self.world.restart()
        elif dice < 0.14:
            self._tag()
        else:
            self._check_snapshots(self._changes())

    def _changes(self) -> list[Pending]:
        """Run a change; something may happen at one of its steps."""
        change = self._draw()
        writer, first = Writer(self.world), len(self.states) - 1
        others: list[Pending] = []
        dice = self.rng.random()
        at = self.rng.randint(1, self.rng.choice(_LAST_STEPS))
        if dice < 0.3:
            writer.at_step = lambda step: self._kill(writer, change) if step == at else None
        elif dice < 0.6:
            writer.at_step = lambda step: others.append(self._another(first)) if step == at else None
        elif dice < 0.75:
            self._let_store_fail()
        outcome = self._run(writer, change)
        self.world.store.faults = Script()
        found = [*others, Pending(change, outcome, first)]
        if outcome == "cut off" and change.repeatable and self.rng.random() < 0.6:
            self.counts["repeated"] += 1
            again = Pending(change, self._run(Writer(self.world), change), first)
            # An append under a key happens once; of the others the first attempt may have happened, too.
            found = [*others, again] if isinstance(change, Append) else [*found, again]
        return found

    def _another(self, first: int) -> Pending:
        """A change of another writer, now and then killed, too."""
        self.counts["changes in the middle of others"] += 1
        change = self._draw()
        writer = Writer(self.world)
        if self.rng.random() < 0.2:
            at = self.rng.randint(1, self.rng.choice(_LAST_STEPS))
            writer.at_step = lambda step: self._kill(writer, change) if step == at else None
        return Pending(change, self._run(writer, change), first)

    def _kill(self, writer: Writer, change: Change) -> None:
        writer.is_dead = True
        self.counts.killed.add((type(change).__name__, writer.steps))

    def _let_store_fail(self) -> None:
        """Some of the service's next operations on the store fail, or one of them only half."""
        fault = Fault(how=self.rng.choice(_HOW), nth=self.rng.randint(1, 12), times=self.rng.choice([1, 2, 30]))
        self.world.store.faults = Script([fault])
        self.counts["outages of the store"] += 1

    def _run(self, writer: Writer, change: Change) -> Outcome:
        """Run a change by a writer."""
        outcome: Outcome = "done"
        faults = len(self.world.store.happened)
        try:
            with writer.working():
                change.run(writer.lake, writer.lake.table(self.name))
        except Killed:
            outcome = "cut off"
            self.counts["killed"] += 1
        except CommitConflict:
            outcome = "refused"
        except LamellaError as error:
            if len(self.world.store.happened) > faults:
                outcome = "cut off"
            elif isinstance(change, Rollback) and isinstance(error, BlocksGone | InvalidRequest):
                outcome = "refused"  # another writer went back to the same snapshot, or its files are gone
            else:
                raise AssertionError(self.report(error)) from error
        self.log.append(f"{change!r}: {outcome} after {writer.steps} steps")
        self.counts[f"{type(change).__name__} {outcome}"] += 1
        return outcome

    def _draw(self) -> Change:
        """A change of some kind; the first ones add rows."""
        rng = self.rng
        where = rng.choice([*FILTERS])
        kind = rng.choice(
            [
                *("append", "append", "append", "delete", "delete", "delete", "upsert", "upsert", "update", "update"),
                *("overwrite", "register", "rollback", "compact", "compact", "recluster", "purge", "regroup"),
            ]
        )
        if len(self.rows) < 10 and kind not in ("upsert", "rollback"):
            kind = "append"
        few = self.numbers.rows(rng.randint(1, 12))
        if kind == "append":
            key = None if rng.random() < 0.5 else f"{self.seed}-{few[0].v}"
            return Append(rng, self.numbers.rows(rng.randint(1, 30)), key)
        if kind == "delete":
            return Delete(rng, where)
        if kind == "upsert":
            return Upsert(rng, few)
        if kind == "update":
            return Update(rng, where, few if rng.random() < 0.5 else [], rng.choice([*FILTERS]))
        if kind == "overwrite":
            return Overwrite(rng, few, where if rng.random() < 0.8 else None)
        if kind == "register":
            made = Register(few, f"{self.world.warehouse}/{self.name}-{few[0].v}.parquet")
            made.write(self.world.files)
            return made
        if kind == "rollback":
            state = rng.choice([*self.states[self.oldest :], *self.tags.values()])
            return Rollback(state.snapshot_id, state.rows)
        if kind == "regroup":
            return Regroup()
        if kind == "recluster" and self.has_key:
            return Rewrite(rng, "recluster")
        return Rewrite(rng, "purge" if kind == "purge" else "compact")

    def _check_snapshots(self, pending: Sequence[Pending]) -> None:
        """Read each new snapshot, and find which change made it."""
        last = self.states[-1].snapshot_id
        new = []
        for info in self.table.snapshots():
            if info.snapshot_id == last:
                break
            new.append(info.snapshot_id)
        first = len(self.states)
        for snapshot_id in reversed(new):
            self.states.append(State(snapshot_id, self.read(snapshot_id)))
        assert self._explained(first, pending, frozenset()), self.report(pending)
        self.counts["snapshots"] += len(new)

    def _explained(self, at: int, pending: Sequence[Pending], used: frozenset[int]) -> bool:
        """Whether the states from number ``at`` on are what changes make that are not ``used`` yet."""
        if at == len(self.states):
            return all(
                number in used or each.outcome != "done" or self._without_effect(each)
                for number, each in enumerate(pending)
            )
        before, after = self.states[at - 1].rows, self.states[at].rows
        for number, each in enumerate(pending):
            if number in used or (each.outcome == "refused" and each.change.commits == "once"):
                continue
            seen = [state.rows for state in self.states[each.first : at]]
            if after not in each.change.after(before, seen):
                continue
            then = used | {number} if each.change.commits == "once" else used
            if self._explained(at + 1, pending, then):
                return True
        return False

    def _without_effect(self, pending: Pending) -> bool:
        """Whether a change may have made no snapshot since there was nothing to do."""
        states = [state.rows for state in self.states[pending.first :]]
        return pending.change.commits == "often" or any(
            rows in pending.change.after(rows, states[: number + 1]) for number, rows in enumerate(states)
        )

    def read(self, snapshot_id: str) -> Rows:
        """The rows of a snapshot; none of them is there twice."""
        rows = rows_of(self.table.scan(snapshot_id=snapshot_id, storage_options=self.world.options).to_arrow())
        found = frozenset(rows)
        assert len(found) == len(rows), self.report([row for row, count in Counter(rows).items() if count > 1])
        return found

    def report(self, what: object) -> str:
        """What happened, and what is wrong."""
        states = [f"{at}: {len(state.rows)} rows" for at, state in enumerate(self.states)]
        last = ""
        if len(self.states) > 1:
            before, after = self.states[-2].rows, self.states[-1].rows
            last = f"gone: {sorted(before - after)[:8]}\nnew: {sorted(after - before)[:8]}"
        return "\n".join([f"seed {self.seed}", *self.log[-12:], ", ".join(states[-6:]), last, repr(what)])

    def _tag(self) -> None:
        """Name a snapshot, or take a name away."""
        if self.tags and self.rng.random() < 0.3:
            name = self.rng.choice([*self.tags])
            self.table.drop_tag(name)
            del self.tags[name]
            return
        name, state = f"tag{len(self.log)}-{len(self.tags)}", self.rng.choice(self.states[self.oldest :])
        self.table.tag(name, state.snapshot_id)
        self.tags[name] = state

    def _clean_up(self) -> None:
        """Expire all snapshots but the current one and those with tags, and delete what only they need."""
        self.log.append("clean up")
        self.counts["clean-ups"] += 1
        self.table.vacuum(execute=True, older_than="0s")
        self.oldest = len(self.states) - 1

    def finish(self) -> None:
        """Read everything that is left once more, perhaps from a service that knows nothing."""
        if self.rng.random() < 0.3:
            self.world.restart()
        assert self.read(self.states[-1].snapshot_id) == self.rows, self.report("other rows after a restart")
        for state in self.tags.values():
            assert self.read(state.snapshot_id) == state.rows, self.report(f"other rows of {state.snapshot_id}")
        for where in self.rng.sample([*FILTERS], 3):
            matches = FILTERS[where]
            count = self.table.scan(where, storage_options=self.world.options).count()
            assert count == sum(map(matches, self.rows)), self.report(where)
        answer = self.table.verify(deep=True, sample=1.0, filters=2)
        assert answer.findings == (), self.report(answer.findings)
        self._check_feed()

    def _check_feed(self) -> None:
        """The changes of rows between two states lead from one to the other."""
        states = self.states[self.oldest :]
        at = sorted(self.rng.sample(range(len(states)), 2)) if len(states) > 1 else [0, 0]
        begin, end = (states[number] for number in at)
        feed = self.table.row_changes(
            begin.snapshot_id,
            end.snapshot_id,
            keys=["id"] if self.rng.random() < 0.5 else [],
            storage_options=self.world.options,
        ).to_arrow()
        rows = Counter(begin.rows)
        kinds = feed["_change_type"].to_pylist()
        numbers = feed["_commit_version"].to_pylist()
        for number in sorted(set(numbers)):
            for row, kind, version in zip(rows_of(feed), kinds, numbers, strict=True):
                if version == number:
                    rows[row] += 1 if kind in ("insert", "update_postimage") else -1
        assert {row: count for row, count in rows.items() if count} == dict.fromkeys(end.rows, 1), self.report("feed")
        self.counts["changes in feeds"] += len(kinds)
