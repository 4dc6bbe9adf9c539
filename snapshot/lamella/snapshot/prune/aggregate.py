"""Aggregates from statistics: exact where they prove the result, and the blocks that hold the rest.

From the snapshot down, an entry is *settled* when its part of every aggregate is known: all its rows match and the
statistics are exact, or whatever rows match cannot change the result (no value at all; no value beyond the least or
greatest that is already certain). What is settled is not opened; what is not at the last layer is to be scanned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.columnar import Companion
from lamella.snapshot.errors import LimitExceeded
from lamella.snapshot.expression.bound import BoundPredicate
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.prune.aggregate_layer import Layer, Rows, beaten, better, extreme, rank_hint
from lamella.snapshot.prune.aggregate_plan import MAX_GROUPS, Plan
from lamella.snapshot.prune.evaluate import Evaluator, evaluate
from lamella.snapshot.prune.pipeline import Deferred, NotNow
from lamella.snapshot.prune.verdict import ALL, NONE, verdicts
from lamella.snapshot.stats.bound import Value
from lamella.snapshot.wire import Stage

Key = tuple[Any, ...]
#: Grouping goes block by block; for each column it costs as much as this many tests.
_WEIGHT_OF_A_GROUP: Final = 4


class Group(msgspec.Struct):
    """What is known of one group: certain to exist or not, counts so far, least or greatest values so far."""

    certain: bool
    totals: list[int]
    best: list[Value | None]


class Rest(msgspec.Struct, frozen=True):
    """Blocks that are not settled: of one segment (by its row), in one group (None: perhaps in several)."""

    segment: int
    companion: Companion
    layer: Layer
    rows: Rows
    key: Key | None


class Tally(msgspec.Struct, frozen=True):
    """The groups found, and what is left over."""

    groups: dict[Key, Group]
    rest: tuple[Rest, ...]
    stages: tuple[Stage, ...]


class Aggregation:
    """Aggregates of one snapshot; ``load`` opens the companion of a segment by its row, ``timer`` gives seconds."""

    def __init__(
        self, head: Snapshot, segments: Companion, load: Callable[[int], Companion], timer: Callable[[], float]
    ) -> None:
        self._head = head
        self._segments = segments
        self._load = load
        self._timer = timer

    def run(self, bound: BoundPredicate, plan: Plan, most_tests: int | None = None) -> Tally:
        """Work through the layers.

        Raises:
            LimitExceeded: more than 10,000 groups.
            NotNow: the segments that surely are to be opened take more than ``most_tests``.
        """
        state = _State(plan)
        clock = _Stages(self._timer)
        top = self._top(bound)
        alive = bool(top.codes[0] != NONE)
        open_top = bool(alive and state.settle_all(top, np.array([0])))
        clock.add("snapshot", 1, int(open_top), self._head.summary.compressed_byte_size if open_top else 0)
        if not open_top:
            return Tally(state.groups, (), clock.stages)
        layer = Layer.of_companion(self._segments, _codes(bound, self._segments))
        chosen = np.flatnonzero(layer.codes != NONE)
        left = state.settle_all(layer, chosen)
        if most_tests is not None:
            weight = Evaluator(bound).weight + len(plan.asked) + _WEIGHT_OF_A_GROUP * len(plan.group_by)
            tests = int(self._segments.numbers("block_count")[state.surely_opened(left)].sum()) * weight
            if tests > most_tests:
                raise NotNow(Deferred(block_tests=tests))
        rest, opened, looked_at = [], 0, 0
        sizes = self._segments.numbers("file_size")
        opened_bytes = 0
        for row in state.worth_opening(layer, left):
            companion = self._load(row)
            codes = _codes(bound, companion) if layer.codes[row] != ALL else _all_codes(companion)
            blocks = Layer.of_companion(companion, codes)
            kept = np.flatnonzero(codes != NONE)
            opened, looked_at, opened_bytes = opened + 1, looked_at + len(companion), opened_bytes + int(sizes[row])
            for key, rows in state.settle_all(blocks, kept):
                rest.append(Rest(row, companion, blocks, rows, key))
        clock.add("segment", len(layer.codes), opened, opened_bytes)
        unsettled = tuple(_final(state, rest))
        block_bytes = sum(int(part.companion.numbers("file_size")[part.rows].sum()) for part in unsettled)
        clock.add("block", looked_at, sum(len(part.rows) for part in unsettled), block_bytes)
        return Tally(state.groups, unsettled, clock.stages)

    def _top(self, bound: BoundPredicate) -> Layer:
        summary = self._head.summary
        probe = Layer.of_summary(summary.row_count, summary.col_stats, np.zeros(1, dtype=np.uint8))
        outcome = evaluate(bound, probe.zones, 1)
        codes = verdicts(outcome, probe.row_counts)
        return Layer.of_summary(summary.row_count, summary.col_stats, codes)


class _State:
    """The groups as they become known."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.groups: dict[Key, Group] = {}
        if not plan.group_by:
            self._group(())  # there is one group, even without a row

    def settle_all(self, layer: Layer, rows: Rows) -> list[tuple[Key | None, Rows]]:
        """Count what can be settled of an entry each; the rest, by group (None: perhaps in several)."""
        by_key, mixed = layer.keys(self._plan.group_by, rows)
        for key, of_key in by_key.items():
            self._learn(key, layer, of_key)
        left: list[tuple[Key | None, Rows]] = []
        for key, of_key in by_key.items():
            unsettled = self.settle(key, layer, of_key)
            if len(unsettled):
                left.append((key, unsettled))
        if len(mixed):
            left.append((None, mixed))
        return left

    def settle(self, key: Key, layer: Layer, rows: Rows) -> Rows:
        """Count what can be settled among rows of one group, and give back the rest."""
        group = self._group(key)
        whole = layer.all[rows]
        # Rows that change no value may still be the only ones of their group.
        exists = whole | group.certain
        settled = np.ones(len(rows), dtype=bool)
        for index, asked in enumerate(self._plan.asked):
            facts = layer.facts(asked)
            known = whole & (facts.exact[rows] | facts.nan[rows])
            spare = facts.empty if asked.is_count else beaten(asked, facts, group.best[index])
            settled &= known | (spare[rows] & exists)
        done = rows[settled]
        counted = done[layer.all[done]]
        for index, asked in enumerate(self._plan.asked):
            if asked.is_count:
                group.totals[index] += int(layer.facts(asked).most[counted].sum())
        return rows[~settled]

    def surely_opened(self, left: list[tuple[Key | None, Rows]]) -> list[int]:
        """The rows of ``left`` that no other one settles: of least and greatest values alone there is none."""
        counts = any(asked.is_count for asked in self._plan.asked)
        return [row for key, rows in left if key is None or counts for row in rows.tolist()]

    def worth_opening(self, layer: Layer, left: list[tuple[Key | None, Rows]]) -> Iterator[int]:
        """The rows of ``left`` one by one, without those that what was found meanwhile has settled.

        They come with the most promising first, and in growing steps: a lookup of the newest value opens few.
        """
        counts = any(asked.is_count for asked in self._plan.asked)
        for key, rows in left:
            if key is None or counts:
                yield from rows.tolist()
                continue
            rows, step = self._promising(layer, rows), 1
            while len(rows):
                yield from rows[:step].tolist()
                rows, step = self.settle(key, layer, rows[step:]), 2 * step

    def _promising(self, layer: Layer, rows: Rows) -> Rows:
        asked = self._plan.asked[0]
        zones = layer.facts(asked).zones
        keys = None if zones is None else zones.low if asked.function == "min" else zones.high
        if keys is None:
            return rows
        order = np.argsort(rank_hint(keys)[rows], kind="stable")
        return rows[order if asked.function == "min" else order[::-1]]

    def _learn(self, key: Key, layer: Layer, rows: Rows) -> None:
        """Take in the least and greatest values that are certain, whether or not their entry is settled."""
        group = self._group(key)
        rows = rows[layer.all[rows]]
        if not len(rows):
            return
        group.certain = True
        for index, asked in enumerate(self._plan.asked):
            if asked.is_count:
                continue
            facts = layer.facts(asked)
            numbers = rows[facts.exact[rows]]
            if len(numbers) and facts.zones is not None:
                keys = facts.zones.low if asked.function == "min" else facts.zones.high
                if keys is not None:
                    found = extreme(keys, numbers, greatest=asked.function == "max")
                    group.best[index] = better(asked, group.best[index], found)
            if facts.nan[rows].any():
                group.best[index] = better(asked, group.best[index], float("nan"))

    def _group(self, key: Key) -> Group:
        found = self.groups.get(key)
        if found is None:
            if len(self.groups) >= MAX_GROUPS:
                raise LimitExceeded(
                    f"there are more than {MAX_GROUPS:,} groups; narrow the filter", limit="groups", most=MAX_GROUPS
                )
            width = len(self._plan.asked)
            found = self.groups[key] = Group(not self._plan.group_by, [0] * width, [None] * width)
        return found


class _Stages:
    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._since = timer()
        self.stages: tuple[Stage, ...] = ()

    def add(self, name: str, considered: int, kept: int, kept_bytes: int) -> None:
        now = self._timer()
        stage = Stage(stage=name, considered=considered, kept=kept, bytes=kept_bytes, ms=(now - self._since) * 1e3)
        self.stages, self._since = (*self.stages, stage), now


def _final(state: _State, rest: list[Rest]) -> Iterator[Rest]:
    """What is still not settled now that every layer has been looked at."""
    for part in rest:
        rows = part.rows if part.key is None else state.settle(part.key, part.layer, part.rows)
        if len(rows):
            yield msgspec.structs.replace(part, rows=rows)


def _codes(bound: BoundPredicate, companion: Companion) -> Any:
    outcome = evaluate(bound, lambda leaf: companion.zones(leaf.id, leaf.dtype), len(companion))
    return verdicts(outcome, companion.numbers("row_count"))


def _all_codes(companion: Companion) -> Any:
    return np.where(companion.numbers("row_count") > 0, ALL, NONE).astype(np.uint8)
