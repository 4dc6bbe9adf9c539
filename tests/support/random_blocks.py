"""Random tables as Parquet files: columns that some files lack, and deleted rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet import block_of, read_footer
from lamella.snapshot.parquet.block import with_constants
from lamella.snapshot.parquet.file_values import verified
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import Bound
from lamella.snapshot.stats.constant import to_constant
from lamella.snapshot.storage import FsspecStore
from support import generate
from support.arrow_files import write_block
from support.deleted import without_some
from support.oracle import Oracle


class RandomBlocks:
    """The blocks of a random table. Some of its columns are in the files of some blocks, and constants of others; some
    of its rows are deleted.

    What is known of every second block is exact, as of rows that our own writers have written: footers say nothing of
    NaN, and their bounds may be cut. ``fixed``: a column that every file has, since a file needs one.
    """

    def __init__(self, seed: int, folder: Path, types: Sequence[str] = generate.TYPES, fixed: str = "rest") -> None:
        self.rng = rng = Random(seed)
        self._fixed = fixed
        self.schema = Schema.assign((*generate.schema(rng, types).columns, Column(name=fixed, type="int64")))
        self.table = generate.table(rng, self.schema)
        self.store = FsspecStore()
        self.paths = [folder / f"c{seed}-{number}.parquet" for number in range(len(self.table))]
        whole = [self._block(path, number) for number, path in enumerate(self.paths)]
        left = [
            without_some(rng, block, generate.rows_of(self.table[number]), self.store)
            for number, block in enumerate(whole)
        ]
        self.blocks = [block for block, _ in left]
        self._rows = [rows for _, rows in left]
        self.seen = generate.seen_values(self.schema, self.table)
        self.oracle = Oracle(self.schema)

    def _block(self, path: Path, number: int) -> Block:
        rng, block = self.rng, dict(self.table[number])
        count = len(block[self._fixed])
        plain = [column for column in self.schema.columns if not column.fields and column.name != self._fixed]
        chosen = rng.sample(plain, rng.randint(0, len(plain)))
        constants: dict[int, Bound | None] = {}
        for column in chosen:
            value = rng.choice(block[column.name]) if count else generate.value(rng, column.dtype)
            block[column.name] = [value] * count
            constants[column.id] = to_constant(column.dtype, value)
        self.table[number] = block
        left = tuple(column for column in self.schema.columns if column not in chosen)
        in_file = msgspec.structs.replace(self.schema, columns=left)
        write_block(rng, in_file, {leaf.name: block[leaf.name] for leaf in in_file.leaves()}, path)
        footer = read_footer(self.store, f"file://{path}")
        made = block_of(footer, self.schema)
        if number % 2:
            made = verified(self.store, footer, self.schema, made)
        return with_constants(made, constants, self.schema) if constants else made

    def rows(self, number: int) -> list[dict[str, Any]]:
        """The rows of a block that are not deleted."""
        return self._rows[number]

    def every_row(self) -> list[dict[str, Any]]:
        """The rows of all blocks that are not deleted."""
        return [row for rows in self._rows for row in rows]

    def delete_files(self) -> None:
        """Delete the files of the table."""
        for path in self.paths:
            path.unlink()
        for location in {entry.location for block in self.blocks for entry in block.deletes}:
            self.store.delete(location)
