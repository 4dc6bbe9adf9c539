"""External tables: the calls, and methods of :class:`Table`, the client and their async twins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from lamella.client.http.call import AsyncCallRunner, Call, CallRunner, TableName, make_call, text_tuple
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.wire import (
    CreateTable,
    ExternalSource,
    RefreshProgress,
    RefreshTable,
    RefreshTableAnswer,
    SourceMode,
    TableInfo,
    operations,
)

#: Called now and then with how far a refresh is.
OnProgress = Callable[[RefreshProgress], None]

_ASK_EVERY_S: Final = 1.0


def create_external_call(
    name: TableName,
    source: ExternalSource | Mapping[str, str],
    schema: Schema | Sequence[Column] | None,
    schema_from: str | None,
    cluster_key: Sequence[str],
    properties: Mapping[str, str] | None,
) -> Call[TableInfo]:
    """Make a table that follows a source, still without rows; raises InvalidRequest for a source that is none."""
    columns = schema.columns if isinstance(schema, Schema) else schema
    body = CreateTable(
        name=name.table,
        schema=None if columns is None else tuple(columns),
        schema_from=schema_from,
        cluster_key=text_tuple("cluster_key", cluster_key),
        properties=dict(properties or {}),
        source=source if isinstance(source, ExternalSource) else _source(source),
    )
    return make_call(operations.tables.CREATE_TABLE, namespace=name.namespace, body=body)


def _source(given: Mapping[str, str]) -> ExternalSource:
    try:
        return msgspec.convert(dict(given), ExternalSource)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"not a source: {error}") from error


def refresh_table_call(
    name: TableName, mode: SourceMode, strict: bool | None, verify: bool, location: str | None, allow_empty: bool
) -> Call[RefreshTableAnswer]:
    """Bring a table up to date with its source."""
    body = RefreshTable(mode=mode, strict=strict, verify=verify, location=location, allow_empty=allow_empty)
    return make_call(operations.external.REFRESH_TABLE, name, body=body)


def refresh_progress_call(name: TableName) -> Call[RefreshProgress]:
    """How far a refresh is."""
    return make_call(operations.external.REFRESH_PROGRESS, name)


class TableRefresh:
    """A table that follows a source; a part of :class:`lamella.client.Table`."""

    _lake: CallRunner
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
        call = refresh_table_call(self._name, mode, strict, verify, location, allow_empty)
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
        return self._lake.run(refresh_progress_call(self._name))

    def _watch(self, ended: threading.Event, on_progress: OnProgress) -> None:
        while not ended.wait(_ASK_EVERY_S):
            with suppress(LamellaError):  # the refresh itself says what is wrong
                on_progress(self.refresh_progress())


class AsyncTableRefresh:
    """The asyncio twin of :class:`TableRefresh`."""

    _lake: AsyncCallRunner
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
        """As :meth:`TableRefresh.refresh`; ``on_progress`` is called in the event loop."""
        call = refresh_table_call(self._name, mode, strict, verify, location, allow_empty)
        if on_progress is None:
            return await self._lake.run(call, idempotency_key)
        import asyncio  # here, since the sync client is imported together with this module and does not need it

        watcher = asyncio.ensure_future(self._watch(on_progress))
        try:
            return await self._lake.run(call, idempotency_key)
        finally:
            watcher.cancel()
            await asyncio.wait([watcher])  # what on_progress raised is for the loop to tell; the refresh is done

    async def refresh_progress(self) -> RefreshProgress:
        """As :meth:`TableRefresh.refresh_progress`."""
        return await self._lake.run(refresh_progress_call(self._name))

    async def _watch(self, on_progress: OnProgress) -> None:
        import asyncio

        while True:
            await asyncio.sleep(_ASK_EVERY_S)
            with suppress(LamellaError):
                on_progress(await self.refresh_progress())


class LakeExternal:
    """Makes external tables; a part of :class:`lamella.client.Lamella`."""

    def create_external(
        self: CallRunner,
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
        :meth:`TableRefresh.refresh`. The columns are the source's; those of a directory its first file's, unless
        ``schema`` or ``schema_from`` give them.

        Raises AlreadyExists, NamespaceNotFound, InvalidRequest, InvalidSchema, ObjectNotFound, NotParquet, StoreError.
        """
        call = create_external_call(TableName.parse(name), source, schema, schema_from, cluster_key, properties)
        return self.run(call, idempotency_key)


class AsyncLakeExternal:
    """The asyncio twin of :class:`LakeExternal`."""

    async def create_external(
        self: AsyncCallRunner,
        name: str,
        source: ExternalSource | Mapping[str, str],
        *,
        schema: Schema | Sequence[Column] | None = None,
        schema_from: str | None = None,
        cluster_key: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> TableInfo:
        """As :meth:`LakeExternal.create_external`."""
        call = create_external_call(TableName.parse(name), source, schema, schema_from, cluster_key, properties)
        return await self.run(call, idempotency_key)
