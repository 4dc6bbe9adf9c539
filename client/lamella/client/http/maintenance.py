"""Clean-up and leases: their calls, and what :class:`Table`, the client and their async twins make of them."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import msgspec

from lamella.client.http.call import Call, Nothing, TableName
from lamella.client.http.running import Runs, RunsAsync
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.wire import (
    LeaseInfo,
    LeaseList,
    LeaseRequest,
    RenewRequest,
    VacuumAnswer,
    VacuumRequest,
    merged_vacuum,
)

#: Called with each part of a clean-up as it is done.
OnCleaned = Callable[[VacuumAnswer], None]


def vacuum_call(name: TableName, request: VacuumRequest) -> Call[VacuumAnswer]:
    """One part of a table's clean-up. Repeating a part does no harm, so it needs no idempotency key."""
    return Call(method="POST", path=f"{name.path}/vacuum", answer=VacuumAnswer, body=msgspec.json.encode(request))


def purge_call(request: VacuumRequest) -> Call[VacuumAnswer]:
    """One part of the clean-up of dropped tables."""
    return Call(method="POST", path="/v1/vacuum-dropped", answer=VacuumAnswer, body=msgspec.json.encode(request))


def lease_call(name: TableName, request: LeaseRequest) -> Call[LeaseInfo]:
    """Take a lease. Sent twice it makes two, of which the first ends by itself."""
    return Call(method="POST", path=f"{name.path}/leases", answer=LeaseInfo, body=msgspec.json.encode(request))


def renew_call(name: TableName, lease_id: str, ttl_s: int) -> Call[LeaseInfo]:
    """Renew a lease."""
    body = msgspec.json.encode(RenewRequest(ttl_s=ttl_s))
    return Call(method="POST", path=_lease(name, lease_id), answer=LeaseInfo, body=body)


def release_call(name: TableName, lease_id: str) -> Call[Nothing]:
    """End a lease."""
    return Call(method="DELETE", path=_lease(name, lease_id), answer=Nothing)


def leases_call(name: TableName) -> Call[LeaseList]:
    """The leases of a table."""
    return Call(method="GET", path=f"{name.path}/leases", answer=LeaseList)


def _lease(name: TableName, lease_id: str) -> str:
    if not lease_id:
        raise InvalidRequest("a lease's id is empty")
    return f"{name.path}/leases/{quote(lease_id, safe='')}"


def following(request: VacuumRequest, part: VacuumAnswer) -> VacuumRequest | None:
    """The request for the part behind this one."""
    if part.next_page_token is None:
        return None
    return msgspec.structs.replace(request, page_token=part.next_page_token)


