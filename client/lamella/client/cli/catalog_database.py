"""``lamella catalog``: the service's database, looked after without the service."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click
import msgspec

from lamella.client.cli.missing import needs_extra
from lamella.client.cli.output import print_table, time_text
from lamella.client.cli.service_options import ServiceSettings, with_settings
from lamella.snapshot.errors import InvalidRequest

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write the outcome as JSON, and nothing else.")


@click.group()
def catalog() -> None:
    """Migrate, export, import and verify the catalog's database, with the settings of `lamella serve`."""


@catalog.command()
@with_settings()
@_AS_JSON
def status(settings: ServiceSettings, as_json: bool) -> None:
    """Say which schema the catalog has, and what is missing. Changes nothing.

    Exit status 0: a service of this release can work with it, or would set it up; 1: it has to be migrated, or a newer
    release was here.
    """
    found = settings.load().settings
    state = _administration().look_at_schema(found.catalog_url, timeout_s=found.catalog_timeout_s)
    if as_json:
        click.echo(_json(state))
    else:
        _print_state(state)
    if not (state.is_new or state.is_current):
        raise click.exceptions.Exit(1)


@catalog.command()
@with_settings()
@click.option("--to", metavar="REVISION", help="End at this revision. Default: the newest.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--sql", "as_sql", is_flag=True, help="Only write the SQL of it, for somebody else to run.")
@_AS_JSON
def migrate(settings: ServiceSettings, to: str | None, dry_run: bool, as_sql: bool, as_json: bool) -> None:
    """Bring the catalog to the schema of this release, in one transaction.

    There is no way back: make an export first.
    """
    if as_sql and as_json:
        raise click.UsageError("SQL is not JSON: give one of --sql and --json")
    found = settings.load().settings
    database = _administration()
    state = database.look_at_schema(found.catalog_url, timeout_s=found.catalog_timeout_s)
    steps = import_module("lamella.service.catalog.migrate")
    if as_sql:
        click.echo(steps.migration_sql(state, to), nl=False)
        return
    missing = steps.steps_to(state, to)
    if not dry_run:
        database.migrate_catalog(found.catalog_url, to=to, timeout_s=found.catalog_timeout_s)
    if as_json:
        click.echo(_json({"done": not dry_run, "steps": missing}))
        return
    for step in missing:
        click.echo(f"{'would apply' if dry_run else 'applied'} {step.revision}: {step.what}")
    if not missing:
        click.echo(f"nothing to do: the catalog has schema revision {state.revision}")


@catalog.command("export")
@click.argument("file")
@with_settings()
@click.option("--at", metavar="TIME", help="As it was then, as far as the histories tell: ISO 8601 or Unix ms.")
@click.option("--leave-lost", is_flag=True, help="With --at, leave out tables that cannot be told of any more.")
@_AS_JSON
def export_catalog(settings: ServiceSettings, file: str, at: str | None, leave_lost: bool, as_json: bool) -> None:
    """Write the whole catalog to FILE, as of one moment; `-` is stdout.

    Services may go on meanwhile. The file holds the catalog's secrets and is readable by its owner only. It does not
    hold the warehouse's objects.
    """
    if leave_lost and at is None:
        raise click.UsageError("--leave-lost goes with --at")
    found = settings.load().settings
    backup = _service("backup")
    at_ms = None if at is None else _instant_ms(at)
    with (
        _administration().administered(found.catalog_url, timeout_s=found.catalog_timeout_s) as engine,
        _service("backup.files").written(file) as out,
    ):
        outcome = backup.export_catalog(engine, out, warehouse=found.warehouse_url, at_ms=at_ms, leave_lost=leave_lost)
    if as_json:
        click.echo(_json(outcome), err=file == "-")
        return
    for lost in outcome.lost:
        click.echo(f"left out: {lost.name}: {lost.why}", err=True)
    click.echo(
        f"{sum(outcome.rows.values()):,} rows of {len(outcome.rows)} tables, schema revision {outcome.schema_revision}",
        err=True,
    )


@catalog.command("import")
@click.argument("file")
@with_settings()
@click.option("--dry-run", is_flag=True, help="Only read FILE to its end, and look for what it points at.")
@click.option(
    "--without-keys", is_flag=True, help="Leave out API keys: revoked ones of an old export would hold again."
)
@click.option("--no-look", is_flag=True, help="Do not look whether the manifests that it points at are still there.")
@_AS_JSON
def import_catalog(
    settings: ServiceSettings, file: str, dry_run: bool, without_keys: bool, no_look: bool, as_json: bool
) -> None:
    """Fill an empty catalog of either kind from FILE; `-` is stdin.

    Exit status 1 as well when a table's current snapshot is gone from the warehouse: it cannot be read then.
    """
    if dry_run and file == "-":
        raise click.UsageError("--dry-run reads FILE twice, which stdin cannot be")
    found = settings.load().settings
    backup, presence, files = _service("backup"), _service("backup.presence"), _service("backup.files")
    seen = None
    if dry_run:
        with files.read(file) as source:
            outcome = backup.read_catalog(source)
        if not no_look:
            with files.read(file) as source:
                seen = _look(found, presence.snapshots_in(source))
    else:
        database = _administration().administered(found.catalog_url, timeout_s=found.catalog_timeout_s, create=True)
        with database as engine:
            with files.read(file) as source:
                outcome = backup.import_catalog(engine, source, without_keys=without_keys)
            if not no_look:
                seen = _look(found, presence.snapshots_of(engine))
    if as_json:
        click.echo(_json({"imported": not dry_run, "outcome": outcome, "presence": seen}))
    else:
        _print_import(outcome, seen, found.warehouse_url, dry_run=dry_run)
    if seen is not None and seen.lost:
        raise click.exceptions.Exit(1)


