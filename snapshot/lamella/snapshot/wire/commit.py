"""Requests and answers that change a table's blocks."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from lamella.snapshot.manifest import ClusterKind, DeleteFile, RowChange
from lamella.snapshot.schema.evolution import ReplaceColumns, SchemaChange
from lamella.snapshot.wire.indexes import PartSent
from lamella.snapshot.wire.limits import MAX_LOCATIONS, FewPaths, Location, Locations, Moment, Properties, Word, Words

#: The most tables, or parts of tables, that a commit may depend on.
MAX_READS: Final = 1_000

#: What to do with a file whose folder gives a column a value that the file does not contain.
PathColumns = Literal["read", "ignore"]

#: What to do with files that are part of another format's table.
OtherFormats = Literal["refuse", "ignore"]


class Register(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../register``. ``strict``: refuse everything if one file is refused.

    ``verify``: compute the statistics from the files' values, all of which are read, and not from their footers.

    ``path_columns``: what to do with the value that a folder such as ``year=2020`` gives to a column: read it
    (``read``, the default), or ignore it (``ignore``). A file below a folder that names no column of the table is
    refused unless the value is ignored. ``time_zone``: of timestamps in the names of folders; by default UTC.

    ``other_formats``: what to do with a folder or glob with files of a Delta, Iceberg, Hudi or DuckLake table, whose
    files may contain deleted or rewritten rows: refuse it (``refuse``, the default), or accept every Parquet file in it
    (``ignore``).

    ``take_replaced``: also accept files that were in the table before and that a rewrite, a delete or another commit
    replaced or removed. False, the default: they count as files that are already in the table.
    """

    paths: Annotated[tuple[Location, ...], Meta(max_length=100_000)]
    strict: bool = False
    verify: bool = False
    path_columns: PathColumns | msgspec.UnsetType = msgspec.UNSET
    time_zone: Moment | msgspec.UnsetType = msgspec.UNSET
    other_formats: OtherFormats | msgspec.UnsetType = msgspec.UNSET
    take_replaced: bool | msgspec.UnsetType = msgspec.UNSET


class RefusedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that was not registered, the code of the reason (as of errors) and a sentence.

    ``listed_in``, ``listed_at``: the block list that contains it, and its index there (from 0).
    """

    path: str
    code: str
    reason: str
    listed_in: str | None = None
    listed_at: int | None = None


class RegisterAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a registration; ``snapshot_id`` is the snapshot that contains the blocks.

    ``notes``: sentences about what will surprise readers, such as columns that Spark cannot read.
    """

    snapshot_id: str
    registered: int
    row_count: int
    file_size_bytes: int
    refused: tuple[RefusedFile, ...] = ()
    notes: tuple[str, ...] = ()


class IndexPartsSent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parts of one skip index over blocks that the same commit adds.

    ``index_id``: the id of the index. If the table no longer uses it, the parts are ignored.
    """

    name: Word
    index_id: Word
    parts: Annotated[tuple[PartSent, ...], Meta(max_length=10_000)]


class BlockListSent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object ``_tmp/<id>_v1.blocks`` below the table's folder: blocks as JSON, one per line; ``block_count`` of
    them.

    ``size_bytes``, ``sha256`` (hexadecimal): of the whole object.
    """

    location: Location
    size_bytes: int
    sha256: Word
    block_count: int


