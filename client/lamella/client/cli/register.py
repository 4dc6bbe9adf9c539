"""``lamella register`` and ``lamella external``: existing files become blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click
import msgspec

from lamella.client.cli.arguments import key_option, location_of
from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.failure import CommandFailure, refused_lines
from lamella.client.cli.output import bar, console, is_watched, size_text
from lamella.client.http.external import OnProgress
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import BlocksRefused, DuplicateBlock, LamellaError
from lamella.snapshot.wire import (
    ExternalSource,
    RefreshProgress,
    RefreshTableAnswer,
    RefusedFile,
    RegisterAnswer,
    SourceKind,
    SourceMode,
)


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--strict", is_flag=True, help="Register nothing if any file is refused; sends all paths in one request.")
@click.option("--verify", is_flag=True, help="Read every value instead of trusting the footers' statistics.")
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Paths per request. Each batch is a commit of its own.",
)
@click.option("--ignore-path-columns", is_flag=True, help="Do not read columns from folder names such as year=2020.")
@click.option("--time-zone", default="UTC", show_default=True, help="For timestamps in folder names.")
@click.option(
    "--ignore-other-formats", is_flag=True, help="Also register all Parquet files of a Delta, Iceberg or Hudi table."
)
@click.option(
    "--take-replaced",
    is_flag=True,
    help="Also register files that were in the table and have been replaced or removed.",
)
@with_session(timeout_s=600.0)
def register(
    session: Session,
    table: str,
    paths: tuple[str, ...],
    strict: bool,
    verify: bool,
    batch: int,
    ignore_path_columns: bool,
    time_zone: str,
    ignore_other_formats: bool,
    take_replaced: bool,
) -> None:
    """Append existing Parquet files: files, directories or globs, as the service sees them.

    A path without a scheme is made absolute locally. A directory or glob counts as one path. Files that are already in
    the table are refused, even if their rows were rewritten or deleted since, so it is safe to run the same command
    again. A folder that is a Delta or Iceberg table is refused: use lamella external create.

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
            path_columns="ignore" if ignore_path_columns else "read",
            time_zone=time_zone,
            other_formats="ignore" if ignore_other_formats else "refuse",
            take_replaced=take_replaced,
        )

    answer = _register(send, batches)
    if session.as_data:
        session.emit(answer)
    else:
        click.echo(
            f"{counted(answer.registered, 'file')} with {counted(answer.row_count, 'row')} "
            f"({size_text(answer.file_size_bytes)}) "
            f"registered in {table}, snapshot {answer.snapshot_id}"
        )
        for note in answer.notes:
            click.echo(f"note: {note}", err=True)
        if answer.refused:
            click.echo(f"{len(answer.refused):,} refused:", err=True)
            for line in refused_lines([msgspec.structs.asdict(r) for r in answer.refused]):
                click.echo(line, err=True)
    if answer.refused:
        raise click.exceptions.Exit(1)


def _register(send: Callable[[Sequence[str]], RegisterAnswer], batches: list[list[str]]) -> RegisterAnswer:
    """Register all batches and return their answers as one; raises :class:`CommandFailure`, which says how many were
    done."""
    done: list[RegisterAnswer] = []
    refused: list[RefusedFile] = []
    for paths in _shown(batches):
        try:
            answer = send(paths)
        except (BlocksRefused, DuplicateBlock) as error:
            # A batch of bad files does not stop the others.
            if len(batches) == 1:
                raise
            refused += [RefusedFile(**entry) for entry in error.details.get("refused", [])]
        except LamellaError as error:
            count = sum(a.registered for a in done)
            raise CommandFailure(
                error, done=f"{counted(count, 'file')} of earlier batches registered" if done else None
            ) from error
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
        notes=done[-1].notes,
    )


