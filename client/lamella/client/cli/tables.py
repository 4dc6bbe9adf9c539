"""``lamella namespaces``, ``lamella tables``, ``lamella snapshots``, ``lamella schema``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from lamella.client.cli import layout
from lamella.client.cli.arguments import key_option, location_of, pairs_of, snapshot_of, store_options
from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.output import print_table, size_text, time_text
from lamella.snapshot import wire
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import InvalidSchema
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import (
    AddColumn,
    DropCheck,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    SetDefault,
    SetDoc,
    SetNullable,
    SetShredding,
    WidenColumn,
)
from lamella.snapshot.schema.spark_types import spark_notes


@click.group()
def namespaces() -> None:
    """List, make, change and drop namespaces."""


@namespaces.command("list")
@with_session()
def list_namespaces(session: Session) -> None:
    """List the namespaces."""
    found = session.lake.namespaces()
    if session.as_data:
        session.emit(wire.NamespaceList(namespaces=found))
    else:
        print_table(["namespace", "properties"], [(n.name, _properties(n.properties)) for n in found])


@namespaces.command("create")
@click.argument("name")
@click.option("--property", "properties", metavar="KEY=VALUE", multiple=True, help="A property; may be repeated.")
@with_session()
def create_namespace(session: Session, name: str, properties: tuple[str, ...]) -> None:
    """Make a namespace."""
    made = session.lake.create_namespace(name, pairs_of(properties, "--property"))
    if session.as_data:
        session.emit(made)
    else:
        click.echo(f"namespace {made.name} is created")


@namespaces.command("set")
@click.argument("name")
@click.option("--property", "properties", metavar="KEY=VALUE", multiple=True, help="A property; may be repeated.")
@click.option("--remove", metavar="KEY", multiple=True, help="A property to remove; may be repeated.")
@with_session()
def change_namespace(session: Session, name: str, properties: tuple[str, ...], remove: tuple[str, ...]) -> None:
    """Set and remove properties of a namespace; other properties do not change.

    `lamella.quota.tables`, `lamella.quota.blocks` and `lamella.quota.bytes` set its quotas.
    """
    if not (properties or remove):
        raise click.UsageError("give at least one --property or --remove")
    changed = session.lake.change_namespace(name, set=pairs_of(properties, "--property"), remove=remove)
    if session.as_data:
        session.emit(changed)
    else:
        click.echo(f"namespace {name} has {_properties(changed.properties) or 'no properties'}")


@namespaces.command("quota")
@click.argument("name")
@with_session()
def namespace_quota(session: Session, name: str) -> None:
    """Show a namespace's use of its quotas."""
    found = session.lake.namespace_quota(name)
    if session.as_data:
        session.emit(found)
        return
    print_table(
        ["", ("used", "right"), ("maximum", "right")],
        [
            ("tables", *_quota_texts(found.tables, str)),
            ("blocks", *_quota_texts(found.blocks, str)),
            ("bytes", *_quota_texts(found.bytes, size_text)),
        ],
    )


@namespaces.command("drop")
@click.argument("name")
@with_session()
def drop_namespace(session: Session, name: str) -> None:
    """Drop an empty namespace."""
    session.lake.drop_namespace(name)
    if session.as_data:
        session.emit({})
    else:
        click.echo(f"namespace {name} is dropped")


@click.group()
def tables() -> None:
    """List, make, show and drop tables."""


tables.add_command(layout.cluster_by)


@tables.command("list")
@click.argument("namespace")
@with_session()
def list_tables(session: Session, namespace: str) -> None:
    """List the tables of a namespace."""
    found = session.lake.tables(namespace)
    if session.as_data:
        session.emit(wire.TableList(tables=found))
    else:
        print_table(["table"], [(name,) for name in found])


