"""A progress bar on the terminal, when one is asked for."""

from __future__ import annotations

from types import TracebackType
from typing import Any


class Progress:
    """Blocks read and rows found, on stderr; nothing at all unless ``shown``."""

    def __init__(self, blocks: int, *, shown: bool) -> None:
        self._bar: Any = None
        self._rows = 0
        if shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("blocks"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
            self._bar = Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("0 rows", total=blocks)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def rows(self, count: int) -> None:
        """So many more rows were found."""
        self._rows += count
        if self._bar is not None:
            self._bar.update(self._task, description=f"{self._rows:,} rows")

    def block(self) -> None:
        """One more block is being read."""
        if self._bar is not None:
            self._bar.advance(self._task)
