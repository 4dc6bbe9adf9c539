"""Whether the rules of a policy are due: what is measured, against their thresholds and times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from lamella.service.catalog import RuleFired, TableRecord
from lamella.service.upkeep.conditions import Conditions, Measured
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.wire import Policy, Rule, RuleFinding


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a policy decides: a job of ``kind``, when ``measure`` gives ``threshold`` or more.

    ``key``: stands for it among what rules asked for before. ``what``: the figure's name. ``measure`` is called only
    where nothing else decides.
    """

    key: str
    kind: str
    rule: Rule
    arguments: dict[str, Any]
    what: str = ""
    threshold: float | None = None
    measure: Callable[[], Measured] = lambda: Measured(None)


def cases_of(policy: Policy, table: TableRecord, conditions: Conditions) -> Iterator[Case]:
    """What a policy decides of a table. May raise as ``conditions`` does."""
    if policy.compact is not None:
        yield Case(
            key="compact",
            kind="compact",
            rule=policy.compact,
            arguments=policy.compact.arguments,
            what="small blocks",
            threshold=policy.compact.small_blocks,
            measure=partial(conditions.small_blocks, table),
        )
    if policy.recluster is not None:
        yield Case(
            key="recluster",
            kind="recluster",
            rule=policy.recluster,
            arguments=policy.recluster.arguments,
            what="average depth",
            threshold=policy.recluster.average_depth,
            measure=partial(conditions.average_depth, table),
        )
    if policy.index_refresh is not None:
        for index in conditions.indexes(table):
            if policy.index_refresh.indexes is None or index in policy.index_refresh.indexes:
                yield Case(
                    key=f"index_refresh:{index}",
                    kind="index_refresh",
                    rule=policy.index_refresh,
                    arguments={**policy.index_refresh.arguments, "index": index},
                    what="blocks that are not indexed",
                    threshold=policy.index_refresh.not_indexed_blocks,
                    measure=partial(conditions.not_indexed_blocks, table, index),
                )
    if policy.vacuum is not None:
        yield Case(
            key="vacuum",
            kind="vacuum",
            rule=policy.vacuum,
            arguments=policy.vacuum.arguments,
            what="snapshots",
            threshold=policy.vacuum.snapshots,
            measure=partial(conditions.snapshots, table, policy.vacuum.snapshots or 0),
        )
    by_time = {"regroup": policy.regroup, "verify": policy.verify, "refresh": policy.refresh}
    for kind, rule in by_time.items():
        if rule is not None:
            yield Case(key=kind, kind=kind, rule=rule, arguments=rule.arguments)


def findings_of(
    policy: Policy, table: TableRecord, conditions: Conditions, fired: Mapping[str, RuleFired], now_ms: int
) -> list[tuple[Case, RuleFinding]]:
    """What each rule says now; ``fired``: when rules last asked for a job.

    A figure that cannot be measured decides nothing, and its finding says so.

    Raises ManifestError, StoreError, Unavailable: not even the table's indexes can be told.
    """
    return [(case, _find(case, fired.get(case.key), now_ms)) for case in cases_of(policy, table, conditions)]


def _find(case: Case, last: RuleFired | None, now_ms: int) -> RuleFinding:
    due, reason, measured = _decide(case, last, now_ms)
    return RuleFinding(rule=case.key, due=due, reason=reason, measured=measured, threshold=case.threshold)


def _decide(case: Case, last: RuleFired | None, now_ms: int) -> tuple[bool, str, float | None]:
    """Whether a case is due, why or why not, and what was measured."""
    since_ms = None if last is None else now_ms - last.at_ms
    rule = case.rule
    if since_ms is not None and since_ms < rule.cool_down_s * 1000:
        return False, f"asked less than {rule.cool_down_s} s ago", None
    if rule.every_s is not None and (since_ms is None or since_ms >= rule.every_s * 1000):
        return True, f"every {rule.every_s} s", None
    if case.threshold is None:
        return False, f"not {rule.every_s} s ago yet", None
    try:
        found = case.measure()
    except LamellaError as error:
        return False, f"could not be measured: {error.message}", None
    if found.value is None:
        return False, f"could not be measured: {found.reason}", None
    if found.value >= case.threshold:
        return True, f"{found.value:g} {case.what}, {case.threshold:g} or more", found.value
    return False, f"{found.value:g} {case.what}, fewer than {case.threshold:g}", found.value
