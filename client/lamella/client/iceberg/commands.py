"""``lamella export``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lamella.client.cli.arguments import location_of, store_options
from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.failure import needs_extra
from lamella.client.cli.output import size_text
from lamella.snapshot.counts import counted
from lamella.snapshot.storage import FsspecStore

if TYPE_CHECKING:
    from lamella.client.iceberg.export import ExportResult


@click.group()
def export() -> None:
    """Write a table's metadata in other formats, without copying data."""


@export.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option(
    "--snapshot", metavar="ID", help="The snapshot to export: an id, tag or number. Default: the current one."
)
@click.option("--location", metavar="URL", help="The folder of the export. Default: one in the table's own folder.")
@click.option("--columns", metavar="A,B,...", help="Export statistics of these columns, not of the first hundred.")
@click.option("--hold", metavar="TAG", help="The tag that protects the exported snapshot from expiry.")
@click.option("--no-hold", is_flag=True, help="Set no tag: the snapshot may expire, with files that the export names.")
@click.option("--trust-files", is_flag=True, help="Do not open registered files to check their column numbering.")
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
    """Write Iceberg metadata for a snapshot of a table, for engines that plan from Iceberg metadata."""
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
    if session.as_data:
        session.emit(done)
    else:
        _show(done)


def _show(done: ExportResult) -> None:
    if not done.is_changed:
        click.echo(
            f"{done.metadata_location} is up to date: snapshot {done.snapshot_id}, {counted(done.files, 'file')}"
        )
        return
    click.echo(
        f"snapshot {done.snapshot_id} ({counted(done.files, 'file')}, {counted(done.rows, 'row')}) is "
        f"Iceberg's {done.number}: "
        f"{done.manifests_written:,} manifests written, {done.manifests_reused:,} reused, "
        f"{size_text(done.size_bytes)}"
    )
    if done.forgotten:
        click.echo(f"{counted(done.forgotten, 'expired snapshot was', 'expired snapshots were')} removed")
    click.echo(done.metadata_location)
