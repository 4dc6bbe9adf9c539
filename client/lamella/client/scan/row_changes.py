"""The change feed of a table: rows that were inserted and deleted, snapshot by snapshot.

Snapshots that only write the same rows anew (a compaction) are left out by what they record. Of a block of which rows
were deleted, just these rows are read. Where blocks were removed and others added, rows that both have were carried
over and cancel each other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from lamella.client.scan.plan import ScanRecipe
from lamella.client.scan.progress import Progress
from lamella.client.scan.row_difference import SIDES, RowDifference, Side, row_codes
from lamella.client.scan.rows import Rows, batches_of
from lamella.client.scan.scan import prefetch
from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.deletes import Positions, deleted_rows, inline_entry
from lamella.snapshot.errors import BlockReplaced, InvalidRequest
from lamella.snapshot.expression import read_filter
from lamella.snapshot.manifest import FEATURES, Snapshot
from lamella.snapshot.rows.block_file import BlockFile
from lamella.snapshot.rows.columns import ReadColumn, read_columns
from lamella.snapshot.rows.row_groups import Fetcher, ReadSpec, row_group_reads
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import schema_at
from lamella.snapshot.storage import Store
from lamella.snapshot.wire import PrunedBlock, SnapshotChanges, TableInfo

#: The columns that are added to each row: what happened to it; the number of the snapshot in the table's history, and
#: its time.
CHANGE_COLUMNS: Final = (
    pa.field("_change_type", pa.string(), nullable=False),
    pa.field("_commit_version", pa.int64(), nullable=False),
    pa.field("_commit_timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
)
#: Rows of one snapshot that are held in memory before temporary files are used.
MEMORY_BYTES: Final = 256 << 20
_SILENT: Final = frozenset({"replace"})


class ChangesOf(Protocol):
    """What a change feed needs from a table; :class:`lamella.client.http.Table` implements it."""

    def changes(self, *ends: Any, **options: Any) -> Iterator[SnapshotChanges]:
        """Return the blocks that were added and removed."""

    def info(self) -> TableInfo:
        """Return the current state of the table."""

    def snapshot(self, snapshot_id: str) -> Snapshot:
        """Return one of its snapshots."""


class ChangesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to read; see :meth:`lamella.client.http.Table.row_changes`."""

    since: str | None
    until: str | None = None
    since_timestamp: Any = None
    until_timestamp: Any = None
    filter: Any = None
    columns: tuple[str, ...] | None = None
    keys: tuple[str, ...] = ()
    net: bool = False
    time_zone: str = "UTC"
    case_sensitive: bool = False


class ChangedPart(msgspec.Struct, frozen=True):
    """Rows of a block that came or went: all, or those at ``positions`` in its file."""

    block: PrunedBlock
    side: Side
    positions: Positions | None = None


def is_silent(changes: SnapshotChanges) -> bool:
    """Return whether a snapshot is known to have the rows of the one before."""
    return changes.row_changes is not None and _SILENT.issuperset(changes.row_changes)


def require_earlier_rows(changes: SnapshotChanges) -> None:
    """Raise BlockReplaced if a snapshot has another file at the location of a block, since the earlier one is gone."""
    after = {block.location: block for block in changes.added}
    for earlier in changes.removed:
        block = after.get(earlier.location)
        if block is None:
            continue
        if (earlier.deletes or ()) == (block.deletes or ()) or not _is_same_file(earlier, block):
            raise BlockReplaced(
                f"{block.location} was replaced in place in snapshot {changes.snapshot_id}; its earlier rows are gone",
                location=block.location,
            )


def changed_parts(store: Store, changes: SnapshotChanges) -> Iterator[ChangedPart]:
    """Yield what has to be read to find the changed rows of a snapshot: whole blocks, and of blocks of which rows were
    deleted these rows.

    Raises:
        BlockReplaced: a block was replaced in place.
        CorruptDeletes, HashMismatch, ObjectNotFound, StoreError: a deletion vector cannot be read.
    """
    require_earlier_rows(changes)
    before = {block.location: block for block in changes.removed}
    after = {block.location: block for block in changes.added}
    for location, block in before.items():
        if location not in after:
            yield ChangedPart(block, "before")
    for location, block in after.items():
        earlier = before.get(location)
        if earlier is None:
            yield ChangedPart(block, "after")
            continue
        then = deleted_rows(store, earlier.deletes or (), block.row_count)
        now = deleted_rows(store, block.deletes or (), block.row_count)
        gone, back = np.setdiff1d(now, then, assume_unique=True), np.setdiff1d(then, now, assume_unique=True)
        if len(gone):
            yield ChangedPart(block, "before", gone)
        if len(back):
            yield ChangedPart(block, "after", back)


