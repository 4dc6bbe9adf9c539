"""How tables are used: the audit trail, prune rates and reader feedback.

The calls. Their methods are in :mod:`lamella.client.http.aio.usage`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamella.client.filters import plain_filter
from lamella.client.http.call import Call, Filter, TableName, make_call, text_tuple
from lamella.snapshot.wire import (
    AuditList,
    FeedbackAnswer,
    FeedbackCleared,
    FeedbackInfo,
    FeedbackRequest,
    PruneRatesAnswer,
    ServiceRatesAnswer,
    operations,
)

_DAY_S = 86_400


def prune_rates_call(name: TableName, since_s: int) -> Call[PruneRatesAnswer]:
    """Prune rates of a table."""
    return make_call(operations.usage.SHOW_PRUNE_RATES, name, query={"since_s": since_s})


def service_rates_call(since_s: int) -> Call[ServiceRatesAnswer]:
    """What the service did over time."""
    return make_call(operations.usage.SHOW_SERVICE_RATES, query={"since_s": since_s})


def audit_call(table: str | None, page_size: int | None, page_token: str | None) -> Call[AuditList]:
    """A page of the audit trail."""
    query = {"table": table, "page_size": page_size, "page_token": page_token}
    return make_call(operations.usage.LIST_AUDIT, query=query)


#: Blocks in one request; the service accepts no more.
_BLOCKS_PER_REPORT = 10_000


def report_calls(
    name: TableName,
    filter: Filter,
    locations: Sequence[str],
    snapshot_id: str,
    time_zone: str,
    case_sensitive: bool,
) -> list[Call[FeedbackAnswer]]:
    """Report blocks in batches. Reports can safely be sent twice, so they need no idempotency key."""
    request = FeedbackRequest(
        snapshot_id=snapshot_id,
        filter=plain_filter(filter, time_zone),
        empty=(),
        time_zone=time_zone,
        case_sensitive=case_sensitive,
    )
    texts = text_tuple("locations", locations)
    parts = [texts[at : at + _BLOCKS_PER_REPORT] for at in range(0, len(texts), _BLOCKS_PER_REPORT)] or [()]
    return [
        make_call(operations.usage.REPORT_FEEDBACK, name, body=msgspec.structs.replace(request, empty=part))
        for part in parts
    ]


def feedback_call(name: TableName) -> Call[FeedbackInfo]:
    """How much feedback is stored."""
    return make_call(operations.usage.GET_FEEDBACK, name)


def clear_feedback_call(name: TableName) -> Call[FeedbackCleared]:
    """Delete all feedback."""
    return make_call(operations.usage.CLEAR_FEEDBACK, name)


def merge_reports(parts: Sequence[FeedbackAnswer]) -> FeedbackAnswer:
    return FeedbackAnswer(
        remembered=sum(part.remembered for part in parts), known_before=sum(part.known_before for part in parts)
    )
