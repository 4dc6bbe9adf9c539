"""The blocks of a commit: checks of the request, of the files that it names, and of the blocks' statistics.

Statistics that contradict themselves or the schema would make pruning skip rows, so such a block is refused. Missing
statistics are fine: the block is then never skipped by them.

Blocks in a request's body wait in the queue with it, so that small appends can share a segment. Blocks in lists may
exceed memory: they are read a segment at a time, and each segment is written before the next one is read. What was
written for a commit that is refused later belongs to no snapshot; a clean-up removes it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, TypeVar

import msgspec
import numpy as np

from lamella.service.catalog import Catalog, CommitGuard
from lamella.service.config.settings import Settings
from lamella.service.history.history import trusted_manifests
from lamella.service.http.admission import read_json
from lamella.service.indexes.part_check import MAX_COMMIT_PARTS, require_distinct
from lamella.service.tables.names import require_allowed, require_own
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.cluster.extent import block_target_of
from lamella.snapshot.commit import conflict, row_change_of
from lamella.snapshot.commit.block_lists import Listed, checked_lists, listed_blocks
from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.counts import counted
from lamella.snapshot.delete_policy import delete_policy_of
from lamella.snapshot.deletes import MAX_VECTOR_BYTES, RangeReader, Vectors, checked_entry, deleted_rows
from lamella.snapshot.errors import (
    BlockReplaced,
    BlocksRefused,
    Conflict,
    DuplicateBlock,
    InvalidRequest,
    LamellaError,
    LimitExceeded,
    ManifestError,
    ObjectNotFound,
    SchemaMismatch,
    StoreError,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.manifest import (
    MAX_LEVEL,
    Block,
    DeleteFile,
    RowChange,
    SegmentRef,
    Snapshot,
    SnapshotPointer,
    require_writer_feature,
)
from lamella.snapshot.manifest.block_arrays import BlockSequence, locations_of
from lamella.snapshot.manifest.block_key import BlockKeys, Identity, block_keys, bytes_of, keys_of, no_keys
from lamella.snapshot.parquet.block import with_constants
from lamella.snapshot.reader_feedback import check_feedback
from lamella.snapshot.row_checks import violation
from lamella.snapshot.schema import Leaf
from lamella.snapshot.schema.evolution import AddCheck, schema_at
from lamella.snapshot.sketch import check as check_sketch
from lamella.snapshot.source import refuse_properties
from lamella.snapshot.stats import Bound, ColumnStats, from_bound
from lamella.snapshot.stats.bound import Value
from lamella.snapshot.stats.bucket import bucket_problem
from lamella.snapshot.stats.column import MAX_INT64, sum_problem
from lamella.snapshot.stats.ranges import problem as range_problem
from lamella.snapshot.storage import AllowedLocations, BatchStatStore, EndReadingStore, ObjectStat, Store
from lamella.snapshot.storage.location import has_magic, is_data_file, normal
from lamella.snapshot.vacuum import check_retention
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import (
    BlockDeletes,
    BlockListSent,
    CommitRequest,
    IndexPartsSent,
    NoNewMatches,
    RefusedFile,
    SchemaUpdate,
    TableRead,
)
from lamella.snapshot.workload.recorded_filters import check_recording

_NAMED_BLOCKS: Final = 100
StatOf = Callable[[str], ObjectStat]
_MEMBERS: Final = msgspec.structs.fields(Bound)


class _Version(msgspec.Struct, frozen=True, gc=False):
    """What is known of the version of a file whose statistics were read."""

    location: str
    file_size: int
    content_id: str | None


_File = TypeVar("_File", Block, _Version)


class FileChecker:
    """Checks files in the store, ``threads`` at a time for one request."""

    def __init__(self, store: Store, metrics: Metrics, threads: int) -> None:
        self._store = store
        self._ends = store if isinstance(store, EndReadingStore) else None
        self._stat_many = store.stat_many if isinstance(store, BatchStatStore) else None
        self._metrics = metrics
        self._threads = threads

    def expand(
        self, paths: Sequence[str], *, plain: bool, assume_files: bool
    ) -> tuple[dict[str, str], list[RefusedFile]]:
        """Return every location that the paths name, without duplicates, in their order, each with its path.

        ``plain``: refuse directories that are tables of another format. ``assume_files``: do not ask the store whether
        something is a file that is named like one, where reading it tells as well.
        """
        found: dict[str, str] = {}
        refused = []
        for path in paths:
            try:
                assumed = assume_files and self._is_like_a_file(path)
                locations = [normal(path)] if assumed else self._store.expand(path, plain=plain)
            except LamellaError as error:
                refused.append(RefusedFile(path=path, code=error.code, reason=error.message))
                continue
            for location in locations:
                if location in found:
                    reason = "the request names the file twice"
                    refused.append(RefusedFile(path=location, code=DuplicateBlock.code, reason=reason))
                found[location] = path
        return found, refused

    def _is_like_a_file(self, path: str) -> bool:
        named = not has_magic(path) and is_data_file(path.rpartition("/")[2])
        return named and self._ends is not None and self._ends.reads_ends(normal(path))

    def have_read_versions(self, blocks: Sequence[Block]) -> bool:
        """Return whether the content ids of blocks are those of the versions whose footers were read."""
        ends = self._ends
        return ends is not None and all(map(ends.reads_ends, locations_of(blocks)))

    def changed(self, blocks: Sequence[Block]) -> list[RefusedFile]:
        """Return the refusals of the blocks whose files have changed since their statistics were read."""
        sequence = BlockSequence.of(blocks)

        def checked(version: _Version, stat_of: StatOf) -> _Version:
            stat = stat_of(version.location)
            if (stat.size_bytes, stat.content_id) != (version.file_size, version.content_id):
                raise Conflict("the file changed while it was being registered")
            return version

        return self.each(list(map(_Version, sequence.locations, sequence.file_sizes, sequence.content_ids)), checked)[1]

    def overwritten(self, files: Iterable[Identity]) -> list[RefusedFile]:
        """Return the refusals of files of a table that are other files by now, or that the store failed for.

        A file that is missing has no other contents, and is not refused.
        """

        def checked(version: _Version, stat_of: StatOf) -> _Version:
            try:
                content_id = stat_of(version.location).content_id
            except ObjectNotFound:
                return version
            if version.content_id not in (None, content_id):
                raise BlockReplaced(
                    "the file was overwritten after it was registered, and the rows of the earlier file are in the "
                    "table; remove it and register it again, or write changes under new names"
                )
            return version

        return self.each([_Version(each.location, each.file_size, each.content_id) for each in files], checked)[1]

    def each_at_once(
        self, blocks: Sequence[_File], check: Callable[[_File], _File]
    ) -> tuple[list[_File], list[RefusedFile]]:
        """Run :meth:`each` in the caller's thread, for a check that does no I/O."""
        return _sorted([_attempt(check, block) for block in blocks])

    def each(
        self, blocks: Sequence[_File], check: Callable[[_File, StatOf], _File]
    ) -> tuple[list[_File], list[RefusedFile]]:
        """Return what ``check`` returns for the blocks, and the errors of the others, in their order.

        ``check`` gets a function that returns an object's stat as of a moment after this call began. Several blocks are
        checked at a time if the store has to be asked for each.
        """
        many = self._stat_many if len(blocks) > 1 else None
        stats = {} if many is None else many([block.location for block in blocks])

        def stat_of(location: str) -> ObjectStat:
            found = stats.get(location)
            return self._store.stat(location) if found is None else found

        def checked(block: _File) -> _File:
            return check(block, stat_of)

        if len(blocks) < 2 or all(block.location in stats for block in blocks):
            return self.each_at_once(blocks, checked)
        with ContextThreadPool(min(self._threads, len(blocks))) as pool:
            return _sorted(list(pool.map(lambda block: _attempt(checked, block), blocks)))

    def refuse(self, refused: Sequence[RefusedFile], *, all_or_nothing: bool) -> None:
        """Raise the error that describes the refused files best: DuplicateBlock, StoreError or BlocksRefused."""
        if not refused or not all_or_nothing:
            return
        self.count(refused)
        codes = {entry.code for entry in refused}
        listed = msgspec.to_builtins(refused)
        first = refused[0]
        where = "" if first.listed_in is None else f" (block {first.listed_at} of {first.listed_in})"
        text = f"{counted(len(refused), 'file was', 'files were')} refused, first {first.path!r}{where}: {first.reason}"
        if codes == {DuplicateBlock.code}:
            raise DuplicateBlock(text, blocks=[entry.path for entry in refused][:_NAMED_BLOCKS], refused=listed)
        if StoreError.code in codes:
            raise StoreError(text, refused=listed)
        raise BlocksRefused(text, refused=listed)

    def count(self, refused: Sequence[RefusedFile]) -> None:
        """Count refused files in the metrics."""
        for entry in refused:
            self._metrics.files_refused.labels(entry.code).inc()


