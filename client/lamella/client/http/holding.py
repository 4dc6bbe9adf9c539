"""Holding a snapshot while a block of code reads it: a lease that is renewed in the background."""

from __future__ import annotations

import os
import socket
import threading
from types import TracebackType
from typing import Final, Protocol, Self

from lamella.snapshot.errors import LamellaError, NotFound
from lamella.snapshot.wire import LeaseInfo

DEFAULT_TTL_S: Final = 600
#: A read that takes longer takes a lease; far below any sensible minimum age.
LONG_READ_S: Final = 600.0
#: A lease is renewed when a third of its time is over, so that two renewals may fail.
_RENEWALS: Final = 3


class Leasable(Protocol):
    """What is asked of a table; :class:`lamella.client.Table` is one."""

    def lease(self, owner: str, *, ttl_s: int, snapshot_id: str | None) -> LeaseInfo:
        """Take a lease."""

    def renew_lease(self, lease_id: str, *, ttl_s: int) -> LeaseInfo:
        """Renew it."""

    def release_lease(self, lease_id: str) -> None:
        """End it."""


class Holding:
    """A context manager: ``with Holding(table, snapshot_id=...) as held:`` keeps the snapshot from expiring.

    ``after_s`` above 0: take the lease only when the block has run for so long; before that the service's minimum age
    protects what it reads. A renewal that fails is tried again until the lease runs out; reading goes on either way,
    and finds out by itself when a file is gone. ``lease`` is the lease that is held, None while there is none.

    Raises (on entering, when ``after_s`` is 0): TableNotFound, SnapshotNotFound, SnapshotExpired, Unavailable.
    """

    def __init__(
        self,
        table: Leasable,
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
    def of_snapshot(cls, table: Leasable, snapshot_id: str) -> Self:
        """What a reader of a snapshot holds when it reads for longer than :data:`LONG_READ_S`."""
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
                return  # it ends by itself
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
                return  # the snapshot, the table or the lease is gone; there is nothing left to hold
            except LamellaError:
                pass  # the service does not answer now; the next turn asks again
            if self._ended.wait(self._ttl_s / _RENEWALS):
                return
