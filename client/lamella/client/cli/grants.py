"""``lamella grants``: who may do what."""

from __future__ import annotations

from typing import cast

import click
from click.shell_completion import CompletionItem

from lamella.client.cli.connection import Session, connected
from lamella.client.cli.output import print_table, time_text
from lamella.client.cli.place import complete_key, place_of
from lamella.snapshot.wire import ROLES, GrantList, Role
from lamella.snapshot.wire.place import place_text

_KEY = "key:"
_KINDS = (_KEY, "user:", "group:")


def complete_principal(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Kinds of principals; of keys the names too, as far as the service tells."""
    if not incomplete.startswith(_KEY):
        return [CompletionItem(kind) for kind in _KINDS if kind.startswith(incomplete)]
    found = complete_key(ctx, parameter, incomplete.removeprefix(_KEY))
    return [CompletionItem(_KEY + str(item.value)) for item in found]


@click.group()
def grants() -> None:
    """Who may do what. A PRINCIPAL is key:NAME, user:SUBJECT or group:NAME; a PLACE is *, NAMESPACE.* or
    NAMESPACE.TABLE."""


@grants.command("list")
@click.option("--principal", metavar="PRINCIPAL", shell_complete=complete_principal, help="Only those to this one.")
@connected()
def list_(session: Session, principal: str | None) -> None:
    """List your own grants, and those on what you are admin of."""
    found = session.lake.grants.list(principal)
    if session.as_json:
        session.emit(GrantList(grants=found))
        return
    print_table(
        ["who", "role", "on", "given", "by"],
        [(each.principal, each.role, place_text(each), time_text(each.created_ms), each.created_by) for each in found],
    )


@grants.command("give")
@click.argument("principal", shell_complete=complete_principal)
@click.argument("role", type=click.Choice(ROLES), metavar="ROLE")
@click.argument("place")
@connected()
def give(session: Session, principal: str, role: str, place: str) -> None:
    """Give a role (read, write, maintain, admin), in place of another one on the same."""
    namespace, table = place_of(place, "PLACE")
    given = session.lake.grants.give(principal, cast("Role", role), namespace, table)
    if session.as_json:
        session.emit(given)
    else:
        click.echo(f"{given.principal} has the role {given.role} on {place_text(given)}")


@grants.command("take")
@click.argument("principal", shell_complete=complete_principal)
@click.argument("place")
@connected()
def take(session: Session, principal: str, place: str) -> None:
    """Take a role away, whichever it is. What was given on other places stays."""
    namespace, table = place_of(place, "PLACE")
    session.lake.grants.take(principal, namespace, table)
    if session.as_json:
        session.emit({})
    else:
        click.echo(f"{principal} has no role of its own on {place} any more")
