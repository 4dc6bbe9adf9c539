"""How tables are used: the audit trail, prune rates and reader feedback.

The calls, and methods of :class:`Table`, the client and their async twins.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec

from lamella.client.http.call import AsyncCallRunner, Call, CallRunner, Filter, TableName, make_call, text_tuple
from lamella.snapshot.wire import (
    AuditEntry,
    AuditList,
    FeedbackAnswer,
    FeedbackCleared,
    FeedbackInfo,
    FeedbackRequest,
    PruneRatesAnswer,
    operations,
)

_DAY_S = 86_400


def prune_rates_call(name: TableName, since_s: int) -> Call[PruneRatesAnswer]:
    """How well prunes of a table skipped."""
    return make_call(operations.usage.SHOW_PRUNE_RATES, name, query={"since_s": since_s})


def audit_call(table: str | None, page_size: int | None, page_token: str | None) -> Call[AuditList]:
    """A page of the audit trail."""
    query = {"table": table, "page_size": page_size, "page_token": page_token}
    return make_call(operations.usage.LIST_AUDIT, query=query)


class TableUsage:
    """How a table is used; a part of :class:`lamella.client.Table`."""

    _lake: CallRunner
    _name: TableName

    def prune_rates(self, since_s: int = _DAY_S) -> PruneRatesAnswer:
        """How well the prunes of the last so many seconds skipped, of all clients; raises TableNotFound."""
        return self._lake.run(prune_rates_call(self._name, since_s))


class AsyncTableUsage:
    """The asyncio twin of :class:`TableUsage`."""

    _lake: AsyncCallRunner
    _name: TableName

    async def prune_rates(self, since_s: int = _DAY_S) -> PruneRatesAnswer:
        """As :meth:`TableUsage.prune_rates`."""
        return await self._lake.run(prune_rates_call(self._name, since_s))


class LakeAudit:
    """The audit trail; a part of :class:`lamella.client.Lamella`."""

    def audit(self: CallRunner, table: str | None = None, *, page_size: int | None = None) -> Iterator[AuditEntry]:
        """The changes that were asked for, the newest first, also those that were refused.

        ``table``: only what was about ``namespace.table``. Pages of ``page_size`` are asked for as it goes on.
        """
        token: str | None = None
        while True:
            page = self.run(audit_call(table, page_size, token))
            yield from page.entries
            token = page.next_page_token
            if token is None:
                return


class AsyncLakeAudit:
    """The asyncio twin of :class:`LakeAudit`."""

    async def audit(
        self: AsyncCallRunner, table: str | None = None, *, page_size: int | None = None
    ) -> AsyncIterator[AuditEntry]:
        """As :meth:`LakeAudit.audit`."""
        token: str | None = None
        while True:
            page = await self.run(audit_call(table, page_size, token))
            for entry in page.entries:
                yield entry
            token = page.next_page_token
            if token is None:
                return


#: Blocks that one request names; the service takes no more.
_BLOCKS_PER_REPORT = 10_000


def report_calls(
    name: TableName,
    filter: Filter,
    locations: Sequence[str],
    snapshot_id: str,
    time_zone: str,
    case_sensitive: bool,
) -> list[Call[FeedbackAnswer]]:
    """Report blocks, so many at a time. Saying it twice does no harm, so it needs no idempotency key."""
    request = FeedbackRequest(
        snapshot_id=snapshot_id, filter=filter, empty=(), time_zone=time_zone, case_sensitive=case_sensitive
    )
    places = text_tuple("locations", locations)
    parts = [places[at : at + _BLOCKS_PER_REPORT] for at in range(0, len(places), _BLOCKS_PER_REPORT)] or [()]
    return [
        make_call(operations.usage.REPORT_FEEDBACK, name, body=msgspec.structs.replace(request, empty=part))
        for part in parts
    ]


def feedback_call(name: TableName) -> Call[FeedbackInfo]:
    """How much is remembered."""
    return make_call(operations.usage.GET_FEEDBACK, name)


def clear_feedback_call(name: TableName) -> Call[FeedbackCleared]:
    """Forget all of it."""
    return make_call(operations.usage.CLEAR_FEEDBACK, name)


class TableFeedback:
    """Feedback on a table; a part of :class:`lamella.client.Table`."""

    _lake: CallRunner
    _name: TableName

    def report_empty(
        self,
        filter: Filter,
        locations: Sequence[str],
        *,
        snapshot_id: str,
        time_zone: str = "UTC",
        case_sensitive: bool = False,
    ) -> FeedbackAnswer:
        """Say that no row of these blocks of a snapshot matches a filter; see ``docs/feedback.md``.

        Only for readers that decided every row exactly: a false report makes other readers lose rows.

        Raises InvalidRequest (the service or the table takes none, or a location is no block), InvalidFilter,
        UnknownColumn, SnapshotNotFound, TableNotFound.
        """
        calls = report_calls(self._name, filter, locations, snapshot_id, time_zone, case_sensitive)
        return _sum([self._lake.run(call) for call in calls])

    def feedback(self) -> FeedbackInfo:
        """How much feedback is remembered for the table; raises TableNotFound."""
        return self._lake.run(feedback_call(self._name))

    def clear_feedback(self) -> int:
        """Forget all feedback; returns how many facts there were. Raises TableNotFound."""
        return self._lake.run(clear_feedback_call(self._name)).facts


class AsyncTableFeedback:
    """The asyncio twin of :class:`TableFeedback`."""

    _lake: AsyncCallRunner
    _name: TableName

    async def report_empty(
        self,
        filter: Filter,
        locations: Sequence[str],
        *,
        snapshot_id: str,
        time_zone: str = "UTC",
        case_sensitive: bool = False,
    ) -> FeedbackAnswer:
        """As :meth:`TableFeedback.report_empty`."""
        calls = report_calls(self._name, filter, locations, snapshot_id, time_zone, case_sensitive)
        return _sum([await self._lake.run(call) for call in calls])

    async def feedback(self) -> FeedbackInfo:
        """As :meth:`TableFeedback.feedback`."""
        return await self._lake.run(feedback_call(self._name))

    async def clear_feedback(self) -> int:
        """As :meth:`TableFeedback.clear_feedback`."""
        return (await self._lake.run(clear_feedback_call(self._name))).facts


def _sum(parts: Sequence[FeedbackAnswer]) -> FeedbackAnswer:
    return FeedbackAnswer(
        remembered=sum(part.remembered for part in parts), known_before=sum(part.known_before for part in parts)
    )
