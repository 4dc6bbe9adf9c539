"""Calls for advice about indexes and cluster keys."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from lamella.client.filters import plain_filter
from lamella.client.http.call import (
    Call,
    Filter,
    TableName,
    make_call,
    text_tuple,
    timestamp_of,
)
from lamella.snapshot.advice import operations
from lamella.snapshot.wire import (
    AdviceAnswer,
    AdviceRequest,
    AutoAction,
    AutoLedger,
    AutoPlan,
    AutoReport,
    AutoRequest,
    AutoRule,
    AutoStart,
    CandidatesAnswer,
    CandidatesRequest,
    IndexChange,
    RecordedCleared,
    RecordedList,
    WhatIfAnswer,
    WhatIfRequest,
    WhyNotAnswer,
    WhyNotRequest,
)


class QueryOptions(TypedDict, total=False):
    """What all questions have in common: at most one of a snapshot (an id, tag or number) and a time."""

    snapshot_id: str | None
    timestamp: int | str | dt.datetime | None
    time_zone: str
    case_sensitive: bool


def advice_call(
    name: TableName,
    columns: Sequence[str] | None,
    kinds: Sequence[str] | None,
    options: Mapping[str, Mapping[str, Any]],
    budget_bytes: float | None,
    budget_share: float | None,
    moment: QueryOptions,
) -> Call[AdviceAnswer]:
    """Scores and sizes."""
    request = AdviceRequest(
        columns=None if columns is None else text_tuple("columns", columns),
        kinds=None if kinds is None else text_tuple("kinds", kinds),
        options={kind: dict(given) for kind, given in options.items()},
        budget_bytes=budget_bytes,
        budget_share=budget_share,
        **_query_members(moment),
    )
    return make_call(operations.ADVISE, name, body=request)


def what_if_call(
    name: TableName,
    index: IndexChange | None,
    cluster_key: Sequence[str] | None,
    rows_per_block: int | None,
    filters: Sequence[Filter],
    recorded: int,
    sample_blocks: int,
    seed: int,
    moment: QueryOptions,
) -> Call[WhatIfAnswer]:
    """What a change would skip."""
    request = WhatIfRequest(
        index=index,
        cluster_key=None if cluster_key is None else text_tuple("cluster_key", cluster_key),
        rows_per_block=rows_per_block,
        filters=tuple(plain_filter(filter, moment.get("time_zone", "UTC")) for filter in filters),
        recorded=recorded,
        sample_blocks=sample_blocks,
        seed=seed,
        **_query_members(moment),
    )
    return make_call(operations.WHAT_IF, name, body=request)


def candidates_call(name: TableName, top: int, recorded: int, sample_blocks: int, seed: int) -> Call[CandidatesAnswer]:
    """What could be done for the table."""
    request = CandidatesRequest(top=top, recorded=recorded, sample_blocks=sample_blocks, seed=seed)
    return make_call(operations.CANDIDATES, name, body=request)


def auto_ledger_call(name: TableName) -> Call[AutoLedger]:
    """What automatic upkeep did."""
    return make_call(operations.LIST_AUTO, name)


def plan_auto_call(
    name: TableName, rule: AutoRule | None, recorded: int, sample_blocks: int, seed: int
) -> Call[AutoPlan]:
    """What it would do now."""
    request = AutoRequest(rule=rule, recorded=recorded, sample_blocks=sample_blocks, seed=seed)
    return make_call(operations.PLAN_AUTO, name, body=request)


def start_auto_call(name: TableName, request: AutoStart) -> Call[AutoPlan]:
    """Begin its next action."""
    return make_call(operations.START_AUTO, name, body=request)


def report_auto_call(name: TableName, action_id: str, request: AutoReport) -> Call[AutoAction]:
    """Report an action."""
    return make_call(operations.REPORT_AUTO, name, action_id=action_id, body=request)


def why_not_call(name: TableName, filter: Filter, index: str | None, moment: QueryOptions) -> Call[WhyNotAnswer]:
    """Why indexes do not help."""
    plain = plain_filter(filter, moment.get("time_zone", "UTC"))
    request = WhyNotRequest(filter=plain, index=index, **_query_members(moment))
    return make_call(operations.WHY_NOT, name, body=request)


def recorded_filters_call(name: TableName) -> Call[RecordedList]:
    """The recorded filters."""
    return make_call(operations.LIST_RECORDED, name)


def clear_recorded_filters_call(name: TableName) -> Call[RecordedCleared]:
    """Forget them."""
    return make_call(operations.CLEAR_RECORDED, name)


def _query_members(given: QueryOptions) -> dict[str, Any]:
    return {**given, "timestamp": timestamp_of(given.get("timestamp"))}
