"""The asyncio twin of :mod:`lamella.client.http.client`: the same names, awaited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from lamella.client.advice.calls import AsyncTableAdvice
from lamella.client.http.access import AsyncLakeAccess
from lamella.client.http.blocks import AsyncTableAddresses, AsyncTableBlocks
from lamella.client.http.call import TableName
from lamella.client.http.connection import AsyncConnection
from lamella.client.http.external import AsyncLakeExternal, AsyncTableRefresh
from lamella.client.http.history import AsyncTableHistory
from lamella.client.http.indexes import AsyncLakeIndexes, AsyncTableIndexes
from lamella.client.http.jobs import AsyncJobs, AsyncTableSchedules
from lamella.client.http.layout import AsyncTableLayout
from lamella.client.http.maintenance import AsyncLakeMaintenance, AsyncTableMaintenance, AsyncTableVerification
from lamella.client.http.prune import AsyncTablePrune
from lamella.client.http.tables import (
    AsyncTableContents,
    change_namespace_call,
    config_call,
    create_namespace_call,
    create_table_call,
    drop_namespace_call,
    drop_table_call,
    dropped_tables_call,
    namespace_quota_call,
    namespaces_call,
    tables_call,
    undrop_table_call,
)
from lamella.client.http.usage import AsyncLakeAudit, AsyncTableFeedback, AsyncTableUsage
from lamella.snapshot import wire
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.schema import Column, Schema

Answer = TypeVar("Answer")


class AsyncLamella(
    AsyncConnection, AsyncLakeMaintenance, AsyncLakeIndexes, AsyncLakeExternal, AsyncLakeAudit, AsyncLakeAccess
):
    """A Lamella service, for asyncio: ``async with AsyncLamella("http://127.0.0.1:8181") as lake: ...``.

    Arguments and errors as of :class:`~lamella.client.http.client.Lamella`. Needs ``lamella[aio]`` unless a
    ``transport`` is given.
    """

    @property
    def jobs(self) -> AsyncJobs:
        """As :attr:`Lamella.jobs`."""
        return AsyncJobs(self, self._sleep)

    async def config(self) -> wire.ServiceConfig:
        """As :meth:`Lamella.config`."""
        return await self.run(config_call())

    async def namespaces(self) -> tuple[wire.NamespaceInfo, ...]:
        """As :meth:`Lamella.namespaces`."""
        return (await self.run(namespaces_call())).namespaces

    async def create_namespace(
        self, name: str, properties: Mapping[str, str] | None = None, *, idempotency_key: str | None = None
    ) -> wire.NamespaceInfo:
        """As :meth:`Lamella.create_namespace`."""
        return await self.run(create_namespace_call(name, properties or {}), idempotency_key)

    async def change_namespace(
        self,
        name: str,
        *,
        set: Mapping[str, str] | None = None,
        remove: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> wire.NamespaceInfo:
        """As :meth:`Lamella.change_namespace`."""
        return await self.run(change_namespace_call(name, set or {}, remove), idempotency_key)

    async def namespace_quota(self, name: str) -> wire.NamespaceQuota:
        """As :meth:`Lamella.namespace_quota`."""
        return await self.run(namespace_quota_call(name))

    async def drop_namespace(self, name: str, *, idempotency_key: str | None = None) -> None:
        """As :meth:`Lamella.drop_namespace`."""
        await self.run(drop_namespace_call(name), idempotency_key)

    async def tables(self, namespace: str) -> tuple[str, ...]:
        """As :meth:`Lamella.tables`."""
        return (await self.run(tables_call(namespace))).tables

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
        call = create_table_call(
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
        await self.run(drop_table_call(TableName.parse(name), purge, base_snapshot_id), idempotency_key)

    async def dropped_tables(self, namespace: str) -> tuple[wire.DroppedTable, ...]:
        """As :meth:`Lamella.dropped_tables`."""
        return (await self.run(dropped_tables_call(namespace))).tables

    async def undrop_table(
        self,
        name: str,
        *,
        table_id: str | None = None,
        as_name: str | None = None,
        idempotency_key: str | None = None,
    ) -> wire.TableInfo:
        """As :meth:`Lamella.undrop_table`."""
        return await self.run(undrop_table_call(TableName.parse(name), table_id, as_name), idempotency_key)

    def table(self, name: str) -> AsyncTable:
        """As :meth:`Lamella.table`."""
        return AsyncTable(self, TableName.parse(name))


class AsyncTable(
    AsyncTableContents,
    AsyncTablePrune,
    AsyncTableHistory,
    AsyncTableMaintenance,
    AsyncTableIndexes,
    AsyncTableRefresh,
    AsyncTableFeedback,
    AsyncTableAdvice,
    AsyncTableLayout,
    AsyncTableBlocks,
    AsyncTableSchedules,
    AsyncTableVerification,
    AsyncTableUsage,
    AsyncTableAddresses,
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
