"""Aggregates from statistics: exact where they prove the result, and the blocks that hold the rest.

From the snapshot down, an entry is *resolved* when its part of every aggregate is known: all its rows match and the
statistics are exact, or whatever rows match cannot change the result (no value at all; no value beyond the least or
greatest that is already certain). What is resolved is not opened; what is not at the last layer is to be scanned.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar import Sidecar, Zones, zones_of
from lamella.snapshot.columnar.keys import BytesKeys, Keys, Mask, NumberKeys, WideKeys, lesser
from lamella.snapshot.columnar.zones import (
    HIGH_EXACT,
    HIGH_KNOWN,
    LOW_EXACT,
    LOW_KNOWN,
    MAY_NAN,
    MAY_NUMBER,
    NULLS_KNOWN,
    exact_bits,
)
from lamella.snapshot.errors import InvalidRequest, LimitExceeded
from lamella.snapshot.expression.bound import BoundPredicate
from lamella.snapshot.manifest import Snapshot, Summary
from lamella.snapshot.prune.evaluate import Evaluator, evaluate
from lamella.snapshot.prune.outcome import ALL, NONE, verdicts
from lamella.snapshot.prune.pipeline import Deferred, NotNow
from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.stats.bound import Value
from lamella.snapshot.stats.column import MAX_SUM_DIGITS, has_sum, sum_of
from lamella.snapshot.wire import AggregateFunction, AggregateRequest, Stage

#: Aggregates, and columns to group by, in one request.
MAX_TERMS: Final = 64
#: Groups in one answer.
MAX_GROUPS: Final = 10_000

_CALL: Final = re.compile(r"\s*(count|min|max|sum)\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)
_PART: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`\s.()]+))\s*(\.|$)")


class AggregateTerm(msgspec.Struct, frozen=True):
    """One aggregate; ``leaf`` None: ``count(*)``. ``text`` is how the request spells it."""

    function: AggregateFunction
    leaf: Leaf | None
    text: str

    @property
    def is_count(self) -> bool:
        """True for counts."""
        return self.function == "count"

    @property
    def is_additive(self) -> bool:
        """True for counts and sums, to which each block adds; the others are minima and maxima."""
        return self.function in ("count", "sum")

    @property
    def dtype(self) -> DataType:
        """The type of the result. Spark's sum of integers is a bigint, which may overflow."""
        if self.is_count or self.leaf is None:
            return _COUNT
        if self.function != "sum":
            return self.leaf.dtype
        return DataType("decimal", precision=MAX_SUM_DIGITS, scale=self.leaf.dtype.scale)


_COUNT: Final = DataType("int64")


class Plan(msgspec.Struct, frozen=True):
    """The aggregates and the columns to group by."""

    aggregates: tuple[AggregateTerm, ...]
    group_by: tuple[Leaf, ...]


def read_plan(request: AggregateRequest, schema: Schema) -> Plan:
    """Read the request's aggregates and group columns.

    Raises:
        InvalidRequest: no aggregate, one that is not ``count(*)``, ``count(c)``, ``min(c)``, ``max(c)`` or ``sum(c)``,
            or a column that has no single value in a row, no order or no exact sum.
        UnknownColumn: no such column, or a struct, list or map.
        LimitExceeded: more than 64 aggregates or group columns.
    """
    if not request.aggregates:
        raise InvalidRequest("aggregates is empty")
    for name, given in (("aggregates", request.aggregates), ("group_by", request.group_by)):
        if len(given) > MAX_TERMS:
            raise LimitExceeded(
                f"{name} has {len(given)} entries; the limit is {MAX_TERMS}", limit=name, maximum=MAX_TERMS
            )
    aggregates = tuple(_aggregate_term(text, schema, request.case_sensitive) for text in request.aggregates)
    groups = tuple(_leaf(text, schema, request.case_sensitive) for text in request.group_by)
    return Plan(aggregates, groups)


