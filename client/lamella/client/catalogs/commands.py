"""``lamella import``: tables of other catalogs as external tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import click

from lamella.client.catalogs.importing import ImportAnswer, ImportedTable, ImportOptions, OnTable, import_tables
from lamella.client.catalogs.tables import SourceCatalog
from lamella.client.cli.arguments import pairs_of
from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.failure import CommandFailure, needs_extra, refused_lines
from lamella.client.cli.output import ShowBar, bar, is_watched, print_table
from lamella.client.http.external import OnProgress
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.wire import RefreshProgress


@click.group("import")
def import_group() -> None:
    """Tables of other catalogs, as external tables. The same command again refreshes them."""


def _import_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the patterns and options of every import; the command gets them as ``include``, ``exclude``, ``options``."""
    decorators = (
        click.argument("include", metavar="PATTERN...", nargs=-1),
        click.option("--into", metavar="NAMESPACE", help="The namespace of all tables. Default: the database's name."),
        click.option("--exclude", metavar="PATTERN", multiple=True, help="Leave these tables out; may be repeated."),
        click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing."),
        click.option("--drop-missing", is_flag=True, help="Drop imported tables that the source no longer has."),
        click.option("--allow-empty", is_flag=True, help="Accept a table whose folders have no file any more."),
    )

    @wraps(function)
    def command(session: Session, /, **kwargs: Any) -> None:
        names = ("into", "dry_run", "drop_missing", "allow_empty", "time_zone", "service_catalog")
        options = ImportOptions(**{name: kwargs.pop(name) for name in names if name in kwargs})
        function(session, options=options, **kwargs)

    wrapped: Callable[..., None] = with_session(timeout_s=3600.0)(command)
    for decorator in reversed(decorators):
        wrapped = decorator(wrapped)
    return wrapped


_time_zone = click.option(
    "--time-zone", default="UTC", show_default=True, help="For timestamps that are values of partitions."
)
_service_catalog = click.option(
    "--service-catalog",
    metavar="NAME",
    help="The catalog's name in the service's setting iceberg_catalogs: then lamella external refresh follows Iceberg "
    "tables too.",
)


@import_group.command("hive")
@click.argument("uri", metavar="URI")
@_service_catalog
@_time_zone
@_import_options
def hive(
    session: Session, uri: str, include: tuple[str, ...], exclude: tuple[str, ...], options: ImportOptions
) -> None:
    """Import tables of a Hive Metastore: Parquet, Delta and Iceberg tables.

    URI is the metastore's address, such as thrift://host:9083. PATTERN names a database (sales) or tables
    (sales.orders, 'sales.*'); without one, all tables are imported.

    Exit status 1: at least one table was refused. The others are imported.
    """
    with needs_extra("hive"):
        from lamella.client.catalogs.hive import HiveMetastore

        metastore = HiveMetastore(uri)
    with metastore:
        _run(session, metastore, include, exclude, options)


@import_group.command("glue")
@click.option("--region", help="The region of AWS. Default: as boto3 is configured.")
@click.option("--catalog-id", metavar="ACCOUNT", help="The catalog of another account.")
@click.option("--endpoint-url", metavar="URL", help="A server of the same interface, instead of AWS.")
@_service_catalog
@_time_zone
@_import_options
def glue(
    session: Session,
    region: str | None,
    catalog_id: str | None,
    endpoint_url: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    options: ImportOptions,
) -> None:
    """Import tables of the Glue Data Catalog: Parquet, Delta and Iceberg tables.

    Credentials are those that boto3 finds, such as AWS_PROFILE. PATTERN names a database (sales) or tables
    (sales.orders, 'sales.*'); without one, all tables are imported.

    Exit status 1: at least one table was refused. The others are imported.
    """
    with needs_extra("glue"):
        from lamella.client.catalogs.glue import GlueCatalog

        catalog = GlueCatalog(region, catalog_id=catalog_id, endpoint_url=endpoint_url)
    _run(session, catalog, include, exclude, options)


