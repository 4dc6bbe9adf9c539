# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/usage.py: change that file.
"""Methods for the audit trail, prune rates and reader feedback."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lamella.client.http.call import Filter, TableName
from lamella.client.http.sync.runner import CallRunner
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


class TableUsage:
    """How a table is used; a part of :class:`lamella.client.http.Table`."""

    _lake: CallRunner
    _name: TableName

    def prune_rates(self, since_s: int = _DAY_S) -> PruneRatesAnswer:
        """Prune rates of the last ``since_s`` seconds, over all clients; raises TableNotFound.

        Example:
            >>> table.prune_rates(since_s=3_600).bucket_s
            300
        """
        return self._lake.run(prune_rates_call(self._name, since_s))


class LakeAudit:
    """The audit trail and the service's rates; a part of :class:`lamella.client.Lamella`."""

    def service_rates(self: CallRunner, since_s: int = _DAY_S) -> ServiceRatesAnswer:
        """What the service did in the last ``since_s`` seconds: requests, quantiles, errors, commits.

        Example:
            >>> lake.service_rates(since_s=3_600).bucket_s
            300
        """
        return self.run(service_rates_call(since_s))

    def audit(self: CallRunner, table: str | None = None, *, page_size: int | None = None) -> Iterator[AuditEntry]:
        """The requested changes, newest first, including refused ones.

        ``table``: only entries about ``namespace.table``. Pages of ``page_size`` are fetched during iteration.

        Example:
            >>> [(entry.operation, entry.status) for entry in lake.audit("shop.arrivals")]
            [('create_table', 201)]
        """
        token: str | None = None
        while True:
            page = self.run(audit_call(table, page_size, token))
            yield from page.entries
            token = page.next_page_token
            if token is None:
                return


class TableFeedback:
    """Feedback on a table; a part of :class:`lamella.client.http.Table`."""

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
        """Report that no row in these blocks of a snapshot matches a filter; see ``docs/feedback.md``.

        Only for readers that evaluated the filter exactly on every row. A report changes no answer.

        Raises InvalidRequest (the service or the table does not accept feedback, or a location is not a block),
        InvalidFilter,
        UnknownColumn, SnapshotNotFound, TableNotFound.

        Example:
            >>> filter = "country = 'FR' AND note = 'gift'"
            >>> pruned = table.prune(filter)
            >>> answer = table.report_empty(filter, pruned.locations, snapshot_id=pruned.snapshot_id)
            >>> answer.remembered
            4
        """
        calls = report_calls(self._name, filter, locations, snapshot_id, time_zone, case_sensitive)
        return merge_reports([self._lake.run(call) for call in calls])

    def feedback(self) -> FeedbackInfo:
        """The amount of feedback stored for the table; raises TableNotFound.

        Example:
            >>> table.feedback().facts
            0
        """
        return self._lake.run(feedback_call(self._name))

    def clear_feedback(self) -> int:
        """Delete all feedback; returns the number of deleted facts. Raises TableNotFound.

        Example:
            >>> table.clear_feedback()
            0
        """
        return self._lake.run(clear_feedback_call(self._name)).facts
