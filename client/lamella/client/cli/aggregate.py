"""``lamella aggregate``."""

from __future__ import annotations

from typing import Any, get_args

import click
import msgspec

from lamella.client.cli.connection import Session, connected
from lamella.client.cli.failure import Failure
from lamella.client.cli.moment import one_snapshot, time_of
from lamella.client.cli.output import Justify, print_table, size_text, time_text
from lamella.client.http import Aggregated
from lamella.client.http.aggregated import python_value
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.stats import Bound
from lamella.snapshot.wire import AggregateMode, AggregateValue


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("aggregates", metavar="AGGREGATE...", nargs=-1, required=True)
@click.option("--where", "filter", metavar="SQL", help="Only rows that match, in Spark's dialect.")
@click.option("--group-by", metavar="A,B,...", help="One result for each combination of these columns' values.")
@click.option(
    "--mode",
    type=click.Choice(get_args(AggregateMode)),
    default="exact",
    show_default=True,
    help="What is proven and the blocks to scan, or the limits of the true values.",
)
@click.option(
    "--snapshot", "snapshot_id", metavar="ID", help="Use this snapshot (an id or a tag), not the current one."
)
@click.option("--timestamp", metavar="TIME", help="Use the snapshot of that time: ISO 8601, or Unix milliseconds.")
@click.option("--time-zone", default="UTC", show_default=True, help="For timestamps in the filter that have none.")
@click.option("--case-sensitive", is_flag=True, help="Tell apart columns that differ in case.")
@connected()
def aggregate(
    session: Session,
    table: str,
    aggregates: tuple[str, ...],
    filter: str | None,
    group_by: str | None,
    mode: AggregateMode,
    snapshot_id: str | None,
    timestamp: str | None,
    time_zone: str,
    case_sensitive: bool,
) -> None:
    """Count rows and find least and greatest values from statistics: count(*), count(c), min(c), max(c).

    Exit status 1: the statistics do not decide the result; what is shown are its limits.
    """
    one_snapshot(snapshot_id, timestamp)
    asked: dict[str, Any] = {
        "group_by": [name.strip() for name in group_by.split(",")] if group_by is not None else (),
        "time_zone": time_zone,
        "case_sensitive": case_sensitive,
    }
    given = session.lake.table(table)
    limits: Aggregated | None = None
    try:
        answer = given.aggregate(
            aggregates, filter, mode=mode, snapshot_id=snapshot_id, timestamp=time_of(timestamp), **asked
        )
        if not answer.complete and mode == "exact" and not session.as_json:
            limits = given.aggregate(aggregates, filter, mode="bounded", snapshot_id=answer.snapshot_id, **asked)
    except LamellaError as error:
        raise Failure(error, source=filter) from error
    if session.as_json:
        session.emit(answer)
    else:
        _show(answer if limits is None else limits)
    if answer.scan:
        size_bytes = sum(block.file_size for block in answer.scan)
        raise click.ClickException(
            f"the statistics do not decide it: the result lies within these limits; it would take the rows of "
            f"{len(answer.scan):,} blocks ({size_text(size_bytes)}) to tell"
        )


def _show(answer: Aggregated) -> None:
    click.echo(f"snapshot {answer.snapshot_id} of {time_text(answer.timestamp_ms)}")
    headings: list[str | tuple[str, Justify]] = [column.name for column in answer.group_columns]
    headings += [(column.name, "right") for column in answer.columns]
    rows = [
        [
            *(_text(c.type, part) for c, part in zip(answer.group_columns, group.key, strict=True)),
            *(_cell(c.type, value) for c, value in zip(answer.columns, group.values, strict=True)),
        ]
        for group in answer.groups
    ]
    click.echo("from statistics, exact" if answer.complete else "from statistics, limits of the result")
    print_table(headings, rows)
    if answer.other_groups:
        click.echo("\nthere may be other groups")


def _cell(type_text: str, value: AggregateValue) -> str:
    if value.exact:
        return _text(type_text, value.value)
    low = "..." if value.lower is None else _text(type_text, value.lower)
    high = "..." if value.upper is None else _text(type_text, value.upper)
    return f"{low} to {high}{', or null' if value.may_be_null else ''}"


def _text(type_text: str, bound: Bound | None) -> str:
    value = python_value(type_text, bound)
    if isinstance(value, Bound):
        return msgspec.json.encode(value).decode()
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    return "null" if value is None else f"{value:,}" if isinstance(value, int) and type_text == "int64" else str(value)