class NoNewMatches(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A condition of a commit: no row that was added after ``base_snapshot_id`` may match ``filter`` (None: no row at
    all).

    ``filter``, ``time_zone``, ``case_sensitive``: as in a prune.
    """

    filter: Any = None
    time_zone: Moment = "UTC"
    case_sensitive: bool = False


class BlockDeletes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The deleted rows of a block that stays in the table: those of ``base_snapshot_id``, and more.

    ``deletes``: a deletion vector below the table's folder, of all of these rows.
    """

    location: Location
    deletes: DeleteFile


class VectorSent(DeleteFile, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A deletion vector of a request: its location, and never its bytes."""

    location: Location
    sha256: Word | None = None
    data: None = None


class BlockDeletesSent(BlockDeletes, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """:class:`BlockDeletes` as a request has them."""

    deletes: VectorSent


class TableRead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a commit depends on: the rows of a table that match ``filter`` (None: all) are those of ``snapshot_id``.

    ``table``: ``namespace.table``, of this service. ``filter``, ``time_zone``, ``case_sensitive``: as in a prune.
    """

    table: Word
    snapshot_id: Word
    filter: Any = None
    time_zone: Moment = "UTC"
    case_sensitive: bool = False


class ClusterUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The cluster key that a table has from a commit on; no ``columns``: none."""

    columns: FewPaths = ()
    kind: ClusterKind = "linear"


class SchemaUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Schema changes of the snapshot that a commit makes, applied in order.

    ``base_schema_id``: the schema that they change. It must be the current one, or else the table must have had the
    schema that they lead to: then somebody else has made the same changes. ``replace`` as a change requires that the
    commit removes all blocks. ``cluster_key``: the table's new cluster key, in terms of the new columns; a change that
    drops a column of the old key needs it.
    """

    changes: Annotated[tuple[SchemaChange | ReplaceColumns, ...], Meta(max_length=1_000)]
    base_schema_id: int
    cluster_key: ClusterUpdate | msgspec.UnsetType = msgspec.UNSET

    @property
    def replaces_columns(self) -> bool:
        """Returns whether no row that exists can stay."""
        return any(isinstance(change, ReplaceColumns) for change in self.changes)

    @property
    def schema_id(self) -> int:
        """Returns the id of the schema that the changes lead to."""
        return self.base_schema_id + (1 if self.changes else 0)


class CommitRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../commits``.

    ``added``: blocks as a writer made them (statistics in the manifest's own form; see
    :class:`lamella.snapshot.manifest.Block`); the service reads each size from the store. ``removed``: locations, with
    the snapshot they were read at in ``base_snapshot_id``.

    ``added_from``: objects with further blocks, which follow those of ``added``: for commits that are larger than a
    request can be.

    ``index_parts``: parts of skip indexes over the added blocks. ``no_new_matches`` (with ``base_snapshot_id``): refuse
    if blocks were added since then that may have matching rows.

    ``take_replaced``: also add files that were in the table before and left it. False, the default: they are refused as
    if they were in the table, because their rows may be in other blocks by now, or were deleted.

    ``deletes`` (with ``base_snapshot_id``): blocks of which rows are deleted. If others deleted rows of such a block
    since then, the rows of both are deleted; if they changed the same rows in another way, the commit is refused.

    ``row_change``: what the commit does to rows, as in a snapshot's ``row_changes``; by default "append" if blocks are
    only added, else "overwrite". ``reads``: what the commit depends on; it is refused if that changed.

    ``remove_properties``: properties of the table that are removed, if it has them.

    ``schema_update``: schema changes that come before the added blocks, which by default have the new schema. With a
    new constraint, ``base_snapshot_id`` is a snapshot of which the caller has checked every row.

    ``writer_features``: what the writer of the added blocks supports; see docs/reader-features.md.
    """

    added: Annotated[tuple[msgspec.Raw, ...], Meta(max_length=MAX_LOCATIONS)] = ()
    removed: Locations = ()
    base_snapshot_id: Word | None = None
    operation: Word = "append"
    properties: Properties = {}
    added_from: Annotated[tuple[BlockListSent, ...], Meta(max_length=10_000)] | msgspec.UnsetType = msgspec.UNSET
    index_parts: Annotated[tuple[IndexPartsSent, ...], Meta(max_length=1_000)] | msgspec.UnsetType = msgspec.UNSET
    no_new_matches: NoNewMatches | msgspec.UnsetType = msgspec.UNSET
    take_replaced: bool | msgspec.UnsetType = msgspec.UNSET
    deletes: Annotated[tuple[BlockDeletesSent, ...], Meta(max_length=MAX_LOCATIONS)] | msgspec.UnsetType = msgspec.UNSET
    row_change: RowChange | msgspec.UnsetType = msgspec.UNSET
    reads: Annotated[tuple[TableRead, ...], Meta(max_length=MAX_READS)] | msgspec.UnsetType = msgspec.UNSET
    schema_update: SchemaUpdate | msgspec.UnsetType = msgspec.UNSET
    remove_properties: Words | msgspec.UnsetType = msgspec.UNSET
    writer_features: Words | msgspec.UnsetType = msgspec.UNSET


#: Tables of one transaction.
MAX_TABLES: Final = 100


class TableCommit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a transaction changes in one table: ``namespace.table``, and what a commit to it would be."""

    table: Word
    commit: CommitRequest


class TransactionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST /v1/transactions``: commits to several tables, which all happen or none. No table is named twice."""

    tables: Annotated[tuple[TableCommit, ...], Meta(min_length=1, max_length=MAX_TABLES)]


class CommitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot that a commit created. ``removed`` includes blocks of which the last rows were deleted; ``changed``:
    the number of other blocks of which rows were deleted.

    ``left_out_parts``: by the name of an index, why its parts were not added; the blocks were committed anyway.
    """

    snapshot_id: str
    prev_snapshot_id: str | None
    added: int
    removed: int
    row_count: int
    block_count: int
    left_out_parts: dict[str, str] = {}
    changed: int = 0


class TableCommitted(CommitAnswer, frozen=True, kw_only=True):
    """The commit to one table of a transaction."""

    table: str


class TransactionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The commits of a transaction, in the order of the request."""

    tables: tuple[TableCommitted, ...]
