"""Methods that create external tables and refresh them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from lamella.client.http.aio.runner import AsyncCallRunner
from lamella.client.http.async_runtime import in_background
from lamella.client.http.call import Columns, TableName
from lamella.client.http.external import (
    OnProgress,
    convert_to_iceberg_call,
    create_external_call,
    refresh_progress_call,
    refresh_table_call,
)
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.wire import (
    ConversionAnswer,
    ExternalSource,
    HiveTable,
    RefreshProgress,
    RefreshTableAnswer,
    SourceMode,
    TableInfo,
)

_ASK_EVERY_S: Final = 1.0


class AsyncTableRefresh:
    """A table that follows a source; a part of :class:`lamella.client.http.AsyncTable`."""

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
        hive: HiveTable | None = None,
        on_progress: OnProgress | None = None,
        idempotency_key: str | None = None,
    ) -> RefreshTableAnswer:
        """Bring an external table up to date with its source, in one snapshot; see ``docs/external.md``.

        The arguments are those of :class:`lamella.snapshot.wire.RefreshTable`. ``on_progress`` is called about once a
        second, in the event loop, or in a separate thread when there is none. The client's ``timeout_s`` must be longer
        than the refresh takes.

        Raises TableNotFound, InvalidRequest (no source, or one that cannot be followed), InvalidSchema,
        BlocksRefused, ObjectNotFound, StoreError, CommitConflict.

        Example:
            >>> answer = await lake.table("shop.arrivals").refresh()
            >>> answer.added
            2
        """
        call = refresh_table_call(self._name, mode, strict, verify, location, allow_empty, hive)
        if on_progress is None:
            return await self._lake.run(call, idempotency_key)

        async def report() -> None:
            with suppress(LamellaError):  # the refresh itself reports what is wrong
                on_progress(await self.refresh_progress())

        async with in_background(report, _ASK_EVERY_S):
            return await self._lake.run(call, idempotency_key)

    async def refresh_progress(self) -> RefreshProgress:
        """The progress of a refresh that runs in the process that answers; raises TableNotFound.

        Example:
            >>> (await lake.table("shop.arrivals").refresh_progress()).running
            False
        """
        return await self._lake.run(refresh_progress_call(self._name))

    async def convert_to_iceberg(
        self, *, dry_run: bool = False, idempotency_key: str | None = None
    ) -> ConversionAnswer:
        """Let Iceberg clients commit to the table, which keeps its files, history, tags and indexes.

        It cannot be converted back; see ``docs/iceberg.md``. ``dry_run``: only check whether this is possible.

        Raises TableNotFound, InvalidRequest (it has branches, follows a source, or is converted already),
        NotExpressible (a column, constraint or block has no form in Iceberg), CommitConflict, StoreError.

        Example:
            >>> made = await lake.create_table("shop.visits", schema={"id": "int64"})
            >>> answer = await lake.table("shop.visits").convert_to_iceberg()
            >>> answer.metadata_location.endswith(".metadata.json")
            True
        """
        return await self._lake.run(convert_to_iceberg_call(self._name, dry_run), idempotency_key)


class AsyncLakeExternal:
    """Creates external tables; a part of :class:`lamella.client.AsyncLamella`."""

    async def create_external(
        self: AsyncCallRunner,
        name: str,
        source: ExternalSource | Mapping[str, str],
        *,
        schema: Columns | None = None,
        schema_from: str | None = None,
        cluster_key: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> TableInfo:
        """Create the table ``namespace.name`` that follows a directory or another format's table, without rows yet.

        ``source``: such as ``{"kind": "delta", "location": "s3://bucket/table"}``. The first
        :meth:`AsyncTableRefresh.refresh` adds its files. The columns are those of the source; for a directory, those of
        its first file, unless ``schema`` or ``schema_from`` is given; for a Hive table, those in ``schema``.

        Raises AlreadyExists, NamespaceNotFound, InvalidRequest, InvalidSchema, ObjectNotFound, NotParquet, StoreError.

        Example:
            >>> source = {"kind": "directory", "location": incoming}
            >>> (await lake.create_external("shop.returns", source)).schema.columns[0].name
            'id'
        """
        call = create_external_call(TableName.parse(name), source, schema, schema_from, cluster_key, properties)
        return await self.run(call, idempotency_key)
