"""Reader feedback, prune rates and the audit trail."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    FilterTypeMismatch,
    InvalidFilter,
    InvalidPageToken,
    InvalidRequest,
    LimitExceeded,
    NamespaceNotFound,
    SnapshotExpired,
    SnapshotNotFound,
    TableNotFound,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.wire import (
    AuditList,
    FeedbackAnswer,
    FeedbackCleared,
    FeedbackInfo,
    FeedbackRequest,
    PruneRatesAnswer,
    ServiceRatesAnswer,
)
from lamella.snapshot.wire.operation import BY_REQUEST, OF_A_TABLE, TABLE, Operation, Parameter, on_server, on_table

_FEEDBACK: Final = TABLE + "/feedback"
#: Prune rates are summed up over so long each.
BUCKET_MS: Final = 300_000
#: Older sums are forgotten: a week, and a day for whoever looks late.
RATE_RETENTION_MS: Final = 8 * 86_400_000
#: The same of service rates: a day, and another one for whoever looks late.
SERVICE_RETENTION_MS: Final = 2 * 86_400_000
#: How far a request for prune rates looks back when it does not say.
DEFAULT_S: Final = 86_400
#: Entries of the audit trail in one answer, when the request does not say.
DEFAULT_PAGE: Final = 100


REPORT_FEEDBACK: Final = Operation(
    name="report_feedback",
    method="POST",
    path=_FEEDBACK,
    permission=on_table("write"),
    summary="Report blocks without a matching row",
    tag="Feedback",
    description="Stored if the service and the table take feedback. A report changes no answer, and may be repeated.",
    request_type=FeedbackRequest,
    answer_type=FeedbackAnswer,
    errors=(
        InvalidRequest,
        InvalidFilter,
        UnknownColumn,
        FilterTypeMismatch,
        LimitExceeded,
        *OF_A_TABLE,
        Unavailable,
        SnapshotNotFound,
        SnapshotExpired,
    ),
    is_large=True,
)

GET_FEEDBACK: Final = Operation(
    name="get_feedback",
    method="GET",
    path=_FEEDBACK,
    permission=on_table("read"),
    summary="Get the amount of stored feedback",
    tag="Feedback",
    answer_type=FeedbackInfo,
    errors=(*OF_A_TABLE, Unavailable),
)

CLEAR_FEEDBACK: Final = Operation(
    name="clear_feedback",
    method="DELETE",
    path=_FEEDBACK,
    permission=on_table("maintain"),
    summary="Delete all feedback of a table",
    tag="Feedback",
    answer_type=FeedbackCleared,
    errors=(*OF_A_TABLE, Unavailable),
)

SHOW_PRUNE_RATES: Final = Operation(
    name="show_prune_rates",
    method="GET",
    path=TABLE + "/prune-rates",
    permission=on_table("read"),
    summary="Get the prune rates of a table",
    tag="Prune",
    description=f"Totals over all workers and replicas, in buckets of {BUCKET_MS // 1000} seconds. Prunes answered by "
    "other processes in the last seconds may be missing.",
    answer_type=PruneRatesAnswer,
    own_parameters=(
        Parameter(
            name="since_s",
            description=f"How far to look back, in seconds; default: {DEFAULT_S}.",
            schema={"type": "integer", "minimum": 1, "maximum": RATE_RETENTION_MS // 1000},
        ),
    ),
    errors=(InvalidRequest, NamespaceNotFound, TableNotFound, Unavailable),
)

SHOW_SERVICE_RATES: Final = Operation(
    name="show_service_rates",
    method="GET",
    path="/v1/service-rates",
    permission=on_server("admin"),
    summary="Get what the service did over time",
    tag="Operations",
    description=f"Totals over all workers and replicas, in buckets of {BUCKET_MS // 1000} seconds. What other "
    "processes did in the last seconds may be missing.",
    answer_type=ServiceRatesAnswer,
    own_parameters=(
        Parameter(
            name="since_s",
            description=f"How far to look back, in seconds; default: {DEFAULT_S}.",
            schema={"type": "integer", "minimum": 1, "maximum": SERVICE_RETENTION_MS // 1000},
        ),
    ),
    errors=(InvalidRequest, Unavailable),
)

LIST_AUDIT: Final = Operation(
    name="list_audit",
    method="GET",
    path="/v1/audit",
    permission=BY_REQUEST,
    summary="List requested changes, newest first",
    tag="Operations",
    description="Refused changes are included. Requests to other processes in the last second may be missing.",
    answer_type=AuditList,
    own_parameters=(
        Parameter(name="table", description="Only entries about this `namespace.table`."),
        Parameter(
            name="page_size",
            description=f"Maximum number of entries in the answer; default: {DEFAULT_PAGE}.",
            schema={"type": "integer", "minimum": 1},
            maximum_setting="page_size_max",
        ),
        Parameter(name="page_token", description="`next_page_token` of the previous answer."),
    ),
    errors=(InvalidRequest, InvalidPageToken, Unavailable),
)