@catalog.command("verify")
@with_settings()
@click.option("--no-files", is_flag=True, help="Look only at what Lamella wrote, not at the blocks' files.")
@click.option(
    "--history", type=click.IntRange(0, 1_000_000), default=100, show_default=True, help="So many snapshots back."
)
@_AS_JSON
def verify_catalog(settings: ServiceSettings, no_files: bool, history: int, as_json: bool) -> None:
    """Hold everything that every table says of itself against what it is derived from, as after a restore.

    Exit status 0: nothing is wrong; 1: findings, or a table could not be read.
    """
    found = settings.load().settings
    if _administration().look_at_schema(found.catalog_url, timeout_s=found.catalog_timeout_s).is_new:
        raise InvalidRequest("there is no catalog in the database")  # opening it would make one, of no tables
    opened = import_module("lamella.service.catalog").open_catalog(
        found.catalog_url, timeout_s=found.catalog_timeout_s, auto_migrate=False
    )
    results = []
    try:
        verified = _service("backup.verifying").verify_catalog(
            opened,
            _store(found),
            found.warehouse_url,
            files=not no_files,
            history=history,
            workers=found.ingest_threads,
        )
        for result in verified:
            results.append(result)
            if not as_json:
                _print_verified(result)
    finally:
        opened.close()
    if as_json:
        click.echo(_json(results))
    else:
        wrong = sum(not result.is_clean for result in results)
        click.echo(f"{len(results):,} tables" + (f", {wrong:,} with findings" if wrong else ", nothing is wrong"))
    if any(not result.is_clean for result in results):
        raise click.exceptions.Exit(1)


def _service(name: str) -> Any:
    return import_module(f"lamella.service.{name}")


def _administration() -> Any:
    return import_module("lamella.service.catalog.administration")


def _store(found: Any) -> Any:
    with needs_extra("service"):
        return import_module("lamella.snapshot.layout").FsspecStore(found.store_options)


def _look(found: Any, pointed: Any) -> Any:
    return _service("backup.presence").look_for(pointed, _store(found), threads=found.ingest_threads)


def _instant_ms(text: str) -> int:
    state = _service("state")
    return int(state.instant_ms(state.instant_of(text), "UTC"))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _print_state(state: Any) -> None:
    if not state.is_known:
        click.echo(
            f"{state.backend}: schema revision {state.revision or 'none'} is none that this release knows; it knows "
            f"those up to {state.newest}"
        )
    elif state.is_new:
        click.echo(f"{state.backend}: empty; a service sets it up when it starts")
    elif state.is_current:
        click.echo(f"{state.backend}: schema revision {state.revision}, that of this release")
    else:
        click.echo(f"{state.backend}: schema revision {state.revision}; `lamella catalog migrate` applies")
        print_table(["revision", "what"], [(step.revision, step.what) for step in state.pending])


def _print_import(outcome: Any, seen: Any, warehouse_url: str, *, dry_run: bool) -> None:
    header = outcome.header
    click.echo(
        f"{'read' if dry_run else 'imported'} {sum(outcome.rows.values()):,} rows of {len(outcome.rows)} tables, made "
        f"{time_text(header.made_ms)} by Lamella {header.release}"
        + ("" if header.at_ms is None else f", as of {time_text(header.at_ms)}")
    )
    if header.warehouse != warehouse_url:
        click.echo(f"note: it was made of {header.warehouse}, not of {warehouse_url}; locations stay as they are")
    if seen is None:
        return
    if not seen.gone:
        click.echo(f"the manifests of all {seen.snapshots:,} snapshots of {seen.tables:,} tables are there")
        return
    print_table(
        ["table", "what is gone"],
        [
            (
                gone.table + (" (dropped)" if gone.is_dropped else ""),
                f"{gone.snapshots:,} snapshots"
                + (", THE CURRENT ONE among them" if gone.is_current else " of its past"),
            )
            for gone in seen.gone
        ],
    )


def _print_verified(result: Any) -> None:
    if result.error is not None:
        click.echo(f"{result.table}: could not be looked at: {result.error}")
        return
    click.echo(
        f"{result.table}: {result.segments:,} segments, {result.blocks:,} blocks and {result.snapshots:,} snapshots "
        f"looked at; {'nothing is wrong' if result.is_clean else f'{len(result.findings):,} findings'}"
    )
    for finding in result.findings:
        if finding.severity != "info":
            click.echo(f"  {finding.severity} {finding.code}: {finding.block or finding.object}: {finding.message}")
