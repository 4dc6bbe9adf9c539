"""How a write lays out its blocks, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lamella.client.rewrite.commit import TableState
from lamella.client.rewrite.target import MEMORY_BYTES, Target
from lamella.snapshot.errors import InvalidRequest


class WriteResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a write. ``rows_removed``: rows that an overwrite removed.

    ``snapshot_id``: the snapshot that contains it. ``committed``: False: there was nothing to write or to remove, so
    there was no commit, and ``snapshot_id`` is the snapshot that the table had.
    """

    blocks: int
    rows: int
    size_bytes: int
    snapshot_id: str
    rows_removed: int = 0
    committed: bool = True


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How blocks are written; see :func:`lamella.client.spark.write`.

    ``keys``: None: the table's cluster key. ``block_rows``, ``block_bytes``: None: the table's properties.
    ``memory_bytes``: memory for rows per task.
    """

    keys: tuple[str, ...] | None = None
    block_rows: int | None = None
    block_bytes: int | None = None
    memory_bytes: int = MEMORY_BYTES
    compression: str = "zstd"
    indexes: bool = True
    storage_options: Mapping[str, Mapping[str, Any]] = {}
    scratch: str | None = None

    def target_of(self, state: TableState) -> Target:
        """Return how blocks of a table are written; raises InvalidRequest, InvalidSchema or UnknownColumn for what can
        never be written."""
        target = state.target(
            keys=self.keys,
            block_rows=self.block_rows,
            block_bytes=self.block_bytes,
            memory_bytes=self.memory_bytes,
            compression=self.compression,
            indexes=self.indexes,
            storage_options=self.storage_options,
        )
        target.check()
        return target


def require_sizes(block_rows: int | None, block_bytes: int | None) -> None:
    """Raise InvalidRequest for impossible block sizes."""
    if any(size is not None and size < 1 for size in (block_rows, block_bytes)):
        raise InvalidRequest("a block has at least one row and one byte")