def _aggregate_term(text: str, schema: Schema, case_sensitive: bool) -> AggregateTerm:
    match = _CALL.fullmatch(text)
    if match is None:
        raise InvalidRequest(f"{text!r} is not count(*), count(c), min(c), max(c) or sum(c)", aggregate=text)
    function, inner = match[1].lower(), match[2].strip()
    if function == "count" and (inner == "*" or inner.isdecimal()):
        return AggregateTerm("count", None, text)
    leaf = _leaf(inner, schema, case_sensitive)
    if function == "count":
        return AggregateTerm("count", leaf, text)
    if function == "sum":
        if not has_sum(leaf.dtype):
            raise InvalidRequest(f"{text!r}: only integers and decimals have an exact sum", aggregate=text)
        return AggregateTerm("sum", leaf, text)
    if leaf.dtype.order is None:
        raise InvalidRequest(f"{text!r}: values of type {leaf.dtype} have no order", aggregate=text)
    return AggregateTerm("min" if function == "min" else "max", leaf, text)


def _leaf(text: str, schema: Schema, case_sensitive: bool) -> Leaf:
    leaf = schema.leaf(_path(text), case_sensitive=case_sensitive)
    if leaf.repeated:
        raise InvalidRequest(f"column {leaf.name!r} can have several values in a row", column=leaf.name)
    return leaf


def _path(text: str) -> str:
    """A column's dotted path; a part in backquotes may hold anything."""
    parts, at, more = [], 0, True
    while more:
        match = _PART.match(text, at)
        if match is None:
            raise InvalidRequest(f"{text!r} is not a column; only plain columns can be aggregated", column=text)
        parts.append(match[1].replace("``", "`") if match[1] is not None else match[2])
        at, more = match.end(), match[3] == "."
    return ".".join(parts)


# What the statistics of one layer's entries (blocks, segments, the snapshot) say of aggregates, entry by entry.
#
# An aggregate of an entry is taken over the rows that match the filter: all of them where the verdict is ALL, an
# unknown part of them elsewhere. Order of values: the type's own, and NaN above everything.

Rows = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]


class Layer:
    """The entries of one layer, and their verdicts."""

    def __init__(
        self,
        row_counts: Counts,
        live_row_counts: Counts,
        codes: npt.NDArray[np.uint8],
        zones: Callable[[Leaf], Zones],
        nulls: Callable[[Leaf], Counts],
        sums: Callable[[Leaf], Sequence[int | None]],
    ) -> None:
        self.row_counts = row_counts
        #: Rows that are not deleted; -1: unknown.
        self.live = live_row_counts
        self.codes = codes
        self.zones = zones
        self._nulls = nulls
        self._sums = sums
        self.all = np.asarray(codes == ALL)
        #: Where a row certainly matches.
        self.certain = self.all & (live_row_counts > 0)
        self._facts: dict[tuple[str, int], Facts] = {}

    @classmethod
    def of_sidecar(cls, sidecar: Sidecar, codes: npt.NDArray[np.uint8]) -> Layer:
        """The blocks of a segment, or the segments of a snapshot."""
        return cls(
            sidecar.numbers("row_count"),
            sidecar.live_row_counts(),
            codes,
            lambda leaf: sidecar.zones(leaf.id, leaf.dtype),
            lambda leaf: sidecar.null_counts(leaf.id, leaf.dtype),
            lambda leaf: sidecar.sums(leaf.id, leaf.dtype),
        )

    @classmethod
    def of_summary(cls, summary: Summary, codes: npt.NDArray[np.uint8]) -> Layer:
        """One entry, by its statistics."""
        row_count, stats = summary.row_count, summary.col_stats

        def zones(leaf: Leaf) -> Zones:
            entry = [(row_count, stats.get(leaf.id))]
            found = zones_of(leaf.dtype, entry)
            return Zones(found.low, found.high, found.flags | exact_bits(entry))

        def nulls(leaf: Leaf) -> Counts:
            known = stats.get(leaf.id)
            return np.array([-1 if known is None or known.null_count is None else known.null_count])

        live = -1 if summary.live_row_count is None else summary.live_row_count
        return cls(
            *(np.array([row_count]), np.array([live]), codes, zones, nulls),
            lambda leaf: [sum_of(leaf.dtype, stats.get(leaf.id))],
        )

    def facts(self, term: AggregateTerm) -> Facts:
        """What is known for an aggregate, worked out once."""
        key = (term.function, term.leaf.id if term.leaf is not None else 0)
        found = self._facts.get(key)
        if found is None:
            found = self._facts[key] = self._work_out(term)
        return found

    def _work_out(self, term: AggregateTerm) -> Facts:
        rows, live = self.row_counts, self.live
        no = np.zeros(len(rows), dtype=bool)
        max_live = np.where(live >= 0, live, rows)
        if term.leaf is None:
            return Facts(empty=no, exact=live >= 0, nan=no, holds=live > 0, max_count=max_live, zones=None)
        zones, nulls = self.zones(term.leaf), self._nulls(term.leaf)
        number, may_nan = zones.has(MAY_NUMBER), zones.has(MAY_NAN)
        known = zones.has(NULLS_KNOWN) & (nulls >= 0)
        max_count = np.where(known, np.minimum(max_live, rows - nulls), max_live)
        # Bounds that are values of deleted rows are not marked as exact.
        exact_low, exact_high = number & zones.has(LOW_EXACT), number & zones.has(HIGH_EXACT)
        holds = (known & (nulls < live)) | exact_low | exact_high
        if term.is_count:
            # Which of the deleted rows are null is unknown, unless all rows are, or none is.
            exact = known & ((live == rows) | (nulls == rows) | ((nulls == 0) & (live >= 0)))
            return Facts(empty=~number & ~may_nan, exact=exact, nan=no, holds=holds, max_count=max_count, zones=zones)
        if term.function == "sum":
            sums = self._sums(term.leaf)
            # Where a value is not certain, the result is null or a sum.
            exact = np.array([each is not None for each in sums], dtype=bool) & holds
            totals = np.array([each or 0 for each in sums], dtype=object)
            counted = known & ((live == rows) | (nulls == 0)) & (live >= 0)
            return Facts(~number, exact, no, holds, max_count, zones, totals, counted)
        exact = exact_low if term.function == "min" else exact_high & ~may_nan
        nan = ~number & may_nan & holds
        return Facts(empty=~number & ~may_nan, exact=exact, nan=nan, holds=holds, max_count=max_count, zones=zones)

    def keys(self, group_by: tuple[Leaf, ...], rows: Rows) -> tuple[dict[tuple[Any, ...], Rows], Rows]:
        """The rows by group, where all rows of an entry are proven to be in one, and the others."""
        if not group_by:
            return ({(): rows} if len(rows) else {}), rows[:0]
        columns = [_constants(self.zones(leaf), self._nulls(leaf), self.row_counts, rows) for leaf in group_by]
        found: dict[tuple[Any, ...], list[int]] = {}
        mixed = []
        for row, parts in zip(rows.tolist(), zip(*columns, strict=True), strict=True):
            if _MIXED in parts:
                mixed.append(row)
            else:
                found.setdefault(parts, []).append(row)
        return {key: np.array(at) for key, at in found.items()}, np.array(mixed, dtype=np.int64)