@import_group.command("iceberg")
@click.argument("target", metavar="CATALOG")
@click.option(
    "--property",
    "properties",
    metavar="KEY=VALUE",
    multiple=True,
    help="A property of pyiceberg's for this catalog, such as warehouse; may be repeated.",
)
@_service_catalog
@_import_options
def iceberg(
    session: Session,
    target: str,
    properties: tuple[str, ...],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    options: ImportOptions,
) -> None:
    """Import tables of an Iceberg catalog.

    CATALOG is the address of a REST catalog, or the name of a catalog in pyiceberg's configuration, which can also hold
    the credentials. PATTERN names a namespace (sales) or tables (sales.orders, 'sales.*'); without one, all tables are
    imported.

    Exit status 1: at least one table was refused. The others are imported.
    """
    with needs_extra("iceberg"):
        from lamella.client.catalogs.iceberg import IcebergCatalog

        catalog = IcebergCatalog(target, pairs_of(properties, "--property"))
    _run(session, catalog, include, exclude, options)


@import_group.command("unity")
@click.argument("uri", metavar="URI")
@click.option("--unity-token", envvar="LAMELLA_UNITY_TOKEN", show_envvar=True, help="An access token of the catalog.")
@_import_options
def unity(
    session: Session,
    uri: str,
    unity_token: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    options: ImportOptions,
) -> None:
    """Import tables of Unity Catalog: Delta tables, and Parquet tables without partitions.

    URI is the server's address, such as https://host. PATTERN names a schema (main.sales) or tables
    (main.sales.orders, 'main.*'); without one, all tables are imported.

    Exit status 1: at least one table was refused. The others are imported.
    """
    from lamella.client.catalogs.unity import UnityCatalog

    _run(session, UnityCatalog(uri, token=unity_token), include, exclude, options)


def _run(
    session: Session,
    catalog: SourceCatalog,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    options: ImportOptions,
) -> None:
    """Import, and show the results; those of tables that were done before an error too."""
    done: list[ImportedTable] = []
    with _progress() as on_table:
        try:
            done.extend(import_tables(session.lake, catalog, include, exclude, options, on_table=on_table))
        except LamellaError as error:
            said = (
                f"{counted(len(done), 'table was', 'tables were')} done before"
                if done and not options.dry_run
                else None
            )
            raise CommandFailure(error, done=said) from error
    answer = ImportAnswer(dry_run=options.dry_run, tables=tuple(done))
    if session.as_data:
        session.emit(answer, answer.tables)
    else:
        _print(answer)
    if any(each.action == "refused" for each in done):
        raise click.exceptions.Exit(1)


def _print(answer: ImportAnswer) -> None:
    if not answer.tables:
        click.echo("the catalog has no such table")
        return
    print_table(
        ["source", "kind", "table", "would be" if answer.dry_run else "done", ("blocks", "right"), "changes"],
        [
            (
                each.source,
                each.kind or "",
                each.table,
                each.action,
                "" if each.blocks is None else f"{each.blocks:,}",
                f"{each.added:,} added, {each.removed:,} removed" if each.added or each.removed else "",
            )
            for each in answer.tables
        ],
    )
    for each in answer.tables:
        if each.action == "refused":
            click.echo(f"{each.source}: {each.reason} [{each.code}]", err=True)
            for line in refused_lines([{"path": f.path, "code": f.code, "reason": f.reason} for f in each.files]):
                click.echo(line, err=True)
        elif each.action == "missing":
            click.echo(f"{each.table}: the catalog no longer has {each.source}; --drop-missing drops it", err=True)


@contextmanager
def _progress() -> Iterator[OnTable | None]:
    """Yield a callback that moves a bar from table to table; None when output is not watched."""
    if not is_watched():
        yield None
        return
    with bar("listing", "tables") as move:
        yield lambda name, number, total: _shown(move, name, number, total)


def _shown(move: ShowBar, name: str, number: int, total: int) -> OnProgress:
    move(number, total, name)

    def show(found: RefreshProgress) -> None:
        if found.running:
            files = (
                f" ({found.phase} {found.files_done:,} of {counted(found.files_total, 'file')})"
                if found.files_total
                else ""
            )
            move(number, total, f"{name}{files}")

    return show