class MaintainedTable:
    """Clean-up and leases of a table; a part of :class:`lamella.client.Table`."""

    _lake: Runs
    _name: TableName

    def vacuum(
        self,
        *,
        execute: bool = False,
        older_than: str | None = None,
        include_external_blocks: bool = False,
        on_part: OnCleaned | None = None,
    ) -> VacuumAnswer:
        """Expire snapshots that retention does not keep, and delete what no snapshot needs; see ``docs/vacuum.md``.

        Without ``execute`` it only says what would be done. ``older_than`` (``"7d"``): instead of the table's
        retention. ``include_external_blocks``: registered files outside of the table's folder too. ``on_part`` is
        called as the work comes forward.

        Raises TableNotFound, InvalidRequest, ManifestError, StoreError.
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
            request = following(request, part)
        return merged_vacuum(parts)

    def lease(self, owner: str, *, ttl_s: int = 600, snapshot_id: str | None = None) -> LeaseInfo:
        """Hold a snapshot (default: the current one) for ``ttl_s`` seconds; it cannot expire meanwhile.

        :func:`lamella.client.http.holding` renews one for as long as a block of code runs. Raises TableNotFound,
        SnapshotNotFound, SnapshotExpired.
        """
        return self._lake.run(lease_call(self._name, LeaseRequest(ttl_s=ttl_s, owner=owner, snapshot_id=snapshot_id)))

    def renew_lease(self, lease_id: str, *, ttl_s: int = 600) -> LeaseInfo:
        """Hold on for ``ttl_s`` seconds from now; raises LeaseNotFound, also when the lease ran out."""
        return self._lake.run(renew_call(self._name, lease_id, ttl_s))

    def release_lease(self, lease_id: str) -> None:
        """End a lease; one that is not there is no error."""
        self._lake.run(release_call(self._name, lease_id))

    def leases(self) -> tuple[LeaseInfo, ...]:
        """The leases that have not run out, oldest first."""
        return self._lake.run(leases_call(self._name)).leases


class AsyncMaintainedTable:
    """The asyncio twin of :class:`MaintainedTable`."""

    _lake: RunsAsync
    _name: TableName

    async def vacuum(
        self,
        *,
        execute: bool = False,
        older_than: str | None = None,
        include_external_blocks: bool = False,
        on_part: OnCleaned | None = None,
    ) -> VacuumAnswer:
        """As :meth:`MaintainedTable.vacuum`."""
        parts = []
        request: VacuumRequest | None = VacuumRequest(
            execute=execute, older_than=older_than, include_external_blocks=include_external_blocks
        )
        while request is not None:
            part = await self._lake.run(vacuum_call(self._name, request))
            parts.append(part)
            if on_part is not None:
                on_part(part)
            request = following(request, part)
        return merged_vacuum(parts)

    async def lease(self, owner: str, *, ttl_s: int = 600, snapshot_id: str | None = None) -> LeaseInfo:
        """As :meth:`MaintainedTable.lease`."""
        return await self._lake.run(
            lease_call(self._name, LeaseRequest(ttl_s=ttl_s, owner=owner, snapshot_id=snapshot_id))
        )

    async def renew_lease(self, lease_id: str, *, ttl_s: int = 600) -> LeaseInfo:
        """As :meth:`MaintainedTable.renew_lease`."""
        return await self._lake.run(renew_call(self._name, lease_id, ttl_s))

    async def release_lease(self, lease_id: str) -> None:
        """As :meth:`MaintainedTable.release_lease`."""
        await self._lake.run(release_call(self._name, lease_id))

    async def leases(self) -> tuple[LeaseInfo, ...]:
        """As :meth:`MaintainedTable.leases`."""
        return (await self._lake.run(leases_call(self._name))).leases


class MaintainedLake:
    """The clean-up of dropped tables; a part of :class:`lamella.client.Lamella`."""

    def purge_dropped(
        self: Runs,
        *,
        execute: bool = False,
        include_external_blocks: bool = False,
        on_part: OnCleaned | None = None,
    ) -> VacuumAnswer:
        """Delete the files of tables that were dropped longer ago than their grace, and forget those tables.

        The arguments are those of :meth:`MaintainedTable.vacuum`; ``tables`` of the answer names the tables.
        """
        request = VacuumRequest(execute=execute, include_external_blocks=include_external_blocks)
        parts: list[VacuumAnswer] = []
        while not parts or _goes_on(parts[-1]):
            parts.append(self.run(purge_call(request)))
            if on_part is not None:
                on_part(parts[-1])
        return merged_vacuum(parts)


class AsyncMaintainedLake:
    """The asyncio twin of :class:`MaintainedLake`."""

    async def purge_dropped(
        self: RunsAsync,
        *,
        execute: bool = False,
        include_external_blocks: bool = False,
        on_part: OnCleaned | None = None,
    ) -> VacuumAnswer:
        """As :meth:`MaintainedLake.purge_dropped`."""
        request = VacuumRequest(execute=execute, include_external_blocks=include_external_blocks)
        parts: list[VacuumAnswer] = []
        while not parts or _goes_on(parts[-1]):
            parts.append(await self.run(purge_call(request)))
            if on_part is not None:
                on_part(parts[-1])
        return merged_vacuum(parts)


def _goes_on(part: VacuumAnswer) -> bool:
    """What was deleted is not there next time, so each part of a purge is the same request."""
    return part.next_page_token is not None and part.executed and bool(part.garbage)