class Facts(msgspec.Struct, frozen=True):
    """Per entry, for one aggregate.

    ``empty``: no row has a value. ``holds``: some row has one. ``exact``: over all rows of the entry the result is
    known: for a count ``max_count`` (otherwise that is the most it can be), for a sum ``totals`` (Python integers, 0
    where unknown), for a least or greatest value the bound; where ``nan`` is set the result is NaN instead.
    ``counted``, for a sum: ``max_count`` is the number of values.
    """

    empty: Mask
    exact: Mask
    nan: Mask
    holds: Mask
    max_count: Counts
    zones: Zones | None
    totals: npt.NDArray[np.object_] | None = None
    counted: Mask | None = None

    def added(self, rows: Rows) -> int:
        """What some entries, all of whose rows match, add to a count or a sum."""
        return int((self.max_count if self.totals is None else self.totals)[rows].sum())


class _Mixed:
    """Stands for "rows of this entry may be in several groups"."""


_MIXED = _Mixed()
#: Stands for NaN in a group's key, since NaN is not equal to itself in Python.
NAN_KEY = "NaN"


def _constants(zones: Zones, nulls: Counts, row_counts: Counts, rows: Rows) -> list[Any]:
    """For each row the one value that all rows of the entry have (None: null), else ``_MIXED``."""
    found: list[Any] = [_MIXED] * len(rows)
    number, nan = zones.has(MAY_NUMBER)[rows], zones.has(MAY_NAN)[rows]
    known = zones.has(NULLS_KNOWN)[rows] & (nulls[rows] >= 0)
    no_null = known & (nulls[rows] == 0)
    for index in np.flatnonzero(~number & ~nan & known & (nulls[rows] == row_counts[rows])):
        found[index] = None
    for index in np.flatnonzero(~number & nan & no_null):
        found[index] = NAN_KEY
    if zones.low is not None and zones.high is not None:
        bounded = zones.has(LOW_KNOWN)[rows] & zones.has(HIGH_KNOWN)[rows] & number & ~nan & no_null
        candidates = np.flatnonzero(bounded)
        low, high = zones.low.take(rows[candidates]), zones.high.take(rows[candidates])
        same = ~lesser(low, high) & ~lesser(high, low)
        for index, row in zip(candidates[same], rows[candidates[same]], strict=True):
            found[index] = value_at(zones.low, int(row))
    return found


