"""``lamella arrivals``: registers files as they arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from lamella.client.arrivals.directory import DirectorySource, require_directory
from lamella.client.arrivals.queue import QueueSource, queue_client
from lamella.client.arrivals.watch import Source, Stop, Watch
from lamella.client.cli.arguments import location_of, store_options
from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.failure import needs_extra, refused_lines
from lamella.client.cli.output import size_text
from lamella.client.http import Table
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import LamellaError, NotProven
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.storage.location import SUFFIX
from lamella.snapshot.wire import ArrivalsAnswer


@click.group()
def arrivals() -> None:
    """Files that arrive in a bucket or a directory become blocks of a table, each of them once."""


@arrivals.command("watch")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option("--queue", metavar="URL", help="A queue of SQS that gets the event notifications of a bucket.")
@click.option("--directory", metavar="PATH", help="A directory to list, also s3://bucket/folder.")
@click.option("--prefix", metavar="URL", help="Only files whose location begins with it.")
@click.option("--suffix", metavar="TEXT", default=SUFFIX, show_default=True, help="Only files whose name ends with it.")
@click.option("--once", is_flag=True, help="Register what is there, then exit. Exit status 1: a file was refused.")
@click.option(
    "--batch", type=click.IntRange(1, 100_000), default=1_000, show_default=True, help="Most files of one commit."
)
@click.option(
    "--fold-s",
    type=click.FloatRange(min=0),
    default=2.0,
    show_default=True,
    help="With --queue: seconds for which the first message of a commit waits for others.",
)
@click.option(
    "--poll-s",
    type=click.FloatRange(min=0.05),
    default=2.0,
    show_default=True,
    help="With --directory: seconds between listings.",
)
@click.option(
    "--min-age-s",
    type=click.FloatRange(min=0),
    default=2.0,
    show_default=True,
    help="With --directory: seconds for which a local file must not have changed. 0: writers rename finished files.",
)
@click.option(
    "--refused",
    "refused_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --queue: append messages that were refused --tries times to this file, and delete them.",
)
@click.option(
    "--tries", type=click.IntRange(min=1), default=3, show_default=True, help="Receives before --refused takes one."
)
@store_options
@with_session(timeout_s=600.0)
def watch(
    session: Session,
    table: str,
    queue: str | None,
    directory: str | None,
    prefix: str | None,
    suffix: str,
    once: bool,
    batch: int,
    fold_s: float,
    poll_s: float,
    min_age_s: float,
    refused_file: Path | None,
    tries: int,
    storage_options: dict[str, dict[str, Any]],
) -> None:
    """Register new files of a bucket or a directory within seconds, until stopped.

    Several may run at once, and any may be killed: no file is lost or registered twice. On SIGTERM and Ctrl-C the
    commit in progress is finished first.
    """
    if (queue is None) == (directory is None):
        raise click.UsageError("give one of --queue and --directory")
    if refused_file is not None and queue is None:
        raise click.UsageError("--refused is for --queue; refused files stay in their directory")
    stop = Stop()
    lines = _Lines(session, table)
    with stop.on_signals():
        _require_files(session.lake.table(table))
        source: Source
        if queue is not None:
            with needs_extra("s3"):
                client = queue_client(queue, storage_options.get("s3", {}))
            source = messages = QueueSource(
                client,
                queue,
                stop,
                max_files=batch,
                fold_s=fold_s,
                once=once,
                refused_file=refused_file,
                tries=tries,
            )
            if not messages.has_dead_letter_queue() and refused_file is None:
                lines.note("the queue has no dead-letter queue: refused messages come back until they expire")
        else:
            location = location_of(directory or "")
            require_directory(location)
            source = listed = DirectorySource(
                FsspecStore(storage_options),
                location,
                stop.sleep,
                max_files=batch,
                poll_s=poll_s,
                min_age_s=min_age_s,
                suffix=suffix,
                once=once,
            )
            prefix = listed.location if prefix is None else prefix
        refused = Watch(
            session.lake.table(table),
            source,
            lines,
            stop,
            prefix=None if prefix is None else location_of(prefix),
            suffix=suffix,
            once=once,
        ).run()
    if once and refused:
        raise click.exceptions.Exit(1)


def _require_files(table: Table) -> None:
    """Raise an error for a table that does not exist or takes no files, before a message is received: each receive
    counts towards the dead-letter queue."""
    if table.info().schema.has_constraints:
        raise NotProven(
            f"{table} has constraints or text of limited length, and files are registered without reading their rows"
        )


class _Lines:
    """One line for each commit on stdout, and for each refused file and each failure on stderr."""

    def __init__(self, session: Session, table: str) -> None:
        self._session = session
        self._table = table

    def note(self, text: str) -> None:
        """Tell people something."""
        click.echo(text, err=True)

    def taken(self, answer: ArrivalsAnswer) -> None:
        """Tell what was done with a batch."""
        if self._session.as_data:
            self._session.emit(answer, [answer])
            return
        parts = []
        if answer.registered and answer.row_count is None:
            parts.append(f"{counted(answer.registered, 'file')} added or replaced in {self._table}")
        elif answer.registered:
            size = size_text(answer.file_size_bytes or 0)
            rows = f"{counted(answer.row_count or 0, 'row')} ({size})"
            parts.append(f"{counted(answer.registered, 'file')} with {rows} registered in {self._table}")
        elif answer.changed:
            parts.append(f"{self._table} refreshed")
        parts += [f"{answer.duplicates:,} in the table already"] if answer.duplicates else []
        parts += [f"{answer.earlier:,} in the table before"] if answer.earlier else []
        parts += [f"{count:,} ignored ({reason})" for reason, count in sorted(answer.ignored.items())]
        parts += [f"{len(answer.refused):,} refused"] if answer.refused else []
        if parts:
            click.echo("; ".join(parts) + (f", snapshot {answer.snapshot_id}" if answer.changed else ""))
        for line in refused_lines([msgspec.structs.asdict(each) for each in answer.refused]):
            click.echo(line, err=True)

    def trouble(self, error: LamellaError, wait_s: float) -> None:
        """Tell that something is tried again."""
        click.echo(f"{error.message} [{error.code}]; trying again in {wait_s:g} s", err=True)
