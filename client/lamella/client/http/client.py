"""The client of a Lamella service, and the handle of a table."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from lamella.client.http import call as calls
from lamella.client.http import past
from lamella.client.http.access import AccessLake
from lamella.client.http.advising import AdvisedTable
from lamella.client.http.call import Call, TableName
from lamella.client.http.clustering import ClusteredTable
from lamella.client.http.credential import credential_of
from lamella.client.http.exchange import Exchange
from lamella.client.http.following import FollowingLake, FollowingTable
from lamella.client.http.indexing import IndexedLake, IndexedTable
from lamella.client.http.jobs import Jobs
from lamella.client.http.maintenance import MaintainedLake
from lamella.client.http.pool import PooledTransport
from lamella.client.http.resolving import Addresses, ResolvingTable
from lamella.client.http.retry import RetryPolicy
from lamella.client.http.rewriting import RewrittenTable
from lamella.client.http.scanning import ScannedTable
from lamella.client.http.steps import Outcome, Send
from lamella.client.http.transport import Transport, TransportFailure
from lamella.client.http.upkeep import TableUpkeep
from lamella.client.http.verifying import VerifiedTable
from lamella.client.http.watching import WatchedLake, WatchedTable
from lamella.snapshot import wire
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.schema import Column, Schema

Answer = TypeVar("Answer")


class Lamella(MaintainedLake, IndexedLake, FollowingLake, WatchedLake, AccessLake):
    """A Lamella service: ``lake = Lamella("http://127.0.0.1:8181")``.

    Safe to share between threads. Every method raises a :class:`~lamella.snapshot.errors.LamellaError`: the class
    that the service's answer names, :class:`~lamella.snapshot.errors.Unavailable` when there is no answer after all
    tries, or :class:`~lamella.snapshot.errors.OutcomeUnknown` when a change may have been made all the same. The
    latter carries the ``idempotency_key``; the same call with that key is safe, however often. (Calls whose answer
    holds a secret have none; their message says what to do.)

    ``token``: an API key, or a token of the service's issuer. ``token_file``: a file that holds it, which is read again
    now and then, so that a key can be rotated without a restart. ``timeout_s``: the longest wait for a connection and
    for each next piece of an answer, per try. ``policy``: the tries. ``transport``: another way to send requests (see
    :mod:`lamella.client.http.testing`); it is closed with the client. ``traces``: calls are part of the application's
    OpenTelemetry traces, if it has any. ``sleep``, ``jitter`` and ``ids`` are the outside world, for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        timeout_s: float = 30.0,
        policy: RetryPolicy | None = None,
        transport: Transport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
        ids: Ids | None = None,
        traces: bool = True,
    ) -> None:
        #: Addresses of blocks, for answers of shape "ranges".
        self.addresses = Addresses()
        self._exchange = Exchange(
            url, credential=credential_of(token, token_file), policy=policy, ids=ids, jitter=jitter, traces=traces
        )
        self._transport: Transport = transport if transport is not None else PooledTransport(url, timeout_s=timeout_s)
        self._sleep = sleep

    @property
    def url(self) -> str:
        """The service's base URL."""
        return str(self._exchange.address)

    @property
    def jobs(self) -> Jobs:
        """The jobs of the service; see ``docs/jobs.md``."""
        return Jobs(self, self._sleep)

    def config(self) -> wire.ServiceConfig:
        """The service's version and limits, and how long an idempotency key can be used."""
        return self.run(calls.config())

    def namespaces(self) -> tuple[wire.NamespaceInfo, ...]:
        """All namespaces."""
        return self.run(calls.namespaces()).namespaces

    def create_namespace(
        self, name: str, properties: Mapping[str, str] | None = None, *, idempotency_key: str | None = None
    ) -> wire.NamespaceInfo:
        """Make a namespace; raises AlreadyExists."""
        return self.run(calls.create_namespace(name, properties or {}), idempotency_key)

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
        return self.run(calls.change_namespace(name, set or {}, remove), idempotency_key)

    def namespace_quota(self, name: str) -> wire.NamespaceQuota:
        """How much there is in a namespace, and may be; raises NamespaceNotFound."""
        return self.run(calls.namespace_quota(name))

    def drop_namespace(self, name: str, *, idempotency_key: str | None = None) -> None:
        """Drop an empty namespace; raises NamespaceNotFound, NamespaceNotEmpty."""
        self.run(calls.drop_namespace(name), idempotency_key)

    def tables(self, namespace: str) -> tuple[str, ...]:
        """The names of a namespace's tables; raises NamespaceNotFound."""
        return self.run(calls.tables(namespace)).tables

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
        call = calls.create_table(
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
        self.run(past.drop_table(TableName.parse(name), purge, base_snapshot_id), idempotency_key)

    def dropped_tables(self, namespace: str) -> tuple[wire.DroppedTable, ...]:
        """The tables of a namespace that can be undropped, newest drop first; raises NamespaceNotFound."""
        return self.run(past.dropped_tables(namespace)).tables

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
        return self.run(past.undrop_table(TableName.parse(name), table_id, as_name), idempotency_key)

    def table(self, name: str) -> Table:
        """The handle of ``namespace.name`` (the table is what follows the last dot); asks nothing of the service."""
        return Table(self, TableName.parse(name))

    def close(self) -> None:
        """Give back the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Lamella({self.url!r})"

    def run(self, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        """Carry out a call of :mod:`lamella.client.http.call`, with retries."""
        steps = self._exchange.steps(call, idempotency_key)
        outcome: Outcome | None = None
        try:
            while True:
                step = steps.send(outcome)
                if isinstance(step, Send):
                    try:
                        outcome = self._transport.send(step.request)
                    except TransportFailure as failure:
                        outcome = failure
                else:
                    self._sleep(step.delay_s)
                    outcome = None
        except StopIteration as done:
            answer: Answer = done.value
            return answer


class Table(
    ScannedTable,
    IndexedTable,
    FollowingTable,
    AdvisedTable,
    ClusteredTable,
    RewrittenTable,
    TableUpkeep,
    VerifiedTable,
    WatchedTable,
    ResolvingTable,
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