def _attempt(check: Callable[[_File], _File], block: _File) -> _File | RefusedFile:
    try:
        return check(block)
    except LamellaError as error:
        return RefusedFile(path=block.location, code=error.code, reason=error.message)


def _sorted(done: Sequence[_File | RefusedFile]) -> tuple[list[_File], list[RefusedFile]]:
    return [b for b in done if not isinstance(b, RefusedFile)], [r for r in done if isinstance(r, RefusedFile)]


def once(refused: Sequence[RefusedFile]) -> list[RefusedFile]:
    """Return the last entry of each file: a duplicate is reported first, and other errors are more specific."""
    return list({entry.path: entry for entry in refused}.values())


def duplicate(location: str) -> RefusedFile:
    """Return the refusal of a file that is in the table."""
    return RefusedFile(path=location, code=DuplicateBlock.code, reason="the file is in the table already")


def replaced(location: str) -> RefusedFile:
    """Return the refusal of a file that was in the table before."""
    reason = (
        "the file was in the table before, or lies in the folder of its blocks, and its rows may have been rewritten "
        "or removed since; to register it all the same, set take_replaced (--take-replaced)"
    )
    return RefusedFile(path=location, code=DuplicateBlock.code, reason=reason)


def refuse_doubled(member: str, locations: Sequence[str], kind: type[LamellaError]) -> None:
    """Raise ``kind`` if a location is named twice."""
    doubled = sorted(location for location, count in Counter(locations).items() if count > 1)
    if doubled:
        raise kind(f"{member} names {doubled[0]!r} twice", blocks=doubled[:_NAMED_BLOCKS])


