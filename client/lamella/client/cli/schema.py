"""``lamella schema``: the columns of a table, and how they change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from lamella.client.cli.catalog import column_rows
from lamella.client.cli.connection import Session, connected
from lamella.client.cli.output import print_table
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    SetDoc,
    SetNullable,
    WidenColumn,
)


@click.group()
def schema() -> None:
    """Show and change the columns of a table. No file is written again."""


def _base(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--base", type=click.IntRange(min=0), metavar="ID", help="Only if this is the id of the schema in force."
    )(command)


@schema.command("show")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option("--history", is_flag=True, help="The earlier schemas too.")
@connected()
def show(session: Session, table: str, history: bool) -> None:
    """Show the columns of a table."""
    info = session.lake.table(table).schema()
    if session.as_json:
        session.emit(info)
        return
    for each in info.history if history else (info.schema,):
        _print(each, "in force" if each is info.schema else "earlier")


@schema.command("add")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("name")
@click.argument("type", metavar="TYPE")
@click.option("--default", metavar="VALUE", help="What rows hold that were written without the column.")
@click.option("--required", is_flag=True, help="No nulls; needs a default.")
@click.option("--parent", metavar="COLUMN", help="The struct that gets the column as a field.")
@click.option("--first", is_flag=True, help="Before all others.")
@click.option("--after", metavar="COLUMN", help="Behind this one. Otherwise it stands last.")
@click.option("--doc", metavar="TEXT", help="A comment.")
@_base
@connected()
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
    """Add a column, or a field of a struct. Rows that are there hold null, or the default."""
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
@connected()
def drop(session: Session, table: str, column: str, base: int | None) -> None:
    """Drop a column. A later column of the same name starts empty."""
    _change(session, table, DropColumn(column=column), base)


@schema.command("rename")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("column")
@click.argument("name")
@_base
@connected()
def rename(session: Session, table: str, column: str, name: str, base: int | None) -> None:
    """Rename a column. Its values and statistics stay with it."""
    _change(session, table, RenameColumn(column=column, name=name), base)


@schema.command("widen")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("column")
@click.argument("type", metavar="TYPE")
@_base
@connected()
def widen(session: Session, table: str, column: str, type: str, base: int | None) -> None:
    """Give a column a type that holds every value of the old one."""
    _change(session, table, WidenColumn(column=column, type=type), base)


@schema.command("move")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("column")
@click.option("--first", is_flag=True, help="Before all others.")
@click.option("--after", metavar="COLUMN", help="Behind this one.")
@_base
@connected()
def move(session: Session, table: str, column: str, first: bool, after: str | None, base: int | None) -> None:
    """Move a column among its siblings."""
    if first == (after is not None):
        raise click.UsageError("give exactly one of --first and --after")
    _change(session, table, MoveColumn(column=column, first=first, after=after), base)


@schema.command("nullable")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("column")
@_base
@connected()
def nullable(session: Session, table: str, column: str, base: int | None) -> None:
    """Let a required column hold nulls."""
    _change(session, table, SetNullable(column=column, nullable=True), base)


@schema.command("doc")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("column")
@click.argument("text", required=False)
@_base
@connected()
def doc(session: Session, table: str, column: str, text: str | None, base: int | None) -> None:
    """Set the comment of a column; without a text, take it away."""
    _change(session, table, SetDoc(column=column, doc=text), base)


def _change(session: Session, table: str, change: SchemaChange, base: int | None) -> None:
    info = session.lake.table(table).evolve([change], base_schema_id=base)
    if session.as_json:
        session.emit(info)
    else:
        _print(info.schema, "in force")


def _print(schema: Schema, state: str) -> None:
    print_table(
        [("id", "right"), "column", "type", "nulls", "default"],
        column_rows(schema.columns, ""),
        title=f"schema {schema.schema_id}, {state}",
    )
