"""``lamella diff``."""

from __future__ import annotations

import click

from lamella.client.cli.connection import Session, connected
from lamella.client.cli.failure import Failure
from lamella.client.cli.moment import snapshot_of
from lamella.client.cli.output import print_table, size_text
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.wire import DiffAnswer


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("before", metavar="FROM")
@click.argument("after", metavar="TO", required=False)
@click.option("--where", "filter", metavar="SQL", help="Only blocks that may hold matching rows, in Spark's dialect.")
@click.option("--time-zone", default="UTC", show_default=True, help="For timestamps in the filter that have none.")
@click.option("--case-sensitive", is_flag=True, help="Tell apart columns that differ in case.")
@click.option("--show", type=click.IntRange(min=0), default=10, show_default=True, help="So many blocks are listed.")
@connected()
def diff(
    session: Session,
    table: str,
    before: str,
    after: str | None,
    filter: str | None,
    time_zone: str,
    case_sensitive: bool,
    show: int,
) -> None:
    """Show which blocks came and went between two snapshots (ids, tags, or @TIME); without TO, up to the current one.

    With --json: the service's answer with all blocks.
    """
    from_id, from_time = snapshot_of(before)
    to_id, to_time = snapshot_of(after)
    try:
        answer = session.lake.table(table).diff(
            from_id,
            to_id,
            filter,
            from_timestamp=from_time,
            to_timestamp=to_time,
            time_zone=time_zone,
            case_sensitive=case_sensitive,
        )
    except LamellaError as error:
        raise Failure(error, source=filter) from error
    if session.as_json:
        session.emit(answer)
    else:
        _show(answer, show)


def _show(answer: DiffAnswer, show: int) -> None:
    click.echo(f"from {answer.from_snapshot_id} to {answer.to_snapshot_id}")
    click.echo(
        f"{len(answer.added):,} blocks added, {len(answer.removed):,} removed, {answer.unchanged_blocks:,} unchanged; "
        f"{answer.segments_read:,} segments read, {answer.segments_skipped:,} shared and skipped"
    )
    blocks = [("+", block) for block in answer.added] + [("-", block) for block in answer.removed]
    if blocks[:show]:
        print_table(
            ["", "verdict", ("rows", "right"), ("size", "right"), "location"],
            [(sign, b.verdict, f"{b.row_count:,}", size_text(b.file_size), b.location) for sign, b in blocks[:show]],
            title="blocks" if len(blocks) <= show else f"blocks (the first {show:,} of {len(blocks):,})",
        )