#: Size of one block as JSON: enough for statistics of about ten thousand columns.
MAX_BYTES: Final = 8 << 20

_DECODER = msgspec.json.Decoder(Block)


def read_blocks(added: Sequence[msgspec.Raw]) -> list[Block]:
    """Decode ``added`` of a commit request.

    Raises:
        InvalidRequest, LimitExceeded: an entry is not a block; ``details.path`` says which and where.
    """
    blocks = []
    for position, raw in enumerate(added):
        path = f"$.added[{position}]"
        if len(raw) > MAX_BYTES:
            text = f"the block at {path} has {len(raw)} bytes; the limit is {MAX_BYTES}"
            raise LimitExceeded(text, limit="block_bytes", maximum=MAX_BYTES, path=path)
        blocks.append(read_json(_DECODER, raw, root=path))
    return blocks


def check_block(block: Block, columns: Mapping[int, Leaf], *, last_key_id: int = -1) -> Block:
    """Return the block with its location normalized as in manifests.

    ``columns``: the table's leaves by id. ``last_key_id``: the largest id that a cluster key of the table ever had (-1:
    it never had one).

    Raises:
        InvalidRequest: an invalid location, format or count.
        UnknownColumn: statistics of a column that the table does not have.
        SchemaMismatch: statistics that do not match the column, or each other.
    """
    location = normal(block.location)
    if block.format != "parquet":
        raise InvalidRequest(f"blocks are Parquet files, not {block.format!r}")
    for name in ("row_count", "file_size", "block_size", "bloom_filter_index_size"):
        if getattr(block, name) < 0:
            raise InvalidRequest(f"{name} is {getattr(block, name)}")
    if any(rows < 0 for rows in block.row_group_row_counts):
        raise InvalidRequest("a row group has a negative number of rows")
    if block.row_group_row_counts and sum(block.row_group_row_counts) != block.row_count:
        raise InvalidRequest(f"the row groups have {sum(block.row_group_row_counts)} rows, not {block.row_count}")
    clustered = block.cluster_stats
    if clustered is not None and not 0 <= clustered.key_id <= last_key_id:
        raise InvalidRequest(f"the table never had a cluster key with id {clustered.key_id}")
    if clustered is not None and not 0 <= clustered.level <= MAX_LEVEL:
        raise InvalidRequest(f"a clustering level must be from 0 to {MAX_LEVEL}, not {clustered.level}")
    for column_id in sorted({*block.col_stats, *block.col_metas, *block.sketches, *block.constants}):
        if column_id not in columns:
            raise UnknownColumn(f"the table has no column with id {column_id}", column_id=column_id)
    for column_id, chunks in block.col_metas.items():
        if not 0 <= (size_bytes := sum(chunk.len for chunk in chunks)) <= MAX_INT64:
            raise InvalidRequest(f"the chunks of column {columns[column_id].name!r} have {size_bytes} bytes together")
    for column_id, stats in block.col_stats.items():
        problem = _contradiction(columns[column_id], stats, block.row_count)
        if problem is not None:
            name = columns[column_id].name
            raise SchemaMismatch(f"column {name!r}: {problem}", column=name, column_id=column_id)
    for column_id, sketch in block.sketches.items():
        problem = check_sketch(columns[column_id].dtype, sketch)
        if problem is not None:
            name = columns[column_id].name
            raise SchemaMismatch(f"column {name!r}: {problem}", column=name, column_id=column_id)
    return msgspec.structs.replace(block, location=location)


