"""What a job works with: a service, a table, an engine, and whoever watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from lamella.client.http import Lamella
from lamella.client.rewrite.engine import Engine
from lamella.client.rewrite.target import MEMORY_BYTES
from lamella.snapshot.errors import JobCancelled

#: Called with how much is done, of how much, in which unit.
OnProgress = Callable[[int, int, str], object]


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """``block_rows``, ``block_bytes``: of a block that is written; None: as the table's properties say.

    ``memory_bytes``: of rows that one task holds.
    """

    block_rows: int | None = None
    block_bytes: int | None = None
    memory_bytes: int = MEMORY_BYTES


class JobContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job runs. ``table``: ``namespace.table``.

    ``storage_options``: fsspec options by scheme. ``scratch``: a folder (URL) that all tasks see; None: a temporary one
    when they run on this machine, and else one beside the table's blocks. ``cancelled``: asked between steps.
    """

    lake: Lamella
    table: str
    engine: Engine
    sizes: Sizes = Sizes()
    storage_options: Mapping[str, Mapping[str, Any]] = {}
    scratch: str | None = None
    compression: str = "zstd"
    on_progress: OnProgress | None = None
    cancelled: Callable[[], bool] = lambda: False

    def progress(self, done: int, total: int, unit: str) -> None:
        """Say how far the job is."""
        if self.on_progress is not None:
            self.on_progress(done, total, unit)

    def check(self) -> None:
        """Raise JobCancelled when the job is to end; what is committed stays."""
        if self.cancelled():
            raise JobCancelled("the job was cancelled")
