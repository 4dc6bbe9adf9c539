"""The structs of manifests. Names and shape follow Databend's where both describe the same thing.

Every new field needs a default: an older manifest must stay readable, and JSON without the field must mean the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from lamella.snapshot.html_tables import html_facts
from lamella.snapshot.manifest.features import CONSTANTS, DELETES, FORMAT_FEATURES, SIDECAR_PARTS, WRITER_FEATURES
from lamella.snapshot.schema import Schema
from lamella.snapshot.sketch import Sketch
from lamella.snapshot.stats import Bound, ColumnStats
from lamella.snapshot.stats.column import Int64, with_deleted_rows

#: How rows are laid out by a cluster key: sorted column by column, or along a curve through all columns.
ClusterKind = Literal["linear", "zorder", "hilbert"]
#: The highest level of a block.
MAX_LEVEL: Final = 32
#: What a commit does to the rows of a table, in the words of Iceberg's snapshot summaries: only adds rows; only removes
#: rows, each because of a condition on the row alone; writes the same rows into other blocks; anything else.
RowChange = Literal["append", "delete", "replace", "overwrite"]


class ObjectRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An object that Lamella wrote: its location, size, and the SHA-256 of its bytes (hexadecimal).

    ``tail_bytes``, ``tail_sha256``: of a sidecar in parts, the size and the SHA-256 of its tail, which has the hashes
    of its parts. 0: it is not in parts.
    """

    location: str
    size_bytes: Int64
    sha256: str
    tail_bytes: Int64 = 0
    tail_sha256: str = ""


class ColumnMeta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One column chunk: file offset and length in bytes (compressed, with its dictionary page), number of values."""

    offset: Int64
    len: Int64
    num_values: Int64


class ClusterStats(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A writer's statement that it laid out a block's rows by the cluster key ``key_id``.

    ``level``: how often the rows have been rewritten for that, 0 to :data:`MAX_LEVEL`. It only affects what is
    rewritten next, never what is skipped.
    """

    key_id: int
    level: int = 0


class DeleteFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Deleted rows of a block: their positions are in the ``length`` bytes from ``offset`` of an object.

    ``kind`` "deletion_vector": the bytes are as in :mod:`lamella.snapshot.deletes.vector`. ``cardinality``: the number
    of positions (None: unknown). ``sha256``: of those bytes (None: unknown). ``data``: the bytes themselves; only in
    answers to readers without access to the store.
    """

    kind: Literal["deletion_vector"]
    location: str
    offset: Int64
    length: Int64
    cardinality: Int64 | None = None
    sha256: str | None = None
    data: bytes | None = None


def live_rows(row_count: int, deletes: Sequence[DeleteFile]) -> int | None:
    """Returns how many of a file's rows are not deleted; None: unknown."""
    if not deletes:
        return row_count
    # Several lists may have rows in common.
    deleted = deletes[0].cardinality if len(deletes) == 1 else None
    return None if deleted is None else row_count - deleted


