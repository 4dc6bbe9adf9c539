"""The client of a Lamella service, and the handle of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from lamella.client.advice.calls import TableAdvice
from lamella.client.http.access import LakeAccess
from lamella.client.http.blocks import TableAddresses, TableBlocks
from lamella.client.http.call import TableName
from lamella.client.http.connection import Connection
from lamella.client.http.external import LakeExternal, TableRefresh
from lamella.client.http.indexes import LakeIndexes, TableIndexes
from lamella.client.http.jobs import Jobs, TableSchedules
from lamella.client.http.layout import TableLayout
from lamella.client.http.maintenance import LakeMaintenance, TableVerification
from lamella.client.http.scan import TableScan
from lamella.client.http.tables import (
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
from lamella.client.http.usage import LakeAudit, TableUsage
from lamella.snapshot import wire
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.schema import Column, Schema

Answer = TypeVar("Answer")


class Lamella(Connection, LakeMaintenance, LakeIndexes, LakeExternal, LakeAudit, LakeAccess):
    """A Lamella service: ``lake = Lamella("http://127.0.0.1:8181")``.

    Safe to share between threads. Every method raises a :class:`~lamella.snapshot.errors.LamellaError`: the class
    that the service's answer names, :class:`~lamella.snapshot.errors.Unavailable` when there is no answer after all
    tries, or :class:`~lamella.snapshot.errors.OutcomeUnknown` when a change may have been made all the same. The
    latter carries the ``idempotency_key``; the same call with that key is safe, however often. (Calls whose answer
    holds a secret have none; their message says what to do.)

    ``token``: an API key, or a token of the service's issuer. ``token_file``: a file that holds it, which is read again
    now and then, so that a key can be rotated without a restart. ``timeout_s``: the longest wait for a connection and
    for each next piece of an answer, per try. ``policy``: the tries. ``transport``: another way to send requests (see
    :mod:`lamella.client.http.fake_transport`); it is closed with the client. ``traces``: calls are part of the
    application's OpenTelemetry traces, if it has any. ``sleep``, ``jitter`` and ``ids`` are the outside world, for
    tests.
    """

    @property
    def jobs(self) -> Jobs:
        """The jobs of the service; see ``docs/jobs.md``."""
        return Jobs(self, self._sleep)

    def config(self) -> wire.ServiceConfig:
        """The service's version and limits, and how long an idempotency key can be used."""
        return self.run(config_call())

    def namespaces(self) -> tuple[wire.NamespaceInfo, ...]:
        """All namespaces."""
        return self.run(namespaces_call()).namespaces

    def create_namespace(
        self, name: str, properties: Mapping[str, str] | None = None, *, idempotency_key: str | None = None
    ) -> wire.NamespaceInfo:
        """Make a namespace; raises AlreadyExists."""
        return self.run(create_namespace_call(name, properties or {}), idempotency_key)

    def change_namespace(
        self,
        name: str,
        *,
        set: Mapping[str, str] | None = None,
        remove: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> wire.NamespaceInfo:
        """Set and remove properties of a namespace; others stay. Raises NamespaceNotFound.

        Quotas (``lamella.quota.tables``, ``.blocks``, ``.bytes``) are for who is admin of everything.
        """
        return self.run(change_namespace_call(name, set or {}, remove), idempotency_key)

    def namespace_quota(self, name: str) -> wire.NamespaceQuota:
        """How much there is in a namespace, and may be; raises NamespaceNotFound."""
        return self.run(namespace_quota_call(name))

    def drop_namespace(self, name: str, *, idempotency_key: str | None = None) -> None:
        """Drop an empty namespace; raises NamespaceNotFound, NamespaceNotEmpty."""
        self.run(drop_namespace_call(name), idempotency_key)

    def tables(self, namespace: str) -> tuple[str, ...]:
        """The names of a namespace's tables; raises NamespaceNotFound."""
        return self.run(tables_call(namespace)).tables

    def create_table(
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
        """Make the table ``namespace.name``, from columns or from the URL of a Parquet file.

        Raises AlreadyExists, NamespaceNotFound, InvalidSchema, UnknownColumn (in the cluster key), NotParquet.
        """
        call = create_table_call(
            TableName.parse(name), schema, schema_from, cluster_key, properties or {}, cluster_kind
        )
        return self.run(call, idempotency_key)

    def drop_table(
        self,
        name: str,
        *,
        purge: bool = False,
        base_snapshot_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Drop a table; it can be undropped for a time.

        ``purge``: it cannot; the next vacuum removes what the service wrote for it. ``base_snapshot_id``: only if that
        is its current snapshot.

        Raises NamespaceNotFound, TableNotFound, CommitConflict (another snapshot is the current one).
        """
        self.run(drop_table_call(TableName.parse(name), purge, base_snapshot_id), idempotency_key)

    def dropped_tables(self, namespace: str) -> tuple[wire.DroppedTable, ...]:
        """The tables of a namespace that can be undropped, newest drop first; raises NamespaceNotFound."""
        return self.run(dropped_tables_call(namespace)).tables

    def undrop_table(
        self,
        name: str,
        *,
        table_id: str | None = None,
        as_name: str | None = None,
        idempotency_key: str | None = None,
    ) -> wire.TableInfo:
        """Bring a dropped table back, with its history and tags.

        ``name``: ``namespace.table`` as it was, the last one dropped of that name; ``as_name``: a new table name.
        With ``table_id`` it is that table, whatever it was called, and ``name`` is what it gets.

        Raises TableNotFound, NamespaceNotFound, AlreadyExists (the name is taken).
        """
        return self.run(undrop_table_call(TableName.parse(name), table_id, as_name), idempotency_key)

    def table(self, name: str) -> Table:
        """The handle of ``namespace.name`` (the table is what follows the last dot); asks nothing of the service."""
        return Table(self, TableName.parse(name))


class Table(
    TableScan,
    TableIndexes,
    TableRefresh,
    TableAdvice,
    TableLayout,
    TableBlocks,
    TableSchedules,
    TableVerification,
    TableUsage,
    TableAddresses,
):
    """One table of a service; made by :meth:`Lamella.table`. Holds no state but its name."""

    def __init__(self, lake: Lamella, name: TableName) -> None:
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
