"""Output for people: tables on stdout, figures with units, progress on stderr or to the worker that runs this job."""

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

#: The width when stdout is a file or a pipe: enough for a location.
PIPE_WIDTH = 400


def console(*, stderr: bool = False) -> Console:
    """Return the console to write to. Brackets in values are not treated as markup."""
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
    """Print one table. A column is its heading, or a pair of heading and alignment; long values are folded, never cut.

    A blank line precedes a table with a ``title``.
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
    """Format bytes in decimal units: ``1.2 MB``."""
    from rich.filesize import decimal

    return decimal(size_bytes)


def percent(part: int, whole: int) -> str:
    """Format ``part`` of ``whole`` as a percentage with one digit; a small part is never shown as zero."""
    if whole <= 0:
        return "-"
    share = 100 * part / whole
    return "<0.1 %" if 0 < share < 0.1 else f"{share:.1f} %"


def time_text(timestamp_ms: int) -> str:
    """Format Unix milliseconds as ISO 8601 in UTC."""
    at = dt.datetime.fromtimestamp(timestamp_ms // 1000, dt.UTC) + dt.timedelta(milliseconds=timestamp_ms % 1000)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class ShowBar(Protocol):
    """Moves a bar: how much is done, and of how much (None: not known yet); ``doing`` when the text changes."""

    def __call__(self, done: int, total: int | None, doing: str | None = None) -> None: ...  # see above


def is_watched() -> bool:
    """Whether progress is shown to anyone: a person at a terminal, or the worker that runs this command."""
    return is_job() or console(stderr=True).is_terminal


@contextmanager
def bar(doing: str, unit: str = "") -> Iterator[ShowBar]:
    """Show a progress bar counted in ``unit`` while the block runs."""
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
    """Show a text that says what was done so far, for work of unknown length."""
    if is_job():
        with job_reporter(doing) as reporter:
            yield lambda text: reporter.progress(0, message=text)
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), disable=not is_watched(), transient=True) as shown:
        task = shown.add_task(doing)
        yield lambda text: shown.update(task, description=text)


def option_words(text: str) -> str:
    """Return a reason of an advice with the command's option where the service names the member of its request."""
    return text.replace("repeat the request with sample_blocks", "repeat the command with --sample")
