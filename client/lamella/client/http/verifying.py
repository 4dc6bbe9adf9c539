"""Verifying a table: the calls for its parts, and what :class:`Table` and its async twin make of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypedDict, Unpack

import msgspec

from lamella.client.http.call import Call, TableName, timestamp_of
from lamella.client.http.running import Runs, RunsAsync
from lamella.snapshot.wire import VerifyAnswer, VerifyRequest, merged_verification

#: Called with each part as it comes: how far it is, and what it found.
OnPart = Callable[[VerifyAnswer], None]


class Verify(TypedDict, total=False):
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


def verify_request(asked: Verify) -> VerifyRequest:
    """What a verification's arguments ask for."""
    given = {name: value for name, value in asked.items() if name != "timestamp"}
    return VerifyRequest(timestamp=timestamp_of(asked.get("timestamp")), **given)  # type: ignore[arg-type]  # by name


def verify_call(name: TableName, request: VerifyRequest) -> Call[VerifyAnswer]:
    """The call for one part."""
    return Call(method="POST", path=f"{name.path}/verify", answer=VerifyAnswer, body=msgspec.json.encode(request))


def following(request: VerifyRequest, part: VerifyAnswer) -> VerifyRequest | None:
    """The request for the part behind this one."""
    if part.next_page_token is None:
        return None
    return msgspec.structs.replace(request, page_token=part.next_page_token)


class VerifiedTable:
    """Verification of a table; a part of :class:`lamella.client.Table`."""

    _lake: Runs
    _name: TableName

    def verify(self, *, on_part: OnPart | None = None, **asked: Unpack[Verify]) -> VerifyAnswer:
        """Hold everything that the table says of itself against what it is derived from; all findings in one answer.

        ``files`` (default): the blocks' files and footers too. ``deep``: also the values of ``blocks`` blocks, or of
        the share ``sample``, drawn by ``seed``, with ``filters`` random filters for each. ``repair``: write damaged
        companions and page companions again; manifests and blocks are never touched. See ``docs/verify.md``.

        ``on_part`` is called as the work comes forward. Raises TableNotFound, SnapshotNotFound, InvalidRequest.
        """
        parts = []
        for part in self.verify_parts(**asked):
            parts.append(part)
            if on_part is not None:
                on_part(part)
        return merged_verification(parts)

    def verify_parts(self, **asked: Unpack[Verify]) -> Iterator[VerifyAnswer]:
        """As :meth:`verify`, part by part as it is iterated; each is about ``max_ms`` of work. All are of one
        snapshot, whatever is committed meanwhile."""
        request: VerifyRequest | None = verify_request(asked)
        while request is not None:
            part = self._lake.run(verify_call(self._name, request))
            yield part
            request = following(request, part)


class AsyncVerifiedTable:
    """The asyncio twin of :class:`VerifiedTable`."""

    _lake: RunsAsync
    _name: TableName

    async def verify(self, *, on_part: OnPart | None = None, **asked: Unpack[Verify]) -> VerifyAnswer:
        """As :meth:`VerifiedTable.verify`."""
        parts = []
        async for part in self.verify_parts(**asked):
            parts.append(part)
            if on_part is not None:
                on_part(part)
        return merged_verification(parts)

    async def verify_parts(self, **asked: Unpack[Verify]) -> AsyncIterator[VerifyAnswer]:
        """As :meth:`VerifiedTable.verify_parts`."""
        request: VerifyRequest | None = verify_request(asked)
        while request is not None:
            part = await self._lake.run(verify_call(self._name, request))
            yield part
            request = following(request, part)