def _contradiction(leaf: Leaf, stats: ColumnStats, row_count: int) -> str | None:
    """Return what is wrong with one column's statistics; None if they are consistent."""
    nulls = stats.null_count
    if nulls is not None and not 0 <= nulls <= row_count:
        return f"null_count is {nulls} in {counted(row_count, 'row')}"
    for name in ("distinct_of_values", "in_memory_size"):
        count = getattr(stats, name)
        if count is not None and count < 0:
            return f"{name} is {count}"
    if stats.nan != "none" and not leaf.dtype.is_float:
        return f"nan is {stats.nan!r} in a column of type {leaf.dtype}"
    wrong = bucket_problem(leaf, stats.bucket)
    if wrong is not None:
        return wrong
    if stats.min is None and stats.max is None:
        return "there are ranges but no bounds" if stats.ranges else sum_problem(leaf, stats, row_count)
    if leaf.dtype.order is None:
        return f"values of type {leaf.dtype} have no order, so they cannot have bounds"
    if leaf.repeated:
        return "a list or map has several values in a row, so it cannot have bounds"
    if stats.nan == "all" or nulls == row_count:
        return "there are bounds, but every value is null or NaN"
    values: list[Value | None] = []
    for name, bound in (("min", stats.min), ("max", stats.max)):
        if bound is None:
            values.append(None)
            continue
        if (tags := len(_MEMBERS) - msgspec.structs.astuple(bound).count(None)) != 1:
            return f"{name} has {tags} values, not one"
        try:
            values.append(from_bound(leaf.dtype, bound))
        except (ManifestError, ValueError) as error:
            return f"{name} is not a bound of type {leaf.dtype}: {error}"
    low, high = values
    try:
        wrong = range_problem(leaf.dtype, stats.ranges, low, high)
    except (ManifestError, ValueError) as error:
        wrong = f"ranges are not of type {leaf.dtype}: {error}"
    if wrong is not None:
        return wrong
    if low is not None and high is not None and low > high:  # type: ignore[operator]  # one order per type
        return "min is greater than max"
    return sum_problem(leaf, stats, row_count)