def paired_rows(
    parts: Sequence[tuple[pa.Table, pa.Table]], count: int, key: Iterable[int]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the kinds of changes of a snapshot with the first ``count`` columns of their rows; updates where one row
    before and one after are equal in the columns ``key``.

    ``parts``: the rows that only one side has, before and after.
    """
    before, after = (pa.concat_tables([part[at] for part in parts]) for at in (0, 1))
    keys = pa.concat_tables([before, after]).select(list(key))
    codes = row_codes(keys)
    has_null = np.zeros(len(codes), dtype=bool)
    for column in keys.columns:
        has_null |= column.is_null().to_numpy()
    size = int(codes.max()) + 1 if len(codes) else 0
    old, new = codes[: before.num_rows], codes[before.num_rows :]
    is_pair = (np.bincount(old, minlength=size) == 1) & (np.bincount(new, minlength=size) == 1)
    for kind, other, rows, own, nulls in (
        ("update_preimage", "delete", before, old, has_null[: before.num_rows]),
        ("update_postimage", "insert", after, new, has_null[before.num_rows :]),
    ):
        mask = is_pair[own] & ~nulls
        yield other, rows.filter(pa.array(~mask)).select(range(count))
        yield kind, rows.filter(pa.array(mask)).select(range(count))


class RowChanges(Rows):
    """The rows that came and went between two snapshots, oldest snapshot first, with :data:`CHANGE_COLUMNS`.

    The columns are those of the last snapshot. The range is fixed on first use; each method reads the files again.
    """

    def __init__(
        self,
        table: ChangesOf,
        request: ChangesRequest,
        store: Store,
        *,
        workers: int,
        progress: bool,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        if workers < 1:
            raise InvalidRequest("a change feed needs at least one worker", workers=workers)
        self._table = table
        self._request = request
        self._store = store
        self._workers = workers
        self._progress = progress
        self._memory_bytes = memory_bytes

    @cached_property
    def _last(self) -> TableInfo | Snapshot:
        """The last snapshot, or the table at it."""
        request = self._request
        if request.until is None and request.until_timestamp is None:
            return self._table.info()
        if request.until is not None:
            return self._table.snapshot(request.until)
        found = list(
            self._table.changes(
                request.since,
                None,
                since_timestamp=request.since_timestamp,
                until_timestamp=request.until_timestamp,
                net=True,
                reader_features=FEATURES,
            )
        )
        if found:
            return self._table.snapshot(found[-1].snapshot_id)
        since = request.since
        return self._table.info() if since is None else self._table.snapshot(since)

    @cached_property
    def _recipe(self) -> ScanRecipe:
        request, schema = self._request, self._last.schema
        recipe = ScanRecipe(
            predicate=read_filter(request.filter, time_zone=request.time_zone),
            schema=schema,
            columns=request.columns,
            order_by=(),
            time_zone=request.time_zone,
            case_sensitive=request.case_sensitive,
        )
        for field in CHANGE_COLUMNS:
            if field.name in recipe.output_schema.names:
                raise InvalidRequest(
                    f"the table has a column {field.name!r}; choose others by columns", column=field.name
                )
        _ = recipe.reading, self._keys  # raises what cannot be read or decided, before anything is read
        return recipe

    @cached_property
    def _keys(self) -> tuple[ReadColumn, ...]:
        request = self._request
        if not request.keys:
            return ()
        return read_columns(self._last.schema, request.keys, case_sensitive=request.case_sensitive)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table, and :data:`CHANGE_COLUMNS`.

        Example:
            >>> table.row_changes(since="may", columns=["id"]).schema.names
            ['id', '_change_type', '_commit_version', '_commit_timestamp']
        """
        return pa.schema([*self._recipe.output_schema, *CHANGE_COLUMNS])

    @property
    def until(self) -> str:
        """The id of the last snapshot: where a later call continues (``since``).

        Example:
            >>> changes = table.row_changes(since="may")
            >>> changes.until == table.info().snapshot_id
            True
        """
        return self._last.snapshot_id

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows snapshot by snapshot, deleted rows of each first.

        Raises SnapshotExpired when a snapshot of the range is no longer in the history, BlockReplaced, ObjectNotFound,
        StoreError, NotParquet, SchemaMismatch and EvaluationFailed.

        Example:
            >>> [batch.num_rows for batch in table.row_changes(since="may").to_batches()]
            [3]
        """
        recipe, schema = self._recipe, self.schema
        fetcher = Fetcher(self._store, 2 * self._workers)
        pool = ContextThreadPool(max_workers=self._workers, thread_name_prefix="lamella-changes")
        try:
            with Progress(0, shown=self._progress) as progress:
                for changes in self._changes():
                    for kind, rows in self._of_snapshot(recipe, changes, pool, fetcher):
                        progress.rows(rows.num_rows)
                        yield from batches_of(_with_change(rows, kind, changes, schema))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            fetcher.close()

    def _changes(self) -> Iterator[SnapshotChanges]:
        request = self._request
        return self._table.changes(
            request.since,
            self._last.snapshot_id,
            request.filter,
            since_timestamp=request.since_timestamp,
            net=request.net,
            time_zone=request.time_zone,
            case_sensitive=request.case_sensitive,
            reader_features=FEATURES,
        )

    def _of_snapshot(
        self, recipe: ScanRecipe, changes: SnapshotChanges, pool: ContextThreadPool, fetcher: Fetcher
    ) -> Iterator[tuple[str, pa.Table]]:
        """Yield the kinds of changes of one snapshot with their rows."""
        if is_silent(changes):
            return
        parts = list(changed_parts(self._store, changes))
        sides = {part.side for part in parts}
        if len(sides) < 2:
            for rows in self._read(recipe.reading, parts, pool, fetcher):
                yield ("insert" if "after" in sides else "delete"), rows
            return
        output = recipe.output
        everything = read_columns(recipe.schema, None, case_sensitive=recipe.case_sensitive)
        wanted = (*output, *self._keys, *everything)
        reading = ReadSpec(
            wanted, pa.schema([one.field for one in wanted]), recipe.reading.filter, recipe.reading.filter_columns
        )
        count, first = len(output), len(output) + len(self._keys)
        numbered = pa.schema([field.with_name(f"c{at}") for at, field in enumerate(reading.schema)])
        with RowDifference(numbered, range(first, len(wanted)), self._memory_bytes) as difference:
            for side in SIDES:
                own = [part for part in parts if part.side == side]
                for rows in self._read(reading, own, pool, fetcher):
                    difference.add(side, rows.rename_columns(numbered.names))
            if self._keys:
                yield from paired_rows(list(difference.result()), count, range(count, first))
                return
            for before, after in difference.result():
                yield "delete", before.select(range(count))
                yield "insert", after.select(range(count))

    def _read(
        self, reading: ReadSpec, parts: Sequence[ChangedPart], pool: ContextThreadPool, fetcher: Fetcher
    ) -> Iterator[pa.Table]:
        """Yield the rows of parts that the filter leaves, by row group."""

        def read(part: ChangedPart) -> list[pa.Table]:
            block = part.block if part.positions is None else _only(part.block, part.positions)
            file = BlockFile(self._store, block, self._written(block), self._recipe.schema)
            return [piece.table(reading, fetcher) for piece in row_group_reads(file, limit=None)]

        for tables in prefetch(pool, read, parts, self._workers):
            yield from (table for table in tables if table.num_rows)

    def _written(self, block: PrunedBlock) -> Schema:
        last = self._last
        return last.schema if block.schema_id is None else schema_at(last, block.schema_id)


def _is_same_file(one: PrunedBlock, other: PrunedBlock) -> bool:
    """Return whether two entries of one location have the same rows, but for deleted ones, as far as can be told."""
    first, second = ((b.row_count, b.file_size, b.schema_id, b.constants) for b in (one, other))
    return first == second


def _only(block: PrunedBlock, positions: Positions) -> PrunedBlock:
    """Return a block with all rows deleted but those at some positions."""
    others = np.setdiff1d(np.arange(block.row_count), positions, assume_unique=True)
    if not len(others):
        return msgspec.structs.replace(block, deletes=None)
    return msgspec.structs.replace(block, deletes=(inline_entry(block.location, others),))


def _with_change(rows: pa.Table, kind: str, changes: SnapshotChanges, schema: pa.Schema) -> pa.Table:
    values: tuple[tuple[Any, Callable[[], pa.DataType]], ...] = (
        (kind, pa.string),
        (changes.number, pa.int64),
        (changes.timestamp_ms * 1000, lambda: pa.timestamp("us", tz="UTC")),
    )
    added = [pa.repeat(pa.scalar(value, dtype()), rows.num_rows) for value, dtype in values]
    return pa.Table.from_arrays([*rows.columns, *added], schema=schema)