@tables.command("create")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option("--schema-from", metavar="URL", help="Take the columns of this Parquet file or folder.")
@click.option(
    "--schema-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='A local JSON file with the columns: [{"name": ..., "type": ..., "nullable": ..., "fields": ...}].',
)
@click.option("--column", "columns", metavar="NAME:TYPE", multiple=True, help="A nullable column; may be repeated.")
@key_option("The cluster key: columns, or expressions of them.")
@click.option(
    "--cluster-kind",
    type=click.Choice(["linear", "zorder", "hilbert"]),
    default="linear",
    show_default=True,
    help="Sort by one column of the cluster key after another, or along a curve through all.",
)
@click.option("--property", "properties", metavar="KEY=VALUE", multiple=True, help="A property; may be repeated.")
@with_session()
def create_table(
    session: Session,
    table: str,
    schema_from: str | None,
    schema_file: Path | None,
    columns: tuple[str, ...],
    cluster_by: tuple[str, ...],
    cluster_kind: ClusterKind,
    properties: tuple[str, ...],
) -> None:
    """Make a table with the columns of Parquet files, a JSON file or the command line.

    With --schema-from FOLDER, the columns are those of its first file, and those that folders such as year=2020 name.
    """
    if [schema_from is not None, schema_file is not None, bool(columns)].count(True) != 1:
        raise click.UsageError("give the columns by exactly one of --schema-from, --schema-file and --column")
    schema = None if schema_from is not None else _schema(schema_file, columns)
    made = session.lake.create_table(
        table,
        schema=schema,
        schema_from=None if schema_from is None else location_of(schema_from),
        cluster_key=cluster_by,
        cluster_kind=cluster_kind,
        properties=pairs_of(properties, "--property"),
    )
    if session.as_data:
        session.emit(made)
    else:
        click.echo(f"table {made.namespace}.{made.name} is at {made.location}")
        for note in spark_notes(made.schema):
            click.echo(f"note: {note}", err=True)


@tables.command("show")
@click.argument("table", metavar="NAMESPACE.TABLE")
@with_session()
def show_table(session: Session, table: str) -> None:
    """Show a table: its columns, its size, its current snapshot."""
    info = session.lake.table(table).info()
    if session.as_data:
        session.emit(info)
        return
    print_table(
        ["", ""],
        [
            ("table", f"{info.namespace}.{info.name}"),
            ("location", info.location),
            ("snapshot", f"{info.snapshot_id} of {time_text(info.timestamp_ms)}"),
            ("rows", rows_text(info)),
            ("blocks", f"{info.block_count:,} in {counted(info.segment_count, 'segment')}"),
            ("size", size_text(info.file_size_bytes)),
            ("cluster key", f"{', '.join(info.cluster_key)} ({info.cluster_kind})" if info.cluster_key else "none"),
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


def rows_text(info: wire.TableInfo) -> str:
    """Return the number of a table's rows, and how many of its files' rows are deleted."""
    if not info.deletes_count:
        return f"{info.row_count:,}"
    if info.live_row_count is None:
        return f"{info.row_count:,} in the files; the number of deleted ones is not known"
    return (
        f"{info.live_row_count:,} ({info.row_count - info.live_row_count:,} deleted in "
        f"{counted(info.deletes_count, 'block')})"
    )


@tables.command("rename")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("new_name", metavar="NEW_NAMESPACE.NEW_TABLE")
@with_session()
def rename_table(session: Session, table: str, new_name: str) -> None:
    """Rename a table, or move it to another namespace. Its id, files, history and jobs stay; grants do not follow."""
    info = session.lake.rename_table(table, new_name)
    if session.as_data:
        session.emit(info)
    else:
        click.echo(f"table {table} is now {info.namespace}.{info.name}")


@tables.command("convert-to-iceberg")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option("--dry-run", is_flag=True, help="Only check whether the table can be converted.")
@with_session()
def convert_to_iceberg(session: Session, table: str, dry_run: bool) -> None:
    """Let Iceberg clients commit to a table. Its files and history stay; it cannot be converted back."""
    answer = session.lake.table(table).convert_to_iceberg(dry_run=dry_run)
    if session.as_data:
        session.emit(answer)
        return
    size = f"{counted(answer.block_count, 'block')} and {counted(answer.row_count, 'row')}"
    if dry_run:
        click.echo(f"table {table} can be converted: {size}")
    else:
        click.echo(f"Iceberg clients can commit to table {table}: {size}\nmetadata: {answer.metadata_location}")


@tables.command("drop")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option(
    "--purge", is_flag=True, help="Permanently: it cannot be undropped, and the next vacuum deletes its files."
)
@with_session()
def drop_table(session: Session, table: str, purge: bool) -> None:
    """Drop a table. It can be undropped for a time; registered files are not deleted."""
    session.lake.drop_table(table, purge=purge)
    if session.as_data:
        session.emit({})
    elif purge:
        click.echo(f"table {table} is dropped permanently")
    else:
        click.echo(f"table {table} is dropped; `lamella tables undrop {table}` restores it")


@tables.command("dropped")
@click.argument("namespace")
@with_session()
def dropped_tables(session: Session, namespace: str) -> None:
    """List the dropped tables of a namespace that can be undropped, the last dropped first."""
    found = session.lake.dropped_tables(namespace)
    if session.as_data:
        session.emit(wire.DroppedList(tables=found))
    else:
        print_table(
            ["table", "id", "dropped", "can be undropped until"],
            [(t.name, t.table_id, time_text(t.dropped_at_ms), time_text(t.undrop_before_ms)) for t in found],
        )


@tables.command("undrop")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option("--id", "table_id", metavar="ID", help="Undrop the table of this id, whatever its name was.")
@click.option("--as", "as_name", metavar="NAME", help="A new name, when the old one is taken.")
@with_session()
def undrop_table(session: Session, table: str, table_id: str | None, as_name: str | None) -> None:
    """Restore the table last dropped under that name, with its history and tags."""
    if table_id is not None and as_name is not None:
        raise click.UsageError("--as cannot be used with --id: the table gets the name of the argument")
    info = session.lake.undrop_table(table, table_id=table_id, as_name=as_name)
    if session.as_data:
        session.emit(info)
    else:
        click.echo(f"table {info.namespace}.{info.name} is restored, with {counted(info.row_count, 'row')}")


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of snapshots to list."
)
@click.option(
    "--from",
    "start",
    metavar="SNAPSHOT",
    help="Begin with this snapshot: an id, a tag, or @TIME. Default: the current one.",
)
@with_session()
def snapshots(session: Session, table: str, limit: int, start: str | None) -> None:
    """List the snapshots of a table, newest first."""
    snapshot_id, timestamp = snapshot_of(start)
    listed = session.lake.table(table).snapshots(
        page_size=min(limit, 1000), snapshot_id=snapshot_id, timestamp=timestamp
    )
    found = tuple(islice(listed, limit))
    if session.as_data:
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
            "tags",
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
                ", ".join(s.tags),
            )
            for s in found
        ],
    )