def value_at(keys: Keys, row: int) -> Value:
    """One bound; a zero is 0.0."""
    if isinstance(keys, NumberKeys):
        value: int | float = keys.array[row].item()
        return value + 0.0 if isinstance(value, float) else value
    if isinstance(keys, WideKeys):
        return (int(keys.high[row]) << 64) + int(keys.low[row])
    if isinstance(keys, BytesKeys):
        return keys.at(row)
    raise TypeError(f"{type(keys).__name__} holds no values")


def extreme(keys: Keys, rows: Rows, *, is_max: bool) -> Value:
    """The least (or greatest) bound of some rows, at least one."""
    choose = np.argmax if is_max else np.argmin
    if isinstance(keys, NumberKeys):
        return value_at(keys, int(rows[choose(keys.array[rows])]))
    if isinstance(keys, WideKeys):
        highs = keys.high[rows]
        rows = rows[highs == highs[choose(highs)]]
        return value_at(keys, int(rows[choose(keys.low[rows])]))
    if isinstance(keys, BytesKeys):
        prefixes = keys.prefix[rows]
        tied = (keys.at(int(row)) for row in rows[prefixes == prefixes[choose(prefixes)]])
        return max(tied) if is_max else min(tied)
    raise TypeError(f"{type(keys).__name__} holds no values")


def rank_hint(keys: Keys) -> npt.NDArray[Any]:
    """Numbers that sort as the bounds do, but for ties."""
    if isinstance(keys, NumberKeys):
        return keys.array
    if isinstance(keys, WideKeys):
        return keys.high
    if isinstance(keys, BytesKeys):
        return keys.prefix
    raise TypeError(f"{type(keys).__name__} holds no values")


def is_nan(value: Value | None) -> bool:
    """True for NaN."""
    return isinstance(value, float) and math.isnan(value)


def better(term: AggregateTerm, one: Value | None, other: Value | None) -> Value | None:
    """The least (or greatest) of two results; None: no value."""
    if one is None or other is None:
        return other if one is None else one
    if is_nan(one) or is_nan(other):
        is_max = term.function == "max"
        return one if is_nan(one) == is_max else other
    if term.function == "max":
        return one if one >= other else other  # type: ignore[operator]  # one order per type
    return one if one <= other else other  # type: ignore[operator]  # one order per type


def beaten(term: AggregateTerm, facts: Facts, best: Value | None) -> Mask:
    """Where no row of an entry, whichever match, can be less (or greater) than ``best``."""
    zones = facts.zones
    if best is None or zones is None:
        return facts.empty
    no_number, nan = zones.lacks(MAY_NUMBER), zones.has(MAY_NAN)
    if is_nan(best):
        return np.ones_like(nan) if term.function == "max" else no_number
    low, high = zones.low, zones.high
    if low is None or high is None:
        return facts.empty
    if term.function == "min":
        return no_number | (zones.has(LOW_KNOWN) & ~low.less(best))
    return ~nan & (no_number | (zones.has(HIGH_KNOWN) & high.less_equal(best)))


Key = tuple[Any, ...]
#: Grouping goes block by block; for each column it costs as much as this many tests.
_WEIGHT_OF_A_GROUP: Final = 4


class Group(msgspec.Struct):
    """What is known of one group: certain to exist or not, counts and sums so far, least or greatest values so far.

    ``has_values``: for each sum, whether it has a value; otherwise it is null.
    """

    certain: bool
    totals: list[int]
    best: list[Value | None]
    has_values: list[bool]


class Rest(msgspec.Struct, frozen=True):
    """Blocks that are not resolved: of one segment (by its row), in one group (None: perhaps in several)."""

    segment: int
    sidecar: Sidecar
    layer: Layer
    rows: Rows
    key: Key | None


