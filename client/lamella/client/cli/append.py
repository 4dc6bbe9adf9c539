"""``lamella append``: rows of local files become new blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lamella.client.cli.arguments import key_option, store_options
from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.failure import CommandFailure
from lamella.client.cli.output import console, size_text
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import LamellaError, NamespaceNotFound, SchemaMismatch, TableNotFound
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.schema import Schema

if TYPE_CHECKING:
    from lamella.client.write.files import FileFormat


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "csv", "jsonl", "arrow"]),
    help="Of all files. Default: by each name. arrow: a file or a stream.",
)
@click.option("--delimiter", metavar="CHARACTER", help="Of CSV. Default: a tab for .tsv, otherwise a comma.")
@click.option("--create", is_flag=True, help="Create the table and its namespace when they do not exist.")
@key_option("Sort by this key.")
@click.option(
    "--cluster-kind",
    type=click.Choice(["linear", "zorder", "hilbert"]),
    default="linear",
    show_default=True,
    help="The kind of a created table's cluster key.",
)
@click.option("--target-rows", type=click.IntRange(min=1), help="Rows of a block.")
@click.option("--target-bytes", type=click.IntRange(min=1), help="File bytes of a block.")
@click.option("--idempotency-key", metavar="TEXT", help="Of several appends with one key, one happens.")
@click.option(
    "--memory-mib",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Memory for rows, in MiB; the rest goes to scratch space.",
)
@click.option("--scratch", metavar="URL", help="A folder for intermediate rows. Default: a temporary one.")
@click.option("--workers", type=click.IntRange(min=1), help="Threads that write. Default: one per core, at most four.")
@store_options
@with_session(timeout_s=600.0)
def append(
    session: Session,
    table: str,
    paths: tuple[str, ...],
    kind: FileFormat | None,
    delimiter: str | None,
    create: bool,
    cluster_by: tuple[str, ...],
    cluster_kind: ClusterKind,
    target_rows: int | None,
    target_bytes: int | None,
    idempotency_key: str | None,
    memory_mib: int,
    scratch: str | None,
    workers: int | None,
    storage_options: dict[str, dict[str, Any]],
) -> None:
    """Append the rows of local files as sorted blocks, all in one commit.

    FILE is Parquet, CSV with a header, JSON lines or Arrow IPC (Feather), as its name says; "-" is standard input, an
    Arrow stream unless --format says otherwise. Files of CSV and JSON lines may be compressed (.gz). If a row does not
    fit, nothing is appended.
    """
    from lamella.client.write.files import FileRows

    rows: FileRows | None = None
    try:
        rows = FileRows(paths, _schema(session, table, create=create), kind=kind, delimiter=delimiter)
        result = session.lake.table(table).append(
            rows,
            create=create,
            cluster_by=cluster_by or None,
            cluster_kind=cluster_kind,
            target_block_rows=target_rows,
            target_block_bytes=target_bytes,
            idempotency_key=idempotency_key,
            storage_options=storage_options,
            scratch=scratch,
            memory_bytes=memory_mib << 20,
            workers=workers,
            progress=console(stderr=True).is_terminal,
        )
    except OSError as error:
        raise click.FileError(str(error.filename or paths[0]), error.strerror or str(error)) from error
    except SchemaMismatch as error:
        path = None if rows is None else rows.path
        if path is None or error.message.startswith(path):
            raise CommandFailure(error) from error
        raise CommandFailure(SchemaMismatch(f"{path}: {error.message}", **error.details)) from error
    except LamellaError as error:
        raise CommandFailure(error) from error
    if session.as_data:
        session.emit(result)
    elif result.committed:
        click.echo(
            f"{counted(result.rows, 'row')} in {counted(result.blocks, 'block')} ({size_text(result.size_bytes)}) "
            f"appended to {table},"
            f" snapshot {result.snapshot_id}"
        )
    else:
        click.echo(f"no rows; {table} is unchanged")


def _schema(session: Session, table: str, *, create: bool) -> Schema | None:
    """Return the table's columns; None: it is to be created."""
    try:
        return session.lake.table(table).info().schema
    except (TableNotFound, NamespaceNotFound):
        if not create:
            raise
        return None