_OPERATION: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")


class CheckedRequest(msgspec.Struct, frozen=True):
    """The checked members of a commit request other than blocks: normalized locations; missing members are None or
    empty."""

    removed: tuple[str, ...]
    deletes: tuple[BlockDeletes, ...]
    row_change: RowChange
    reads: tuple[TableRead, ...]
    lists: tuple[BlockListSent, ...]
    index_parts: tuple[IndexPartsSent, ...]
    part_locations: tuple[str, ...]
    no_new_matches: NoNewMatches | None
    schema_update: SchemaUpdate | None
    removed_properties: frozenset[str]


def check_request(request: CommitRequest) -> CheckedRequest:
    """Check a commit request. Raises InvalidRequest: nothing to do, or members invalid or exclusive."""
    lists = () if request.added_from is msgspec.UNSET else request.added_from
    sent = () if request.deletes is msgspec.UNSET else request.deletes
    update = None if request.schema_update is msgspec.UNSET else request.schema_update
    unset = frozenset(() if request.remove_properties is msgspec.UNSET else request.remove_properties)
    if update is not None and not update.changes and update.cluster_key is msgspec.UNSET:
        raise InvalidRequest("schema_update changes nothing")
    new_checks = [change for change in (update.changes if update else ()) if isinstance(change, AddCheck)]
    if not (request.added or lists or request.removed or sent or request.properties or update or unset):
        raise InvalidRequest("the commit is empty: it adds, removes and sets nothing")
    if both := sorted(unset.intersection(request.properties)):
        raise InvalidRequest(f"property {both[0]!r} is both set and removed", property=both[0])
    refuse_properties(dict.fromkeys(unset, ""))
    check_retention(request.properties)
    refuse_properties(request.properties)
    check_feedback(request.properties)
    check_recording(request.properties)
    block_target_of(request.properties)
    delete_policy_of(request.properties)
    if _OPERATION.fullmatch(request.operation) is None:
        raise InvalidRequest(f"{request.operation!r} is not an operation: use a word such as 'append' or 'compact'")
    removed = [normal(location) for location in request.removed]
    refuse_doubled("removed", removed, InvalidRequest)
    deletes = [_normal_deletes(each) for each in sent]
    locations_of_deletes = [each.location for each in deletes]
    refuse_doubled("deletes", locations_of_deletes, InvalidRequest)
    if both := sorted(set(removed).intersection(locations_of_deletes)):
        raise InvalidRequest(f"{both[0]!r} is both removed and a block of which rows are deleted", blocks=both[:1])
    reads = () if request.reads is msgspec.UNSET else request.reads
    adds, removes = bool(request.added or lists), bool(removed or deletes)
    row_change = row_change_of(removes=removes) if request.row_change is msgspec.UNSET else request.row_change
    if row_change in ("append", "delete") and (removes if row_change == "append" else adds and not removes):
        does = "removes rows" if removes else "only adds rows"
        raise InvalidRequest(f"row_change is {row_change!r}, but the commit {does}")
    parts = () if request.index_parts is msgspec.UNSET else request.index_parts
    locations: list[str] = []
    if parts:
        if not (request.added or lists):
            raise InvalidRequest("index_parts describe added blocks, and there are none")
        locations = require_distinct([part for of_index in parts for part in of_index.parts], MAX_COMMIT_PARTS)
    unwanted = None if request.no_new_matches is msgspec.UNSET else request.no_new_matches
    if update is not None and new_checks and not update.replaces_columns:
        if len(new_checks) > 1 or unwanted is not None or request.base_snapshot_id is None:
            raise InvalidRequest(
                "a commit that adds a constraint adds one, names the snapshot of which the caller has checked all rows"
                " in base_snapshot_id, and has no no_new_matches"
            )
        unwanted = NoNewMatches(filter=violation(new_checks[0]), time_zone=new_checks[0].time_zone)
    if request.base_snapshot_id is None and (unwanted is not None or deletes):
        raise InvalidRequest(f"{'deletes' if deletes else 'no_new_matches'} needs base_snapshot_id")
    return CheckedRequest(
        removed=tuple(removed),
        deletes=tuple(deletes),
        row_change=row_change,
        reads=tuple(reads),
        lists=lists,
        index_parts=parts,
        part_locations=tuple(locations),
        no_new_matches=unwanted,
        schema_update=update,
        removed_properties=unset,
    )