class Tally(msgspec.Struct, frozen=True):
    """The groups found, and what is left over."""

    groups: dict[Key, Group]
    rest: tuple[Rest, ...]
    stages: tuple[Stage, ...]


class Aggregation:
    """Aggregates of one snapshot; ``load`` opens the sidecar of a segment by its row, ``timer`` gives seconds."""

    def __init__(
        self, head: Snapshot, segments: Sidecar, load: Callable[[int], Sidecar], timer: Callable[[], float]
    ) -> None:
        self._head = head
        self._segments = segments
        self._load = load
        self._timer = timer

    def run(self, bound: BoundPredicate, plan: Plan, max_tests: int | None = None) -> Tally:
        """Work through the layers.

        Raises:
            LimitExceeded: more than 10,000 groups.
            NotNow: the segments that surely are to be opened take more than ``max_tests``.
        """
        state = _State(plan)
        clock = _Stages(self._timer)
        top = self._top(bound)
        alive = bool(top.codes[0] != NONE)
        open_top = bool(alive and state.resolve_all(top, np.array([0])))
        clock.add("snapshot", 1, int(open_top), self._head.summary.compressed_byte_size if open_top else 0)
        if not open_top:
            return Tally(state.groups, (), clock.stages)
        layer = Layer.of_sidecar(self._segments, _codes(bound, self._segments))
        chosen = np.flatnonzero(layer.codes != NONE)
        left = state.resolve_all(layer, chosen)
        if max_tests is not None:
            weight = Evaluator(bound).weight + len(plan.aggregates) + _WEIGHT_OF_A_GROUP * len(plan.group_by)
            tests = int(self._segments.numbers("block_count")[state.surely_opened(left)].sum()) * weight
            if tests > max_tests:
                raise NotNow(Deferred(block_tests=tests))
        rest, opened, looked_at = [], 0, 0
        sizes = self._segments.numbers("file_size")
        opened_bytes = 0
        for row in state.worth_opening(layer, left):
            sidecar = self._load(row)
            codes = _codes(bound, sidecar) if layer.codes[row] != ALL else _all_codes(sidecar)
            blocks = Layer.of_sidecar(sidecar, codes)
            selected = np.flatnonzero(codes != NONE)
            opened, looked_at, opened_bytes = opened + 1, looked_at + len(sidecar), opened_bytes + int(sizes[row])
            for key, rows in state.resolve_all(blocks, selected):
                rest.append(Rest(row, sidecar, blocks, rows, key))
        clock.add("segment", len(layer.codes), opened, opened_bytes)
        unresolved = tuple(_final(state, rest))
        block_bytes = sum(int(part.sidecar.numbers("file_size")[part.rows].sum()) for part in unresolved)
        clock.add("block", looked_at, sum(len(part.rows) for part in unresolved), block_bytes)
        return Tally(state.groups, unresolved, clock.stages)

    def _top(self, bound: BoundPredicate) -> Layer:
        summary = self._head.summary
        probe = Layer.of_summary(summary, np.zeros(1, dtype=np.uint8))
        outcome = evaluate(bound, probe.zones, 1)
        codes = verdicts(outcome, probe.row_counts)
        return Layer.of_summary(summary, codes)


