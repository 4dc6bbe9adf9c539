"""Random commits to a table and its branches, against the rows that each must have."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from lamella.client import Lamella
from lamella.client.http import Table
from lamella.snapshot.errors import CommitConflict, DuplicateBlock, InvalidRequest, NewMatches

Mode = Literal["copy-on-write", "merge-on-read"]

_MODES: tuple[Mode, ...] = ("copy-on-write", "merge-on-read")


class Row(NamedTuple):
    """A row; ``number`` tells apart rows with the same values."""

    x: int
    y: int
    number: int


class Commit(NamedTuple):
    """What a commit did to rows, and its snapshot. ``origin``: the snapshot whose changes it has."""

    snapshot_id: str
    origin: str
    removed: frozenset[Row]
    added: frozenset[Row]


class Model:
    """The rows of each head, and the commits in its history. ``modes``: of deletes."""

    def __init__(self, table: Table, rng: random.Random, modes: Sequence[Mode] = _MODES) -> None:
        self.table = table
        self.modes = modes
        self.rng = rng
        self.heads: dict[str, set[Row]] = {"main": set()}
        self.lineage: dict[str, list[str]] = {"main": [table.info().snapshot_id]}
        self.commits: list[Commit] = []
        self.origins: dict[str, str] = {}
        self.done: Counter[str] = Counter()
        self.number = 0

    def rows(self, xs: list[int]) -> list[Row]:
        """New rows with these keys."""
        made = []
        for x in xs:
            self.number += 1
            made.append(Row(x, self.rng.randrange(100), self.number))
        return made

    def committed(self, head: str, removed: set[Row], added: list[Row], origin: str | None = None) -> None:
        """Note a commit to a head."""
        snapshot_id = self.table.branch(head).info().snapshot_id
        if snapshot_id == self.lineage[head][-1]:
            assert not removed
            assert not added
            return
        self.heads[head] = (self.heads[head] - removed) | set(added)
        self.lineage[head].append(snapshot_id)
        commit = Commit(snapshot_id, origin or snapshot_id, frozenset(removed), frozenset(added))
        self.commits.append(commit)
        self.origins[snapshot_id] = commit.origin

    def step(self) -> None:
        """Do something, if it can be done."""
        rng = self.rng
        head = rng.choice(sorted(self.heads))
        handle, now = self.table.branch(head), self.heads[head]
        kind = rng.choices(["append", "upsert", "delete", "branch", "drop", "forward", "pick"], [5, 2, 3, 2, 1, 3, 8])[
            0
        ]
        if kind == "append":
            new = self.rows([rng.randrange(40) for _ in range(rng.randrange(1, 6))])
            handle.append(_columns(new))
            self.committed(head, set(), new)
        elif kind == "upsert":
            keys = rng.sample(range(40), rng.randrange(1, 4))
            if max(Counter(row.x for row in now if row.x in keys).values(), default=0) > 1:
                return  # an upsert needs keys that name one row
            new = self.rows(keys)
            handle.upsert(_columns(new), on=["x"])
            self.committed(head, {row for row in now if row.x in keys}, new)
        elif kind == "delete":
            low = rng.randrange(40)
            handle.delete(f"x >= {low} AND x < {low + 8}", mode=rng.choice(self.modes))
            self.committed(head, {row for row in now if low <= row.x < low + 8}, [])
        elif kind == "branch":
            name = rng.choice("pqr")
            source = rng.choice(sorted(self.heads))
            self.table.create_branch(name, source if source != "main" else None, replace=True)
            self.heads[name], self.lineage[name] = set(self.heads[source]), list(self.lineage[source])
        elif kind == "drop" and head != "main":
            self.table.drop_branch(head)
            del self.heads[head], self.lineage[head]
            return
        elif kind == "forward":
            pairs = [
                (one, other) for one in sorted(self.heads) for other in sorted(self.heads) if self.is_ahead(one, other)
            ]
            self.forward(
                *((rng.random() < 0.7 and pairs and rng.choice(pairs)) or (head, rng.choice(sorted(self.heads))))
            )
        elif kind == "pick" and self.commits:
            fresh = [each for each in self.commits if each.snapshot_id not in self.lineage[head]]
            self.pick(head, rng.choice((rng.random() < 0.9 and fresh[-12:]) or self.commits))
        self.done[kind] += 1

    def is_ahead(self, target: str, source: str) -> bool:
        """Whether a head has all that another one has, and more."""
        ours, theirs = self.lineage[target], self.lineage[source]
        return len(theirs) > len(ours) and theirs[: len(ours)] == ours

    def forward(self, target: str, source: str) -> None:
        """A fast-forward does what it must, or is refused where it must be."""
        if target == source:
            return
        ours, theirs = self.lineage[target], self.lineage[source]
        if theirs[: len(ours)] == ours:
            self.table.branch(target).fast_forward(source)
            self.done["forwarded"] += len(theirs) > len(ours)
            self.heads[target], self.lineage[target] = set(self.heads[source]), list(theirs)
        else:
            with pytest.raises(CommitConflict):
                self.table.branch(target).fast_forward(source)

    def pick(self, head: str, commit: Commit) -> None:
        """A cherry-pick makes the whole change or none of it."""
        try:
            self.table.branch(head).cherry_pick(commit.snapshot_id)
        except InvalidRequest:
            assert commit.origin in {self.origins.get(each) for each in self.lineage[head]}
            self.done["twice"] += 1
            return
        except (CommitConflict, DuplicateBlock, NewMatches):
            self.done["conflicts"] += 1
            return
        self.done["picked"] += 1
        self.committed(head, set(commit.removed), list(commit.added), commit.origin)

    def check(self) -> None:
        """Compare every head with what is remembered, with a filter and without."""
        for head, expected in self.heads.items():
            handle = self.table.branch(head)
            assert _values(handle, None) == Counter((row.x, row.y) for row in expected), head
            low = self.rng.randrange(40)
            some = Counter((row.x, row.y) for row in expected if row.x >= low and row.y < 50)
            assert _values(handle, f"x >= {low} AND y < 50") == some, head
        ids = [each.snapshot_id for each in self.table.snapshots()]
        assert ids[: len(self.lineage["main"])] == self.lineage["main"][::-1]


def _columns(rows: list[Row]) -> dict[str, list[int]]:
    return {"x": [row.x for row in rows], "y": [row.y for row in rows]}


def _values(table: Table, filter: str | None) -> Counter[tuple[int, int]]:
    found = table.scan(filter).to_arrow()
    return Counter(zip(found.column("x").to_pylist(), found.column("y").to_pylist(), strict=True))


def test_each_head_has_the_rows_of_its_commits(tmp_path: Path) -> None:
    """Whatever is appended, changed, moved between branches or refused."""
    done: Counter[str] = Counter()
    with Lamella.embedded(tmp_path / "lake") as lake:
        for seed in range(4):
            table = lake.table(f"n.t{seed}")
            table.append({"x": [100], "y": [100]}, create=True)
            table.delete("x = 100")
            model = Model(table, random.Random(seed))
            for number in range(40):
                model.step()
                if number % 5 == 0:
                    model.check()
            model.check()
            done += model.done
    assert min(done[kind] for kind in ("picked", "forwarded", "conflicts", "twice")) > 0, done
