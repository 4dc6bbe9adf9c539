"""The progress bar of reading and writing rows."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from lamella.snapshot.counts import counted


class Progress:
    """A progress bar on stderr, and a number of rows beside it; does nothing unless ``shown``.

    ``total``: how much there is to do; None: not known yet. ``doing``: what is counted.
    """

    def __init__(self, total: int | None, *, shown: bool, doing: str = "blocks") -> None:
        self._bar: Any = None
        self._rows = 0
        if shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
            self._bar = Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("0 rows", total=total)

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
        """Add to the number of rows."""
        self._rows += count
        if self._bar is not None:
            self._bar.update(self._task, description=f"{counted(self._rows, 'row')}")

    def block(self) -> None:
        """Add one to what is done."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def done(self, count: int, total: int) -> None:
        """Set how much is done, and of how much."""
        if self._bar is not None:
            self._bar.update(self._task, completed=count, total=total)