class _State:
    """The groups as they become known."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.groups: dict[Key, Group] = {}
        if not plan.group_by:
            self._group(())  # there is one group, even without a row

    def resolve_all(self, layer: Layer, rows: Rows) -> list[tuple[Key | None, Rows]]:
        """Count what can be resolved of an entry each; the rest, by group (None: perhaps in several)."""
        by_key, mixed = layer.keys(self._plan.group_by, rows)
        for key, of_key in by_key.items():
            self._learn(key, layer, of_key)
        left: list[tuple[Key | None, Rows]] = []
        for key, of_key in by_key.items():
            unresolved = self.resolve(key, layer, of_key)
            if len(unresolved):
                left.append((key, unresolved))
        if len(mixed):
            left.append((None, mixed))
        return left

    def resolve(self, key: Key, layer: Layer, rows: Rows) -> Rows:
        """Count what can be resolved among rows of one group, and give back the rest."""
        group = self._group(key)
        whole = layer.all[rows]
        # Rows that change no value may still be the only ones of their group.
        resolved = layer.certain[rows] | group.certain
        for index, term in enumerate(self._plan.aggregates):
            facts = layer.facts(term)
            known = whole & (facts.exact[rows] | facts.nan[rows])
            spare = facts.empty if term.is_additive else beaten(term, facts, group.best[index])
            resolved &= known | spare[rows]
        done = rows[resolved]
        counted = done[layer.all[done]]
        for index, term in enumerate(self._plan.aggregates):
            if term.is_additive:
                facts = layer.facts(term)
                group.totals[index] += facts.added(counted)
                group.has_values[index] |= bool(facts.holds[counted].any())
        return rows[~resolved]

    def surely_opened(self, left: list[tuple[Key | None, Rows]]) -> list[int]:
        """The rows of ``left`` that no other one resolves: of least and greatest values alone there is none."""
        counts = any(term.is_additive for term in self._plan.aggregates)
        return [row for key, rows in left if key is None or counts for row in rows.tolist()]

    def worth_opening(self, layer: Layer, left: list[tuple[Key | None, Rows]]) -> Iterator[int]:
        """The rows of ``left`` one by one, without those that what was found meanwhile has resolved.

        They come with the most promising first, and in growing steps: a lookup of the newest value opens few.
        """
        counts = any(term.is_additive for term in self._plan.aggregates)
        for key, rows in left:
            if key is None or counts:
                yield from rows.tolist()
                continue
            rows, step = self._promising(layer, rows), 1
            while len(rows):
                yield from rows[:step].tolist()
                rows, step = self.resolve(key, layer, rows[step:]), 2 * step

    def _promising(self, layer: Layer, rows: Rows) -> Rows:
        term = self._plan.aggregates[0]
        zones = layer.facts(term).zones
        keys = None if zones is None else zones.low if term.function == "min" else zones.high
        if keys is None:
            return rows
        order = np.argsort(rank_hint(keys)[rows], kind="stable")
        return rows[order if term.function == "min" else order[::-1]]

    def _learn(self, key: Key, layer: Layer, rows: Rows) -> None:
        """Update the minimum and the maximum with values that are certain, whether or not their entry is resolved."""
        group = self._group(key)
        group.certain |= bool(layer.certain[rows].any())
        rows = rows[layer.all[rows]]
        for index, term in enumerate(self._plan.aggregates):
            if term.is_additive:
                continue
            facts = layer.facts(term)
            group.certain |= bool(facts.holds[rows].any())
            numbers = rows[facts.exact[rows]]
            if len(numbers) and facts.zones is not None:
                keys = facts.zones.low if term.function == "min" else facts.zones.high
                if keys is not None:
                    found = extreme(keys, numbers, is_max=term.function == "max")
                    group.best[index] = better(term, group.best[index], found)
            if facts.nan[rows].any():
                group.best[index] = better(term, group.best[index], float("nan"))

    def _group(self, key: Key) -> Group:
        found = self.groups.get(key)
        if found is None:
            if len(self.groups) >= MAX_GROUPS:
                raise LimitExceeded(
                    f"there are more than {MAX_GROUPS:,} groups; use a narrower filter",
                    limit="groups",
                    maximum=MAX_GROUPS,
                )
            width = len(self._plan.aggregates)
            found = self.groups[key] = Group(not self._plan.group_by, [0] * width, [None] * width, [False] * width)
        return found


class _Stages:
    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._since = timer()
        self.stages: tuple[Stage, ...] = ()

    def add(self, name: str, considered: int, selected: int, selected_bytes: int) -> None:
        now = self._timer()
        stage = Stage(
            stage=name, considered=considered, kept=selected, bytes=selected_bytes, ms=(now - self._since) * 1e3
        )
        self.stages, self._since = (*self.stages, stage), now


def _final(state: _State, rest: list[Rest]) -> Iterator[Rest]:
    """What is still not resolved now that every layer has been looked at."""
    for part in rest:
        rows = part.rows if part.key is None else state.resolve(part.key, part.layer, part.rows)
        if len(rows):
            yield msgspec.structs.replace(part, rows=rows)


def _codes(bound: BoundPredicate, sidecar: Sidecar) -> Any:
    outcome = evaluate(bound, lambda leaf: sidecar.zones(leaf.id, leaf.dtype), len(sidecar))
    return verdicts(outcome, sidecar.numbers("row_count"))


def _all_codes(sidecar: Sidecar) -> Any:
    return np.where(sidecar.numbers("row_count") > 0, ALL, NONE).astype(np.uint8)
