"""``lamella policy``."""

from __future__ import annotations

from typing import BinaryIO

import click
import msgspec

from lamella.client.cli.connection import Session, connected
from lamella.client.cli.output import print_table, time_text
from lamella.snapshot.wire import Policy, PolicyInfo, Rule


@click.group()
def policy() -> None:
    """Jobs of a table that are asked for when it needs them, as long as a worker runs."""


@policy.command("set")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("document", type=click.File("rb"), metavar="FILE")
@connected()
def set_(session: Session, table: str, document: BinaryIO) -> None:
    """Give a table the policy that a JSON FILE holds (-: standard input), in place of the one it has."""
    try:
        asked = msgspec.json.decode(document.read(), type=Policy)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"it does not hold a policy: {error}", param_hint="FILE") from error
    _show(session, table, session.lake.table(table).set_policy(asked))


@policy.command("show")
@click.argument("table", metavar="NAMESPACE.TABLE")
@connected()
def show(session: Session, table: str) -> None:
    """Show a table's policy, and what its last check found."""
    _show(session, table, session.lake.table(table).policy())


@policy.command("drop")
@click.argument("table", metavar="NAMESPACE.TABLE")
@connected()
def drop(session: Session, table: str) -> None:
    """Drop a table's policy. Jobs that it asked for stay."""
    session.lake.table(table).drop_policy()
    if session.as_json:
        session.emit({})
    else:
        click.echo(f"{table} has no policy any more")


def _show(session: Session, table: str, found: PolicyInfo) -> None:
    if session.as_json:
        session.emit(found)
        return
    rules = {
        field.name: rule
        for field in msgspec.structs.fields(found.policy)
        if isinstance(rule := getattr(found.policy, field.name), Rule)
    }
    print_table(["rule", "when, and what"], [(name, msgspec.json.encode(r).decode()) for name, r in rules.items()])
    if found.checked_ms is None:
        click.echo(f"the policy of {table} was not checked yet; a worker has that done")
        return
    print_table(
        ["rule", "due", "why", "last asked", "job"],
        [
            (
                each.rule,
                "yes" if each.due else "no",
                each.reason,
                "never" if each.last_ms is None else time_text(each.last_ms),
                each.last_job_id or "",
            )
            for each in found.findings
        ],
        title=f"checked {time_text(found.checked_ms)}",
    )
