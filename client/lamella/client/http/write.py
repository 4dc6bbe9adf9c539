"""Rows written from Python, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from lamella.client.filters import plain_filter
from lamella.client.http.call import Filter, TableName, text_tuple
from lamella.client.http.lake import Lake
from lamella.client.http.sync.methods import TableMethods
from lamella.snapshot.manifest import ClusterKind

if TYPE_CHECKING:
    from lamella.client.jobs.delete import DeleteResult
    from lamella.client.write.append import WriteOptions
    from lamella.client.write.layout import WriteResult
    from lamella.client.write.upsert import UpsertResult


class TableWrite(TableMethods):
    """Changes of a table's rows; a part of :class:`lamella.client.http.Table`."""

    def __init__(self, lake: Lake, name: TableName) -> None:
        super().__init__(lake, name)
        self._service = lake

    def append(
        self,
        data: Any,
        *,
        create: bool = False,
        cluster_by: Sequence[str] | None = None,
        cluster_kind: ClusterKind = "linear",
        properties: Mapping[str, str] | None = None,
        target_block_rows: int | None = None,
        target_block_bytes: int | None = None,
        compression: str = "zstd",
        indexes: bool = True,
        set_properties: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        storage_options: Mapping[str, Mapping[str, Any]] | None = None,
        scratch: str | None = None,
        memory_bytes: int = 256 << 20,
        workers: int | None = None,
        progress: bool = False,
    ) -> WriteResult:
        """Append rows as sorted blocks with exact statistics, in one commit.

        ``data``: a pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner; a pandas frame (without levels of
        the index that have no name); a Polars DataFrame or LazyFrame; any object with ``__arrow_c_stream__``;
        dictionaries by column; or an iterable of such values, read once. Columns are matched by name, without regard
        to case; a column that is missing gets its default. See ``docs/write.md``.

        ``create``: create the table and its namespace when they do not exist, with the columns of the data,
        ``cluster_by`` of ``cluster_kind`` as its cluster key, and ``properties``. ``cluster_by``: columns (dotted
        paths) to sort by; by default the table's cluster key; without any, rows keep their order. A block ends at
        ``target_block_rows`` rows or about ``target_block_bytes`` bytes of file; None: the table's properties of these
        names, otherwise a million rows or 128 MiB. ``indexes``: also write entries of the table's skip indexes.
        ``set_properties``: table properties set by the commit. Without rows there is no commit.

        ``idempotency_key``: of several appends with one key to one table, one is committed, and the others return its
        result; see ``docs/write.md#once``.

        The client writes the files: ``storage_options`` are the options of fsspec by scheme. ``memory_bytes``: about
        how many bytes of rows are in memory at a time; the process uses about three times as much. What exceeds it goes
        to ``scratch``, a folder (URL); by default a temporary one of this machine. ``workers``: threads that write
        blocks; None: one per core, at most four. ``progress``: show a progress bar on stderr.

        Raises:
            TableNotFound, NamespaceNotFound: no such table, and ``create`` is off.
            SchemaMismatch: the columns are not the table's, or a value does not fit.
            InvalidSchema: a type that a table cannot have, or that cannot be written.
            InvalidRequest: ``data`` holds no rows; numbers below 1.
            StoreError: the store refused a file.
            IdempotencyMismatch: the key was used for another commit; nothing was done.
            OutcomeUnknown: the commit may have happened; an append with the same ``idempotency_key`` finds out.

        Example:
            >>> rates = lake.table("shop.rates")
            >>> rates.append({"country": ["US"], "vat": [0]}).rows
            1
        """
        from lamella.client.write.append import append

        options = _options(
            create=create,
            cluster_by=cluster_by,
            cluster_kind=cluster_kind,
            properties=properties,
            target_block_rows=target_block_rows,
            target_block_bytes=target_block_bytes,
            compression=compression,
            indexes=indexes,
            storage_options=storage_options,
            scratch=scratch,
            memory_bytes=memory_bytes,
            workers=workers,
            progress=progress,
        )
        return append(
            self._service, str(self._name), data, options, properties=set_properties, idempotency_key=idempotency_key
        )

    def overwrite(
        self,
        data: Any,
        where: Filter = None,
        *,
        time_zone: str = "UTC",
        read_snapshot_id: str | None = None,
        create: bool = False,
        cluster_by: Sequence[str] | None = None,
        cluster_kind: ClusterKind = "linear",
        properties: Mapping[str, str] | None = None,
        target_block_rows: int | None = None,
        target_block_bytes: int | None = None,
        compression: str = "zstd",
        indexes: bool = True,
        set_properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, Mapping[str, Any]] | None = None,
        scratch: str | None = None,
        memory_bytes: int = 256 << 20,
        workers: int | None = None,
        progress: bool = False,
    ) -> WriteResult:
        """Replace the rows for which ``where`` is true (None: all rows) by those of ``data``, in one commit.

        ``where``: a filter, as in :meth:`prune`; ``time_zone``: for times in it that have none. The
        commit removes what the table has by then; matching rows that others add while ``data`` is read are removed
        too, those that come later stay. The new rows need not match ``where``. Where all of them do, a repeated
        overwrite has the same effect, so it takes no idempotency key; a row that does not match is there twice then.

        ``read_snapshot_id``: the snapshot (an id, tag or number) of this table from which ``data`` was computed, when
        all rows are replaced: the overwrite removes the rows of that snapshot, and is refused if others changed them or
        added rows since, which it would lose. The other arguments are those of :meth:`append`.

        Raises as :meth:`append`, and:
            FilterNotEvaluable, InvalidFilter, UnknownColumn, FilterTypeMismatch: ``where`` cannot be decided row by
                row; nothing was done.
            EvaluationFailed: a value that ``where`` needs cannot be computed for some row.
            CommitConflict: other writers replaced the same blocks on every attempt, or once with ``read_snapshot_id``;
                nothing was done.
            NewMatches: others added rows after ``read_snapshot_id``; nothing was done.

        Example:
            >>> rates = lake.table("shop.rates")
            >>> rates.overwrite({"country": ["DE"], "vat": [16]}, "country = 'DE'").rows_removed
            1
        """
        from lamella.client.write.append import overwrite

        options = _options(
            create=create,
            cluster_by=cluster_by,
            cluster_kind=cluster_kind,
            properties=properties,
            target_block_rows=target_block_rows,
            target_block_bytes=target_block_bytes,
            compression=compression,
            indexes=indexes,
            storage_options=storage_options,
            scratch=scratch,
            memory_bytes=memory_bytes,
            workers=workers,
            progress=progress,
        )
        return overwrite(
            self._service,
            str(self._name),
            data,
            options,
            where=plain_filter(where, time_zone),
            time_zone=time_zone,
            read_snapshot_id=read_snapshot_id,
            properties=set_properties,
        )

    def upsert(
        self,
        data: Any,
        on: Sequence[str],
        *,
        create: bool = False,
        cluster_by: Sequence[str] | None = None,
        cluster_kind: ClusterKind = "linear",
        properties: Mapping[str, str] | None = None,
        target_block_rows: int | None = None,
        target_block_bytes: int | None = None,
        compression: str = "zstd",
        indexes: bool = True,
        set_properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, Mapping[str, Any]] | None = None,
        scratch: str | None = None,
        memory_bytes: int = 256 << 20,
        workers: int | None = None,
        progress: bool = False,
    ) -> UpsertResult:
        """Replace the rows of the table that have the same key as a row of ``data``, and insert the others, in one
        commit.

        ``on``: the columns of the key (dotted paths). Keys are compared as in Spark: NaN equals NaN, -0.0 equals 0.0. A
        null equals nothing, so rows of the table with a null in their key stay, and one in ``data`` is an error; so are
        two rows of ``data`` with one key. Only the columns of the key are read, of blocks that may have one of the
        keys. The rows that are replaced are deleted by deletion vectors, or by rewriting blocks that lose many rows, as
        the table's properties say. Of two upserts at once the later one sees the rows of the other. All keys of
        ``data`` are in memory. A repeated upsert has the same effect, so it takes no idempotency key. The other
        arguments are those of :meth:`append`.

        Raises as :meth:`append`, and:
            UnknownColumn: no such column of the key.
            InvalidRequest: two rows have one key, which the error names; a null in a key; a column that cannot be a
                key.
            CommitConflict: other writers changed the same rows on every attempt; nothing was done.
            SchemaConflict: the table's columns were changed in the meantime; nothing was done.

        Example:
            >>> result = lake.table("shop.rates").upsert({"country": ["DE", "ES"], "vat": [16, 21]}, on=["country"])
            >>> result.rows_updated, result.rows_inserted
            (1, 1)
        """
        from lamella.client.write.upsert import upsert

        options = _options(
            create=create,
            cluster_by=cluster_by,
            cluster_kind=cluster_kind,
            properties=properties,
            target_block_rows=target_block_rows,
            target_block_bytes=target_block_bytes,
            compression=compression,
            indexes=indexes,
            storage_options=storage_options,
            scratch=scratch,
            memory_bytes=memory_bytes,
            workers=workers,
            progress=progress,
        )
        keys = text_tuple("on", on)
        return upsert(self._service, str(self._name), data, keys, options, properties=set_properties)

    def delete(
        self,
        where: Filter,
        *,
        every_row: bool = False,
        time_zone: str = "UTC",
        case_sensitive: bool = False,
        mode: Literal["auto", "copy-on-write", "merge-on-read"] | None = None,
        compression: str = "zstd",
        storage_options: Mapping[str, Mapping[str, Any]] | None = None,
        scratch: str | None = None,
        workers: int | None = None,
        progress: bool = False,
    ) -> DeleteResult:
        """Delete the rows for which ``where`` is true, in one commit.

        ``where``: a filter, as in :meth:`prune`. ``every_row``: delete all rows; ``where`` is then None.
        Blocks whose rows all match are removed without being read; only blocks that may match partly are read. These
        get a deletion vector, or are rewritten if they lose many rows; ``mode``: replaces the table's property
        ``write.delete.mode`` (see ``docs/rewriting.md#delete``). Rows that others add in the meantime stay. The other
        arguments are those of :meth:`append`.

        Raises:
            InvalidRequest: neither or both of ``where`` and ``every_row``.
            FilterNotEvaluable, InvalidFilter, UnknownColumn, FilterTypeMismatch: ``where`` cannot be decided row by
                row; nothing was done.
            EvaluationFailed: a value that ``where`` needs cannot be computed for some row.
            TableNotFound, NamespaceNotFound.
            CommitConflict: other writers replaced the same blocks on every attempt; nothing was done.
            OutcomeUnknown: the commit may have happened; a repeated delete has the same effect.

        Example:
            >>> result = table.delete("price < 20")
            >>> result.rows, result.vectors
            (1, 1)
        """
        from lamella.client.write.append import delete

        options = _options(
            compression=compression,
            storage_options=storage_options,
            scratch=scratch,
            workers=workers,
            progress=progress,
        )
        return delete(
            self._service,
            str(self._name),
            plain_filter(where, time_zone),
            options,
            every_row=every_row,
            time_zone=time_zone,
            case_sensitive=case_sensitive,
            mode=mode,
        )


def _options(
    *,
    create: bool = False,
    cluster_by: Sequence[str] | None = None,
    cluster_kind: ClusterKind = "linear",
    properties: Mapping[str, str] | None = None,
    target_block_rows: int | None = None,
    target_block_bytes: int | None = None,
    compression: str = "zstd",
    indexes: bool = True,
    storage_options: Mapping[str, Mapping[str, Any]] | None = None,
    scratch: str | None = None,
    memory_bytes: int = 256 << 20,
    workers: int | None = None,
    progress: bool = False,
) -> WriteOptions:
    from lamella.client.write.append import NewTable, WriteOptions
    from lamella.client.write.layout import Layout

    return WriteOptions(
        layout=Layout(
            keys=None if cluster_by is None else text_tuple("cluster_by", cluster_by),
            block_rows=target_block_rows,
            block_bytes=target_block_bytes,
            memory_bytes=memory_bytes,
            compression=compression,
            indexes=indexes,
            storage_options=storage_options or {},
            scratch=scratch,
        ),
        new_table=NewTable(create=create, cluster_kind=cluster_kind, properties=properties or {}),
        workers=workers,
        progress=progress,
    )
