"""A block's file, opened: its footer checked, its columns matched with the table's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

from lamella.client.scan.miniature import Element, path_to, read_elements
from lamella.client.scan.tail import Tail
from lamella.snapshot.errors import BlockReplaced, EncryptedParquet, SchemaMismatch
from lamella.snapshot.layout import Store
from lamella.snapshot.parquet.footer import Footer, read_footer
from lamella.snapshot.parquet.page_index import ChunkPages, read_page_index
from lamella.snapshot.parquet.plan import plan
from lamella.snapshot.parquet.writer import legacy_calendar
from lamella.snapshot.schema import Column, Leaf, Schema
from lamella.snapshot.wire import PrunedBlock

_CALENDAR: Final = frozenset({"date", "timestamp", "timestamp_ntz"})


class BlockFile:
    """The file of one block of a prune's answer.

    ``written`` is the schema that it was written with, ``schema`` the one to read it by.

    Raises:
        BlockReplaced: the file is not the one that the block was made of.
        ObjectNotFound, StoreError, NotParquet, SchemaMismatch: as reading its footer does.
    """

    def __init__(self, store: Store, block: PrunedBlock, written: Schema, schema: Schema) -> None:
        self.location = block.location
        self.block = block
        self.written = written
        self.schema = schema
        self._store = store
        stat = store.stat(block.location)
        known = None if block.pages is None else block.pages.content_id
        if stat.size_bytes != block.file_size or (known is not None and known != stat.content_id):
            raise _replaced(block.location)
        self._stat = stat
        self._tail = Tail(store, stat)
        self.footer: Footer = read_footer(self._tail, block.location, stat)
        rows = sum(group.num_rows for group in self.footer.metadata.row_groups)
        if rows != block.row_count:
            raise _replaced(block.location)
        self._plan = plan(self.footer.metadata.schema, written)
        self._leaves: Mapping[int, int] = {column.column_id: column.index for column in self._plan.present}
        self._places: dict[tuple[int, int], ChunkPages | None] = {}

    def check_unchanged(self) -> None:
        """Raise BlockReplaced when the file is not the one that was opened."""
        if self._store.stat(self.location) != self._stat:
            raise _replaced(self.location)

    @property
    def group_rows(self) -> list[int]:
        """The rows of each row group."""
        return [group.num_rows for group in self.footer.metadata.row_groups]

    @cached_property
    def elements(self) -> tuple[Element, ...]:
        """The file's columns as schema elements."""
        return read_elements(self._tail.footer(self.footer.footer_size))

    def leaf_index(self, leaf: Leaf) -> int | None:
        """The number of a column's leaf in the file; None when the file lacks it."""
        index = self._leaves.get(leaf.id)
        if index is not None and leaf.dtype.name in _CALENDAR and legacy_calendar(self.footer.metadata.properties):
            raise SchemaMismatch(
                f"{self.location} has dates of the old calendar in column {leaf.name!r}, which are read by Spark only",
                column=leaf.name,
            )
        return index

    def column_leaves(self, leaves: tuple[Leaf, ...]) -> range:
        """The numbers of all leaves of the column of the top level that ``leaves`` are of; empty: the file lacks it."""
        found = [index for index in map(self.leaf_index, leaves) if index is not None]
        start = 0
        for element in self.elements:
            stop = start + element.leaf_count
            if any(start <= index < stop for index in found):
                return range(start, stop)
            start = stop
        return range(0)

    def path(self, leaf: int) -> list[Element]:
        """The schema elements from a column of the top level down to a leaf."""
        return path_to(self.elements, leaf)

    def pages(self, group: int, leaves: Sequence[int], rows: int) -> list[ChunkPages | None]:
        """Where the pages of some chunks are; None: not known, or not worth asking for ``rows`` of their rows.

        The page index mostly came with the footer. Otherwise it takes a request, and saves the more the fewer rows are
        wanted.
        """
        row_group = self.footer.metadata.row_groups[group]
        few = rows * 2 <= row_group.num_rows
        missing = []
        for leaf in leaves:
            place = row_group.chunks[leaf].offset_index
            if (group, leaf) not in self._places and (few or (place is not None and place[0] >= self._tail.start)):
                missing.append(leaf)
        if missing:
            index = read_page_index(self._tail, self.footer, missing)
            groups = range(len(self.footer.metadata.row_groups))
            self._places.update({(number, leaf): index.at(number, leaf) for number in groups for leaf in missing})
        return [self._places.get((group, leaf)) for leaf in leaves]

    def written_name(self, column: Column) -> str:
        """The name of a column of the top level when the file was written."""
        return self.written.paths()[column.id][0]

    def check_readable(self, group: int, leaf: int) -> None:
        """Raise EncryptedParquet for a chunk whose pages cannot be read."""
        if self.footer.metadata.row_groups[group].chunks[leaf].encrypted:
            raise EncryptedParquet(f"{self.location} has an encrypted column", location=self.location)


def _replaced(location: str) -> BlockReplaced:
    return BlockReplaced(f"{location} is not the file that the table's statistics come from", location=location)
