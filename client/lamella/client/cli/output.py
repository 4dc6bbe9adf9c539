"""Text for people: tables on stdout, figures with units, progress on stderr or to the worker of this job."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Protocol

from lamella.client.jobs.report import is_job, job_reporter

if TYPE_CHECKING:
    from rich.console import Console


Justify = Literal["left", "right"]

#: Wide enough for a location; used when stdout is a file or a pipe, where there is no window to fit.
PIPE_WIDTH = 400


def console(*, stderr: bool = False) -> Console:
    """Where text goes. Values are shown as they are: brackets in them are no markup."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def print_table(
    columns: Iterable[str | tuple[str, Justify]],
    rows: Iterable[Iterable[object]],
    *,
    title: str | None = None,
    headings: bool = True,
) -> None:
    """One table. A column is its heading, or the heading and its side; long values are folded, never cut.

    A table with a ``title`` is set apart by an empty line.
    """
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.show_edge = table.pad_edge = False
    table.show_header = headings
    for column in columns:
        heading, side = (column, "left") if isinstance(column, str) else column
        table.add_column(heading, justify="right" if side == "right" else "left", overflow="fold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    out = console()
    if title is not None:
        out.print()
    out.print(table)


def size_text(size_bytes: int) -> str:
    """Bytes in decimal units: ``1.2 MB``."""
    from rich.filesize import decimal

    return decimal(size_bytes)


def percent(part: int, whole: int) -> str:
    """``part`` of ``whole`` with one digit; a small part is never shown as nothing."""
    if whole <= 0:
        return "-"
    share = 100 * part / whole
    return "<0.1 %" if 0 < share < 0.1 else f"{share:.1f} %"


def time_text(timestamp_ms: int) -> str:
    """Unix milliseconds as ISO 8601 in UTC."""
    at = dt.datetime.fromtimestamp(timestamp_ms // 1000, dt.UTC) + dt.timedelta(milliseconds=timestamp_ms % 1000)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class ShowBar(Protocol):
    """Moves a bar: so much is done, of so much (None: not known yet); ``doing`` when that changes."""

    def __call__(self, done: int, total: int | None, doing: str | None = None) -> None: ...  # see above


def is_watched() -> bool:
    """Whether someone is looking: a person, or the worker that runs this command for a job."""
    return is_job() or console(stderr=True).is_terminal


@contextmanager
def bar(doing: str, unit: str = "") -> Iterator[ShowBar]:
    """A bar, of ``unit``, for as long as the block runs."""
    if is_job():
        with job_reporter(doing) as reporter:
            yield lambda done, total, doing=doing: reporter.progress(done, total, unit, doing or "")
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    said = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    with Progress(
        *said, TimeRemainingColumn(), console=console(stderr=True), disable=not is_watched(), transient=True
    ) as shown:
        task = shown.add_task(doing, total=None)

        def show(done: int, total: int | None, doing: str | None = None) -> None:
            shown.update(task, description=doing, total=total, completed=done)

        yield show


@contextmanager
def spinner(doing: str) -> Iterator[Callable[[str], None]]:
    """A text that says what was done so far, for work of which nobody knows how much there will be."""
    if is_job():
        with job_reporter(doing) as reporter:
            yield lambda text: reporter.progress(0, message=text)
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), disable=not is_watched(), transient=True) as shown:
        task = shown.add_task(doing)
        yield lambda text: shown.update(task, description=text)
