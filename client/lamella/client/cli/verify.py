"""``lamella verify``."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from lamella.client.cli.connection import Session, connected
from lamella.client.cli.failure import Failure
from lamella.client.cli.output import print_table
from lamella.client.cli.progress import bar
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.wire import Finding, VerifyAnswer

#: So many findings are listed for people; `--json` has all that the service lists.
LISTED = 200


class _CouldNotRun(Failure):
    """Verification could not be carried out, which says nothing about the table."""

    exit_code = 2


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option("--snapshot", "snapshot_id", metavar="ID", help="A snapshot of the history instead of the current one.")
@click.option("--deep", is_flag=True, help="Read the values of some blocks, and answer random filters from them.")
@click.option("--sample", type=click.FloatRange(0, 1, min_open=True), help="The share of blocks that --deep reads.")
@click.option("--blocks", type=click.IntRange(min=0), help="How many blocks --deep reads.")
@click.option("--seed", type=int, help="Draws the blocks and filters of --deep. Default: another one each time.")
@click.option(
    "--filters", type=click.IntRange(0, 10_000), default=20, show_default=True, help="Filters a block for --deep."
)
@click.option("--no-files", is_flag=True, help="Look only at what Lamella wrote, not at the blocks' files.")
@click.option("--pages", is_flag=True, help="Every segment should have a page companion.")
@click.option(
    "--history", type=click.IntRange(0, 1_000_000), default=100, show_default=True, help="So many snapshots back."
)
@click.option("--repair", is_flag=True, help="Write damaged companions and page companions again.")
@connected(timeout_s=600.0)
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
    """Hold everything that a table says of itself against what it is derived from.

    Exit status 0: nothing is wrong, or what was is repaired; 1: findings; 2: it could not be carried out.
    """
    seed = secrets.randbits(31) if seed is None and deep else seed or 0
    try:
        with _progress() as show:
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
    if session.as_json:
        session.emit(answer)
    else:
        _print(table, answer, seed if deep else None)
    if not answer.is_clean:
        raise click.exceptions.Exit(1)


def _print(table: str, answer: VerifyAnswer, seed: int | None) -> None:
    if answer.findings:
        columns = ("severity", "check", "object", "column", "finding", "what to do")
        print_table(columns, [_row(finding) for finding in answer.findings[:LISTED]])
    total = sum(answer.counts.values())
    if total > min(len(answer.findings), LISTED):
        click.echo(f"and {total - min(len(answer.findings), LISTED):,} more")
    checked = answer.checked
    click.echo(
        f"{table}, snapshot {answer.snapshot_id}: {checked.segments:,} segments, {checked.blocks:,} blocks, "
        f"{checked.files:,} files and {checked.snapshots:,} snapshots looked at"
    )
    if seed is not None:
        click.echo(
            f"{checked.values:,} values of {checked.blocks_read:,} blocks read, {checked.filters:,} filters compared "
            f"({checked.filters_left_out:,} left out), seed {seed}"
        )
    repaired = sum(finding.repaired for finding in answer.findings)
    if not total:
        click.echo("nothing is wrong")
    else:
        click.echo(f"{total:,} findings" + (f", {repaired:,} of them repaired" if repaired else ""))


def _row(finding: Finding) -> tuple[str, ...]:
    todo = "repaired" if finding.repaired else finding.advice
    if finding.not_repaired is not None:
        todo = f"not repaired: {finding.not_repaired}"
    where = finding.block or finding.object
    return finding.severity, finding.code, where, finding.column or "", finding.message, todo


@contextmanager
def _progress() -> Iterator[Callable[[VerifyAnswer], None]]:
    with bar("verifying") as move:
        yield lambda part: move(part.steps_done, part.steps)
