"""Advice about indexes and layouts."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import ActionNotFound, IndexNotFound, JobLeaseLost, UnknownColumn
from lamella.snapshot.wire import (
    AdviceAnswer,
    AdviceRequest,
    AutoAction,
    AutoLedger,
    AutoPlan,
    AutoReport,
    AutoRequest,
    AutoStart,
    CandidatesAnswer,
    CandidatesRequest,
    RecordedCleared,
    RecordedList,
    WhatIfAnswer,
    WhatIfRequest,
    WhyNotAnswer,
    WhyNotRequest,
)
from lamella.snapshot.wire.operation import OF_A_FILTER, OF_A_SNAPSHOT, TABLE, Operation, on_table

ADVISE: Final = Operation(
    name="advise",
    method="POST",
    path=TABLE + "/advice",
    permission=on_table("read"),
    summary="Score columns and index kinds",
    tag="Advice",
    description="Returns how much look-ups of single values skip, from 0 to 100, with the bounds in manifests and "
    "with an additional index; the size of such an index, and its precision within a budget. Uses manifests only: no "
    "block is read, and values that manifests do not have are reported as unknown.",
    request_type=AdviceRequest,
    answer_type=AdviceAnswer,
    errors=(*OF_A_SNAPSHOT, UnknownColumn),
    is_question=True,
)

WHAT_IF: Final = Operation(
    name="what_if",
    method="POST",
    path=TABLE + "/what-if",
    permission=on_table("read"),
    summary="Predict what a change would skip",
    tag="Advice",
    description="For an additional index, another cluster key or another block size: what the given or recorded "
    "filters read now, and what they would read after the change. With `sample_blocks`, some blocks are read to "
    "measure it; otherwise none.",
    request_type=WhatIfRequest,
    answer_type=WhatIfAnswer,
    errors=(*OF_A_SNAPSHOT, *OF_A_FILTER),
    is_question=True,
    is_large=True,
)

CANDIDATES: Final = Operation(
    name="candidates",
    method="POST",
    path=TABLE + "/candidates",
    permission=on_table("maintain"),
    summary="List what could be done for a table",
    tag="Advice",
    description="For a recluster, another cluster key, a compaction, new and unused indexes, a purge and a vacuum: "
    "what the recorded filters read now and would read then, the cost, and the command that does it, the best first. "
    "Nothing is changed. What cannot be predicted is listed apart, with what is missing.",
    request_type=CandidatesRequest,
    answer_type=CandidatesAnswer,
    errors=OF_A_SNAPSHOT,
    is_question=True,
    is_large=True,
)

_AUTO: Final = TABLE + "/auto"

LIST_AUTO: Final = Operation(
    name="list_auto",
    method="GET",
    path=_AUTO,
    permission=on_table("maintain"),
    summary="List what automatic upkeep did",
    tag="Advice",
    description="The ledger of the rule `auto` of the table's policy, the latest action first: the predicted and the "
    "measured gain of each, and what became of it.",
    answer_type=AutoLedger,
    errors=OF_A_SNAPSHOT,
)

PLAN_AUTO: Final = Operation(
    name="plan_auto",
    method="POST",
    path=_AUTO,
    permission=on_table("maintain"),
    summary="Explain what automatic upkeep would do now",
    tag="Advice",
    description="For each candidate, whether it would be done now, and why or why not; and what is left of the "
    "budgets. Nothing is changed.",
    request_type=AutoRequest,
    answer_type=AutoPlan,
    errors=OF_A_SNAPSHOT,
    is_question=True,
)

START_AUTO: Final = Operation(
    name="start_auto",
    method="POST",
    path=_AUTO + "/start",
    permission=on_table("maintain"),
    summary="Begin the next action of automatic upkeep",
    tag="Advice",
    description="Decides as `POST .../auto` by the rule `auto` of the table's policy. If an action is to be done now, "
    "it is entered into the ledger and returned; the caller does it, extends its lease, and reports the end. A table "
    "has one action at a time. A repeated request with the same `runner` returns the same action.",
    request_type=AutoStart,
    answer_type=AutoPlan,
    errors=OF_A_SNAPSHOT,
)

REPORT_AUTO: Final = Operation(
    name="report_auto",
    method="POST",
    path=_AUTO + "/{action_id}",
    permission=on_table("maintain"),
    summary="Report an action of automatic upkeep",
    tag="Advice",
    description="Extends the lease of a running action, or ends it. For one that was done the service measures what "
    "the same filters read now; `state` of the answer is `undoing` if the caller is to undo it.",
    request_type=AutoReport,
    answer_type=AutoAction,
    errors=(*OF_A_SNAPSHOT, ActionNotFound, JobLeaseLost),
    is_recorded=False,
)

WHY_NOT: Final = Operation(
    name="why_not",
    method="POST",
    path=TABLE + "/why-not",
    permission=on_table("read"),
    summary="Explain why indexes do not help with a filter",
    tag="Advice",
    description="For each index and each predicate of the filter: why the index is not used, or its result.",
    request_type=WhyNotRequest,
    answer_type=WhyNotAnswer,
    errors=(*OF_A_SNAPSHOT, *OF_A_FILTER, IndexNotFound),
    is_question=True,
    is_large=True,
)

LIST_RECORDED: Final = Operation(
    name="list_recorded",
    method="GET",
    path=TABLE + "/recorded",
    permission=on_table("maintain"),
    summary="List recorded filters",
    tag="Advice",
    description="Lists each filter once, latest first, with the number of prunes and what they kept. Constants are "
    "not recorded, unless the service or the table property `lamella.record_prunes` is set to record them.",
    answer_type=RecordedList,
    errors=OF_A_SNAPSHOT,
)

CLEAR_RECORDED: Final = Operation(
    name="clear_recorded",
    method="DELETE",
    path=TABLE + "/recorded",
    permission=on_table("maintain"),
    summary="Delete recorded filters",
    tag="Advice",
    answer_type=RecordedCleared,
    errors=OF_A_SNAPSHOT,
)
