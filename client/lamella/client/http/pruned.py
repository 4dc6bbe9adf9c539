"""What a prune call gives: the wire's answer, and its blocks one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.wire import BatchAnswer, PruneAnswer, PrunedBlock


class PrunedBatch(BatchAnswer, frozen=True, kw_only=True):
    """A :class:`~lamella.snapshot.wire.BatchAnswer` whose answers are :class:`Pruned`."""

    answers: tuple[Pruned, ...]


class Pruned(PruneAnswer, frozen=True, kw_only=True):
    """A :class:`~lamella.snapshot.wire.PruneAnswer` whose blocks can be read in either shape.

    The client asks for ``shape`` "columns", so ``block_columns`` is set and ``blocks`` is None; a record is made
    only when it is looked at.
    """

    def records(self) -> Iterator[PrunedBlock]:
        """The blocks to read, in the answer's order; none when ``level`` was "segment".

        Raises InvalidRequest for ranges that were not resolved, as the other members do that need blocks.
        """
        self._require_blocks()
        if self.blocks is not None:
            yield from self.blocks
        elif self.block_columns is not None:
            c = self.block_columns
            sizes: Iterable[int | None] = c.column_size_bytes or repeat(None, len(c.location))
            urls: Iterable[str | None] = c.url or repeat(None, len(c.location))
            for location, rows, size, verdict, columns, url in zip(
                c.location, c.row_count, c.file_size, c.verdict, sizes, urls, strict=True
            ):
                yield PrunedBlock(
                    location=location,
                    row_count=rows,
                    file_size=size,
                    verdict=verdict,
                    column_size_bytes=columns,
                    url=url,
                )

    @property
    def locations(self) -> list[str]:
        """Where the blocks to read are."""
        self._require_blocks()
        if self.block_columns is not None:
            return list(self.block_columns.location)
        return [block.location for block in self.blocks or ()]

    @property
    def block_count(self) -> int:
        """How many blocks are to be read (with ``level`` "segment": how many the segments hold)."""
        if self.block_columns is not None:
            return len(self.block_columns.location)
        if self.block_ranges is not None:
            return sum(self.block_ranges.block_count)
        if self.segments is not None:
            return sum(segment.block_count for segment in self.segments)
        return len(self.blocks or ())

    @property
    def size_bytes(self) -> int:
        """The file sizes of the blocks (or segments) to read, added up."""
        self._require_blocks()
        if self.block_columns is not None:
            return sum(self.block_columns.file_size)
        if self.segments is not None:
            return sum(segment.file_size_bytes for segment in self.segments)
        return sum(block.file_size for block in self.blocks or ())

    def _require_blocks(self) -> None:
        if self.block_ranges is not None:
            raise InvalidRequest('the answer has ranges of blocks: give it to "resolve" of the table first')
