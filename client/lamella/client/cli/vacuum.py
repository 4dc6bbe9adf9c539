"""``lamella vacuum``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from lamella.client.cli.connection import Session, connected
from lamella.client.cli.output import print_table, size_text, time_text
from lamella.client.cli.progress import spinner
from lamella.snapshot.wire import VacuumAnswer

#: So many kept snapshots are listed for people; ``--json`` has all.
LISTED = 20


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE", required=False)
@click.option("--dropped", is_flag=True, help="Purge the dropped tables whose grace is over, instead of one table.")
@click.option("--execute", is_flag=True, help="Do it. Otherwise it is only said what would be done.")
@click.option(
    "--older-than",
    metavar="AGE",
    help="Expire snapshots superseded so long ago (7d, 12h), in place of the table's retention.",
)
@click.option(
    "--include-external-blocks",
    is_flag=True,
    help="Also delete registered files outside of the table's folder that no table needs any more.",
)
@connected(timeout_s=600.0)
def vacuum(
    session: Session,
    table: str | None,
    dropped: bool,
    execute: bool,
    older_than: str | None,
    include_external_blocks: bool,
) -> None:
    """Expire old snapshots of a table and delete what no snapshot needs. A dry run, unless --execute is given.

    Exit status 1: something could not be deleted; the next run tries again.
    """
    if (table is None) != dropped:
        raise click.UsageError("give exactly one of NAMESPACE.TABLE and --dropped")
    if dropped and older_than is not None:
        raise click.UsageError("--older-than is for a table; dropped tables go by their grace")
    with _progress(execute) as show:
        if table is None:
            answer = session.lake.purge_dropped(
                execute=execute, include_external_blocks=include_external_blocks, on_part=show
            )
        else:
            answer = session.lake.table(table).vacuum(
                execute=execute,
                older_than=older_than,
                include_external_blocks=include_external_blocks,
                on_part=show,
            )
    if session.as_json:
        session.emit(answer)
    else:
        _print(answer)
    if answer.executed and answer.left:
        raise click.exceptions.Exit(1)


def _print(answer: VacuumAnswer) -> None:
    going = [fate for fate in answer.snapshots if fate.expires]
    kept = [fate for fate in answer.snapshots if not fate.expires]
    would = "" if answer.executed else "would be "
    if answer.snapshots:
        shown = [*going[:LISTED], *kept[:LISTED]]
        rows = [
            (
                fate.snapshot_id,
                time_text(fate.timestamp_ms),
                "expires" if fate.expires else "stays",
                fate.reason,
            )
            for fate in shown
        ]
        print_table(
            ["snapshot", "time", "", "reason"],
            rows,
            title=f"snapshots ({len(going):,} of {len(answer.snapshots):,} expire)",
        )
    if answer.garbage:
        counts = [(kind, f"{count.objects:,}", size_text(count.size_bytes)) for kind, count in answer.garbage.items()]
        print_table(["kind", ("objects", "right"), ("size", "right")], counts, title=f"{would}deleted")
    for table in answer.tables:
        click.echo(f"dropped table {table} {'is' if answer.executed else 'would be'} purged")
    total = answer.deleted
    click.echo(
        f"{total.objects:,} objects ({size_text(total.size_bytes)}) {would}deleted; {answer.live.objects:,} needed, "
        f"{answer.young.objects:,} younger than {time_text(answer.before_ms)}, {answer.unknown.objects:,} not Lamella's"
    )
    for location in answer.unknowns:
        click.echo(f"not Lamella's: {location}")
    for left in answer.left:
        click.echo(f"left: {left.location}: {left.reason}", err=True)
    if not answer.executed:
        click.echo("nothing was done: add --execute to do it")


@contextmanager
def _progress(execute: bool) -> Iterator[Callable[[VacuumAnswer], None]]:
    verb = "deleted" if execute else "to delete"
    with spinner("vacuuming") as say:
        looked = deleted = 0

        def show(part: VacuumAnswer) -> None:
            nonlocal looked, deleted
            deleted += part.deleted.objects
            looked += part.deleted.objects + part.live.objects + part.young.objects + part.unknown.objects
            say(f"{looked:,} objects looked at, {deleted:,} {verb}")

        yield show