def _shown(batches: list[list[str]]) -> Iterator[list[str]]:
    """Yield the batches, with a progress bar when there are several and output is watched."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    err = console(stderr=True)
    columns = (TextColumn("registering"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=len(batches) < 2 or not err.is_terminal) as progress:
        task = progress.add_task("register", total=sum(map(len, batches)))
        for paths in batches:
            yield paths
            progress.advance(task, len(paths))


@click.group()
def external() -> None:
    """Tables that follow files elsewhere: directories, Delta and Iceberg tables."""


@external.command("create")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("kind", type=click.Choice(["directory", "delta", "iceberg"]), metavar="KIND")
@click.argument("location", required=False, metavar="LOCATION")
@click.option("--catalog", help="An Iceberg catalog configured in the service, instead of a location.")
@click.option("--table", "source_table", metavar="NAME", help="The table in that catalog.")
@click.option("--schema-from", metavar="URL", help="Take the columns of a directory from this file or folder.")
@key_option("The cluster key: columns, or expressions of them.")
@click.option("--ignore-path-columns", is_flag=True, help="Do not read columns from folder names such as day=1.")
@click.option("--time-zone", default="UTC", show_default=True, help="For timestamps in folder names.")
@click.option("--no-refresh", is_flag=True, help="Make the table without reading its files.")
@with_session(timeout_s=3600.0)
def create(
    session: Session,
    table: str,
    kind: SourceKind,
    location: str | None,
    catalog: str | None,
    source_table: str | None,
    schema_from: str | None,
    cluster_by: tuple[str, ...],
    ignore_path_columns: bool,
    time_zone: str,
    no_refresh: bool,
) -> None:
    """Make a table that follows a source, and register the source's files.

    LOCATION is a folder or glob, the folder of a Delta table, or an Iceberg table's metadata file.
    """
    source = ExternalSource(
        kind=kind,
        location=None if location is None else location_of(location),
        catalog=catalog,
        table=source_table,
        path_columns="ignore" if ignore_path_columns else "read",
        time_zone=time_zone,
    )
    made = session.lake.create_external(
        table, source, schema_from=None if schema_from is None else location_of(schema_from), cluster_key=cluster_by
    )
    if no_refresh:
        if session.as_data:
            session.emit(made)
        else:
            click.echo(f"table {table} follows {location or source_table}; refresh it to read its rows")
        return
    try:
        with _bar() as show:
            answer = session.lake.table(table).refresh(on_progress=show)
    except LamellaError as error:
        raise CommandFailure(error, done=f"table {table} was made, and has no rows yet") from error
    _print_refresh(session, table, answer)


@external.command("refresh")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option("--full", is_flag=True, help="Open every file, including those that look unchanged.")
@click.option("--dry-run", is_flag=True, help="Show what would change; open no file.")
@click.option("--strict/--lenient", default=None, help="When a file is refused: change nothing, or leave the file out.")
@click.option("--verify", is_flag=True, help="Read every value instead of trusting the footers' statistics.")
@click.option("--location", metavar="URL", help="The current metadata file of an Iceberg table.")
@click.option("--allow-empty", is_flag=True, help="Accept a directory without any file.")
@with_session(timeout_s=3600.0)
def refresh(
    session: Session,
    table: str,
    full: bool,
    dry_run: bool,
    strict: bool | None,
    verify: bool,
    location: str | None,
    allow_empty: bool,
) -> None:
    """Bring a table up to date with its source, in one snapshot."""
    if full and dry_run:
        raise click.UsageError("--full and --dry-run exclude each other")
    mode: SourceMode = "full" if full else "dry_run" if dry_run else "incremental"
    with _bar() as show:
        answer = session.lake.table(table).refresh(
            mode,
            strict=strict,
            verify=verify,
            location=None if location is None else location_of(location),
            allow_empty=allow_empty,
            on_progress=show,
        )
    _print_refresh(session, table, answer)


def _print_refresh(session: Session, table: str, answer: RefreshTableAnswer) -> None:
    if session.as_data:
        session.emit(answer)
        return
    counts = f"{answer.added:,} added, {answer.removed:,} removed, {answer.replaced:,} replaced"
    columns = f", {counted(answer.schema_changes, 'change')} of columns" if answer.schema_changes else ""
    rest = f"{counts}, {answer.unchanged:,} unchanged{columns}"
    if answer.mode == "dry_run":
        click.echo(f"{table} would have: {rest}")
    elif answer.changed:
        click.echo(f"{table}: {rest}, snapshot {answer.snapshot_id}")
    else:
        click.echo(f"{table} is up to date: {counted(answer.unchanged, 'file')}")
    if answer.refused:
        click.echo(f"{len(answer.refused):,} refused:", err=True)
        for line in refused_lines([msgspec.structs.asdict(each) for each in answer.refused]):
            click.echo(line, err=True)


@contextmanager
def _bar() -> Iterator[OnProgress | None]:
    """Yield a callback that moves a progress bar; None when output is not watched, so that no progress is requested."""
    if not is_watched():
        yield None
        return
    with bar("listing") as move:

        def show(found: RefreshProgress) -> None:
            if found.running:
                move(found.files_done, found.files_total or None, found.phase)

        yield show
