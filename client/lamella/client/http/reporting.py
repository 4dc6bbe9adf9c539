"""Feedback: the calls, and what :class:`Table` and its async twin make of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamella.client.http.call import Call, Filter, TableName, encoded, texts
from lamella.client.http.running import Runs, RunsAsync
from lamella.snapshot.wire import FeedbackAnswer, FeedbackCleared, FeedbackInfo, FeedbackRequest

#: Blocks that one request names; the service takes no more.
_AT_ONCE = 10_000


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
    places = texts("locations", locations)
    parts = [places[at : at + _AT_ONCE] for at in range(0, len(places), _AT_ONCE)] or [()]
    return [
        Call(
            method="POST",
            path=f"{name.path}/feedback",
            answer=FeedbackAnswer,
            body=encoded(msgspec.structs.replace(request, empty=part)),
        )
        for part in parts
    ]


def feedback_call(name: TableName) -> Call[FeedbackInfo]:
    """How much is remembered."""
    return Call(method="GET", path=f"{name.path}/feedback", answer=FeedbackInfo)


def clear_call(name: TableName) -> Call[FeedbackCleared]:
    """Forget all of it."""
    return Call(method="DELETE", path=f"{name.path}/feedback", answer=FeedbackCleared)


class ReportingTable:
    """Feedback on a table; a part of :class:`lamella.client.Table`."""

    _lake: Runs
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
        return self._lake.run(clear_call(self._name)).facts


class AsyncReportingTable:
    """The asyncio twin of :class:`ReportingTable`."""

    _lake: RunsAsync
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
        """As :meth:`ReportingTable.report_empty`."""
        calls = report_calls(self._name, filter, locations, snapshot_id, time_zone, case_sensitive)
        return _sum([await self._lake.run(call) for call in calls])

    async def feedback(self) -> FeedbackInfo:
        """As :meth:`ReportingTable.feedback`."""
        return await self._lake.run(feedback_call(self._name))

    async def clear_feedback(self) -> int:
        """As :meth:`ReportingTable.clear_feedback`."""
        return (await self._lake.run(clear_call(self._name))).facts


def _sum(parts: Sequence[FeedbackAnswer]) -> FeedbackAnswer:
    return FeedbackAnswer(
        remembered=sum(part.remembered for part in parts), known_before=sum(part.known_before for part in parts)
    )
