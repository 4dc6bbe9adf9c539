"""Methods for the audit trail, prune rates and reader feedback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from lamella.client.http.aio.runner import AsyncCallRunner
from lamella.client.http.call import Filter, TableName
from lamella.client.http.usage import (
    audit_call,
    clear_feedback_call,
    feedback_call,
    merge_reports,
    prune_rates_call,
    report_calls,
    service_rates_call,
)
from lamella.snapshot.wire import AuditEntry, FeedbackAnswer, FeedbackInfo, PruneRatesAnswer, ServiceRatesAnswer

_DAY_S: Final = 86_400


class AsyncTableUsage:
    """How a table is used; a part of :class:`lamella.client.http.AsyncTable`."""

    _lake: AsyncCallRunner
    _name: TableName

    async def prune_rates(self, since_s: int = _DAY_S) -> PruneRatesAnswer:
        """Prune rates of the last ``since_s`` seconds, over all clients; raises TableNotFound.

        Example:
            >>> (await table.prune_rates(since_s=3_600)).bucket_s
            300
        """
        return await self._lake.run(prune_rates_call(self._name, since_s))


class AsyncLakeAudit:
    """The audit trail and the service's rates; a part of :class:`lamella.client.AsyncLamella`."""

    async def service_rates(self: AsyncCallRunner, since_s: int = _DAY_S) -> ServiceRatesAnswer:
        """What the service did in the last ``since_s`` seconds: requests, quantiles, errors, commits.

        Example:
            >>> (await lake.service_rates(since_s=3_600)).bucket_s
            300
        """
        return await self.run(service_rates_call(since_s))

    async def audit(
        self: AsyncCallRunner, table: str | None = None, *, page_size: int | None = None
    ) -> AsyncIterator[AuditEntry]:
        """The requested changes, newest first, including refused ones.

        ``table``: only entries about ``namespace.table``. Pages of ``page_size`` are fetched during iteration.

        Example:
            >>> [(entry.operation, entry.status) async for entry in lake.audit("shop.arrivals")]
            [('create_table', 201)]
        """
        token: str | None = None
        while True:
            page = await self.run(audit_call(table, page_size, token))
            for entry in page.entries:
                yield entry
            token = page.next_page_token
            if token is None:
                return


class AsyncTableFeedback:
    """Feedback on a table; a part of :class:`lamella.client.http.AsyncTable`."""

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
        """Report that no row in these blocks of a snapshot matches a filter; see ``docs/feedback.md``.

        Only for readers that evaluated the filter exactly on every row. A report changes no answer.

        Raises InvalidRequest (the service or the table does not accept feedback, or a location is not a block),
        InvalidFilter,
        UnknownColumn, SnapshotNotFound, TableNotFound.

        Example:
            >>> filter = "country = 'FR' AND note = 'gift'"
            >>> pruned = await table.prune(filter)
            >>> answer = await table.report_empty(filter, pruned.locations, snapshot_id=pruned.snapshot_id)
            >>> answer.remembered
            4
        """
        calls = report_calls(self._name, filter, locations, snapshot_id, time_zone, case_sensitive)
        return merge_reports([await self._lake.run(call) for call in calls])

    async def feedback(self) -> FeedbackInfo:
        """The amount of feedback stored for the table; raises TableNotFound.

        Example:
            >>> (await table.feedback()).facts
            0
        """
        return await self._lake.run(feedback_call(self._name))

    async def clear_feedback(self) -> int:
        """Delete all feedback; returns the number of deleted facts. Raises TableNotFound.

        Example:
            >>> await table.clear_feedback()
            0
        """
        return (await self._lake.run(clear_feedback_call(self._name))).facts
