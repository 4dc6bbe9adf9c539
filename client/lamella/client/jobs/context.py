"""The context of a job: a service, a table, an engine, and a progress callback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from lamella.client.http.lake import Lake
from lamella.client.rewrite.engine import Engine
from lamella.client.rewrite.target import MEMORY_BYTES
from lamella.snapshot.errors import JobCancelled

#: Called with the amount done, the total, and the unit.
OnProgress = Callable[[int, int, str], object]


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of written blocks. ``block_rows``, ``block_bytes``: None: the table's properties decide.

    ``memory_bytes``: memory for rows per task.
    """

    block_rows: int | None = None
    block_bytes: int | None = None
    memory_bytes: int = MEMORY_BYTES


class JobContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context that a job runs in. ``table``: ``namespace.table``.

    ``storage_options``: fsspec options by scheme. ``scratch``: a folder (URL) that all tasks can reach; None: a
    temporary one when tasks run on this machine, otherwise one beside the table's blocks. ``cancelled``: called between
    steps.
    """

    lake: Lake
    table: str
    engine: Engine
    sizes: Sizes = Sizes()
    storage_options: Mapping[str, Mapping[str, Any]] = {}
    scratch: str | None = None
    compression: str = "zstd"
    on_progress: OnProgress | None = None
    cancelled: Callable[[], bool] = lambda: False

    def progress(self, done: int, total: int, unit: str) -> None:
        """Report progress."""
        if self.on_progress is not None:
            self.on_progress(done, total, unit)

    def check(self) -> None:
        """Raise JobCancelled when the job was cancelled; committed work stays."""
        if self.cancelled():
            raise JobCancelled("the job was cancelled")
