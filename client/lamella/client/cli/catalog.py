"""``lamella namespaces``, ``lamella tables``, ``lamella snapshots``."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import click
import msgspec

from lamella.client.cli.connection import Session, connected
from lamella.client.cli.location import location_of
from lamella.client.cli.output import print_table, size_text, time_text
from lamella.snapshot import wire
from lamella.snapshot.errors import InvalidSchema
from lamella.snapshot.schema import Column


@click.group()
def namespaces() -> None:
    """List, make and drop namespaces."""


@namespaces.command("list")
@connected()
def list_namespaces(session: Session) -> None:
    """List the namespaces."""
    found = session.lake.namespaces()
    if session.as_json:
        session.emit(wire.NamespaceList(namespaces=found))
    else:
        print_table(["namespace", "properties"], [(n.name, _properties(n.properties)) for n in found])


@namespaces.command("create")
@click.argument("name")
@click.option("--property", "properties", metavar="KEY=VALUE", multiple=True, help="A property; may be repeated.")
@connected()
def create_namespace(session: Session, name: str, properties: tuple[str, ...]) -> None:
    """Make a namespace."""
    made = session.lake.create_namespace(name, _pairs(properties))
    if session.as_json:
        session.emit(made)
    else:
        click.echo(f"namespace {made.name} is there")


@namespaces.command("drop")
@click.argument("name")
@connected()
def drop_namespace(session: Session, name: str) -> None:
    """Drop an empty namespace."""
    session.lake.drop_namespace(name)
    if session.as_json:
        session.emit({})
    else:
        click.echo(f"namespace {name} is gone")


@click.group()
def tables() -> None:
    """List, make, show and drop tables."""


@tables.command("list")
@click.argument("namespace")
@connected()
def list_tables(session: Session, namespace: str) -> None:
    """List the tables of a namespace."""
    found = session.lake.tables(namespace)
    if session.as_json:
        session.emit(wire.TableList(tables=found))
    else:
        print_table(["table"], [(name,) for name in found])


@tables.command("create")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option("--schema-from", metavar="URL", help="A Parquet file whose columns the table gets.")
@click.option(
    "--schema-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='A local JSON file with the columns: [{"name": ..., "type": ..., "nullable": ..., "fields": ...}].',
)
@click.option("--column", "columns", metavar="NAME:TYPE", multiple=True, help="A nullable column; may be repeated.")
@click.option("--cluster-by", metavar="COLUMN", multiple=True, help="A column of the cluster key; may be repeated.")
@click.option("--property", "properties", metavar="KEY=VALUE", multiple=True, help="A property; may be repeated.")
@connected()
def create_table(
    session: Session,
    table: str,
    schema_from: str | None,
    schema_file: Path | None,
    columns: tuple[str, ...],
    cluster_by: tuple[str, ...],
    properties: tuple[str, ...],
) -> None:
    """Make a table, with the columns of a Parquet file, a JSON file or the command line."""
    if [schema_from is not None, schema_file is not None, bool(columns)].count(True) != 1:
        raise click.UsageError("give the columns by exactly one of --schema-from, --schema-file and --column")
    schema = None if schema_from is not None else _schema(schema_file, columns)
    made = session.lake.create_table(
        table,
        schema=schema,
        schema_from=None if schema_from is None else location_of(schema_from),
        cluster_key=cluster_by,
        properties=_pairs(properties),
    )
    if session.as_json:
        session.emit(made)
    else:
        click.echo(f"table {made.namespace}.{made.name} is at {made.location}")


@tables.command("show")
@click.argument("table", metavar="NAMESPACE.TABLE")
@connected()
def show_table(session: Session, table: str) -> None:
    """Show a table: its columns, its size, its current snapshot."""
    info = session.lake.table(table).info()
    if session.as_json:
        session.emit(info)
        return
    print_table(
        ["", ""],
        [
            ("table", f"{info.namespace}.{info.name}"),
            ("location", info.location),
            ("snapshot", f"{info.snapshot_id} of {time_text(info.timestamp_ms)}"),
            ("rows", f"{info.row_count:,}"),
            ("blocks", f"{info.block_count:,} in {info.segment_count:,} segments"),
            ("size", size_text(info.file_size_bytes)),
            ("cluster key", ", ".join(info.cluster_key) or "none"),
            ("properties", _properties(info.properties) or "none"),
        ],
        headings=False,
    )
    print_table(
        [("id", "right"), "column", "type", "nulls", "default"], column_rows(info.schema.columns, ""), title="columns"
    )
    if info.distinct_of_values:
        counts = [(name, f"{count:,}") for name, count in info.distinct_of_values.items()]
        print_table(["column", ("about", "right")], counts, title="distinct values")


@tables.command("drop")
@click.argument("table", metavar="NAMESPACE.TABLE")
@connected()
def drop_table(session: Session, table: str) -> None:
    """Drop a table. Its files stay where they are."""
    session.lake.drop_table(table)
    if session.as_json:
        session.emit({})
    else:
        click.echo(f"table {table} is gone; its files are still there")


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="So many at most, the newest first."
)
@connected()
def snapshots(session: Session, table: str, limit: int) -> None:
    """List the snapshots of a table, newest first."""
    found = tuple(islice(session.lake.table(table).snapshots(page_size=min(limit, 1000)), limit))
    if session.as_json:
        session.emit(wire.SnapshotList(snapshots=found))
        return
    print_table(
        [
            "snapshot",
            "time",
            "operation",
            ("rows", "right"),
            ("blocks", "right"),
            ("segments", "right"),
            ("size", "right"),
        ],
        [
            (
                s.snapshot_id,
                time_text(s.timestamp_ms),
                s.operation,
                f"{s.row_count:,}",
                f"{s.block_count:,}",
                f"{s.segment_count:,}",
                size_text(s.file_size_bytes),
            )
            for s in found
        ],
    )


def _schema(file: Path | None, columns: tuple[str, ...]) -> tuple[Column, ...]:
    if file is not None:
        try:
            return msgspec.json.decode(file.read_bytes(), type=tuple[Column, ...])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidSchema(f"{file} does not hold a list of columns: {error}") from error
    made = []
    for text in columns:
        name, colon, kind = text.rpartition(":")
        if not (name and colon and kind):
            raise click.BadParameter(f"{text!r} is not NAME:TYPE", param_hint="--column")
        made.append(Column(name=name, type=kind))
    return tuple(made)


def column_rows(columns: tuple[Column, ...], indent: str) -> list[tuple[object, ...]]:
    """Columns as lines of a table: id, name, type, whether there may be nulls, default; fields are indented."""
    rows: list[tuple[object, ...]] = []
    for column in columns:
        rows.append(
            (column.id, indent + column.name, column.type, "yes" if column.nullable else "no", column.default or "")
        )
        rows += column_rows(column.fields, indent + "  ")
    return rows


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--property")
        pairs[key] = value
    return pairs


def _properties(properties: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(properties.items()))