def _schema(file: Path | None, columns: tuple[str, ...]) -> tuple[Column, ...]:
    if file is not None:
        try:
            return msgspec.json.decode(file.read_bytes(), type=tuple[Column, ...])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidSchema(f"{file} is not a list of columns: {error}") from error
    made = []
    for text in columns:
        name, colon, kind = text.rpartition(":")
        if not (name and colon and kind):
            raise click.BadParameter(f"{text!r} is not NAME:TYPE", param_hint="--column")
        made.append(Column(name=name, type=kind))
    return tuple(made)


def column_rows(columns: tuple[Column, ...], indent: str) -> list[tuple[object, ...]]:
    """Return rows for columns: id, name, type, nullability, default; fields of structs are indented."""
    rows: list[tuple[object, ...]] = []
    for column in columns:
        rows.append(
            (column.id, indent + column.name, column.type, "yes" if column.nullable else "no", column.default or "")
        )
        rows += column_rows(column.fields, indent + "  ")
    return rows


def _quota_texts(use: wire.QuotaUse, text: Callable[[int], str]) -> tuple[str, str]:
    return text(use.used), "any" if use.maximum is None else text(use.maximum)


def _properties(properties: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(properties.items()))


@click.group()
def schema() -> None:
    """Show and change the columns of a table. Rewrites no files."""


def _base(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--base", type=click.IntRange(min=0), metavar="ID", help="Only if this is the id of the schema in force."
    )(command)


@schema.command("show")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option("--history", is_flag=True, help="Also show earlier schemas.")
@with_session()
def show(session: Session, table: str, history: bool) -> None:
    """Show the columns of a table."""
    info = session.lake.table(table).schema()
    if session.as_data:
        session.emit(info, info.schema.columns)
        return
    for each in info.history if history else (info.schema,):
        _print(each, "in force" if each is info.schema else "earlier")


@schema.command("add")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("name")
@click.argument("type", metavar="TYPE")
@click.option("--default", metavar="VALUE", help="The value for rows written without the column.")
@click.option("--required", is_flag=True, help="No nulls; needs a default.")
@click.option("--parent", metavar="COLUMN", help="The struct that gets the column as a field.")
@click.option("--first", is_flag=True, help="Put it before all others.")
@click.option("--after", metavar="COLUMN", help="Put it after this column. Default: last.")
@click.option("--doc", metavar="TEXT", help="A comment.")
@_base
@with_session()
def add(
    session: Session,
    table: str,
    name: str,
    type: str,
    default: str | None,
    required: bool,
    parent: str | None,
    first: bool,
    after: str | None,
    doc: str | None,
    base: int | None,
) -> None:
    """Add a column, or a field of a struct. Existing rows get null, or the default."""
    change = AddColumn(
        name=name,
        type=type,
        nullable=not required,
        default=default,
        parent=parent,
        first=first,
        after=after,
        doc=doc,
    )
    _change(session, table, change, base)


