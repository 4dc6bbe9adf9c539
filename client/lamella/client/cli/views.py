"""``lamella views``."""

from __future__ import annotations

import json

import click

from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.output import print_table, time_text
from lamella.snapshot import wire


@click.group()
def views() -> None:
    """List, show and drop the views of Spark's catalog."""


@views.command("list")
@click.argument("namespace")
@with_session()
def list_views(session: Session, namespace: str) -> None:
    """List the views of a namespace."""
    found = session.lake.views(namespace)
    if session.as_data:
        session.emit(wire.ViewList(views=found))
    else:
        print_table(["view"], [(f"{namespace}.{name}",) for name in found])


@views.command("show")
@click.argument("view", metavar="NAMESPACE.VIEW")
@with_session()
def show_view(session: Session, view: str) -> None:
    """Show the query of a view, and its columns."""
    info = session.lake.view(view)
    if session.as_data:
        session.emit(info)
        return
    definition = info.definition
    names_in = ".".join((definition.default_catalog or "its own catalog", *definition.default_namespace))
    print_table(
        ["", ""],
        [
            ("view", f"{info.namespace}.{info.name}"),
            ("owner", info.owner),
            ("created", time_text(info.created_at_ms)),
            ("changed", time_text(info.updated_at_ms)),
            ("comment", definition.comment or "none"),
            ("names are in", names_in),
        ],
        headings=False,
    )
    columns = json.loads(definition.schema_json)["fields"]
    listed = [
        (field["name"], field["type"] if isinstance(field["type"], str) else field["type"]["type"]) for field in columns
    ]
    print_table(["column", "type"], listed, title="columns")
    click.echo(definition.sql)


@views.command("drop")
@click.argument("view", metavar="NAMESPACE.VIEW")
@with_session()
def drop_view(session: Session, view: str) -> None:
    """Drop a view, which cannot be restored."""
    session.lake.drop_view(view)
    if session.as_data:
        session.emit({})
    else:
        click.echo(f"view {view} is dropped")
