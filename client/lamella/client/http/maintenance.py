"""Vacuum, leases on snapshots, verification, and the health of tables.

The calls. Their methods are in :mod:`lamella.client.http.aio.maintenance`.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self, TypedDict

import msgspec

from lamella.client.http.call import Call, TableName, make_call, timestamp_of
from lamella.snapshot.errors import LamellaError, NotFound
from lamella.snapshot.wire import (
    LeaseInfo,
    LeaseList,
    LeaseRequest,
    RenewRequest,
    TableHealth,
    VacuumAnswer,
    VacuumRequest,
    VerifyAnswer,
    VerifyRequest,
    operations,
)
from lamella.snapshot.wire.operation import Nothing

#: Called with each part of a vacuum when it is done.
OnVacuum = Callable[[VacuumAnswer], None]


def vacuum_call(name: TableName, request: VacuumRequest) -> Call[VacuumAnswer]:
    """One part of a table's vacuum. A part can safely be repeated, so it needs no idempotency key."""
    return make_call(operations.maintenance.VACUUM, name, body=request)


def purge_dropped_call(request: VacuumRequest) -> Call[VacuumAnswer]:
    """One part of the vacuum of dropped tables."""
    return make_call(operations.maintenance.VACUUM_DROPPED, body=request)


def lease_call(name: TableName, request: LeaseRequest) -> Call[LeaseInfo]:
    """Take a lease. If it is sent twice, there are two leases, and the first expires."""
    return make_call(operations.maintenance.TAKE_LEASE, name, body=request)


def renew_lease_call(name: TableName, lease_id: str, ttl_s: int) -> Call[LeaseInfo]:
    """Renew a lease."""
    return make_call(operations.maintenance.RENEW_LEASE, name, lease_id=lease_id, body=RenewRequest(ttl_s=ttl_s))


def release_lease_call(name: TableName, lease_id: str) -> Call[Nothing]:
    """End a lease."""
    return make_call(operations.maintenance.RELEASE_LEASE, name, lease_id=lease_id)


def leases_call(name: TableName) -> Call[LeaseList]:
    """The leases of a table."""
    return make_call(operations.maintenance.LIST_LEASES, name)


def health_call(name: TableName) -> Call[TableHealth]:
    """The health of a table."""
    return make_call(operations.maintenance.TABLE_HEALTH, name)


def next_vacuum_request(request: VacuumRequest, part: VacuumAnswer) -> VacuumRequest | None:
    """The request for the next part; None when this was the last."""
    if part.next_page_token is None:
        return None
    return msgspec.structs.replace(request, page_token=part.next_page_token)


def has_next_purge(part: VacuumAnswer) -> bool:
    """Whether a purge has another part. Deleted tables are not listed again, so each part is the same request."""
    return part.next_page_token is not None and part.executed and bool(part.garbage)


DEFAULT_TTL_S: Final = 600
#: A read that takes longer than this takes a lease; far below any sensible minimum age.
LONG_READ_S: Final = 600.0
#: A lease is renewed after a third of its time, so that two renewals may fail.
_RENEWALS: Final = 3


class LeaseCalls(Protocol):
    """The lease methods of a table; :class:`lamella.client.Table` has them."""

    def lease(self, owner: str, *, ttl_s: int, snapshot_id: str | None) -> LeaseInfo:
        """Take a lease."""

    def renew_lease(self, lease_id: str, *, ttl_s: int) -> LeaseInfo:
        """Renew a lease."""

    def release_lease(self, lease_id: str) -> None:
        """End a lease."""


class SnapshotLease:
    """A context manager: ``with SnapshotLease(table, snapshot_id=...) as held:`` keeps the snapshot from expiring.

    ``after_s`` above 0: take the lease only after the block has run for this many seconds; before that, the service's
    minimum age protects the files it reads. A failed renewal is repeated until the lease expires. Reading continues in
    either case, and fails if a file is gone. ``lease`` is the current lease, or None.

    Raises (on entering, when ``after_s`` is 0): TableNotFound, SnapshotNotFound, SnapshotExpired, Unavailable.
    """

    def __init__(
        self,
        table: LeaseCalls,
        *,
        snapshot_id: str | None = None,
        owner: str | None = None,
        ttl_s: int = DEFAULT_TTL_S,
        after_s: float = 0.0,
    ) -> None:
        self._table = table
        self._snapshot_id = snapshot_id
        self._owner = owner if owner is not None else f"{socket.gethostname()}:{os.getpid()}"
        self._ttl_s = ttl_s
        self._after_s = after_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.lease: LeaseInfo | None = None

    @classmethod
    def of_snapshot(cls, table: LeaseCalls, snapshot_id: str) -> Self:
        """A lease for a reader of a snapshot, taken when it reads for longer than :data:`LONG_READ_S`.

        Example:
            >>> fragments = table.scan().fragments()
            >>> with SnapshotLease.of_snapshot(table, table.info().snapshot_id):
            ...     sum(fragment.to_arrow().num_rows for fragment in fragments)
            15
        """
        return cls(table, snapshot_id=snapshot_id, after_s=LONG_READ_S)

    def __enter__(self) -> Self:
        if self._after_s <= 0:
            self._take()
        thread = threading.Thread(target=self._keep, name="lamella-lease", daemon=True)
        try:
            thread.start()
        except BaseException:
            self._release()
            raise
        self._thread = thread
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._release()

    def _release(self) -> None:
        if self.lease is not None:
            try:
                self._table.release_lease(self.lease.lease_id)
            except LamellaError:
                return  # the lease expires on its own
            finally:
                self.lease = None

    def _take(self) -> None:
        self.lease = self._table.lease(self._owner, ttl_s=self._ttl_s, snapshot_id=self._snapshot_id)

    def _keep(self) -> None:
        if self.lease is None and self._ended.wait(self._after_s):
            return
        while True:
            try:
                if self.lease is None:
                    self._take()
                else:
                    self.lease = self._table.renew_lease(self.lease.lease_id, ttl_s=self._ttl_s)
            except NotFound:
                return  # the snapshot, the table or the lease is gone; there is nothing to renew
            except LamellaError:
                pass  # the service is not reachable; the next iteration tries again
            if self._ended.wait(self._ttl_s / _RENEWALS):
                return


#: Called with each part: its progress and findings.
OnPart = Callable[[VerifyAnswer], None]


class VerifyOptions(TypedDict, total=False):
    """The keyword arguments of a verification; see :class:`lamella.snapshot.wire.VerifyRequest`."""

    snapshot_id: str | None
    timestamp: int | str | dt.datetime | None
    files: bool
    history: int
    pages: bool | None
    deep: bool
    sample: float | None
    blocks: int | None
    seed: int
    filters: int
    repair: bool
    max_ms: float | None


def verify_request(options: VerifyOptions) -> VerifyRequest:
    """The request for a verification with these arguments."""
    given = {name: value for name, value in options.items() if name != "timestamp"}
    return VerifyRequest(timestamp=timestamp_of(options.get("timestamp")), **given)  # type: ignore[arg-type]  # by name


def verify_call(name: TableName, request: VerifyRequest) -> Call[VerifyAnswer]:
    """One part of a verification."""
    return make_call(operations.maintenance.VERIFY, name, body=request)


def next_verify_request(request: VerifyRequest, part: VerifyAnswer) -> VerifyRequest | None:
    """The request for the next part; None when this was the last."""
    if part.next_page_token is None:
        return None
    return msgspec.structs.replace(request, page_token=part.next_page_token)
