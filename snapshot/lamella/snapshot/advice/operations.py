"""Advice about indexes and layouts."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import IndexNotFound, UnknownColumn
from lamella.snapshot.wire import (
    AdviceAnswer,
    AdviceRequest,
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
