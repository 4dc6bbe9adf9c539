"""``lamella external``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
import msgspec

from lamella.client.cli.connection import Session, connected
from lamella.client.cli.failure import Failure, refused_lines
from lamella.client.cli.location import location_of
from lamella.client.cli.progress import bar, is_watched
from lamella.client.http.following import OnProgress
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.wire import ExternalSource, RefreshProgress, RefreshTableAnswer, SourceKind, SourceMode


@click.group()
def external() -> None:
    """Tables whose files stay where they are: directories, Delta and Iceberg tables."""


@external.command("create")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("kind", type=click.Choice(["directory", "delta", "iceberg"]), metavar="KIND")
@click.argument("location", required=False, metavar="LOCATION")
@click.option("--catalog", help="The Iceberg catalog, one that the service knows, instead of a location.")
@click.option("--table", "source_table", metavar="NAME", help="The table in that catalog.")
@click.option("--schema-from", metavar="URL", help="Take the columns of a directory from this file.")
@click.option("--cluster-key", metavar="COLUMN", multiple=True, help="A column of the cluster key; may be repeated.")
@click.option("--ignore-path-columns", is_flag=True, help="Folders such as day=1 of a directory are mere names.")
@click.option("--no-refresh", is_flag=True, help="Make the table and leave it without rows.")
@connected(timeout_s=3600.0)
def create(
    session: Session,
    table: str,
    kind: SourceKind,
    location: str | None,
    catalog: str | None,
    source_table: str | None,
    schema_from: str | None,
    cluster_key: tuple[str, ...],
    ignore_path_columns: bool,
    no_refresh: bool,
) -> None:
    """Make a table that follows a source, and fill it.

    LOCATION is a folder or glob, the folder of a Delta table, or an Iceberg table's metadata file.
    """
    source = ExternalSource(
        kind=kind,
        location=None if location is None else location_of(location),
        catalog=catalog,
        table=source_table,
        path_columns="ignore" if ignore_path_columns else "refuse",
    )
    made = session.lake.create_external(
        table, source, schema_from=None if schema_from is None else location_of(schema_from), cluster_key=cluster_key
    )
    if no_refresh:
        if session.as_json:
            session.emit(made)
        else:
            click.echo(f"table {table} follows {location or source_table}; refresh it for its rows")
        return
    try:
        with _bar() as show:
            answer = session.lake.table(table).refresh(on_progress=show)
    except LamellaError as error:
        raise Failure(error, done=f"table {table} was made, and has no rows yet") from error
    _print(session, table, answer)


@external.command("refresh")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option("--full", is_flag=True, help="Open every file, also those that look unchanged.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; open no file.")
@click.option("--strict/--lenient", default=None, help="Change nothing when a file is refused, or leave it out.")
@click.option("--verify", is_flag=True, help="Read every value; do not believe the footers' statistics.")
@click.option("--location", metavar="URL", help="The metadata file that an Iceberg table is at by now.")
@click.option("--allow-empty", is_flag=True, help="A directory without any file is no mistake.")
@connected(timeout_s=3600.0)
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
    _print(session, table, answer)


def _print(session: Session, table: str, answer: RefreshTableAnswer) -> None:
    if session.as_json:
        session.emit(answer)
        return
    counts = f"{answer.added:,} added, {answer.removed:,} removed, {answer.replaced:,} replaced"
    columns = f", {answer.schema_changes:,} changes of columns" if answer.schema_changes else ""
    rest = f"{counts}, {answer.unchanged:,} unchanged{columns}"
    if answer.mode == "dry_run":
        click.echo(f"{table} would have: {rest}")
    elif answer.changed:
        click.echo(f"{table}: {rest}, snapshot {answer.snapshot_id}")
    else:
        click.echo(f"{table} is up to date: {answer.unchanged:,} files")
    if answer.refused:
        click.echo(f"{len(answer.refused):,} refused:", err=True)
        for line in refused_lines([msgspec.structs.asdict(each) for each in answer.refused]):
            click.echo(line, err=True)


@contextmanager
def _bar() -> Iterator[OnProgress | None]:
    """Without someone looking nothing is asked."""
    if not is_watched():
        yield None
        return
    with bar("listing") as move:

        def show(found: RefreshProgress) -> None:
            if found.running:
                move(found.files_done, found.files_total or None, found.phase)

        yield show
