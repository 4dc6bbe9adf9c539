"""``lamella prune``, ``lamella diff``, ``lamella aggregate``: queries answered from statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, get_args

import click
import msgspec

from lamella.client.cli.arguments import (
    one_snapshot,
    reader_features_of,
    reader_features_option,
    snapshot_of,
    store_options,
    time_of,
)
from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.failure import CommandFailure
from lamella.client.cli.output import Justify, percent, print_table, size_text, time_text
from lamella.client.cli.rows import write_rows
from lamella.client.http import AggregateResult, PruneResult, Table
from lamella.client.http.results import python_value
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.schema import parse_type
from lamella.snapshot.stats import Bound
from lamella.snapshot.stats.bound import from_bound
from lamella.snapshot.wire import (
    AggregateAnswer,
    AggregateGroup,
    AggregateMode,
    AggregateValue,
    DiffAnswer,
    Level,
    PrunedBlock,
    Report,
    TableInfo,
)


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("filter", required=False)
@click.option("--columns", metavar="A,B,...", help="The columns to read; only their bytes are counted.")
@click.option(
    "--snapshot",
    "snapshot_id",
    metavar="ID",
    help="Prune this snapshot (an id, tag or number), not the current one.",
)
@click.option("--timestamp", metavar="TIME", help="Prune the snapshot of that time: ISO 8601, or Unix milliseconds.")
@click.option("--time-zone", default="UTC", show_default=True, help="Time zone of timestamps without one.")
@click.option("--case-sensitive", is_flag=True, help="Match column names case-sensitively.")
@click.option("--level", type=click.Choice(get_args(Level)), default="block", show_default=True, help="What to list.")
@click.option("--explain", is_flag=True, help="Show how much each predicate prunes on its own.")
@click.option(
    "--limit", type=click.IntRange(min=0), metavar="ROWS", help="Stop when this many matching rows are proven."
)
@click.option("--order-by", metavar="'A DESC, B'", help="With --limit: the first rows of this order.")
@click.option("--residuals", is_flag=True, help="Show the residual filter of the blocks.")
@click.option("--max-ms", type=click.FloatRange(min=0), help="Time budget in milliseconds, approximate.")
@click.option("--page-size", type=click.IntRange(min=1), help="How many blocks to fetch at a time.")
@click.option("--show", type=click.IntRange(min=0), default=10, show_default=True, help="How many blocks to list.")
@reader_features_option
@with_session()
def prune(
    session: Session,
    table: str,
    filter: str | None,
    columns: str | None,
    snapshot_id: str | None,
    timestamp: str | None,
    time_zone: str,
    case_sensitive: bool,
    level: Level,
    explain: bool,
    limit: int | None,
    order_by: str | None,
    residuals: bool,
    max_ms: float | None,
    page_size: int | None,
    show: int,
    reader_features: str | None,
) -> None:
    """Show which blocks must be read for FILTER (SQL, in Spark's dialect), and how the others were pruned.

    With --json: the service's answer with all blocks.

    Exit status 1: the time budget of --max-ms ran out; unresolved blocks must be read as well.
    """
    one_snapshot(snapshot_id, timestamp)
    try:
        answer = session.lake.table(table).prune(
            filter,
            [name.strip() for name in columns.split(",")] if columns is not None else None,
            snapshot_id=snapshot_id,
            timestamp=time_of(timestamp),
            time_zone=time_zone,
            case_sensitive=case_sensitive,
            level=level,
            shape="records" if session.as_data else "columns",
            explain=explain,
            limit=limit,
            order_by=() if order_by is None else order_by,
            residuals=residuals,
            max_ms=max_ms,
            page_size=page_size,
            reader_features=reader_features_of(reader_features, as_data=session.as_data),
        )
    except LamellaError as error:
        raise CommandFailure(error, source=filter) from error
    if session.as_data:
        session.emit(answer, answer if answer.segments is None else answer.segments)
    else:
        _show_prune(answer, show, session.lake.table(table))
    if answer.unresolved is not None:
        raise click.ClickException(
            f"the time budget of --max-ms ran out: {counted(len(answer.unresolved), 'segment')} with "
            f"{counted(_unresolved_blocks(answer), 'block was', 'blocks were')} not checked, and all of "
            "them must be read; "
            "to prune them too, repeat with more time, or prune only these segments over HTTP (unresolved)"
        )


def _unresolved_blocks(answer: PruneResult) -> int:
    """Return how many blocks were not checked before the time budget ran out."""
    return sum(segment.block_count for segment in answer.unresolved or ())


def _show_prune(answer: PruneResult, limit: int, table: Table) -> None:
    report = answer.report
    click.echo(f"snapshot {answer.snapshot_id} of {time_text(answer.timestamp_ms)}")
    if report.filter is not None:
        click.echo(f"filter   {report.filter}")
    _show_funnel(report)
    click.echo()
    # Blocks that were not checked must be read.
    unresolved_segments = answer.unresolved or ()
    blocks = answer.block_count + _unresolved_blocks(answer)
    size_bytes = answer.size_bytes + sum(segment.file_size_bytes for segment in unresolved_segments)
    click.echo(
        f"read {'at most ' if unresolved_segments else ''}{blocks:,} of {counted(report.blocks_total, 'block')} "
        f"({percent(blocks, report.blocks_total)}), "
        f"{size_text(size_bytes)} of {size_text(report.bytes_total)} "
        f"({percent(size_bytes, report.bytes_total)})"
    )
    if report.predicates is not None:
        print_table(
            ["predicate", "column", ("considered", "right"), ("rules out", "right"), ("unknown", "right")],
            [
                (p.predicate, p.column, f"{p.considered:,}", f"{p.ruled_out:,}", f"{p.unknown:,}")
                for p in report.predicates
            ],
            title="each predicate on its own",
        )
    if report.not_used:
        print_table(
            ["predicate", "reason"], [(n.predicate, n.reason) for n in report.not_used], title="not used for pruning"
        )
    _show_stages(answer)
    if answer.segments is not None:
        _show_segments(answer, limit)
    else:
        _show_blocks(answer, limit, table)


def _show_stages(answer: PruneResult) -> None:
    report = answer.report
    if report.limit is not None:
        enough = "enough" if report.limit.decided else "not enough"
        rows = f"{counted(report.limit.certain_rows, 'row is', 'rows are')} proven to match, {enough} for the limit of"
        click.echo(f"limit    {rows} {report.limit.limit:,}")
    if answer.unresolved is not None:
        left = (
            f"{counted(len(answer.unresolved), 'segment')} with "
            f"{counted(_unresolved_blocks(answer), 'block was', 'blocks were')} not checked"
        )
        click.echo(f"time     ran out: {left}; they are not listed below")
    if answer.residuals is not None:
        print_table(
            [("blocks", "right"), "residual filter"],
            [(f"{residual.blocks:,}", residual.sql) for residual in answer.residuals],
            title="residuals",
        )
    if report.layers is not None:
        print_table(
            ["layer", "predicate", *[(name, "right") for name in ("none", "some", "all", "unknown")], "missing"],
            [
                (
                    use.layer,
                    use.predicate,
                    *(f"{count:,}" for count in (use.none, use.some, use.all, use.unknown)),
                    "; ".join(f"{reason} ({count:,})" for reason, count in use.reasons.items()),
                )
                for use in report.layers
            ],
            title="each predicate, layer by layer",
        )


def _show_funnel(report: Report) -> None:
    print_table(
        ["stage", ("considered", "right"), ("kept", "right"), ("%", "right"), ("bytes", "right"), ("ms", "right")],
        [
            (
                s.stage,
                f"{s.considered:,}",
                f"{s.kept:,}",
                percent(s.kept, s.considered),
                size_text(s.bytes),
                f"{s.ms:.2f}",
            )
            for s in report.stages
        ],
        title="funnel",
    )


def _show_blocks(answer: PruneResult, limit: int, table: Table) -> None:
    shown = list(islice(answer.records(), limit))
    if not shown:
        return
    with_columns = shown[0].column_size_bytes is not None
    with_constants = any(block.constants for block in shown)
    with_deletes = any(block.deletes for block in shown)
    info = table.info() if with_constants else None
    headings: list[str | tuple[str, Justify]] = ["verdict", ("rows", "right")]
    headings += [("deleted", "right")] if with_deletes else []
    headings.append(("size", "right"))
    rows = []
    for block in shown:
        row: list[str] = [block.verdict, f"{block.row_count:,}"]
        if with_deletes:
            row.append("?" if block.live_row_count is None else f"{block.row_count - block.live_row_count:,}")
        row.append(size_text(block.file_size))
        if with_columns:
            row.append("-" if block.column_size_bytes is None else size_text(block.column_size_bytes))
        if info is not None:
            row.append(_constants_text(block, info))
        rows.append([*row, block.location])
    if with_columns:
        headings.append(("columns", "right"))
    if with_constants:
        headings.append("constants")
    print_table([*headings, "location"], rows, title=_title("blocks", len(shown), answer.block_count))


def _constants_text(block: PrunedBlock, info: TableInfo) -> str:
    """Return the block's constants by the names that the columns have now."""
    leaves = {column_id: leaf for schema in info.history for column_id, leaf in schema.by_id().items()}
    texts = []
    for column_id, constant in (block.constants or {}).items():
        leaf = leaves.get(column_id)
        if leaf is None:  # of a schema that the table no longer has, after a rollback
            texts.append(f"column {column_id}")
        else:
            value = python_value(str(leaf.dtype), constant)
            texts.append(f"{leaf.name}={value if isinstance(value, int) else _text(str(leaf.dtype), constant)}")
    return ", ".join(texts)


def _show_segments(answer: PruneResult, limit: int) -> None:
    segments = answer.segments or ()
    if not segments[:limit]:
        return
    print_table(
        ["verdict", ("blocks", "right"), ("rows", "right"), ("size", "right"), "segment"],
        [
            (s.verdict, f"{s.block_count:,}", f"{s.row_count:,}", size_text(s.file_size_bytes), s.segment_id)
            for s in segments[:limit]
        ],
        title=_title("segments", min(limit, len(segments)), len(segments)),
    )


def _title(what: str, shown: int, total: int) -> str:
    return what if shown == total else f"{what} (the first {shown:,} of {total:,})"


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("before", metavar="FROM")
@click.argument("after", metavar="TO", required=False)
@click.option(
    "--where", "filter", metavar="SQL", help="Only blocks that may contain matching rows; SQL in Spark's dialect."
)
@click.option("--time-zone", default="UTC", show_default=True, help="Time zone of timestamps without one.")
@click.option("--case-sensitive", is_flag=True, help="Match column names case-sensitively.")
@click.option("--show", type=click.IntRange(min=0), default=10, show_default=True, help="How many blocks to list.")
@reader_features_option
@with_session()
def diff(
    session: Session,
    table: str,
    before: str,
    after: str | None,
    filter: str | None,
    time_zone: str,
    case_sensitive: bool,
    show: int,
    reader_features: str | None,
) -> None:
    """Show the blocks added and removed between two snapshots (ids, tags, or @TIME); without TO, up to the current one.

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
            reader_features=reader_features_of(reader_features, as_data=session.as_data),
        )
    except LamellaError as error:
        raise CommandFailure(error, source=filter) from error
    if session.as_data:
        session.emit(answer, _changes(answer) if session.form == "csv" else None)
    else:
        _show_diff(answer, show)


def _changes(answer: DiffAnswer) -> list[dict[str, Any]]:
    return [
        {"change": change, **msgspec.structs.asdict(block)}
        for change, blocks in (("added", answer.added), ("removed", answer.removed))
        for block in blocks
    ]


def _show_diff(answer: DiffAnswer, show: int) -> None:
    click.echo(f"from {answer.from_snapshot_id} to {answer.to_snapshot_id}")
    click.echo(
        f"{counted(len(answer.added), 'block')} added, {len(answer.removed):,} removed, "
        f"{answer.unchanged_blocks:,} unchanged; "
        f"{counted(answer.segments_read, 'segment')} read, {answer.segments_skipped:,} shared and skipped"
    )
    blocks = [("+", block) for block in answer.added] + [("-", block) for block in answer.removed]
    if blocks[:show]:
        print_table(
            ["", "verdict", ("rows", "right"), ("size", "right"), "location"],
            [(sign, b.verdict, f"{b.row_count:,}", size_text(b.file_size), b.location) for sign, b in blocks[:show]],
            title="blocks" if len(blocks) <= show else f"blocks (the first {show:,} of {len(blocks):,})",
        )


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
    help="The result, or bounds of it from statistics alone.",
)
@click.option("--no-scan", is_flag=True, help="Read no rows: if statistics do not determine the result, fail.")
@click.option(
    "--snapshot", "snapshot_id", metavar="ID", help="Use this snapshot (an id, tag or number), not the current one."
)
@click.option("--timestamp", metavar="TIME", help="Use the snapshot of that time: ISO 8601, or Unix milliseconds.")
@click.option("--time-zone", default="UTC", show_default=True, help="Time zone of timestamps without one.")
@click.option("--case-sensitive", is_flag=True, help="Match column names case-sensitively.")
@reader_features_option
@store_options
@with_session()
def aggregate(
    session: Session,
    table: str,
    aggregates: tuple[str, ...],
    filter: str | None,
    group_by: str | None,
    mode: AggregateMode,
    no_scan: bool,
    snapshot_id: str | None,
    timestamp: str | None,
    time_zone: str,
    case_sensitive: bool,
    reader_features: str | None,
    storage_options: Mapping[str, Mapping[str, Any]],
) -> None:
    """Compute count(*), count(c), min(c), max(c) and sum(c).

    Statistics answer where they can. The rows of the other blocks are read here. With --no-scan no row is read: if
    statistics do not determine the result, its bounds are shown, and the exit status is 1.
    """
    one_snapshot(snapshot_id, timestamp)
    names = [name.strip() for name in group_by.split(",")] if group_by is not None else []
    if mode == "exact" and not no_scan:
        try:
            answer, read = (
                session.lake.table(table)
                .scan(
                    filter,
                    snapshot_id=snapshot_id,
                    timestamp=time_of(timestamp),
                    time_zone=time_zone,
                    case_sensitive=case_sensitive,
                    storage_options=storage_options or None,
                )
                .aggregate_answer(aggregates, group_by=names)
            )
        except LamellaError as error:
            raise CommandFailure(error, source=filter) from error
        if session.form == "csv":
            _write_groups(answer)
        elif session.as_data:
            session.emit(answer)
        else:
            _show_aggregate(answer, read)
        return
    request: dict[str, Any] = {
        "group_by": names,
        "time_zone": time_zone,
        "case_sensitive": case_sensitive,
        "reader_features": reader_features_of(reader_features, as_data=session.as_data),
    }
    given = session.lake.table(table)
    limits: AggregateResult | None = None
    try:
        found = given.aggregate(
            aggregates, filter, mode=mode, snapshot_id=snapshot_id, timestamp=time_of(timestamp), **request
        )
        if not found.complete and mode == "exact" and session.form != "json":
            limits = given.aggregate(aggregates, filter, mode="bounded", snapshot_id=found.snapshot_id, **request)
    except LamellaError as error:
        raise CommandFailure(error, source=filter) from error
    if session.form == "csv":
        _write_groups(found if limits is None else limits)
    elif session.as_data:
        session.emit(found)
    else:
        _show_aggregate(found if limits is None else limits)
    if found.scan:
        size_bytes = sum(block.file_size for block in found.scan)
        raise click.ClickException(
            "statistics do not determine the result, which lies within these bounds: "
            f"the rows of {counted(len(found.scan), 'block')} ({size_text(size_bytes)}) do; without "
            "--no-scan they are read"
        )


def _show_aggregate(answer: AggregateAnswer, read: Sequence[PrunedBlock] = ()) -> None:
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
    if not answer.complete:
        click.echo("bounds of the result, from statistics")
    elif read:
        size_bytes = sum(block.file_size for block in read)
        click.echo(f"exact, from statistics and the rows of {counted(len(read), 'block')} ({size_text(size_bytes)})")
    else:
        click.echo("exact, from statistics")
    print_table(headings, rows)
    if answer.other_groups:
        click.echo("\nthere may be other groups")


def _write_groups(answer: AggregateAnswer) -> None:
    """Write the groups as CSV. Bounds are no result, so they have columns of other names."""
    names = [column.name for column in answer.group_columns]
    for column in answer.columns:
        names += [column.name] if answer.complete else [f"{column.name} {part}" for part in ("lower", "upper")]
    write_rows("csv", names, (list(_row(answer, group)) for group in answer.groups))


def _row(answer: AggregateAnswer, group: AggregateGroup) -> Iterator[str | None]:
    for column, part in zip(answer.group_columns, group.key, strict=True):
        yield _data(column.type, part)
    for column, value in zip(answer.columns, group.values, strict=True):
        if value.exact:
            yield from [_data(column.type, value.value)] * (1 if answer.complete else 2)
        else:
            yield from (_data(column.type, value.lower), _data(column.type, value.upper))


def _data(type_text: str, bound: Bound | None) -> str | None:
    """A value of CSV, without the commas that numbers have for people."""
    value = python_value(type_text, bound)
    if isinstance(value, bool) or value is None:
        return None if value is None else str(value).lower()
    return str(value) if isinstance(value, int) else _text(type_text, bound)


def _cell(type_text: str, value: AggregateValue) -> str:
    if value.exact:
        return _text(type_text, value.value)
    low = "..." if value.lower is None else _text(type_text, value.lower)
    high = "..." if value.upper is None else _text(type_text, value.upper)
    return f"{low} to {high}{', or null' if value.may_be_null else ''}"


def _text(type_text: str, bound: Bound | None) -> str:
    value = python_value(type_text, bound)
    if isinstance(value, Bound):  # no value of Python's: nanoseconds, years beyond 9999, bytes that are no text
        from lamella.snapshot.expression import value_text

        dtype = parse_type(type_text)
        return value_text(dtype, from_bound(dtype, value)).text.strip("'")
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    return "null" if value is None else f"{value:,}" if isinstance(value, int) and type_text == "int64" else str(value)
