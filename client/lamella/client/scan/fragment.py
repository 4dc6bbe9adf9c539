"""A scan in parts that can be read apart: in other threads, processes, or on other machines."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final

import pyarrow as pa

from lamella.client.scan.block_file import BlockFile
from lamella.client.scan.fetch import Fetcher
from lamella.client.scan.piece import pieces
from lamella.client.scan.plan import Plan, Recipe
from lamella.client.scan.rows import Rows, batches_of
from lamella.snapshot.layout import Store
from lamella.snapshot.schema import Schema
from lamella.snapshot.wire import PrunedBlock

#: Requests under way for one fragment: whoever reads fragments reads several at a time.
_REQUESTS: Final = 4

#: Opens the store that a block is read from, where it is read.
OpenStore = Callable[[], Store]


class Fragment(Rows):
    """The rows of one block that a scan gives. It can be pickled, and read without the service.

    What it says of itself is known from the plan; its file is opened when it is read.
    """

    def __init__(self, recipe: Recipe, block: PrunedBlock, written: Schema, open_store: OpenStore) -> None:
        """``written``: the schema that the block was written with."""
        self._recipe = recipe
        self._block = block
        self._written = written
        self._open_store = open_store

    @property
    def location(self) -> str:
        """Of the block's file."""
        return self._block.location

    @property
    def row_count(self) -> int:
        """At most so many rows come out: those that statistics do not rule out."""
        pages = self._block.pages
        return self._block.row_count if pages is None or pages.whole else sum(pages.row_count)

    @property
    def size_bytes(self) -> int:
        """Of the block's file; mostly less is read of it."""
        return self._block.file_size

    @property
    def schema(self) -> pa.Schema:
        """The columns that come out, the same for all fragments of a scan."""
        return self._recipe.output_schema

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """The rows as they are read, a row group at a time.

        Raises BlockReplaced, ObjectNotFound, StoreError, NotParquet, SchemaMismatch and EvaluationFailed.
        """
        store = self._open_store()
        file = BlockFile(store, self._block, self._written, self._recipe.schema)
        fetcher = Fetcher(store, _REQUESTS)
        try:
            for piece in pieces(file, limit=None):
                yield from batches_of(piece.table(self._recipe.reading, fetcher))
        finally:
            fetcher.close()

    def __repr__(self) -> str:
        return f"Fragment({self.location!r}, row_count={self.row_count})"


def fragments_of(plan: Plan, stores: Sequence[OpenStore]) -> list[Fragment]:
    """One for each block of a plan; ``stores`` has one for each, too."""
    return [
        Fragment(plan.recipe, block, plan.written(block), store)
        for block, store in zip(plan.blocks, stores, strict=True)
    ]
