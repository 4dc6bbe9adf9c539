"""``lamella catalog export``, ``import`` and ``verify``: dump the catalog to a file, load it, check the tables it
lists."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from lamella.client.cli.failure import needs_extra
from lamella.client.cli.output import print_table, time_text
from lamella.client.cli.rows import DataWriter, RowFormat, form_of
from lamella.client.cli.service import (
    OUTPUT,
    ServiceSettings,
    catalog_administration,
    with_settings,
)
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import InvalidRequest


@click.command("export")
@click.argument("file")
@with_settings()
@OUTPUT
def export_catalog(settings: ServiceSettings, file: str, output: RowFormat | None, as_json: bool) -> None:
    """Write the whole catalog to FILE, as of one moment; `-` is stdout.

    Services may keep running. The file contains the catalog's secrets; only its owner can read it. It does not contain
    the objects of the warehouse.
    """
    form = form_of(output, as_json=as_json)
    found = settings.load().settings
    export = import_module("lamella.service.backup.export")
    with (
        catalog_administration().administered(found.catalog_url, timeout_s=found.catalog_timeout_s) as engine,
        import_module("lamella.service.backup.archive").written(file) as out,
    ):
        outcome = export.export_catalog(engine, out, warehouse=found.warehouse_url)
    if form != "table":
        DataWriter(form, err=file == "-").write(outcome)
        return
    click.echo(
        f"{_amount(outcome.rows)}, schema revision {outcome.schema_revision}",
        err=True,
    )


@click.command("import")
@click.argument("file")
@with_settings()
@click.option("--dry-run", is_flag=True, help="Only read FILE and check that the manifests it points at exist.")
@click.option(
    "--without-keys", is_flag=True, help="Leave out API keys: an old export would make revoked keys valid again."
)
@click.option("--no-look", is_flag=True, help="Do not check that the manifests it points at still exist.")
@OUTPUT
def import_catalog(
    settings: ServiceSettings,
    file: str,
    dry_run: bool,
    without_keys: bool,
    no_look: bool,
    output: RowFormat | None,
    as_json: bool,
) -> None:
    """Load FILE into an empty catalog of either backend; `-` is stdin.

    Exit status 1 also when a table's current snapshot is missing from the warehouse; such a table cannot be read.
    """
    form = form_of(output, as_json=as_json)
    if dry_run and file == "-":
        raise click.UsageError("--dry-run reads FILE twice and cannot read stdin")
    found = settings.load().settings
    archive = import_module("lamella.service.backup.archive")
    check = import_module("lamella.service.backup.check")
    restore = import_module("lamella.service.backup.restore")
    seen = None
    if dry_run:
        with archive.read(file) as source:
            outcome = restore.read_catalog(source)
        if not no_look:
            with archive.read(file) as source:
                seen = _check_manifests(found, check.snapshots_in(source))
    else:
        database = catalog_administration().administered(
            found.catalog_url, timeout_s=found.catalog_timeout_s, create=True
        )
        with database as engine:
            with archive.read(file) as source:
                outcome = restore.import_catalog(engine, source, without_keys=without_keys)
            if not no_look:
                seen = _check_manifests(found, check.snapshots_of(engine))
    if form != "table":
        DataWriter(form).write({"imported": not dry_run, "outcome": outcome, "presence": seen})
    else:
        _print_import(outcome, seen, found.warehouse_url, dry_run=dry_run)
    if seen is not None and seen.lost:
        raise click.exceptions.Exit(1)


@click.command("verify")
@with_settings()
@click.option("--no-files", is_flag=True, help="Check only Lamella's own metadata, not the block files.")
@click.option(
    "--history",
    type=click.IntRange(0, 1_000_000),
    default=100,
    show_default=True,
    help="How many past snapshots to check.",
)
@OUTPUT
def verify_catalog(
    settings: ServiceSettings, no_files: bool, history: int, output: RowFormat | None, as_json: bool
) -> None:
    """Check the metadata of every table against the files it describes, as after a restore.

    Exit status 0: no findings; 1: findings, or a table could not be read.
    """
    form = form_of(output, as_json=as_json)
    found = settings.load().settings
    if catalog_administration().look_at_schema(found.catalog_url, timeout_s=found.catalog_timeout_s).is_new:
        raise InvalidRequest("there is no catalog in the database")  # opening the catalog would create an empty one
    opened = import_module("lamella.service.catalog").open_catalog(
        found.catalog_url, timeout_s=found.catalog_timeout_s, auto_migrate=False
    )
    results = []
    try:
        verified = import_module("lamella.service.backup.check").verify_catalog(
            opened,
            _store(found),
            found.warehouse_url,
            files=not no_files,
            history=history,
            workers=found.ingest_threads,
        )
        for result in verified:
            results.append(result)
            if form == "table":
                _print_verified(result)
    finally:
        opened.close()
    if form != "table":
        DataWriter(form).write(results)
    else:
        wrong = sum(not result.is_clean for result in results)
        click.echo(
            f"{counted(len(results), 'table')}" + (f", {wrong:,} with findings" if wrong else ", nothing is wrong")
        )
    if any(not result.is_clean for result in results):
        raise click.exceptions.Exit(1)


def _store(found: Any) -> Any:
    with needs_extra("service"):
        return import_module("lamella.snapshot.storage").FsspecStore(found.store_options)


def _check_manifests(found: Any, pointed: Any) -> Any:
    return import_module("lamella.service.backup.check").look_for(pointed, _store(found), threads=found.ingest_threads)


def _amount(rows: Mapping[str, int]) -> str:
    """Return how much of a lake a catalog holds; ``rows``: those of each table of its database."""
    tables, snapshots = counted(rows.get("tables", 0), "table"), counted(rows.get("snapshots", 0), "snapshot")
    return f"{tables} with {snapshots}, {counted(sum(rows.values()), 'row')} of the database in all"


def _print_import(outcome: Any, seen: Any, warehouse_url: str, *, dry_run: bool) -> None:
    header = outcome.header
    click.echo(
        f"{'read' if dry_run else 'imported'} {_amount(outcome.rows)}, made "
        f"{time_text(header.made_ms)} by Lamella {header.release}"
    )
    if header.warehouse != warehouse_url:
        click.echo(
            f"note: it was exported from {header.warehouse}, not from {warehouse_url}; locations are not changed"
        )
    if seen is None:
        return
    if not seen.gone:
        click.echo(
            f"the manifests of all {counted(seen.snapshots, 'snapshot')} of {counted(seen.tables, 'table')} exist"
        )
        return
    print_table(
        ["table", "what is missing"],
        [
            (
                gone.table + (" (dropped)" if gone.is_dropped else ""),
                f"{counted(gone.snapshots, 'snapshot')}"
                + (", THE CURRENT ONE among them" if gone.is_current else " of its past"),
            )
            for gone in seen.gone
        ],
    )


def _print_verified(result: Any) -> None:
    if result.error is not None:
        click.echo(f"{result.table}: could not be checked: {result.error}")
        return
    click.echo(
        f"{result.table}: {counted(result.segments, 'segment')}, {counted(result.blocks, 'block')} and "
        f"{counted(result.snapshots, 'snapshot')} "
        f"checked; {'nothing is wrong' if result.is_clean else counted(len(result.findings), 'finding')}"
    )
    for finding in result.findings:
        if finding.severity != "info":
            click.echo(f"  {finding.severity} {finding.code}: {finding.block or finding.object}: {finding.message}")


def add_backup_commands(group: click.Group) -> None:
    """Add these commands to `lamella catalog`."""
    for command in (export_catalog, import_catalog, verify_catalog):
        group.add_command(command)
