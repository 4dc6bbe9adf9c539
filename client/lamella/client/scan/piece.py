"""The matching rows of one row group: the filter's columns first, the others only where rows match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from lamella.client.scan.block_file import BlockFile
from lamella.client.scan.chunk import Rows, chunk_reads
from lamella.client.scan.columns import Wanted
from lamella.client.scan.fetch import Fetcher
from lamella.snapshot.rows import RowFilter


class Reading(msgspec.Struct, frozen=True):
    """What a scan reads of every row group: output columns, the filter, and the filter's columns."""

    output: tuple[Wanted, ...]
    schema: pa.Schema
    filter: RowFilter
    filter_columns: tuple[Wanted, ...]


class Piece(msgspec.Struct, frozen=True):
    """A part of a block. ``rows``: those of the row group that may match, None: all. ``all_match``: they do.

    ``certain``: so many rows beside them are proven to match (only where rows are counted).
    """

    file: BlockFile
    group: int
    rows: Rows | None
    all_match: bool
    certain: int = 0

    @property
    def row_count(self) -> int:
        """How many rows may match."""
        return self.file.group_rows[self.group] if self.rows is None else len(self.rows)

    def table(self, reading: Reading, fetcher: Fetcher) -> pa.Table:
        """The matching rows.

        Raises:
            BlockReplaced, CorruptParquet, SchemaMismatch, EncryptedParquet, ObjectNotFound, StoreError: the file cannot
                be read. EvaluationFailed: the filter cannot be computed for some row.
        """
        known: dict[int, Any] = {}
        rows, count = self.rows, self.row_count
        if not self.all_match:
            known = self._load(reading.filter_columns, rows, fetcher)
            selected = np.flatnonzero(reading.filter.matches(known, count))
            if len(selected) < count:
                rows, count = selected if rows is None else rows[selected], len(selected)
                taken = pa.array(selected)
                known = {key: values.take(taken) for key, values in known.items()}
        if count:
            others = {one.key: one for one in reading.output if one.key not in known}
            known |= self._load(list(others.values()), rows, fetcher)
        self.file.check_unchanged()
        if not count:
            return reading.schema.empty_table()
        return pa.Table.from_arrays([known[one.key] for one in reading.output], schema=reading.schema)

    def count(self, reading: Reading, fetcher: Fetcher) -> int:
        """How many rows match; raises as :meth:`table`."""
        if self.all_match:
            return self.certain + self.row_count
        known = self._load(reading.filter_columns, self.rows, fetcher)
        found = int(np.count_nonzero(reading.filter.matches(known, self.row_count)))
        self.file.check_unchanged()
        return self.certain + found

    def _load(self, wanted: Sequence[Wanted], rows: Rows | None, fetcher: Fetcher) -> dict[int, Any]:
        reads = chunk_reads(self.file, self.group, list(wanted), rows)
        fetched = fetcher.fetch(self.file.location, [part for read in reads for part in read.ranges])
        return {read.wanted.key: read.values(fetched) for read in reads}


def pieces(file: BlockFile, *, limit: int | None, counting: bool = False) -> list[Piece]:
    """The parts of a block that may hold matching rows; ``limit``: of those that match, no more are needed.

    ``counting``: rows that are proven to match are set apart, so that they need not be read.
    """
    block = file.block
    every = block.verdict == "ALL"
    known = block.pages
    made: list[Piece] = []
    if known is None or known.whole:
        made = [Piece(file, group, None, every) for group, rows in enumerate(file.group_rows) if rows]
    else:
        matching = known.all_match or [False] * len(known.row_group)
        ranges = zip(known.row_group, known.first_row, known.row_count, matching, strict=True)
        by_group: dict[int, list[tuple[int, int, bool]]] = {}
        for group, first, rows, sure in ranges:
            by_group.setdefault(group, []).append((first, rows, sure))
        for group, parts in by_group.items():
            sure = every or all(proven for _, _, proven in parts)
            certain = sum(rows for _, rows, proven in parts if proven) if counting and not sure else 0
            chosen = [(first, rows) for first, rows, proven in parts if not (certain and proven)]
            wanted = np.concatenate([np.arange(first, first + rows) for first, rows in chosen])
            whole = len(wanted) == file.group_rows[group]
            made.append(Piece(file, group, None if whole else wanted, sure, certain))
    return [_at_most(piece, limit) for piece in made] if limit is not None else made


def _at_most(piece: Piece, limit: int) -> Piece:
    if not piece.all_match or piece.row_count <= limit:
        return piece
    rows = np.arange(limit, dtype=np.int64) if piece.rows is None else piece.rows[:limit]
    return msgspec.structs.replace(piece, rows=rows)
