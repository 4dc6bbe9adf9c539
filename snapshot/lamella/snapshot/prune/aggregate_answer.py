"""From a tally to the answer that travels: values typed as in manifests, blocks to scan, limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, cast

import msgspec
import numpy as np

from lamella.snapshot.columnar.keys import Keys, Mask
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NUMBER
from lamella.snapshot.errors import LimitExceeded
from lamella.snapshot.expression.bound import Anything, BoundPredicate, leaves_of
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.prune.aggregate import (
    NAN_KEY,
    AggregateTerm,
    Group,
    Key,
    Plan,
    Rest,
    Rows,
    Tally,
    better,
    extreme,
    is_nan,
    value_at,
)
from lamella.snapshot.prune.outcome import VERDICT_NAMES
from lamella.snapshot.schema import DataType, Leaf
from lamella.snapshot.stats import Bound, to_bound
from lamella.snapshot.stats.bound import Value
from lamella.snapshot.stats.column import MAX_SUM_DIGITS
from lamella.snapshot.wire import (
    AggregateAnswer,
    AggregateColumn,
    AggregateGroup,
    AggregateRequest,
    AggregateValue,
    NotUsed,
    PrunedBlock,
    Report,
    Verdict,
)

_NAMES: Final = cast("tuple[Verdict, ...]", VERDICT_NAMES)


def answer(
    head: Snapshot, plan: Plan, tally: Tally, request: AggregateRequest, bound: BoundPredicate
) -> AggregateAnswer:
    """The answer to ``request``."""
    report = Report(
        stages=tally.stages,
        not_used=_not_used(bound),
        blocks_total=head.summary.block_count,
        rows_total=head.summary.row_count,
        bytes_total=head.summary.compressed_byte_size,
    )
    bounded = request.mode == "bounded"
    found = tally.groups.items()
    if bounded:
        mixed = [rest for rest in tally.rest if rest.key is None]
        rest_of: dict[Key, list[Rest]] = {key: list(mixed) for key in tally.groups}
        for rest in tally.rest:
            if rest.key is not None:
                rest_of[rest.key].append(rest)
        groups = [_limits(plan, key, group, rest_of[key]) for key, group in found]
    else:
        open_keys = {rest.key for rest in tally.rest}
        groups = [
            _group(plan, key, group, exact=open_keys.isdisjoint((None, key))) for key, group in found if group.certain
        ]
    scan_blocks = 0 if bounded else sum(len(rest.rows) for rest in tally.rest)
    is_listed = request.max_scan_blocks is None or scan_blocks <= request.max_scan_blocks
    return AggregateAnswer(
        snapshot_id=head.snapshot_id,
        timestamp_ms=head.timestamp_ms,
        complete=not tally.rest,
        group_columns=tuple(
            AggregateColumn(name=text, type=str(leaf.dtype))
            for text, leaf in zip(request.group_by, plan.group_by, strict=True)
        ),
        columns=tuple(AggregateColumn(name=term.text, type=str(term.dtype)) for term in plan.aggregates),
        groups=tuple(groups),
        other_groups=bool(plan.group_by) and any(rest.key is None for rest in tally.rest),
        scan=tuple(_scan(tally.rest, head.schema.schema_id)) if is_listed and not bounded else (),
        scan_blocks=scan_blocks,
        report=report,
    )


def typed(dtype: DataType, value: Value | None) -> Bound | None:
    """A value as answers carry it: tagged; NaN as text; a zero is 0.0; None is null."""
    if value is None:
        return None
    if is_nan(value):
        return Bound(float64="NaN")
    return to_bound(dtype, value + 0.0 if isinstance(value, float) else value)


def _result(term: AggregateTerm, value: Value | None) -> Bound | None:
    return typed(term.dtype, value)


def _key(group_by: Iterable[Leaf], key: Key) -> tuple[Bound | None, ...]:
    parts = zip(group_by, key, strict=True)
    return tuple(typed(leaf.dtype, float("nan") if part == NAN_KEY else part) for leaf, part in parts)


def _group(plan: Plan, key: Key, group: Group, *, exact: bool) -> AggregateGroup:
    values = [_found(term, group, index) for index, term in enumerate(plan.aggregates)]
    return AggregateGroup(
        key=_key(plan.group_by, key),
        values=tuple(
            AggregateValue(exact=exact, value=_result(a, v)) for a, v in zip(plan.aggregates, values, strict=True)
        ),
    )


def _found(term: AggregateTerm, group: Group, index: int) -> Value | None:
    if term.function == "sum":
        if abs(group.totals[index]) >= 10**MAX_SUM_DIGITS:
            raise LimitExceeded(
                f"{term.text!r} has more than {MAX_SUM_DIGITS} digits", limit="digits", maximum=MAX_SUM_DIGITS
            )
        return group.totals[index] if group.has_values[index] else None
    return group.totals[index] if term.is_count else group.best[index]


def _scan(parts: Iterable[Rest], schema_id: int) -> Iterable[PrunedBlock]:
    for rest in parts:
        sizes = rest.sidecar.numbers("file_size")[rest.rows].tolist()
        counts = rest.layer.row_counts[rest.rows].tolist()
        codes = rest.layer.codes[rest.rows].tolist()
        locations = rest.sidecar.texts("location", rest.rows)
        older = rest.sidecar.older_schema_ids(rest.rows, schema_id)
        constants, deletes = rest.sidecar.constants(rest.rows), rest.sidecar.deletes(rest.rows)
        each = zip(locations, counts, sizes, codes, older, constants, deletes, strict=True)
        for location, rows, size, code, written, constant, deleted in each:
            yield PrunedBlock(
                location=location,
                row_count=rows,
                file_size=size,
                verdict=_NAMES[code],
                schema_id=written,
                constants=constant,
                deletes=deleted,
            )


def _not_used(bound: BoundPredicate) -> tuple[NotUsed, ...]:
    found = {leaf.text: leaf.reason for leaf in leaves_of(bound) if isinstance(leaf, Anything)}
    return tuple(NotUsed(predicate=text, reason=reason) for text, reason in found.items())


def _limits(plan: Plan, key: Key, group: Group, rest: list[Rest]) -> AggregateGroup:
    """One group by what its result cannot be below and above."""
    return AggregateGroup(
        key=_key(plan.group_by, key),
        values=tuple(
            _count_limits(term, group.totals[index], rest)
            if term.is_count
            else _sum_limits(term, group.totals[index], rest, has_values=group.has_values[index])
            if term.function == "sum"
            else _value_limits(term, group.best[index], rest)
            for index, term in enumerate(plan.aggregates)
        ),
        certain=group.certain,
    )


def _count_limits(term: AggregateTerm, total: int, rest: list[Rest]) -> AggregateValue:
    low = high = total
    for part in rest:
        facts, rows = part.layer.facts(term), part.rows
        high += int(facts.max_count[rows].sum())
        if part.key is not None:
            whole = rows[part.layer.all[rows]]
            # At least one value is certain where some row holds one, though not how many.
            low += int(np.where(facts.exact[whole], facts.max_count[whole], facts.holds[whole].astype(np.int64)).sum())
    return _between(term, low, high, may_be_null=False)


def _sum_limits(term: AggregateTerm, total: int, rest: list[Rest], *, has_values: bool) -> AggregateValue:
    """Each row that may match adds a value between the bounds; those that surely do add at least the lower one."""
    low: int | None = total
    high: int | None = total
    parts = [(part, part.rows[~part.layer.facts(term).empty[part.rows]]) for part in rest]
    parts = [(part, rows) for part, rows in parts if len(rows)]
    if not has_values and not parts:
        return AggregateValue()  # null: no row of the group has a value
    for part, rows in parts:
        facts = part.layer.facts(term)
        zones = facts.zones
        whole = part.layer.all[rows] if part.key is not None else np.zeros(len(rows), dtype=bool)
        has_values |= bool(facts.holds[rows[whole]].any())
        known = whole & facts.exact[rows]
        added = facts.added(rows[known])
        low, high = (None if each is None else each + added for each in (low, high))
        rows, whole = rows[~known], whole[~known]
        if not len(rows):
            continue
        if zones is None or zones.low is None or zones.high is None:
            return AggregateValue(exact=False, may_be_null=not has_values)
        max_counts = facts.max_count[rows].tolist()
        counted = whole if facts.counted is None else whole & facts.counted[rows]
        min_counts = np.where(counted, facts.max_count[rows], whole & facts.holds[rows]).tolist()
        lows = _known_values(zones.low, zones.has(LOW_KNOWN), rows)
        highs = _known_values(zones.high, zones.has(HIGH_KNOWN), rows)
        low = _sum_limit(low, lows, min_counts, max_counts, min)
        high = _sum_limit(high, highs, min_counts, max_counts, max)
    low, high = (None if each is None or abs(each) >= 10**MAX_SUM_DIGITS else each for each in (low, high))
    return _between(term, low, high, may_be_null=not has_values)


def _known_values(keys: Keys, known: Mask, rows: Rows) -> list[Value | None]:
    return [value_at(keys, row) if is_known else None for row, is_known in zip(rows.tolist(), known[rows], strict=True)]


def _sum_limit(
    total: int | None,
    bounds: Sequence[Value | None],
    min_counts: list[int],
    max_counts: list[int],
    choose: Callable[..., int],
) -> int | None:
    """The total and the minimum (or maximum) that blocks can add to it; None: unknown."""
    for bound, min_count, max_count in zip(bounds, min_counts, max_counts, strict=True):
        if total is None or not isinstance(bound, int):
            return None
        total += choose(min_count * bound, max_count * bound)
    return total


class _Side(msgspec.Struct):
    """One side of a range: ``value`` None and ``open`` unset: nothing taken in yet."""

    value: Value | None = None
    open: bool = False


def _value_limits(term: AggregateTerm, best: Value | None, rest: list[Rest]) -> AggregateValue:
    """Far: what no value lies beyond. Near: what the result reaches for certain, for rows that surely match."""
    is_min = term.function == "min"
    far, near = _Side(best), best
    sure = best is not None
    parts = [(part, part.rows[~part.layer.facts(term).empty[part.rows]]) for part in rest]
    parts = [(part, rows) for part, rows in parts if len(rows)]
    if best is None and not parts:
        return AggregateValue()  # null: no row of the group has a value
    for part, rows in parts:
        facts = part.layer.facts(term)
        zones = facts.zones
        if zones is None:
            continue
        number, nan = zones.has(MAY_NUMBER), zones.has(MAY_NAN)
        low_known, high_known = zones.has(LOW_KNOWN), zones.has(HIGH_KNOWN)
        known = low_known | ~number if is_min else high_known & ~nan
        keys, other = (zones.low, zones.high) if is_min else (zones.high, zones.low)
        bounded = rows[number[rows] & known[rows]]
        if not known[rows].all() or (len(bounded) and keys is None):
            far.open = True
        elif len(bounded) and keys is not None:
            far.value = better(term, far.value, extreme(keys, bounded, is_max=not is_min))
        if is_min and len(bounded) < len(rows):
            far.value = better(term, far.value, float("nan"))
        if part.key is None:
            continue
        holds = rows[part.layer.all[rows] & facts.holds[rows]]
        sure = sure or bool(len(holds))
        reach = holds[(high_known & ~nan)[holds]] if is_min else holds[low_known[holds]]
        near = _reach(term, near, other, reach)
    far_value = None if far.open else far.value
    low, high = (far_value, near) if is_min else (near, far_value)
    return _between(term, low, high, may_be_null=not sure)


def _reach(term: AggregateTerm, near: Value | None, keys: Keys | None, rows: Rows) -> Value | None:
    """The least of the highs (or greatest of the lows): some value is at least that good."""
    if keys is None or not len(rows):
        return near
    return better(term, near, extreme(keys, rows, is_max=term.function == "max"))


def _between(term: AggregateTerm, low: Value | None, high: Value | None, *, may_be_null: bool) -> AggregateValue:
    lower, upper = _result(term, low), _result(term, high)
    exact = not may_be_null and lower is not None and lower == upper
    return AggregateValue(
        exact=exact, value=lower if exact else None, lower=lower, upper=upper, may_be_null=may_be_null
    )
