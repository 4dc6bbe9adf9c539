"""``lamella vacuum``, ``lamella verify`` and ``lamella health``."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.failure import CommandFailure
from lamella.client.cli.output import bar, print_table, size_text, spinner, time_text
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.wire import ExpiredBytes, Finding, HealthFinding, TableHealth, VacuumAnswer, VerifyAnswer

#: At most this many kept snapshots are listed for people; ``--json`` lists all.
MAX_LISTED_OBJECTS = 20


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE", required=False)
@click.option("--dropped", is_flag=True, help="Purge dropped tables whose grace period is over, instead of one table.")
@click.option("--execute", is_flag=True, help="Delete. Without it, only what would be deleted is shown.")
@click.option(
    "--older-than",
    metavar="AGE",
    help="Expire snapshots superseded this long ago (7d, 12h), instead of the table's retention.",
)
@click.option(
    "--include-external-blocks",
    is_flag=True,
    help="Also delete registered files outside the table's folder that no table refers to.",
)
@with_session(timeout_s=600.0)
def vacuum(
    session: Session,
    table: str | None,
    dropped: bool,
    execute: bool,
    older_than: str | None,
    include_external_blocks: bool,
) -> None:
    """Expire old snapshots of a table and delete unreferenced objects. A dry run unless --execute is given.

    Exit status 1: an object could not be deleted; the next run tries again.
    """
    if (table is None) != dropped:
        raise click.UsageError("give exactly one of NAMESPACE.TABLE and --dropped")
    if dropped and older_than is not None:
        raise click.UsageError("--older-than needs a table; dropped tables have a grace period")
    with _vacuum_progress(execute) as show:
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
    if session.as_data:
        session.emit(answer)
    else:
        _print_vacuum(answer)
    if answer.executed and answer.left:
        raise click.exceptions.Exit(1)


def _print_vacuum(answer: VacuumAnswer) -> None:
    expiring = [entry for entry in answer.snapshots if entry.expires]
    retained = [entry for entry in answer.snapshots if not entry.expires]
    would = "" if answer.executed else "would be "
    if answer.snapshots:
        shown = [*expiring[:MAX_LISTED_OBJECTS], *retained[:MAX_LISTED_OBJECTS]]
        rows = [
            (
                entry.snapshot_id,
                time_text(entry.timestamp_ms),
                "expires" if entry.expires else "stays",
                entry.reason,
            )
            for entry in shown
        ]
        print_table(
            ["snapshot", "time", "", "reason"],
            rows,
            title=f"snapshots ({len(expiring):,} of {len(answer.snapshots):,} expire)",
        )
    if answer.garbage:
        counts = [(kind, f"{count.objects:,}", size_text(count.size_bytes)) for kind, count in answer.garbage.items()]
        print_table(["kind", ("objects", "right"), ("size", "right")], counts, title=f"{would}deleted")
    for table in answer.tables:
        click.echo(f"dropped table {table} {'is' if answer.executed else 'would be'} purged")
    total = answer.deleted
    click.echo(
        f"{counted(total.objects, 'object')} ({size_text(total.size_bytes)}) {would}deleted; "
        f"{answer.live.objects:,} needed, "
        f"{answer.young.objects:,} younger than {time_text(answer.before_ms)}, {answer.unknown.objects:,} not Lamella's"
    )
    for location in answer.unknowns:
        click.echo(f"not Lamella's: {location}")
    for left in answer.left:
        click.echo(f"left: {left.location}: {left.reason}", err=True)
    if not answer.executed:
        click.echo("nothing was deleted: add --execute to delete")


@contextmanager
def _vacuum_progress(execute: bool) -> Iterator[Callable[[VacuumAnswer], None]]:
    verb = "deleted" if execute else "to delete"
    with spinner("vacuuming") as say:
        checked_objects = deleted = 0

        def show(part: VacuumAnswer) -> None:
            nonlocal checked_objects, deleted
            deleted += part.deleted.objects
            checked_objects += part.deleted.objects + part.live.objects + part.young.objects + part.unknown.objects
            say(f"{counted(checked_objects, 'object')} checked, {deleted:,} {verb}")

        yield show


#: At most this many findings are listed for people; ``--json`` lists all that the service returns.
MAX_LISTED_FINDINGS = 200


class _CouldNotRun(CommandFailure):
    """Verification could not run, which says nothing about the table."""

    exit_code = 2


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option("--snapshot", "snapshot_id", metavar="ID", help="This snapshot instead of the current one.")
@click.option("--deep", is_flag=True, help="Also read the values of some blocks and evaluate random filters on them.")
@click.option("--sample", type=click.FloatRange(0, 1, min_open=True), help="The fraction of blocks that --deep reads.")
@click.option("--blocks", type=click.IntRange(min=0), help="How many blocks --deep reads.")
@click.option("--seed", type=int, help="Random seed of --deep. Default: a new one each time.")
@click.option(
    "--filters", type=click.IntRange(0, 10_000), default=20, show_default=True, help="Filters per block for --deep."
)
@click.option("--no-files", is_flag=True, help="Check only Lamella's own metadata, not the block files.")
@click.option("--pages", is_flag=True, help="Report segments without a page sidecar.")
@click.option(
    "--history",
    type=click.IntRange(0, 1_000_000),
    default=100,
    show_default=True,
    help="How many past snapshots to check.",
)
@click.option("--repair", is_flag=True, help="Rewrite damaged sidecars and page sidecars.")
@with_session(timeout_s=600.0)
def verify(
    session: Session,
    table: str,
    snapshot_id: str | None,
    deep: bool,
    sample: float | None,
    blocks: int | None,
    seed: int | None,
    filters: int,
    no_files: bool,
    pages: bool,
    history: int,
    repair: bool,
) -> None:
    """Check the metadata of a table against the files it describes.

    Exit status 0: no findings, or all repaired; 1: findings; 2: the check could not run.
    """
    seed = secrets.randbits(31) if seed is None and deep else seed or 0
    try:
        with _verify_progress() as show:
            answer = session.lake.table(table).verify(
                on_part=show,
                snapshot_id=snapshot_id,
                deep=deep,
                sample=sample,
                blocks=blocks,
                seed=seed,
                filters=filters,
                files=not no_files,
                pages=pages or None,
                history=history,
                repair=repair,
            )
    except LamellaError as error:
        raise _CouldNotRun(error) from error
    if session.as_data:
        session.emit(answer)
    else:
        _print_verify(table, answer, seed if deep else None)
    if not answer.is_clean:
        raise click.exceptions.Exit(1)


def _print_verify(table: str, answer: VerifyAnswer, seed: int | None) -> None:
    if answer.findings:
        columns = ("severity", "check", "object", "column", "finding", "what to do")
        print_table(columns, [_finding_row(finding) for finding in answer.findings[:MAX_LISTED_FINDINGS]])
    total = sum(answer.counts.values())
    if total > min(len(answer.findings), MAX_LISTED_FINDINGS):
        click.echo(f"and {total - min(len(answer.findings), MAX_LISTED_FINDINGS):,} more")
    checked = answer.checked
    click.echo(
        f"{table}, snapshot {answer.snapshot_id}: {counted(checked.segments, 'segment')}, "
        f"{counted(checked.blocks, 'block')}, "
        f"{counted(checked.files, 'file')} and {counted(checked.snapshots, 'snapshot')} checked"
    )
    if seed is not None:
        click.echo(
            f"{counted(checked.values, 'value')} of {counted(checked.blocks_read, 'block')} read, "
            f"{counted(checked.filters, 'filter')} compared "
            f"({checked.filters_left_out:,} left out), seed {seed}"
        )
    repaired = sum(finding.repaired for finding in answer.findings)
    if not total:
        click.echo("nothing is wrong")
    else:
        click.echo(f"{counted(total, 'finding')}" + (f", {repaired:,} of them repaired" if repaired else ""))


def _finding_row(finding: Finding) -> tuple[str, ...]:
    todo = "repaired" if finding.repaired else finding.advice
    if finding.not_repaired is not None:
        todo = f"not repaired: {finding.not_repaired}"
    where = finding.block or finding.object
    return finding.severity, finding.code, where, finding.column or "", finding.message, todo


@contextmanager
def _verify_progress() -> Iterator[Callable[[VerifyAnswer], None]]:
    with bar("verifying") as move:
        yield lambda part: move(part.steps_done, part.steps)


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@with_session()
def health(session: Session, table: str) -> None:
    """Show the shape of a table, what should be done for it, and what a clean-up would free.

    The service measures a table soon after a commit. The first line says of which snapshot the figures are.
    """
    answer = session.lake.table(table).health()
    if session.as_data:
        session.emit(answer)
        return
    print_health(table, answer)


def print_health(table: str, answer: TableHealth) -> None:
    """Print the health of a table for people."""
    click.echo(f"{table}, {_moment_text(answer)}")
    print_table(["", ("", "right")], _health_rows(answer))
    for finding in answer.findings:
        click.echo(f"{finding.severity}: {finding.text}{_remedy_text(table, finding)}")
    for name, reason in answer.missing.items():
        click.echo(f"{name} could not be measured: {reason}", err=True)


def _moment_text(answer: TableHealth) -> str:
    count = answer.commits_since
    behind = "the current one" if not count else f"{counted(count, 'commit')} ago"
    return f"as of snapshot {answer.snapshot_id} ({behind}), measured at {time_text(answer.measured_ms)}"


def _health_rows(answer: TableHealth) -> list[tuple[str, str]]:
    depth = "no cluster key" if not answer.cluster_key else _number_text(answer.average_depth)
    return [
        ("blocks", _number_text(answer.block_count)),
        ("small blocks", _number_text(answer.small_blocks)),
        ("average depth", depth),
        ("blocks with deleted rows", _number_text(answer.deletes_count)),
        ("bytes of deleted rows", _size_text(answer.deleted_bytes)),
        ("expired snapshots", _number_text(answer.expired_snapshots)),
        ("a clean-up frees", "unknown" if answer.expired is None else _expired_text(answer.expired)),
        *((f"blocks that index {each.name} lacks", f"{each.not_indexed:,}") for each in answer.indexes),
    ]


def _expired_text(expired: ExpiredBytes) -> str:
    minimum = size_text(expired.min_bytes)
    if expired.max_bytes == expired.min_bytes:
        return minimum
    return f"{minimum} or more" if expired.max_bytes is None else f"{minimum} to {size_text(expired.max_bytes)}"


def _number_text(number: float | None) -> str:
    if number is None:
        return "unknown"
    return f"{number:,.2f}" if isinstance(number, float) else f"{number:,}"


def _size_text(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else size_text(size_bytes)


def _remedy_text(table: str, finding: HealthFinding) -> str:
    if finding.remedy is None:
        return ""
    given = []
    for name, value in finding.remedy.arguments.items():
        given += ["--argument", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
    return f" Run: {shlex.join(['lamella', 'job', 'submit', finding.remedy.kind, table, *given])}"
