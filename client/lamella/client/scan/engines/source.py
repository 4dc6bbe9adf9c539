"""What the engines' modules use of a scan."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Protocol

import pyarrow as pa


class Part(Protocol):
    """The rows of one block; picklable; see :class:`lamella.client.scan.Fragment`."""

    @property
    def location(self) -> str:
        """The location of the block's file."""

    @property
    def size_bytes(self) -> int:
        """The size of the block's file in bytes."""

    @property
    def schema(self) -> pa.Schema:
        """The output columns."""

    def with_columns(self, columns: Sequence[str]) -> Part:
        """Return the part with other output columns."""

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows as they are read."""

    def to_arrow(self) -> pa.Table:
        """Return all rows, in memory."""


class Source(Protocol):
    """A scan of one snapshot; see :class:`lamella.client.scan.Scan`."""

    @property
    def schema(self) -> pa.Schema:
        """The output columns."""

    def narrowed(
        self,
        columns: Sequence[str] | None = None,
        may_match: Sequence[dict[str, Any]] = (),
        *,
        limit: int | None = None,
    ) -> Source:
        """Return what an engine needs of the rows: some columns, and those rows that every filter may match."""

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows as they are read."""

    def fragments(self) -> Sequence[Part]:
        """Return the rows in parts, one per block."""

    def count(self) -> int:
        """Return the number of rows."""
