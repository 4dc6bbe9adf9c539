"""The asyncio twin of :mod:`lamella.client.http.client`: the same names, awaited."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from lamella.client.http import call as calls
from lamella.client.http import past
from lamella.client.http.access import AsyncAccessLake
from lamella.client.http.advising import AsyncAdvisedTable
from lamella.client.http.call import Call, TableName
from lamella.client.http.clustering import AsyncClusteredTable
from lamella.client.http.contents import AsyncTableContents
from lamella.client.http.credential import credential_of
from lamella.client.http.exchange import Exchange
from lamella.client.http.following import AsyncFollowingLake, AsyncFollowingTable
from lamella.client.http.history import AsyncTableHistory
from lamella.client.http.indexing import AsyncIndexedLake, AsyncIndexedTable
from lamella.client.http.jobs import AsyncJobs
from lamella.client.http.maintenance import AsyncMaintainedLake, AsyncMaintainedTable
from lamella.client.http.planning import AsyncPlannedTable
from lamella.client.http.reporting import AsyncReportingTable
from lamella.client.http.resolving import Addresses, AsyncResolvingTable
from lamella.client.http.retry import RetryPolicy
from lamella.client.http.rewriting import AsyncRewrittenTable
from lamella.client.http.steps import Outcome, Send
from lamella.client.http.transport import AsyncTransport, TransportFailure
from lamella.client.http.upkeep import AsyncTableUpkeep
from lamella.client.http.verifying import AsyncVerifiedTable
from lamella.client.http.watching import AsyncWatchedLake, AsyncWatchedTable
from lamella.snapshot import wire
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.schema import Column, Schema

Answer = TypeVar("Answer")


class AsyncLamella(AsyncMaintainedLake, AsyncIndexedLake, AsyncFollowingLake, AsyncWatchedLake, AsyncAccessLake):
    """A Lamella service, for asyncio: ``async with AsyncLamella("http://127.0.0.1:8181") as lake: ...``.

    Arguments and errors as of :class:`~lamella.client.http.client.Lamella`. Needs ``lamella[aio]`` unless a
    ``transport`` is given.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        timeout_s: float = 30.0,
        policy: RetryPolicy | None = None,
        transport: AsyncTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
        jitter: Callable[[], float] = random.random,
        ids: Ids | None = None,
        traces: bool = True,
    ) -> None:
        #: Addresses of blocks, for answers of shape "ranges".
        self.addresses = Addresses()
        self._exchange = Exchange(
            url, credential=credential_of(token, token_file), policy=policy, ids=ids, jitter=jitter, traces=traces
        )
        self._transport = transport if transport is not None else _default_transport(url, timeout_s)
        self._sleep = sleep if sleep is not None else _sleep

    @property
    def url(self) -> str:
        """The service's base URL."""
        return str(self._exchange.address)

    @property
    def jobs(self) -> AsyncJobs:
        """As :attr:`Lamella.jobs`."""
        return AsyncJobs(self, self._sleep)

    async def config(self) -> wire.ServiceConfig:
        """As :meth:`Lamella.config`."""
        return await self.run(calls.config())

    async def namespaces(self) -> tuple[wire.NamespaceInfo, ...]:
        """As :meth:`Lamella.namespaces`."""
        return (await self.run(calls.namespaces())).namespaces

    async def create_namespace(
        self, name: str, properties: Mapping[str, str] | None = None, *, idempotency_key: str | None = None
    ) -> wire.NamespaceInfo:
        """As :meth:`Lamella.create_namespace`."""
        return await self.run(calls.create_namespace(name, properties or {}), idempotency_key)

    async def change_namespace(
        self,
        name: str,
        *,
        set: Mapping[str, str] | None = None,
        remove: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> wire.NamespaceInfo:
        """As :meth:`Lamella.change_namespace`."""
        return await self.run(calls.change_namespace(name, set or {}, remove), idempotency_key)

    async def namespace_quota(self, name: str) -> wire.NamespaceQuota:
        """As :meth:`Lamella.namespace_quota`."""
        return await self.run(calls.namespace_quota(name))

    async def drop_namespace(self, name: str, *, idempotency_key: str | None = None) -> None:
        """As :meth:`Lamella.drop_namespace`."""
        await self.run(calls.drop_namespace(name), idempotency_key)

    async def tables(self, namespace: str) -> tuple[str, ...]:
        """As :meth:`Lamella.tables`."""
        return (await self.run(calls.tables(namespace))).tables

    async def create_table(
        self,
        name: str,
        *,
        schema: Schema | Sequence[Column] | None = None,
        schema_from: str | None = None,
        cluster_key: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        cluster_kind: ClusterKind = "linear",
        idempotency_key: str | None = None,
    ) -> wire.TableInfo:
        """As :meth:`Lamella.create_table`."""
        call = calls.create_table(
            TableName.parse(name), schema, schema_from, cluster_key, properties or {}, cluster_kind
        )
        return await self.run(call, idempotency_key)

    async def drop_table(
        self,
        name: str,
        *,
        purge: bool = False,
        base_snapshot_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """As :meth:`Lamella.drop_table`."""
        await self.run(past.drop_table(TableName.parse(name), purge, base_snapshot_id), idempotency_key)

    async def dropped_tables(self, namespace: str) -> tuple[wire.DroppedTable, ...]:
        """As :meth:`Lamella.dropped_tables`."""
        return (await self.run(past.dropped_tables(namespace))).tables

    async def undrop_table(
        self,
        name: str,
        *,
        table_id: str | None = None,
        as_name: str | None = None,
        idempotency_key: str | None = None,
    ) -> wire.TableInfo:
        """As :meth:`Lamella.undrop_table`."""
        return await self.run(past.undrop_table(TableName.parse(name), table_id, as_name), idempotency_key)

    def table(self, name: str) -> AsyncTable:
        """As :meth:`Lamella.table`."""
        return AsyncTable(self, TableName.parse(name))

    async def close(self) -> None:
        """Give back the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncLamella({self.url!r})"

    async def run(self, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        """As :meth:`Lamella.run`."""
        steps = self._exchange.steps(call, idempotency_key)
        outcome: Outcome | None = None
        try:
            while True:
                step = steps.send(outcome)
                if isinstance(step, Send):
                    try:
                        outcome = await self._transport.send(step.request)
                    except TransportFailure as failure:
                        outcome = failure
                else:
                    await self._sleep(step.delay_s)
                    outcome = None
        except StopIteration as done:
            answer: Answer = done.value
            return answer


class AsyncTable(
    AsyncTableContents,
    AsyncPlannedTable,
    AsyncTableHistory,
    AsyncMaintainedTable,
    AsyncIndexedTable,
    AsyncFollowingTable,
    AsyncReportingTable,
    AsyncAdvisedTable,
    AsyncClusteredTable,
    AsyncRewrittenTable,
    AsyncTableUpkeep,
    AsyncVerifiedTable,
    AsyncWatchedTable,
    AsyncResolvingTable,
):
    """One table of a service; made by :meth:`AsyncLamella.table`."""

    def __init__(self, lake: AsyncLamella, name: TableName) -> None:
        self._lake = lake
        self._name = name
        self._addresses = lake.addresses

    @property
    def namespace(self) -> str:
        """The namespace's name."""
        return self._name.namespace

    @property
    def name(self) -> str:
        """The table's own name."""
        return self._name.table

    def __str__(self) -> str:
        return str(self._name)

    def __repr__(self) -> str:
        return f"{self._lake!r}.table({str(self._name)!r})"


async def _sleep(delay_s: float) -> None:
    import asyncio  # here, since the sync client is imported together with this module and does not need it

    await asyncio.sleep(delay_s)


def _default_transport(url: str, timeout_s: float) -> AsyncTransport:
    try:
        from lamella.client.http.httpx_transport import HttpxTransport
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "AsyncLamella needs httpx2: pip install 'lamella[aio]' (or pass a transport)", name=error.name
        ) from error
    return HttpxTransport(url, timeout_s=timeout_s)
