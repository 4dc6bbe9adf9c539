"""How far long work is, on stderr when someone is looking; under a worker, for the job that this is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from lamella.client.cli.output import console
from lamella.client.jobs.reporting import is_job, reporting


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
        with reporting(doing) as reporter:
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
        with reporting(doing) as reporter:
            yield lambda text: reporter.progress(0, message=text)
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), disable=not is_watched(), transient=True) as shown:
        task = shown.add_task(doing)
        yield lambda text: shown.update(task, description=text)
