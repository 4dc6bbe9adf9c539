"""The layers in order: snapshot summary, segment summaries, blocks. Each looks only at what the one above kept.

A segment that its summary decides (nothing matches, or everything) is not opened for testing; one that is wholly
kept is opened only because its blocks' addresses are in it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar import Companion, Zones, zones_of
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN
from lamella.snapshot.expression.bound import (
    Anything,
    BoundAnd,
    BoundLeaf,
    BoundPredicate,
    NanTest,
    NonNull,
    NullTest,
    leaves_of,
)
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.prune.evaluate import evaluate
from lamella.snapshot.prune.verdict import ALL, NONE, UNKNOWN, verdicts
from lamella.snapshot.schema import Leaf
from lamella.snapshot.wire import NotUsed, PredicateUse, Stage

Codes = npt.NDArray[np.uint8]


class Kept(msgspec.Struct, frozen=True):
    """The kept blocks of one segment: its row in the snapshot's companion, their rows in its own, their verdicts."""

    segment: int
    companion: Companion
    rows: npt.NDArray[np.int64]
    codes: Codes


class Funnel(msgspec.Struct, frozen=True):
    """What a prune found: a verdict per segment, and the kept blocks (None when only segments were asked for)."""

    stages: tuple[Stage, ...]
    segment_codes: Codes
    kept: tuple[Kept, ...] | None
    not_used: tuple[NotUsed, ...]
    predicates: tuple[PredicateUse, ...] | None


class Pruning:
    """One prune of one snapshot; ``timer`` gives seconds, ``load`` opens the companion of a segment by its row."""

    def __init__(
        self,
        head: Snapshot,
        segments: Companion,
        load: Callable[[int], Companion],
        timer: Callable[[], float],
    ) -> None:
        self._head = head
        self._segments = segments
        self._load = load
        self._timer = timer

    def run(self, bound: BoundPredicate, *, blocks: bool = True, explain: bool = False) -> Funnel:
        """Test every layer; ``blocks`` False stops at the segments."""
        started = self._timer()
        stages: list[Stage] = []
        summary = self._head.summary

        def stage(name: str, considered: int, kept: int, kept_bytes: int) -> None:
            nonlocal started
            now = self._timer()
            stages.append(
                Stage(stage=name, considered=considered, kept=kept, bytes=kept_bytes, ms=(now - started) * 1e3)
            )
            started = now

        alive = self._snapshot_layer(bound)
        stage("snapshot", 1, int(alive), summary.compressed_byte_size if alive else 0)
        codes = self._segment_layer(bound) if alive else np.zeros(len(self._segments), dtype=np.uint8)
        chosen = np.flatnonzero(codes != NONE)
        if alive:
            stage("segment", len(codes), len(chosen), int(self._segments.numbers("file_size")[chosen].sum()))
        if not blocks:
            return Funnel(tuple(stages), codes, None, self._not_used(bound, None), None)
        opened = [(int(row), self._load(int(row))) for row in chosen]
        kept = tuple(self._block_layer(bound, row, companion, int(codes[row])) for row, companion in opened)
        if alive:
            considered = sum(len(companion) for _, companion in opened)
            kept_bytes = sum(int(part.companion.numbers("file_size")[part.rows].sum()) for part in kept)
            stage("block", considered, sum(len(part.rows) for part in kept), kept_bytes)
        companions = [companion for _, companion in opened]
        return Funnel(
            tuple(stages),
            codes,
            kept,
            self._not_used(bound, companions),
            self._predicates(bound, companions) if explain else None,
        )

    def _snapshot_layer(self, bound: BoundPredicate) -> bool:
        summary = self._head.summary

        def lookup(leaf: Leaf) -> Zones:
            return zones_of(leaf.dtype, [(summary.row_count, summary.col_stats.get(leaf.id))])

        return bool(verdicts(evaluate(bound, lookup, 1), np.array([summary.row_count]))[0] != NONE)

    def _segment_layer(self, bound: BoundPredicate) -> Codes:
        return _codes(bound, self._segments)

    def _block_layer(self, bound: BoundPredicate, row: int, companion: Companion, segment_code: int) -> Kept:
        if segment_code == ALL:
            codes = np.where(companion.numbers("row_count") > 0, ALL, NONE).astype(np.uint8)
        else:
            codes = _codes(bound, companion)
        rows = np.flatnonzero(codes != NONE)
        return Kept(row, companion, rows, codes[rows])

    def _not_used(self, bound: BoundPredicate, opened: list[Companion] | None) -> tuple[NotUsed, ...]:
        found: dict[str, str] = {}
        for leaf in leaves_of(bound):
            if isinstance(leaf, Anything):
                found.setdefault(leaf.text, leaf.reason)
            elif opened and not isinstance(leaf, NullTest | NanTest | NonNull) and not _has_bounds(leaf, opened):
                stats = self._head.summary.col_stats.get(leaf.leaf.id)
                why = stats.reason if stats is not None and stats.reason else "no statistics were recorded"
                found.setdefault(leaf.text, f"no block considered has bounds of {leaf.leaf.name}: {why}")
        return tuple(NotUsed(predicate=text, reason=reason) for text, reason in found.items())

    def _predicates(self, bound: BoundPredicate, opened: list[Companion]) -> tuple[PredicateUse, ...]:
        uses = []
        for part in _conjuncts(bound):
            codes = [_codes(part, companion) for companion in opened]
            leaves = leaves_of(part)
            names = dict.fromkeys(leaf.leaf.name for leaf in leaves if leaf.leaf is not None)
            uses.append(
                PredicateUse(
                    predicate=" / ".join(dict.fromkeys(leaf.text for leaf in leaves)) or "constant",
                    column=", ".join(names),
                    considered=sum(len(c) for c in codes),
                    ruled_out=sum(int((c == NONE).sum()) for c in codes),
                    unknown=sum(int((c == UNKNOWN).sum()) for c in codes),
                )
            )
        return tuple(uses)


def _codes(bound: BoundPredicate, companion: Companion) -> Codes:
    def lookup(leaf: Leaf) -> Zones:
        return companion.zones(leaf.id, leaf.dtype)

    return verdicts(evaluate(bound, lookup, len(companion)), companion.numbers("row_count"))


def _has_bounds(leaf: BoundLeaf, opened: list[Companion]) -> bool:
    if leaf.leaf is None:
        return False
    zones = (companion.zones(leaf.leaf.id, leaf.leaf.dtype) for companion in opened)
    return any(bool(z.has(LOW_KNOWN | HIGH_KNOWN).any()) for z in zones)


def _conjuncts(bound: BoundPredicate) -> list[BoundPredicate]:
    if isinstance(bound, BoundAnd):
        return [part for child in bound.children for part in _conjuncts(child)]
    return [bound]
