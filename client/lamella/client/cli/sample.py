"""``lamella sample``: some rows of a table, read by the service."""

from __future__ import annotations

from typing import Any, Final

import click
import msgspec

from lamella.client.cli.arguments import one_snapshot, time_of
from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.failure import CommandFailure
from lamella.client.cli.output import print_table, size_text
from lamella.client.cli.rows import write_rows
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.wire import MAX_SAMPLE_BLOCKS, MAX_SAMPLE_ROWS, SampleAnswer, SampleBound

_ENDED_BY: Final[dict[SampleBound, str]] = {
    "rows": "there are more rows",
    "blocks": "more blocks may have rows (--max-blocks)",
    "bytes": "the next rows need more bytes of files than may be read",
    "time": "the time is over (--max-ms)",
    "answer_bytes": "the rows are as many bytes as one answer may have; read fewer columns",
}


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("filter", required=False)
@click.option(
    "--limit",
    "rows",
    metavar="ROWS",
    type=click.IntRange(min=1, max=MAX_SAMPLE_ROWS),
    default=20,
    show_default=True,
    help="Maximum number of rows.",
)
@click.option("--columns", metavar="A,B,...", help="Only these columns.")
@click.option("--snapshot", "snapshot_id", metavar="ID", help="Rows of this snapshot (an id, tag or number).")
@click.option("--timestamp", metavar="TIME", help="Rows of the snapshot of that time: ISO 8601, or Unix milliseconds.")
@click.option("--time-zone", default="UTC", show_default=True, help="Time zone of timestamps without one.")
@click.option("--case-sensitive", is_flag=True, help="Match column names case-sensitively.")
@click.option(
    "--max-blocks",
    type=click.IntRange(min=1, max=MAX_SAMPLE_BLOCKS),
    default=16,
    show_default=True,
    help="Maximum number of blocks to read.",
)
@click.option("--max-ms", type=click.FloatRange(min=0, min_open=True), help="Time budget in milliseconds, approximate.")
@with_session()
def sample(
    session: Session,
    table: str,
    filter: str | None,
    rows: int,
    columns: str | None,
    snapshot_id: str | None,
    timestamp: str | None,
    time_zone: str,
    case_sensitive: bool,
    max_blocks: int,
    max_ms: float | None,
) -> None:
    """Show some rows of a table, which the service reads from its files.

    They are any rows, not drawn at random. The last line says how much was read, and whether these are all rows.
    """
    one_snapshot(snapshot_id, timestamp)
    try:
        answer = session.lake.table(table).sample(
            filter,
            [name.strip() for name in columns.split(",")] if columns is not None else None,
            rows=rows,
            snapshot_id=snapshot_id,
            timestamp=time_of(timestamp),
            time_zone=time_zone,
            case_sensitive=case_sensitive,
            max_blocks=max_blocks,
            max_ms=max_ms,
        )
    except LamellaError as error:
        raise CommandFailure(error, source=filter) from error
    if session.form == "csv":
        write_rows("csv", [each.name for each in answer.columns], answer.rows)
    elif session.as_data:
        session.emit(answer)
    else:
        _show(answer)


def _show(answer: SampleAnswer) -> None:
    if answer.rows:
        print_table([each.name for each in answer.columns], [[_text(value) for value in row] for row in answer.rows])
        click.echo()
    selected, total = f"{answer.blocks_selected:,}", f"{answer.blocks_total:,}"
    click.echo(
        f"{counted(len(answer.rows), 'row')}; {answer.blocks_read:,} of {selected} blocks that may have "
        "rows were read, of "
        f"{total} in the table, {size_text(answer.bytes_read)}"
    )
    click.echo("these are all rows" if answer.stopped is None else f"not all rows: {_ENDED_BY[answer.stopped]}")
    for name, reason in answer.left_out.items():
        click.echo(f"left out: {name} ({reason})")


def _text(value: Any) -> str:
    if value is None:
        return "null"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
