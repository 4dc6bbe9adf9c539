"""External tables: the calls, and what :class:`Table`, the client and their async twins make of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol, TypeVar

import msgspec

from lamella.client.http.call import Call, TableName, mutation, namespace_path, texts
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.wire import (
    CreateTable,
    ExternalSource,
    RefreshProgress,
    RefreshTable,
    RefreshTableAnswer,
    SourceMode,
    TableInfo,
)

Answer = TypeVar("Answer")
#: Called now and then with how far a refresh is.
OnProgress = Callable[[RefreshProgress], None]

_ASK_EVERY_S: Final = 1.0


def create_external_call(
    name: TableName,
    source: ExternalSource,
    schema: Schema | Sequence[Column] | None,
    schema_from: str | None,
    cluster_key: Sequence[str],
    properties: Mapping[str, str],
) -> Call[TableInfo]:
    """Make a table that follows a source, still without rows."""
    columns = schema.columns if isinstance(schema, Schema) else schema
    body = CreateTable(
        name=name.table,
        schema=None if columns is None else tuple(columns),
        schema_from=schema_from,
        cluster_key=texts("cluster_key", cluster_key),
        properties=dict(properties),
        source=source,
    )
    return mutation("POST", f"{namespace_path(name.namespace)}/tables", TableInfo, body)


def refresh_call(name: TableName, request: RefreshTable) -> Call[RefreshTableAnswer]:
    """Bring a table up to date with its source."""
    return mutation("POST", f"{name.path}/refresh", RefreshTableAnswer, request)


def progress_call(name: TableName) -> Call[RefreshProgress]:
    """How far a refresh is."""
    return Call(method="GET", path=f"{name.path}/refresh", answer=RefreshProgress)


class _Runs(Protocol):
    def run(self, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        """Carry out a call."""
        ...


class _RunsAsync(Protocol):
    async def run(self, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        """Carry out a call."""
        ...


class FollowingTable:
    """A table that follows a source; a part of :class:`lamella.client.Table`."""

    _lake: _Runs
    _name: TableName

    def refresh(
        self,
        mode: SourceMode = "incremental",
        *,
        strict: bool | None = None,
        verify: bool = False,
        location: str | None = None,
        allow_empty: bool = False,
        on_progress: OnProgress | None = None,
        idempotency_key: str | None = None,
    ) -> RefreshTableAnswer:
        """Bring an external table up to date with its source, in one snapshot; see ``docs/external.md``.

        The arguments are those of :class:`lamella.snapshot.wire.RefreshTable`. ``on_progress`` is called about once a
        second, in a thread of its own. Give the client a ``timeout_s`` that is longer than the refresh takes.

        Raises TableNotFound, InvalidRequest (no source, or one that cannot be followed), InvalidSchema,
        BlocksRefused, ObjectNotFound, StoreError, CommitConflict.
        """
        call = refresh_call(
            self._name,
            RefreshTable(mode=mode, strict=strict, verify=verify, location=location, allow_empty=allow_empty),
        )
        if on_progress is None:
            return self._lake.run(call, idempotency_key)
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(ended, on_progress), daemon=True)
        watcher.start()
        try:
            return self._lake.run(call, idempotency_key)
        finally:
            ended.set()
            watcher.join()

    def refresh_progress(self) -> RefreshProgress:
        """How far the refresh is that the answering process has under way; raises TableNotFound."""
        return self._lake.run(progress_call(self._name))

    def _watch(self, ended: threading.Event, on_progress: OnProgress) -> None:
        while not ended.wait(_ASK_EVERY_S):
            with suppress(LamellaError):  # the refresh itself says what is wrong
                on_progress(self.refresh_progress())


class AsyncFollowingTable:
    """The asyncio twin of :class:`FollowingTable`."""

    _lake: _RunsAsync
    _name: TableName

    async def refresh(
        self,
        mode: SourceMode = "incremental",
        *,
        strict: bool | None = None,
        verify: bool = False,
        location: str | None = None,
        allow_empty: bool = False,
        on_progress: OnProgress | None = None,
        idempotency_key: str | None = None,
    ) -> RefreshTableAnswer:
        """As :meth:`FollowingTable.refresh`; ``on_progress`` is called in the event loop."""
        call = refresh_call(
            self._name,
            RefreshTable(mode=mode, strict=strict, verify=verify, location=location, allow_empty=allow_empty),
        )
        if on_progress is None:
            return await self._lake.run(call, idempotency_key)
        watcher = asyncio.ensure_future(self._watch(on_progress))
        try:
            return await self._lake.run(call, idempotency_key)
        finally:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher

    async def refresh_progress(self) -> RefreshProgress:
        """As :meth:`FollowingTable.refresh_progress`."""
        return await self._lake.run(progress_call(self._name))

    async def _watch(self, on_progress: OnProgress) -> None:
        while True:
            await asyncio.sleep(_ASK_EVERY_S)
            with suppress(LamellaError):
                on_progress(await self.refresh_progress())


class FollowingLake:
    """Makes external tables; a part of :class:`lamella.client.Lamella`."""

    def create_external(
        self: _Runs,
        name: str,
        source: ExternalSource | Mapping[str, str],
        *,
        schema: Schema | Sequence[Column] | None = None,
        schema_from: str | None = None,
        cluster_key: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> TableInfo:
        """Make the table ``namespace.name`` that follows a directory, a Delta or an Iceberg table, still without rows.

        ``source``: such as ``{"kind": "delta", "location": "s3://bucket/table"}``. Its files come with the first
        :meth:`FollowingTable.refresh`. The columns are the source's; those of a directory its first file's, unless
        ``schema`` or ``schema_from`` give them.

        Raises AlreadyExists, NamespaceNotFound, InvalidRequest, InvalidSchema, ObjectNotFound, NotParquet, StoreError.
        """
        return self.run(_created(name, source, schema, schema_from, cluster_key, properties), idempotency_key)


class AsyncFollowingLake:
    """The asyncio twin of :class:`FollowingLake`."""

    async def create_external(
        self: _RunsAsync,
        name: str,
        source: ExternalSource | Mapping[str, str],
        *,
        schema: Schema | Sequence[Column] | None = None,
        schema_from: str | None = None,
        cluster_key: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> TableInfo:
        """As :meth:`FollowingLake.create_external`."""
        return await self.run(_created(name, source, schema, schema_from, cluster_key, properties), idempotency_key)


def _created(
    name: str,
    source: ExternalSource | Mapping[str, str],
    schema: Schema | Sequence[Column] | None,
    schema_from: str | None,
    cluster_key: Sequence[str],
    properties: Mapping[str, str] | None,
) -> Call[TableInfo]:
    followed = source if isinstance(source, ExternalSource) else msgspec.convert(dict(source), ExternalSource)
    return create_external_call(TableName.parse(name), followed, schema, schema_from, cluster_key, properties or {})
