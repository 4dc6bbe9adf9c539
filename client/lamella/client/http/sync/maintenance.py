# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/maintenance.py: change that file.
"""Methods for vacuum, leases on snapshots, verification, and the health of tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from lamella.client.http.call import TableName
from lamella.client.http.maintenance import (
    OnPart,
    OnVacuum,
    VerifyOptions,
    has_next_purge,
    health_call,
    lease_call,
    leases_call,
    next_vacuum_request,
    next_verify_request,
    purge_dropped_call,
    release_lease_call,
    renew_lease_call,
    vacuum_call,
    verify_call,
    verify_request,
)
from lamella.client.http.sync.runner import CallRunner
from lamella.snapshot.wire import (
    LeaseInfo,
    LeaseRequest,
    TableHealth,
    VacuumAnswer,
    VacuumRequest,
    VerifyAnswer,
    VerifyRequest,
    merged_vacuum,
    merged_verification,
)


class TableMaintenance:
    """Vacuum, leases and health of a table; a part of :class:`lamella.client.http.Table`."""

    _lake: CallRunner
    _name: TableName

    def vacuum(
        self,
        *,
        execute: bool = False,
        older_than: str | None = None,
        include_external_blocks: bool = False,
        on_part: OnVacuum | None = None,
    ) -> VacuumAnswer:
        """Expire snapshots past their retention, and delete files that no snapshot needs; see ``docs/vacuum.md``.

        Without ``execute`` it only returns what would be done. ``older_than`` (``"7d"``) replaces the table's
        retention. ``include_external_blocks``: also delete registered files outside the table's folder. ``on_part`` is
        called after each part.

        Raises TableNotFound, InvalidRequest, ManifestError, StoreError.

        Example:
            >>> table.vacuum(older_than="7d").executed
            False
        """
        parts = []
        request: VacuumRequest | None = VacuumRequest(
            execute=execute, older_than=older_than, include_external_blocks=include_external_blocks
        )
        while request is not None:
            part = self._lake.run(vacuum_call(self._name, request))
            parts.append(part)
            if on_part is not None:
                on_part(part)
            request = next_vacuum_request(request, part)
        return merged_vacuum(parts)

    def lease(self, owner: str, *, ttl_s: int = 600, snapshot_id: str | None = None) -> LeaseInfo:
        """Hold a snapshot (default: the current one) for ``ttl_s`` seconds; it cannot expire during this time.

        :class:`lamella.client.http.SnapshotLease` renews a lease while a block of code runs. Raises TableNotFound,
        SnapshotNotFound, SnapshotExpired.

        Example:
            >>> lease = table.lease("nightly export", ttl_s=3_600)
            >>> lease.snapshot_id == table.info().snapshot_id
            True
        """
        return self._lake.run(lease_call(self._name, LeaseRequest(ttl_s=ttl_s, owner=owner, snapshot_id=snapshot_id)))

    def renew_lease(self, lease_id: str, *, ttl_s: int = 600) -> LeaseInfo:
        """Extend a lease to ``ttl_s`` seconds from now; raises LeaseNotFound, also when the lease has expired.

        Example:
            >>> lease = table.lease("nightly export", ttl_s=60)
            >>> renewed = table.renew_lease(lease.lease_id, ttl_s=600)
            >>> renewed.expires_at_ms > lease.expires_at_ms
            True
        """
        return self._lake.run(renew_lease_call(self._name, lease_id, ttl_s))

    def release_lease(self, lease_id: str) -> None:
        """End a lease; no error when it does not exist.

        Example:
            >>> lease = table.lease("nightly export")
            >>> table.release_lease(lease.lease_id)
            >>> table.leases()
            ()
        """
        self._lake.run(release_lease_call(self._name, lease_id))

    def leases(self) -> tuple[LeaseInfo, ...]:
        """The leases that have not expired, oldest first.

        Example:
            >>> lease = table.lease("nightly export")
            >>> [each.owner for each in table.leases()]
            ['nightly export']
        """
        return self._lake.run(leases_call(self._name)).leases

    def health(self) -> TableHealth:
        """What should be done for the table, with its figures: depth, small blocks, bytes that a clean-up would free.

        The service measures a table soon after a commit; ``snapshot_id`` says of which snapshot the figures are, and
        ``commits_since`` how many commits there were after it. Raises TableNotFound, Unavailable.

        Example:
            >>> table.health().cluster_key
            ('day',)
        """
        return self._lake.run(health_call(self._name))


class LakeMaintenance:
    """The vacuum of dropped tables; a part of :class:`lamella.client.Lamella`."""

    def purge_dropped(
        self: CallRunner,
        *,
        execute: bool = False,
        include_external_blocks: bool = False,
        on_part: OnVacuum | None = None,
    ) -> VacuumAnswer:
        """Delete dropped tables whose grace period is over, with their files.

        The arguments are those of :meth:`TableMaintenance.vacuum`; ``tables`` in the answer names the tables.

        Example:
            >>> lake.drop_table("shop.rates", purge=True)
            >>> len(lake.purge_dropped(execute=True).tables)
            1
        """
        request = VacuumRequest(execute=execute, include_external_blocks=include_external_blocks)
        parts: list[VacuumAnswer] = []
        while not parts or has_next_purge(parts[-1]):
            parts.append(self.run(purge_dropped_call(request)))
            if on_part is not None:
                on_part(parts[-1])
        return merged_vacuum(parts)


class TableVerification:
    """Verification of a table; a part of :class:`lamella.client.http.Table`."""

    _lake: CallRunner
    _name: TableName

    def verify(self, *, on_part: OnPart | None = None, **options: Unpack[VerifyOptions]) -> VerifyAnswer:
        """Compare all metadata of the table with the data that it is derived from; returns all findings in one answer.

        ``files`` (default): also check the blocks' files and footers. ``deep``: also check the values of ``blocks``
        blocks, or of the fraction ``sample``, drawn with ``seed``, with ``filters`` random filters for each.
        ``repair``: write damaged sidecars and page sidecars again; manifests and blocks are never changed. See
        ``docs/verify.md``.

        ``on_part`` is called after each part. Raises TableNotFound, SnapshotNotFound, InvalidRequest.

        Example:
            >>> table.verify().findings
            ()
        """
        parts = []
        for part in self.verify_parts(**options):
            parts.append(part)
            if on_part is not None:
                on_part(part)
        return merged_verification(parts)

    def verify_parts(self, **options: Unpack[VerifyOptions]) -> Iterator[VerifyAnswer]:
        """Like :meth:`verify`, part by part during iteration; each part takes about ``max_ms``. All parts are of the
        same snapshot, even if others commit in between.

        Example:
            >>> for part in table.verify_parts(deep=True):
            ...     print(part.findings)
            ()
        """
        request: VerifyRequest | None = verify_request(options)
        while request is not None:
            part = self._lake.run(verify_call(self._name, request))
            yield part
            request = next_verify_request(request, part)
