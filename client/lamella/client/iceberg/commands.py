"""``lamella export``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lamella.client.cli.arguments import location_of, store_options
from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.failure import needs_extra
from lamella.client.cli.output import size_text
from lamella.snapshot.storage import FsspecStore

if TYPE_CHECKING:
    from lamella.client.iceberg.export import ExportResult


@click.group()
def export() -> None:
    """Tables in other systems' terms, without a copy of their data."""


@export.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option("--snapshot", metavar="ID", help="A snapshot of the history, or a tag; the current one unless said.")
@click.option("--location", metavar="URL", help="The folder of the export; unless said, one in the table's own.")
@click.option("--columns", metavar="A,B,...", help="Export statistics of these columns, not of the first hundred.")
@click.option("--hold", metavar="TAG", help="The tag that keeps the exported snapshot from expiring.")
@click.option("--no-hold", is_flag=True, help="Let it expire as any other, with files that the export names.")
@click.option("--trust-files", is_flag=True, help="Do not open registered files to see how they number columns.")
@store_options
@with_session(timeout_s=600.0)
def iceberg(
    session: Session,
    storage_options: dict[str, dict[str, object]],
    table: str,
    snapshot: str | None,
    location: str | None,
    columns: str | None,
    hold: str | None,
    no_hold: bool,
    trust_files: bool,
) -> None:
    """Write Iceberg metadata for a snapshot of a table, for engines that plan by themselves."""
    if hold is not None and no_hold:
        raise click.UsageError("give at most one of --hold and --no-hold")
    with needs_extra("iceberg"):
        from lamella.client.iceberg.export import ExportOptions, export_iceberg
    from lamella.client.jobs.report import job_reporter

    options = ExportOptions(
        snapshot=snapshot,
        location=None if location is None else location_of(location),
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",")),
        hold=hold,
        no_hold=no_hold,
        trust_files=trust_files,
    )
    with job_reporter("exporting", polls=True) as reporter:
        done = export_iceberg(
            session.lake,
            table,
            FsspecStore(storage_options),
            options,
            on_progress=reporter.progress,
            cancelled=reporter.cancelled,
        )
    if session.as_json:
        session.emit(done)
    else:
        _show(done)


def _show(done: ExportResult) -> None:
    if not done.is_changed:
        click.echo(f"{done.metadata_location} is up to date: snapshot {done.snapshot_id}, {done.files:,} files")
        return
    click.echo(
        f"snapshot {done.snapshot_id} ({done.files:,} files, {done.rows:,} rows) is Iceberg's {done.number}: "
        f"{done.manifests_written:,} manifests written, {done.manifests_reused:,} there already, "
        f"{size_text(done.size_bytes)}"
    )
    if done.forgotten:
        click.echo(f"{done.forgotten:,} snapshots that have left the table's history are no longer named")
    click.echo(done.metadata_location)
