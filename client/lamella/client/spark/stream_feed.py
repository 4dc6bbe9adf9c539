"""What a stream reads of a table's history: positions in it, and the blocks between two positions.

A stream begins with the rows of one snapshot and goes on with the rows that each later snapshot added. A
:class:`Position` says how far it has come. It is stored in the checkpoint of the query and must mean the same after a
restart, so blocks are counted in an order that depends on nothing but their snapshot.

Where a snapshot only added blocks, these are read. Where it also removed blocks, as a rewrite in the same snapshot
does, both sides are read and compared, so that only rows are left that are new.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from lamella.client.scan.row_changes import is_silent, require_earlier_rows
from lamella.client.spark.change_rows import with_schema_ids
from lamella.client.spark.lake import BlockSelection, LakeTable, load_table
from lamella.snapshot.errors import (
    InvalidRequest,
    LamellaError,
    NotAppendOnly,
    SchemaConflict,
    SnapshotNotFound,
    TableNotFound,
)
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.wire import PrunedBlock, SnapshotChanges, SnapshotInfo, TableInfo

#: How the rows of a unit are read: of blocks without deleted rows; of blocks with deleted rows; by comparing the blocks
#: that were added with those that were removed.
Way = Literal["blocks", "deletes", "compare"]
_ROLLBACK: Final = "rollback"
_ANEW: Final = "start the stream anew, with another checkpointLocation"


class Position(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a stream has come in the history of a table.

    ``content`` false: all rows that came up to ``snapshot_id`` were read, and the first ``blocks`` blocks of what the
    following snapshot added. ``content`` true: the stream begins with the rows of ``snapshot_id``, and the first
    ``blocks`` of its blocks were read. ``number``: of the snapshot in the history.
    """

    table_id: str
    number: int
    snapshot_id: str
    blocks: int = 0
    content: bool = False

    def text(self) -> str:
        """Return the position as JSON on one line; equal positions have equal text."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def read(cls, text: str) -> Position:
        """Return the position from its text.

        Raises:
            InvalidRequest: the text was not written by :meth:`text`.
        """
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError as error:
            raise InvalidRequest(
                f"the checkpoint says {text!r}, which is no position of a Lamella table; {_ANEW}"
            ) from error


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a stream.

    ``starting_snapshot`` (an id, tag or number), ``starting_timestamp`` (ISO 8601 text or Unix milliseconds): only rows
    that came after it; neither: first the rows that the table has. ``max_blocks_per_trigger``,
    ``max_bytes_per_trigger`` (of files): limits of a micro-batch, which has at least one block. ``skip_deletes``: go on
    where rows were deleted or updated; rows that an update wrote are in the stream.
    """

    starting_snapshot: str | None = None
    starting_timestamp: str | None = None
    max_blocks_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    skip_deletes: bool = False

    def check(self) -> None:
        """Raise InvalidRequest for impossible options."""
        if self.starting_snapshot is not None and self.starting_timestamp is not None:
            raise InvalidRequest("give starting_snapshot or starting_timestamp, not both")
        for name in ("max_blocks_per_trigger", "max_bytes_per_trigger"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise InvalidRequest(f"{name} is at least 1, not {limit}")


class Unit(msgspec.Struct, frozen=True):
    """Rows that are read together: of a block, or of all blocks of a snapshot that are compared."""

    way: Way
    changes: SnapshotChanges

    @property
    def block_count(self) -> int:
        """The number of blocks that were added."""
        return len(self.changes.added)

    @property
    def size_bytes(self) -> int:
        """The bytes of their files."""
        return sum(block.file_size for block in self.changes.added)


class StreamFeed:
    """The history of a table as a stream reads it.

    ``table``: as the query that streams reads it; its schema is that of all rows.
    """

    def __init__(self, table: LakeTable, options: StreamOptions, *, time_zone: str) -> None:
        self._table = table
        self._handle = table.handle
        self._options = options
        self._time_zone = time_zone
        self._content: tuple[str, list[Unit]] | None = None
        #: Changes that are known, by the snapshot before; and an iterator of those after ``_since``.
        self._known: dict[str, SnapshotChanges] = {}
        self._since: str | None = None
        self._coming: Iterator[SnapshotChanges] = iter(())

    def start(self) -> Position:
        """Return the position at which a new stream starts.

        Raises:
            SnapshotNotFound: no such snapshot, or (SnapshotExpired) not any more.
            InvalidRequest: no such time.
        """
        options = self._options
        info = self.head()
        by_option = options.starting_snapshot is not None or options.starting_timestamp is not None
        timestamp = options.starting_timestamp
        entry = self._entry(
            options.starting_snapshot if by_option else info.snapshot_id,
            int(timestamp) if timestamp is not None and timestamp.isdecimal() else timestamp,
        )
        return Position(
            table_id=info.table_id, number=entry.number, snapshot_id=entry.snapshot_id, content=not by_option
        )

    def head(self) -> TableInfo:
        """Return the table as it is now.

        Raises:
            SchemaConflict: its columns are not those of the stream any more.
            TableNotFound: the table of that name is another one.
        """
        info = self._handle.info()
        if info.table_id != self._table.table_id:
            raise self._other_table(info.table_id)
        if info.schema.schema_id != self._table.schema.schema_id:
            raise SchemaConflict(
                f"the columns of {self._table.name} have changed since this query was started; start it again, with a"
                " new frame (readStream.table) and the same checkpoint: it goes on where it was",
                schema_id=info.schema.schema_id,
            )
        return info

    def end(self, start: Position, head_id: str, *, limited: bool = True) -> Position:
        """Return where a micro-batch ends that begins at ``start``: as far as limits allow, and rows are read in one
        way. ``head_id``: the last snapshot that may be read. ``limited`` false: at that snapshot.

        Raises:
            NotAppendOnly: rows were deleted or updated next, or the table was rolled back.
            SnapshotNotFound, TableNotFound: see :meth:`between`.
        """
        end = start
        blocks = size_bytes = 0
        kind: object = None
        walk = self._walk(start, head_id)
        while True:
            try:
                unit, after = next(walk, (None, None))
            except LamellaError:
                if blocks:  # these rows first; the next micro-batch fails
                    return end
                raise
            if after is None:
                return end
            if unit is not None:
                blocks += unit.block_count
                size_bytes += unit.size_bytes
                # URLs are signed for blocks of one snapshot.
                own = (unit.way, unit.changes.snapshot_id if self._table.settings.signed_urls else "")
                is_first = kind is None
                if limited and not is_first and (own != kind or self._is_too_much(blocks, size_bytes)):
                    return end
                kind = own
            end = after

    def between(self, start: Position, end: Position) -> list[Unit]:
        """Return what is read between two positions, of which ``end`` was returned by :meth:`end`.

        Raises:
            SnapshotNotFound: a snapshot is gone (SnapshotExpired, if it was in the history).
            TableNotFound: the table of that name is another one.
            NotAppendOnly: see :meth:`end`.
        """
        if start == end:
            return []
        units = []
        for unit, after in self._walk(start, self.head().snapshot_id):
            if unit is not None:
                units.append(unit)
            if after == end:
                return units
        raise SnapshotNotFound(
            f"{self._table.name} has no blocks up to the position {end.text()} of the checkpoint; {_ANEW}"
        )

    def forget(self, position: Position) -> None:
        """Forget what is known of snapshots before a position."""
        self._known = {since: changes for since, changes in self._known.items() if changes.number > position.number}
        if not position.content:
            self._content = None

    def _is_too_much(self, blocks: int, size_bytes: int) -> bool:
        max_blocks, max_bytes = self._options.max_blocks_per_trigger, self._options.max_bytes_per_trigger
        return (max_blocks is not None and blocks > max_blocks) or (max_bytes is not None and size_bytes > max_bytes)

    def _entry(self, snapshot_id: str | None, timestamp: int | str | None) -> SnapshotInfo:
        return next(
            self._handle.snapshots(page_size=1, snapshot_id=snapshot_id, timestamp=timestamp, time_zone=self._time_zone)
        )

    def _walk(self, start: Position, head_id: str) -> Iterator[tuple[Unit | None, Position]]:
        """Yield what comes after a position, with the position after it; None: nothing to read."""
        if start.table_id != self._table.table_id:
            raise self._other_table(start.table_id)
        try:
            yield from self._steps(start, head_id)
        except SnapshotNotFound as error:
            raise type(error)(
                f"{error.message}. The stream was at snapshot {start.snapshot_id} (number {start.number}) of"
                f" {self._table.name}; {_ANEW}, and copy what it missed",
                **error.details,
            ) from error

    def _other_table(self, table_id: str) -> TableNotFound:
        return TableNotFound(
            f"{self._table.name} was dropped and created again: the checkpoint is of the table that had this name;"
            f" {_ANEW}, or undrop that table",
            table_id=table_id,
        )

    def _steps(self, start: Position, head_id: str) -> Iterator[tuple[Unit | None, Position]]:
        at, done = start, start.blocks
        if at.content:
            following = msgspec.structs.replace(at, content=False, blocks=0)
            yield from _numbered(self._content_units(at), at, done, following)
            at, done = following, 0
        while (changes := self._following(at.snapshot_id, head_id)) is not None:
            following = Position(table_id=at.table_id, number=changes.number, snapshot_id=changes.snapshot_id)
            yield from _numbered(self._units(changes), at, done, following)
            at, done = following, 0

    def _content_units(self, at: Position) -> list[Unit]:
        if self._content is None or self._content[0] != at.snapshot_id:
            table = load_table(self._table.lake, self._table.name, self._table.settings, snapshot_id=at.snapshot_id)
            changes = SnapshotChanges(
                snapshot_id=at.snapshot_id,
                from_snapshot_id=at.snapshot_id,
                timestamp_ms=0,
                operation="",
                added=_blocks_of(table.selection(None)),
                removed=(),
                number=at.number,
            )
            self._content = (at.snapshot_id, _block_units(changes))
        return self._content[1]

    def _following(self, snapshot_id: str, head_id: str) -> SnapshotChanges | None:
        """Return the changes of the snapshot after one; None: it is the last."""
        found = self._known.get(snapshot_id)
        if found is not None or snapshot_id == head_id:
            return found
        changes = next(self._coming, None) if self._since == snapshot_id else None
        if changes is None:
            self._coming = self._handle.changes(snapshot_id, head_id, reader_features=FEATURES)
            changes = next(self._coming, None)
        if changes is None:
            return None
        self._since = changes.snapshot_id
        made = self._known[snapshot_id] = with_schema_ids(changes, self._table.schema.schema_id)
        return made

    def _units(self, changes: SnapshotChanges) -> list[Unit]:
        """Return what a snapshot added.

        Raises:
            NotAppendOnly: its rows are not those of the snapshot before and more.
            BlockReplaced: a file was replaced by another one at its location.
        """
        kinds = None if changes.row_changes is None else set(changes.row_changes)
        if changes.operation == _ROLLBACK:
            raise NotAppendOnly(
                f"{self._table.name} was rolled back by snapshot {changes.snapshot_id}; rows that were streamed may be"
                f" gone. {_ANEW.capitalize()}",
                snapshot_id=changes.snapshot_id,
            )
        if is_silent(changes):
            return []
        if not changes.removed:
            return _block_units(changes)
        if kinds is None or not kinds <= {"append", "replace"}:
            if not self._options.skip_deletes:
                raise NotAppendOnly(
                    f"rows of {self._table.name} were deleted or updated by snapshot {changes.snapshot_id}"
                    f" ({changes.operation}). To go on, and leave deleted rows where they were streamed to, set the"
                    " option skip_deletes to true; to read deletes and updates too, use changes",
                    snapshot_id=changes.snapshot_id,
                )
            if kinds is not None and kinds <= {"delete", "replace"}:
                return []
        require_earlier_rows(changes)
        return [Unit("compare", changes)]


def selection_of(units: Sequence[Unit]) -> BlockSelection:
    """Return the blocks of units that are not compared."""
    blocks = [block for unit in units for block in unit.changes.added]
    has_constants = any(block.constants for block in blocks)
    has_deletes = any(block.deletes for block in blocks)
    return BlockSelection(
        locations=[block.location for block in blocks],
        sizes=[block.file_size for block in blocks],
        rows=[block.row_count for block in blocks],
        blocks_total=len(blocks),
        schema_ids=[block.schema_id or 0 for block in blocks],
        constants=[block.constants for block in blocks] if has_constants else [],
        deletes=[block.deletes for block in blocks] if has_deletes else [],
    )


def _blocks_of(selection: BlockSelection) -> tuple[PrunedBlock, ...]:
    count = len(selection.locations)
    return tuple(
        PrunedBlock(
            location=location,
            row_count=rows,
            file_size=size_bytes,
            verdict="ALL",
            schema_id=schema_id,
            constants=constants,
            deletes=deletes,
        )
        for location, rows, size_bytes, schema_id, constants, deletes in zip(
            selection.locations,
            selection.rows,
            selection.sizes,
            selection.schema_ids,
            selection.constants or [None] * count,
            selection.deletes or [None] * count,
            strict=True,
        )
    )


def _block_units(changes: SnapshotChanges) -> list[Unit]:
    """Return the added blocks in an order that follows from the snapshot, those with deleted rows last."""
    blocks = sorted(changes.added, key=lambda block: (bool(block.deletes), block.location))
    return [
        Unit("deletes" if block.deletes else "blocks", msgspec.structs.replace(changes, added=(block,)))
        for block in blocks
    ]


def _numbered(
    units: Sequence[Unit], at: Position, done: int, following: Position
) -> Iterator[tuple[Unit | None, Position]]:
    """Yield the units after the first ``done``, with the position after each; ``following``: after all."""
    for number, unit in enumerate(units[done:], done + 1):
        yield unit, (following if number == len(units) else msgspec.structs.replace(at, blocks=number))
    if done >= len(units):
        yield None, following
