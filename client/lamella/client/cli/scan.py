"""``lamella scan``: the rows of a table, read by this process."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

import click

from lamella.client.cli.arguments import one_snapshot, store_options, time_of
from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.failure import CommandFailure
from lamella.client.cli.rows import write_rows
from lamella.snapshot.errors import LamellaError

#: Rows that a table for people shows unless a limit says otherwise.
SHOWN_ROWS: Final = 100


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("filter", required=False)
@click.option("--columns", metavar="A,B,...", help="Only these columns; fields of structs by their path.")
@click.option(
    "--limit", type=click.IntRange(min=0), metavar="ROWS", help="At most this many. Default: all; 100 for a table."
)
@click.option("--order-by", metavar="'A DESC, B'", help="With --limit: the first rows of this order.")
@click.option("--snapshot", "snapshot_id", metavar="ID", help="Rows of this snapshot (an id, tag or number).")
@click.option("--timestamp", metavar="TIME", help="Rows of the snapshot of that time: ISO 8601, or Unix milliseconds.")
@click.option("--time-zone", default="UTC", show_default=True, help="Time zone of timestamps without one.")
@click.option("--case-sensitive", is_flag=True, help="Match column names case-sensitively.")
@click.option("--signed-urls", is_flag=True, help="Read by URLs that the service signs.")
@store_options
@with_session()
def scan(
    session: Session,
    table: str,
    filter: str | None,
    columns: str | None,
    limit: int | None,
    order_by: str | None,
    snapshot_id: str | None,
    timestamp: str | None,
    time_zone: str,
    case_sensitive: bool,
    signed_urls: bool,
    storage_options: Mapping[str, Mapping[str, Any]],
) -> None:
    """Write the rows for which a filter is true; only blocks that may have some are read.

    A table shows the first 100, and says on stderr if there are more; json and csv have all rows.
    """
    one_snapshot(snapshot_id, timestamp)
    if order_by is not None and limit is None:
        raise click.UsageError("--order-by needs --limit")
    is_cut = session.form == "table" and limit is None
    try:
        found = session.lake.table(table).scan(
            filter,
            [name.strip() for name in columns.split(",")] if columns is not None else None,
            limit=SHOWN_ROWS + 1 if is_cut else limit,
            order_by=order_by or (),
            snapshot_id=snapshot_id,
            timestamp=time_of(timestamp),
            time_zone=time_zone,
            case_sensitive=case_sensitive,
            signed_urls=signed_urls,
            storage_options=storage_options or None,
        )
        rows = found.to_json_rows()
        written = write_rows(session.form, found.schema.names, islice(rows, SHOWN_ROWS) if is_cut else rows)
        if is_cut and written == SHOWN_ROWS and next(rows, None) is not None:
            click.echo(f"these are {SHOWN_ROWS} rows, and there are more: give --limit, or -o csv or json", err=True)
    except LamellaError as error:
        raise CommandFailure(error, source=filter) from error
