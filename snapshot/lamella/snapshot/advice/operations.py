"""Advice about indexes and layouts."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import IndexNotFound, UnknownColumn
from lamella.snapshot.wire import (
    AdviceAnswer,
    AdviceRequest,
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
    summary="Score columns and kinds of indexes",
    tag="Advice",
    description="How much look-ups of single values skip, from 0 to 100, by the bounds in manifests and by "
    "an index beside them; how large an index gets, and how sharp within a budget. From manifests alone: "
    "no block is read, and what manifests do not say is said to be unknown.",
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
    summary="Foretell what a change would skip",
    tag="Advice",
    description="An index more, another cluster key, or another block size: what given or recorded filters "
    "read now, and would read then. With `sample_blocks` some blocks are read to measure it, else nothing.",
    request_type=WhatIfRequest,
    answer_type=WhatIfAnswer,
    errors=(*OF_A_SNAPSHOT, *OF_A_FILTER),
    is_question=True,
    is_large=True,
)

WHY_NOT: Final = Operation(
    name="why_not",
    method="POST",
    path=TABLE + "/why-not",
    permission=on_table("read"),
    summary="Say why indexes do not help with a filter",
    tag="Advice",
    description="For each index and each predicate of the filter: why it is not asked, or what it said.",
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
    summary="List the filters that were recorded",
    tag="Advice",
    description="Each once, the latest first, with how often it was asked and what it kept. Without "
    "constants, unless the service or the table's property `lamella.record_prunes` says otherwise.",
    answer_type=RecordedList,
    errors=OF_A_SNAPSHOT,
)

CLEAR_RECORDED: Final = Operation(
    name="clear_recorded",
    method="DELETE",
    path=TABLE + "/recorded",
    permission=on_table("maintain"),
    summary="Forget the filters that were recorded",
    tag="Advice",
    answer_type=RecordedCleared,
    errors=OF_A_SNAPSHOT,
)
