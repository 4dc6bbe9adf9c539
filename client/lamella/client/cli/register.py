"""``lamella register``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import click
import msgspec

from lamella.client.cli.connection import Session, connected
from lamella.client.cli.failure import Failure, refused_lines
from lamella.client.cli.location import location_of
from lamella.client.cli.output import console, size_text
from lamella.snapshot.errors import BlocksRefused, DuplicateBlock, LamellaError
from lamella.snapshot.wire import RefusedFile, RegisterAnswer


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--strict", is_flag=True, help="Register nothing when one file is refused; sends all paths at once.")
@click.option("--verify", is_flag=True, help="Read every value; do not believe the footers' statistics.")
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="So many paths at a time. Each batch is a commit of its own.",
)
@click.option("--ignore-path-columns", is_flag=True, help="Folders such as year=2020 are mere names.")
@click.option(
    "--ignore-other-formats", is_flag=True, help="Also take all Parquet files of a Delta, Iceberg or Hudi table."
)
@click.option(
    "--take-replaced", is_flag=True, help="Also take files that were in the table and were replaced or removed since."
)
@connected(timeout_s=600.0)
def register(
    session: Session,
    table: str,
    paths: tuple[str, ...],
    strict: bool,
    verify: bool,
    batch: int,
    ignore_path_columns: bool,
    ignore_other_formats: bool,
    take_replaced: bool,
) -> None:
    """Append Parquet files that exist: files, directories or globs, as the service sees them.

    A path without a scheme is made absolute here. A directory or glob counts as one path. Files that are in the table
    already are refused, also when their rows were rewritten or deleted since, so it is safe to run the same command
    again. A folder that is a Delta or Iceberg table is refused: lamella external create follows it.

    Exit status 1: at least one file was refused. The other files are registered, unless --strict is given.
    """
    locations = [location_of(path) for path in paths]
    size = len(locations) if strict else batch
    batches = [locations[start : start + size] for start in range(0, len(locations), size)]

    def send(some: Sequence[str]) -> RegisterAnswer:
        return session.lake.table(table).register(
            some,
            strict=strict,
            verify=verify,
            path_columns="ignore" if ignore_path_columns else "refuse",
            other_formats="ignore" if ignore_other_formats else "refuse",
            take_replaced=take_replaced,
        )

    answer = _register(send, batches)
    if session.as_json:
        session.emit(answer)
    else:
        files = "file" if answer.registered == 1 else "files"
        click.echo(
            f"{answer.registered:,} {files} with {answer.row_count:,} rows ({size_text(answer.file_size_bytes)}) "
            f"registered in {table}, snapshot {answer.snapshot_id}"
        )
        if answer.refused:
            click.echo(f"{len(answer.refused):,} refused:", err=True)
            for line in refused_lines([msgspec.structs.asdict(r) for r in answer.refused]):
                click.echo(line, err=True)
    if answer.refused:
        raise click.exceptions.Exit(1)


def _register(send: Callable[[Sequence[str]], RegisterAnswer], batches: list[list[str]]) -> RegisterAnswer:
    """All batches as one answer; raises :class:`Failure`, which says how far it came."""
    done: list[RegisterAnswer] = []
    refused: list[RefusedFile] = []
    for paths in _shown(batches):
        try:
            answer = send(paths)
        except (BlocksRefused, DuplicateBlock) as error:
            # One batch of bad files does not stop the others.
            if len(batches) == 1:
                raise
            refused += [RefusedFile(**entry) for entry in error.details.get("refused", [])]
        except LamellaError as error:
            count = sum(a.registered for a in done)
            raise Failure(error, done=f"{count:,} files of earlier batches are registered" if done else None) from error
        else:
            done.append(answer)
            refused += answer.refused
    if not done:
        kind = DuplicateBlock if all(r.code == DuplicateBlock.code for r in refused) else BlocksRefused
        raise kind("no file could be registered", refused=[msgspec.structs.asdict(r) for r in refused])
    return RegisterAnswer(
        snapshot_id=done[-1].snapshot_id,
        registered=sum(a.registered for a in done),
        row_count=sum(a.row_count for a in done),
        file_size_bytes=sum(a.file_size_bytes for a in done),
        refused=tuple(refused),
    )


def _shown(batches: list[list[str]]) -> Iterator[list[str]]:
    """The batches, under a progress bar when there are several and someone is looking."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    err = console(stderr=True)
    columns = (TextColumn("registering"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=len(batches) < 2 or not err.is_terminal) as progress:
        task = progress.add_task("register", total=sum(map(len, batches)))
        for paths in batches:
            yield paths
            progress.advance(task, len(paths))