@schema.command("drop")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("column")
@_base
@with_session()
def drop(session: Session, table: str, column: str, base: int | None) -> None:
    """Drop a column. A later column of the same name starts empty."""
    _change(session, table, DropColumn(column=column), base)


@schema.command("rename")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("column")
@click.argument("name")
@_base
@with_session()
def rename(session: Session, table: str, column: str, name: str, base: int | None) -> None:
    """Rename a column. Its values and statistics stay with it."""
    _change(session, table, RenameColumn(column=column, name=name), base)


@schema.command("widen")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("column")
@click.argument("type", metavar="TYPE")
@_base
@with_session()
def widen(session: Session, table: str, column: str, type: str, base: int | None) -> None:
    """Widen a column's type to one that can represent every value of the old one."""
    _change(session, table, WidenColumn(column=column, type=type), base)


@schema.command("move")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("column")
@click.option("--first", is_flag=True, help="Put it before all others.")
@click.option("--after", metavar="COLUMN", help="Put it after this column.")
@_base
@with_session()
def move(session: Session, table: str, column: str, first: bool, after: str | None, base: int | None) -> None:
    """Move a column among its siblings."""
    if first == (after is not None):
        raise click.UsageError("give exactly one of --first and --after")
    _change(session, table, MoveColumn(column=column, first=first, after=after), base)


@schema.command("nullable")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("column")
@_base
@with_session()
def nullable(session: Session, table: str, column: str, base: int | None) -> None:
    """Let a required column contain nulls."""
    _change(session, table, SetNullable(column=column, nullable=True), base)


@schema.command("required")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("column")
@_base
@with_session()
def required(session: Session, table: str, column: str, base: int | None) -> None:
    """Forbid nulls in a column. The statistics of the table must prove that no row has one."""
    _change(session, table, SetNullable(column=column, nullable=False), base)


@schema.command("default")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("column")
@click.argument("value", required=False)
@_base
@with_session()
def default(session: Session, table: str, column: str, value: str | None, base: int | None) -> None:
    """Set the value of a column in new rows that come without it; without a value, remove it. Rows that exist stay."""
    _change(session, table, SetDefault(column=column, default=value), base)


@schema.command("doc")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("column")
@click.argument("text", required=False)
@_base
@with_session()
def doc(session: Session, table: str, column: str, text: str | None, base: int | None) -> None:
    """Set the comment of a column; without a text, remove it."""
    _change(session, table, SetDoc(column=column, doc=text), base)


@schema.command("shred")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("fields", required=False)
@_base
@with_session()
def shred(session: Session, table: str, fields: str | None, base: int | None) -> None:
    """Set the shredded fields of all variants, such as "v:a.b::int, v:c::string"; without fields, remove them. Files
    stay as they are."""
    _change(session, table, SetShredding(shredding=fields or ""), base)


@schema.command("add-check")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("name")
@click.argument("condition")
@click.option("--time-zone", default="UTC", show_default=True, help="The time zone of dates and times without one.")
@store_options
@with_session()
def add_check(
    session: Session,
    table: str,
    name: str,
    condition: str,
    time_zone: str,
    storage_options: dict[str, dict[str, Any]],
) -> None:
    """Add a CHECK constraint. All rows of the table are checked first, and new ones by every writer from then on."""
    session.lake.table(table).add_check(name, condition, time_zone=time_zone, storage_options=storage_options)
    _emit(session, session.lake.table(table).schema())


@schema.command("drop-check")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("name")
@_base
@with_session()
def drop_check(session: Session, table: str, name: str, base: int | None) -> None:
    """Drop a CHECK constraint."""
    _change(session, table, DropCheck(name=name), base)


def _change(session: Session, table: str, change: SchemaChange, base: int | None) -> None:
    _emit(session, session.lake.table(table).evolve([change], base_schema_id=base))


def _emit(session: Session, info: wire.SchemaInfo) -> None:
    if session.as_data:
        session.emit(info, info.schema.columns)
    else:
        _print(info.schema, "in force")


def _print(schema: Schema, state: str) -> None:
    print_table(
        [("id", "right"), "column", "type", "nulls", "default"],
        column_rows(schema.columns, ""),
        title=f"schema {schema.schema_id}, {state}",
    )
    for check in schema.checks:
        click.echo(f"constraint {check.name}: CHECK ({check.condition})")