class Block(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One Parquet file.

    ``file_size`` is the store's own size at commit time, never a writer's statement: Spark silently loses rows if a
    recorded size is too small. ``content_id`` is the store's etag or modification time, ``footer_sha256`` the hash of
    the footer that the statistics come from. ``col_metas`` has one entry per row group, in order.

    ``schema_id`` is the schema that has the names of the file's columns and the types of its statistics; None, as in
    manifests of tables that never changed theirs: 0.

    ``cluster_stats``: None if the block was written without regard to a cluster key.

    ``sketches`` (of distinct values, by column id) are passed from a writer; manifests do not store them.

    ``constants``: by column id the value that every row has in a column that the file does not hold (None: null). A
    reader must supply it. ``col_stats`` has the statistics that follow from it
    (:mod:`lamella.snapshot.stats.constant`).

    ``deletes``: rows of the file that are not in the table; a reader must leave them out. All other members, also
    ``row_count`` and ``col_stats``, describe the file with these rows.

    ``by_name``: the file's footer has exactly the table's names and no other field ids, so that readers that match
    columns by name read it as Lamella does (:func:`lamella.snapshot.parquet.iceberg_readers.unreadable`). False: it
    does not, or this was not checked.
    """

    location: str
    row_count: Int64
    file_size: Int64
    block_size: Int64 = 0
    col_stats: dict[int, ColumnStats] = {}
    col_metas: dict[int, tuple[ColumnMeta, ...]] = {}
    row_group_row_counts: tuple[Int64, ...] = ()
    cluster_stats: ClusterStats | None = None
    bloom_filter_index_location: str | None = None
    bloom_filter_index_size: Int64 = 0
    index_locations: dict[str, ObjectRef] = {}
    page_index_location: tuple[Int64, Int64] | None = None
    compression: str = ""
    create_on: str | None = None
    content_id: str | None = None
    footer_sha256: str | None = None
    created_by: str | None = None
    format: str = "parquet"
    schema_id: int | None = None
    sketches: dict[int, Sketch] = {}
    by_name: bool = False
    constants: dict[int, Bound | None] = {}
    deletes: tuple[DeleteFile, ...] = ()

    @property
    def written_with(self) -> int:
        """Returns the id of the schema that the block was written with."""
        return self.schema_id or 0

    @property
    def live_row_count(self) -> int | None:
        """Returns the number of rows that are not deleted; None: unknown."""
        return live_rows(self.row_count, self.deletes)

    @property
    def live_stats(self) -> Mapping[int, ColumnStats]:
        """Returns the statistics as they hold of the rows that are not deleted; null counts remain those of all rows
        (:func:`lamella.snapshot.stats.column.with_deleted_rows`)."""
        if not self.deletes:
            return self.col_stats
        live_row_count = self.live_row_count
        return {column_id: with_deleted_rows(stats, live_row_count) for column_id, stats in self.col_stats.items()}


#: The most sets of columns in :attr:`Summary.constant_columns`.
MAX_CONSTANT_COLUMNS: Final = 16


class Summary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Totals of everything below: counts, sizes in bytes, merged statistics by column id.

    ``row_count`` and null counts include deleted rows; a bound that is marked as exact is a value of a row that is not
    deleted. ``deleted_row_count``: None: unknown.

    ``by_name_count``: number of blocks with :attr:`Block.by_name`. ``constants_count``: of those with
    :attr:`Block.constants`. ``deletes_count``: of those with :attr:`Block.deletes`.

    ``constant_columns``: the different sets of columns in which these blocks have constants, as ascending ids; empty
    although there are such blocks: more than :data:`MAX_CONSTANT_COLUMNS`, or an earlier release did not write them.
    """

    row_count: Int64 = 0
    block_count: Int64 = 0
    perfect_block_count: Int64 = 0
    uncompressed_byte_size: Int64 = 0
    compressed_byte_size: Int64 = 0
    index_size: Int64 = 0
    col_stats: dict[int, ColumnStats] = {}
    by_name_count: Int64 = 0
    constants_count: Int64 = 0
    deletes_count: Int64 = 0
    deleted_row_count: Int64 | None = 0
    constant_columns: tuple[tuple[int, ...], ...] = ()

    @property
    def live_row_count(self) -> int | None:
        """Returns the number of rows that are not deleted; None: unknown."""
        return None if self.deleted_row_count is None else self.row_count - self.deleted_row_count

    @property
    def required_features(self) -> tuple[str, ...]:
        """Returns the names of the features without which a reader of the blocks gets wrong rows."""
        counts = ((CONSTANTS, self.constants_count), (DELETES, self.deletes_count))
        return tuple(name for name, count in counts if count)


def merge_constant_columns(parts: Iterable[Summary]) -> tuple[tuple[int, ...], ...]:
    """Returns :attr:`Summary.constant_columns` of all parts together."""
    found: set[tuple[int, ...]] = set()
    for part in parts:
        if part.constants_count and not part.constant_columns:
            return ()
        found.update(part.constant_columns)
    return few_constant_columns(found)


def few_constant_columns(columns: Collection[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Returns the sets in order, none if they are too many for :attr:`Summary.constant_columns`."""
    return tuple(sorted(columns)) if len(columns) <= MAX_CONSTANT_COLUMNS else ()


class Segment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """About a thousand blocks, with their summary.

    ``schema_id``: the schema of the summary and the sidecar, also for blocks of older schemas. ``required_features``:
    what a reader must support; one that does not know a name here must not read the manifest.
    """

    format_version: int
    segment_id: str
    summary: Summary
    blocks: tuple[Block, ...]
    schema_id: int = 0
    required_features: tuple[str, ...] = ()


class SegmentRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A snapshot's entry for one segment: the location of its manifest and sidecar, and its summary.

    ``schema_id``: see :class:`Segment`. ``block_schema_ids``: those of its blocks, ascending, if there are others.
    ``first_location``, ``last_location``: the first and last of its blocks' locations in sort order (None: not
    recorded).
    """

    segment_id: str
    manifest: ObjectRef
    sidecar: ObjectRef
    format_version: int
    summary: Summary
    schema_id: int = 0
    block_schema_ids: tuple[int, ...] = ()
    first_location: str | None = None
    last_location: str | None = None


class Group(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Segments of a table, written once for all snapshots that contain them.

    ``schema_id``: the schema of its sidecar, which has one row per segment. ``required_features``: as in
    :class:`Segment`.
    """

    format_version: int
    group_id: str
    segments: tuple[SegmentRef, ...]
    schema_id: int = 0
    required_features: tuple[str, ...] = ()


class GroupRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A snapshot's entry for a group: the location of its manifest, sidecar and location index, and its contents.

    ``dropped``: numbers of the group's segments, ascending, that are no longer in the table; ``segment_count`` and
    ``summary`` (in terms of the schema ``schema_id``) describe the others, whose locations lie between
    ``first_location`` and ``last_location``. ``block_schema_ids``: the schemas that blocks were written with.
    ``has_parts``: the sidecar of the group or of one of its segments is in parts.
    """

    group_id: str
    manifest: ObjectRef
    sidecar: ObjectRef
    locations: ObjectRef
    format_version: int
    segment_count: int
    summary: Summary
    first_location: str
    last_location: str
    block_schema_ids: tuple[int, ...]
    schema_id: int = 0
    dropped: tuple[int, ...] = ()
    has_parts: bool = False


def format_features(refs: Iterable[SegmentRef | GroupRef]) -> tuple[str, ...]:
    """Returns the names of the features that a reader of manifests must know to read what these refer to."""
    has_parts = any(ref.sidecar.tail_bytes or (isinstance(ref, GroupRef) and ref.has_parts) for ref in refs)
    return (SIDECAR_PARTS,) if has_parts else ()


class DirectoryRef(msgspec.Struct, frozen=True, kw_only=True):
    """A directory of an index (:mod:`lamella.snapshot.index.directory`): the number of its parts, of the blocks in
    them, and the bytes of the parts.
    """

    object: ObjectRef
    part_count: int
    block_count: int
    parts_bytes: Int64


class TableIndex(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One skip index of a table (:mod:`lamella.snapshot.index`).

    ``expression`` is SQL text in terms of the schema ``schema_id`` and of a time zone; its values are of ``dtype``.
    ``dropped_ms``: when it was dropped (Unix milliseconds, UTC); since then it is not used, and it can be restored
    until it is deleted. If several directories have a block, the last one wins.
    """

    index_id: str
    name: str
    kind: str
    expression: str
    dtype: str
    created_ms: Int64
    schema_id: int = 0
    options: dict[str, Any] = {}
    time_zone: str = "UTC"
    directories: tuple[DirectoryRef, ...] = ()
    dropped_ms: Int64 | None = None

    @property
    def block_count(self) -> int:
        """Returns the number of entries, including those of blocks that have left the table."""
        return sum(directory.block_count for directory in self.directories)

    @property
    def size_bytes(self) -> int:
        """Returns the bytes of all parts."""
        return sum(directory.parts_bytes for directory in self.directories)


class ReplacedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """A set of registered files that left the table (:mod:`lamella.snapshot.manifest.replaced_files`), and their
    number."""

    object: ObjectRef
    file_count: int


class ClusterKey(msgspec.Struct, frozen=True, kw_only=True):
    """How rows of a table are laid out: by these columns (dotted paths) and expressions, with this kind of order."""

    key_id: int
    columns: tuple[str, ...]
    kind: ClusterKind = "linear"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """One state of a table. ``timestamp_ms`` (Unix, UTC) increases along the chain of ``prev_snapshot_id``.

    ``schemas`` are the earlier schemas, oldest first; the member is absent while the table has had only one.
    ``block_schema_ids`` are those of all blocks, ascending, likewise.

    The segments of a larger table are those of its ``groups``, oldest first, followed by ``segments``.
    ``prev_manifest`` is the manifest of the previous snapshot (None in snapshots of format version 1, and in the
    first).

    ``indexes`` are the table's skip indexes, including dropped ones; the member is absent if there are none.

    ``cluster_key_meta``: the key's id and its terms (columns by dotted path, expressions as SQL); None: no key. A
    different key or kind gets an id that the table never had. ``cluster_kind``: absent while the kind is "linear".
    ``last_cluster_key_id``: the greatest id ever assigned, if it is not that of the current key (after a rollback, or
    if the key was removed).

    ``replaced_files``: files outside of the table's own block folder that were in the table and left it; absent if
    there are none. Releases that do not know the member neither read nor extend it.

    ``required_features``: as in :class:`Segment`, and what a writer must support; absent if there are none.

    ``row_changes``: what the commits of this snapshot did to rows, in alphabetical order; none: it has the rows of the
    previous one, in the same blocks. Absent: unknown (written by an earlier release).
    """

    format_version: int
    snapshot_id: str
    table_id: str
    timestamp_ms: int
    timestamp: str
    prev_snapshot_id: str | None
    schema: Schema
    summary: Summary
    segments: tuple[SegmentRef, ...]
    cluster_key_meta: tuple[int, tuple[str, ...]] | None = None
    operation: str = "create"
    properties: dict[str, str] = {}
    sidecar: ObjectRef | None = None
    schemas: tuple[Schema, ...] | msgspec.UnsetType = msgspec.UNSET
    block_schema_ids: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET
    groups: tuple[GroupRef, ...] = ()
    prev_manifest: ObjectRef | None = None
    indexes: tuple[TableIndex, ...] | msgspec.UnsetType = msgspec.UNSET
    cluster_kind: ClusterKind | msgspec.UnsetType = msgspec.UNSET
    last_cluster_key_id: int | msgspec.UnsetType = msgspec.UNSET
    replaced_files: tuple[ReplacedFiles, ...] | msgspec.UnsetType = msgspec.UNSET
    required_features: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    row_changes: tuple[RowChange, ...] | msgspec.UnsetType = msgspec.UNSET

    def _repr_html_(self) -> str:
        """Returns what the snapshot is as a table, for notebooks."""
        key = self.cluster_key
        facts = (
            ("time", self.timestamp),
            ("operation", self.operation),
            ("previous", self.prev_snapshot_id),
            ("rows", self.summary.row_count),
            ("blocks", self.summary.block_count),
            ("bytes", self.summary.compressed_byte_size),
            ("cluster key", None if key is None else f"{key.kind}({', '.join(key.columns)})"),
            ("columns", ", ".join(column.name for column in self.schema.columns)),
        )
        return html_facts(f"Snapshot {self.snapshot_id}", facts)

    @property
    def cluster_key(self) -> ClusterKey | None:
        """Returns the current cluster key."""
        meta, kind = self.cluster_key_meta, self.cluster_kind
        if meta is None or not meta[1]:
            return None
        return ClusterKey(key_id=meta[0], columns=meta[1], kind="linear" if kind is msgspec.UNSET else kind)

    @property
    def max_cluster_key_id(self) -> int:
        """Returns the greatest id that a cluster key of the table ever had; -1 if it never had one."""
        own = -1 if self.cluster_key_meta is None else self.cluster_key_meta[0]
        return own if self.last_cluster_key_id is msgspec.UNSET else max(own, self.last_cluster_key_id)

    @property
    def skip_indexes(self) -> tuple[TableIndex, ...]:
        """Returns the table's skip indexes, including dropped ones."""
        return () if self.indexes is msgspec.UNSET else self.indexes

    @property
    def replaced(self) -> tuple[ReplacedFiles, ...]:
        """Returns the sets of files that were in the table and left it."""
        return () if self.replaced_files is msgspec.UNSET else self.replaced_files

    @property
    def history(self) -> tuple[Schema, ...]:
        """Returns every schema the table has had, the current one last."""
        return (self.schema,) if self.schemas is msgspec.UNSET else (*self.schemas, self.schema)

    @property
    def segment_count(self) -> int:
        """Returns the number of segments; ``segments`` may list only some of them."""
        return len(self.segments) + sum(group.segment_count for group in self.groups)

    @property
    def features(self) -> tuple[str, ...]:
        """Returns the features that readers of the blocks must support."""
        listed = () if self.required_features is msgspec.UNSET else self.required_features
        return tuple(name for name in listed if name not in (*WRITER_FEATURES, *FORMAT_FEATURES))

    @property
    def schema_ids_in_use(self) -> tuple[int, ...]:
        """Returns the schemas that blocks of the snapshot were written with."""
        if self.block_schema_ids is not msgspec.UNSET:
            return self.block_schema_ids
        return (self.schema.schema_id,) if self.summary.block_count else ()


class SnapshotPointer(msgspec.Struct, frozen=True, kw_only=True):
    """A catalog's record of a snapshot: enough to read its manifest or its sidecar, and to check the bytes.

    Catalogs have stored it under the name "companion" since before format version 3.
    """

    snapshot_id: str
    timestamp_ms: int
    manifest: ObjectRef
    sidecar: ObjectRef = msgspec.field(name="companion")
