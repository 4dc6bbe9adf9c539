"""What jobs ask before they rewrite blocks: the calls, and what :class:`Table` and its async twin make of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypedDict, Unpack

import msgspec

from lamella.client.http.call import Call, TableName
from lamella.client.http.running import Runs, RunsAsync
from lamella.snapshot.wire import BlocksAnswer, BlocksRequest, PlanAnswer, PlanRequest

#: Locations that one request looks up; the service takes no more.
_AT_ONCE: Final = 10_000
#: The same with URLs, of which a service may be told to give fewer.
_SIGNED_AT_ONCE: Final = 1_000


class Plan(TypedDict, total=False):
    """The keyword arguments of a plan; see :class:`lamella.snapshot.wire.PlanRequest`."""

    snapshot_id: str | None
    filter: Any
    time_zone: str
    case_sensitive: bool
    max_bytes: int | None
    max_blocks: int | None
    target_rows: int | None
    target_bytes: int | None
    target_depth: int | None
    min_gain: float | None


def plan_call(name: TableName, job: Literal["compact", "recluster"], asked: Plan) -> Call[PlanAnswer]:
    """The call for a plan."""
    body = msgspec.json.encode(PlanRequest(job=job, **asked))
    return Call(method="POST", path=f"{name.path}/plan", answer=PlanAnswer, body=body)


def blocks_calls(
    name: TableName, locations: Sequence[str], snapshot_id: str | None, *, sign_urls: bool
) -> Iterator[Call[BlocksAnswer]]:
    """The calls that look up blocks, some of them each."""
    at_once = _SIGNED_AT_ONCE if sign_urls else _AT_ONCE
    for start in range(0, max(len(locations), 1), at_once):
        some = tuple(locations[start : start + at_once])
        asked = BlocksRequest(locations=some, snapshot_id=snapshot_id, sign_urls=sign_urls)
        yield Call(method="POST", path=f"{name.path}/blocks", answer=BlocksAnswer, body=msgspec.json.encode(asked))


def joined(parts: Sequence[BlocksAnswer]) -> BlocksAnswer:
    """The answers for some locations each as one."""
    return BlocksAnswer(
        snapshot_id=parts[0].snapshot_id,
        blocks=tuple(block for part in parts for block in part.blocks),
        missing=tuple(location for part in parts for location in part.missing),
        url_expires_ms=min((part.url_expires_ms for part in parts if part.url_expires_ms is not None), default=None),
    )


class RewrittenTable:
    """What jobs ask of a table; a part of :class:`lamella.client.Table`."""

    _lake: Runs
    _name: TableName

    def plan(self, job: Literal["compact", "recluster"], **asked: Unpack[Plan]) -> PlanAnswer:
        """What a job would rewrite now, and what is gained; see :class:`lamella.snapshot.wire.PlanRequest`.

        Raises TableNotFound, SnapshotNotFound, InvalidRequest (a recluster of a table without a cluster key),
        InvalidFilter.
        """
        return self._lake.run(plan_call(self._name, job, asked))

    def blocks(
        self, locations: Sequence[str], *, snapshot_id: str | None = None, sign_urls: bool = False
    ) -> BlocksAnswer:
        """What blocks are, by their locations; with ``snapshot_id`` None each request sees the current snapshot.

        ``sign_urls``: with URLs, as of :meth:`prune`. Raises TableNotFound, SnapshotNotFound; with ``sign_urls``
        NotSignable, LocationRefused, LimitExceeded.
        """
        found = blocks_calls(self._name, locations, snapshot_id, sign_urls=sign_urls)
        return joined([self._lake.run(call) for call in found])


class AsyncRewrittenTable:
    """The asyncio twin of :class:`RewrittenTable`."""

    _lake: RunsAsync
    _name: TableName

    async def plan(self, job: Literal["compact", "recluster"], **asked: Unpack[Plan]) -> PlanAnswer:
        """See :meth:`RewrittenTable.plan`."""
        return await self._lake.run(plan_call(self._name, job, asked))

    async def blocks(
        self, locations: Sequence[str], *, snapshot_id: str | None = None, sign_urls: bool = False
    ) -> BlocksAnswer:
        """See :meth:`RewrittenTable.blocks`."""
        found = blocks_calls(self._name, locations, snapshot_id, sign_urls=sign_urls)
        return joined([await self._lake.run(call) for call in found])