def _normal_deletes(sent: BlockDeletes) -> BlockDeletes:
    entry = sent.deletes
    if entry.offset < 0 or not 0 < entry.length <= MAX_VECTOR_BYTES:
        raise InvalidRequest(f"a list of deleted rows has {entry.length} bytes from {entry.offset} on")
    own = DeleteFile(
        kind=entry.kind,
        location=normal(entry.location),
        offset=entry.offset,
        length=entry.length,
        cardinality=entry.cardinality,
        sha256=entry.sha256,
    )
    return BlockDeletes(location=normal(sent.location), deletes=own)


def spelled(blocks: Sequence[Block]) -> list[str]:
    """Return the normalized locations of blocks and of their lists of deleted rows; invalid ones are refused where
    blocks are checked."""
    found = []
    for block in blocks:
        for location in (block.location, *(entry.location for entry in block.deletes)):
            with suppress(InvalidRequest):
                found.append(normal(location))
    return list(dict.fromkeys(found))


#: The origin of a block of the request's body, which errors need not name.
_BODY: Final = ""


class Added(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a commit adds: ``blocks`` or, if some came in lists, ``segments``.

    ``keys``: of all blocks in their order, if index parts need them.
    """

    blocks: Sequence[Block] = ()
    segments: tuple[SegmentRef, ...] = ()
    keys: BlockKeys = msgspec.field(default_factory=no_keys)
    guard: CommitGuard | None = None


class AddedBlocks:
    """Checks and writes what requests add."""

    def __init__(
        self, *, catalog: Catalog, warehouse: Warehouse, store: Store, intake: FileChecker, settings: Settings
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._file_checker = intake
        self._max_blocks = settings.commit_list_blocks
        self._max_bytes = settings.max_body_bytes

    def lists(self, table_id: str, sent: Sequence[BlockListSent]) -> tuple[BlockListSent, ...]:
        """Check the lists of a request before they are read. Raises InvalidRequest, LimitExceeded."""
        folder = self._warehouse.table_location(table_id)
        return checked_lists(folder, sent, max_blocks=self._max_blocks, max_bytes=self._max_bytes)

    def taken(
        self,
        table_id: str,
        allowed: AllowedLocations,
        request: CommitRequest,
        lists: Sequence[BlockListSent],
        parts: Sequence[str],
        *,
        versions: Snapshot,
        default_schema_id: int,
        since_ms: int,
    ) -> Added:
        """Check and return everything that is added.

        ``parts``: locations of the index parts. ``default_schema_id``: the schema of blocks that do not name
        theirs. ``since_ms``: now.

        Raises:
            InvalidRequest, LimitExceeded, ObjectNotFound: an entry is not a block, or a list cannot be read.
            LocationRefused: the location of a block is not allowed.
            BlocksRefused: a block's file or statistics.
            DuplicateBlock: a block appears twice in the body.
            WriterFeatureMissing: the schema of a block has constraints, and the request does not declare that its
                writer checked them.
            StoreError: storage failed.
            Unavailable: a clean-up is running.
        """
        declared = () if request.writer_features is msgspec.UNSET else request.writer_features
        check = _Check(self._warehouse, self._store, table_id, versions, default_schema_id, declared)
        sent = read_blocks(request.added)
        require_allowed(allowed, sent)
        if not lists:
            if not sent:
                return Added()
            guard = self._catalog.guard(table_id, [*spelled(sent), *parts], since_ms=since_ms)
            blocks, refused = self._file_checker.each(sent, check)
            self._file_checker.refuse(refused, all_or_nothing=True)
            refuse_doubled("added", [block.location for block in blocks], DuplicateBlock)
            return Added(blocks=blocks, keys=block_keys(blocks if parts else ()), guard=guard)
        guard = self._catalog.guard(table_id, parts, since_ms=since_ms)
        segments: list[SegmentRef] = []
        keys: list[bytes] = []
        for some in self._batches(sent, lists):
            require_allowed(allowed, [each.block for each in some])
            now = self._catalog.guard(table_id, spelled([each.block for each in some]), since_ms=since_ms)
            if now.epochs != guard.epochs:
                raise Unavailable("a clean-up deleted files during this commit; send it again", retry_after_s=0)
            blocks, refused = self._file_checker.each([each.block for each in some], check)
            self._file_checker.refuse(_placed(refused, some), all_or_nothing=True)
            with trusted_manifests():
                segments += self._warehouse.prepare(table_id, versions, blocks)
            if parts:
                keys.append(bytes_of(block_keys(blocks)))
        guard = msgspec.structs.replace(guard, adds_files=True)
        return Added(segments=tuple(segments), keys=keys_of(b"".join(keys)), guard=guard)

    def more_deletes(
        self,
        table_id: str,
        allowed: AllowedLocations,
        sent: Sequence[BlockDeletes],
        base: SnapshotPointer,
        *,
        since_ms: int,
    ) -> tuple[tuple[BlockDeletes, ...], CommitGuard | None]:
        """Check and return the deleted rows of blocks of ``base``, without blocks of which no more rows are deleted.

        Raises:
            LocationRefused: a file of vectors is where the table may have none.
            CommitConflict: ``base`` does not have a block.
            BlocksRefused: a vector is damaged, or lacks rows that are deleted in ``base``.
            StoreError: storage failed.
        """
        if not sent:
            return (), None
        for location in dict.fromkeys(each.deletes.location for each in sent):
            allowed.require(location)
            require_own(self._warehouse, table_id, location)
        guard = self._catalog.guard(
            table_id, list(dict.fromkeys(each.deletes.location for each in sent)), since_ms=since_ms
        )
        with trusted_manifests():
            blocks = self._warehouse.entries_at(base, [each.location for each in sent])
        if gone := sorted(each.location for each in sent if each.location not in blocks):
            raise conflict(gone, "not in the table", base.snapshot_id)
        before = Vectors(self._store, (entry for block in blocks.values() for entry in block.deletes))
        store = _Sent(before, self._store, [each.deletes for each in sent])
        wanted = {each.location: each.deletes for each in sent}

        def checked(block: Block) -> Block:
            entry = checked_entry(store, wanted[block.location], block.row_count)
            then = deleted_rows(store, block.deletes, block.row_count)
            now = deleted_rows(store, (entry,), block.row_count)
            if not np.isin(then, now, assume_unique=True).all():
                raise InvalidRequest("the vector lacks rows that are deleted in base_snapshot_id")
            return msgspec.structs.replace(block, deletes=(entry,) if len(now) > len(then) else block.deletes)

        found, refused = self._file_checker.each_at_once([blocks[each.location] for each in sent], checked)
        self._file_checker.refuse(refused, all_or_nothing=True)
        return tuple(
            BlockDeletes(location=block.location, deletes=block.deletes[0])
            for block in found
            if block.deletes != blocks[block.location].deletes
        ), guard

    def _batches(self, sent: Sequence[Block], lists: Sequence[BlockListSent]) -> Iterator[list[Listed]]:
        """Yield as many blocks at a time as a segment has."""

        def every() -> Iterator[Listed]:
            yield from (Listed(block, _BODY, position) for position, block in enumerate(sent))
            yield from listed_blocks(self._store, lists)

        waiting = every()
        while some := list(islice(waiting, self._warehouse.segment_blocks)):
            yield some


class _Sent:
    """Reads vectors that a request names; those that cannot be read together are read one by one, for their errors."""

    def __init__(self, before: RangeReader, store: RangeReader, entries: Sequence[DeleteFile]) -> None:
        self._before = before
        try:
            self._sent: RangeReader = Vectors(store, entries)
        except LamellaError:
            self._sent = store
        self._names = {entry.location for entry in entries}

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """See :class:`~lamella.snapshot.deletes.RangeReader`."""
        return (self._sent if location in self._names else self._before).read_range(location, start, length)


class _Check:
    """Checks a block, and its file in the store."""

    def __init__(
        self,
        warehouse: Warehouse,
        store: Store,
        table_id: str,
        versions: Snapshot,
        default_schema_id: int,
        writer_features: Sequence[str],
    ) -> None:
        self._warehouse = warehouse
        self._store = store
        self._table_id = table_id
        self._versions = versions
        self._default_schema_id = default_schema_id
        self._last_key_id = versions.max_cluster_key_id
        self._writer_features = writer_features

    def __call__(self, block: Block, stat_of: StatOf) -> Block:
        require_own(self._warehouse, self._table_id, normal(block.location))
        schema_id = self._default_schema_id if block.schema_id is None else block.schema_id
        schema = schema_at(self._versions, schema_id)
        if schema.has_constraints:
            require_writer_feature(self._writer_features)
        block = check_block(block, schema.by_id(), last_key_id=self._last_key_id)
        if block.constants:
            block = with_constants(block, block.constants, schema)
        stat = stat_of(block.location)
        return msgspec.structs.replace(
            block,
            file_size=stat.size_bytes,
            content_id=stat.content_id,
            schema_id=schema_id,
            deletes=self._checked_deletes(block),
        )

    def _checked_deletes(self, block: Block) -> tuple[DeleteFile, ...]:
        """Return the entries with their counts and hashes, without those that delete nothing."""
        found = []
        for entry in block.deletes:
            if entry.offset < 0 or not 0 < entry.length <= MAX_VECTOR_BYTES:
                raise InvalidRequest(f"a list of deleted rows has {entry.length} bytes from {entry.offset} on")
            location = normal(entry.location)
            require_own(self._warehouse, self._table_id, location)
            checked = checked_entry(self._store, msgspec.structs.replace(entry, location=location), block.row_count)
            if checked.cardinality:
                found.append(checked)
        if found and len(deleted_rows(self._store, found, block.row_count)) == block.row_count:
            raise InvalidRequest("all rows of the block are deleted, so it must not be in the table")
        return tuple(found)


def _placed(refused: Sequence[RefusedFile], some: Sequence[Listed]) -> list[RefusedFile]:
    """Add to refused files the list and position that they came from."""
    if not refused:
        return []
    listings = {each.block.location: each for each in reversed(some) if each.location != _BODY}
    return [
        entry
        if (listing := listings.get(entry.path)) is None
        else msgspec.structs.replace(entry, listed_in=listing.location, listed_at=listing.number)
        for entry in refused
    ]
