"""``lamella feedback``."""

from __future__ import annotations

import click

from lamella.client.cli.connection import Session, connected
from lamella.client.cli.output import size_text
from lamella.snapshot.wire import FeedbackCleared


@click.group()
def feedback() -> None:
    """What readers reported of blocks without a matching row."""


@feedback.command("show")
@click.argument("table", metavar="NAMESPACE.TABLE")
@connected()
def show(session: Session, table: str) -> None:
    """Say how much is remembered for a table."""
    found = session.lake.table(table).feedback()
    if session.as_json:
        session.emit(found)
        return
    state = "is used" if found.enabled else "is not used: the service or the table has it off"
    click.echo(
        f"{table}: {found.facts:,} of {found.most_facts:,} facts about {found.filters:,} filters, "
        f"{size_text(found.size_bytes)} of {size_text(found.most_bytes)}; feedback {state}"
    )


@feedback.command("clear")
@click.argument("table", metavar="NAMESPACE.TABLE")
@connected()
def clear(session: Session, table: str) -> None:
    """Forget all that was reported of a table."""
    count = session.lake.table(table).clear_feedback()
    if session.as_json:
        session.emit(FeedbackCleared(facts=count))
    else:
        click.echo(f"{table}: {count:,} facts forgotten")
