"""``lamella tables cluster-by``, ``lamella clustering``, ``lamella regroup``: the physical layout of a table."""

from __future__ import annotations

from collections.abc import Mapping

import click

from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.output import percent, print_table, size_text, spinner
from lamella.snapshot.counts import counted
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.schema.column import split_key
from lamella.snapshot.wire import ClusteringAnswer, DepthFigures, RegroupAnswer

KINDS: tuple[ClusterKind, ...] = ("linear", "zorder", "hilbert")
#: Length of the longest bar in characters.
_BAR = 40
_by = click.option("--by", metavar="A,B,...", help="Another key than the table's: columns or expressions.")
_kind = click.option("--kind", type=click.Choice(KINDS), help="The kind of the key of --by. Default: linear.")


@click.command("cluster-by")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("columns", metavar="COLUMN...", nargs=-1)
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default="linear",
    show_default=True,
    help="Sort by one column after another, or along a curve through all columns.",
)
@click.option("--none", "is_none", is_flag=True, help="Remove the cluster key.")
@with_session()
def cluster_by(session: Session, table: str, columns: tuple[str, ...], kind: ClusterKind, is_none: bool) -> None:
    """Set the cluster key. Existing blocks do not change until a job rewrites them.

    A COLUMN may be an expression that follows the order of one column: "date_trunc('DAY', at)", "deleted_at IS NULL".
    """
    if bool(columns) == is_none:
        raise click.UsageError("give the columns, or --none")
    info = session.lake.table(table).cluster_by(columns, kind)
    if session.as_data:
        session.emit(info)
    elif info.key_id is None:
        click.echo(f"table {table} has no cluster key")
    else:
        click.echo(f"table {table} is clustered by {', '.join(info.columns)} ({info.kind}), key {info.key_id}")


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@_by
@_kind
@click.option("--where", metavar="SQL", help="Only blocks that may contain a matching row.")
@click.option("--snapshot", "snapshot_id", metavar="ID", help="This snapshot instead of the current one.")
@click.option(
    "--recorded",
    type=click.IntRange(min=0, max=1000),
    default=20,
    show_default=True,
    help="Evaluate this many of the latest recorded filters.",
)
@with_session(timeout_s=600.0)
def clustering(
    session: Session,
    table: str,
    by: str | None,
    kind: ClusterKind | None,
    where: str | None,
    snapshot_id: str | None,
    recorded: int,
) -> None:
    """Show how well a table is clustered by its cluster key, or by another key."""
    answer = session.lake.table(table).clustering(
        _names(by, kind), kind, snapshot_id=snapshot_id, where=where, recorded=recorded
    )
    if session.as_data:
        session.emit(answer)
    else:
        _show(answer)


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@_by
@_kind
@click.option(
    "--max-segments",
    type=click.IntRange(min=2, max=256),
    metavar="N",
    help="Maximum number of segments to replace at a time.",
)
@click.option(
    "--target-depth",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of segments that may overlap at a key value.",
)
@click.option(
    "--min-gain",
    type=click.FloatRange(min=0),
    metavar="X",
    help="Minimum gain relative to the share of segments that is replaced.",
)
@click.option("--dry-run", is_flag=True, help="Only show what the first step would do.")
@with_session(timeout_s=600.0)
def regroup(
    session: Session,
    table: str,
    by: str | None,
    kind: ClusterKind | None,
    max_segments: int | None,
    target_depth: int | None,
    min_gain: float | None,
    dry_run: bool,
) -> None:
    """Regroup blocks into segments so that look-ups by the cluster key skip more segments. Writes no data.

    Steps that are committed stay when the command is interrupted.
    """
    with spinner("regrouping") as say:
        replaced = 0

        def show(part: RegroupAnswer) -> None:
            nonlocal replaced
            replaced += part.replaced
            say(f"{counted(replaced, 'segment')} replaced, about {part.remaining:,} to go")

        done = session.lake.table(table).regroup(
            _names(by, kind),
            kind or "linear",
            max_segments=max_segments,
            target_depth=target_depth,
            min_gain=min_gain,
            dry_run=dry_run,
            on_part=show,
        )
    if session.as_data:
        session.emit(done)
        return
    would = "would be" if dry_run else "were"
    click.echo(
        f"{counted(done.replaced, 'segment')} with {counted(done.blocks, 'block')} {would} replaced by "
        f"{done.made:,}: {done.reason}"
    )
    click.echo(
        f"predicted: a look-up opens {done.predicted_before:,.1f} segments before, {done.predicted_after:,.1f} after"
    )
    if done.measured_before is not None and done.measured_after is not None:
        click.echo(
            f"measured: a look-up opened {done.measured_before:,.1f} segments before, {done.measured_after:,.1f} now"
        )
    if done.given_up:
        click.echo(
            f"{counted(done.given_up, 'group was', 'groups were')} skipped because another writer changed "
            "their segments",
            err=True,
        )


def _names(by: str | None, kind: ClusterKind | None) -> tuple[str, ...]:
    if kind is not None and by is None:
        raise click.UsageError("--kind requires --by")
    return () if by is None else split_key(by)


def _show(answer: ClusteringAnswer) -> None:
    key = f"{', '.join(answer.columns)} ({answer.kind})"
    depth, segments = answer.depth, answer.segment_depth
    rows = [
        ("key", key if answer.key_id is None else f"{key}, key {answer.key_id} of the table"),
        ("blocks", f"{answer.blocks:,} of {answer.blocks_total:,}, {size_text(answer.file_size_bytes)}"),
        ("depth", _depth_text(depth)),
        ("overlaps", f"{depth.average_overlaps:,.1f} on average"),
        ("not written for the key", percent(answer.unclustered_blocks, answer.blocks)),
        ("of one key value", percent(answer.constant_blocks, answer.blocks)),
        ("of unknown bounds", percent(answer.unknown_blocks, answer.blocks)),
        ("not rewritten any more", percent(answer.unimprovable_blocks, answer.blocks)),
        (
            "small, large",
            f"{percent(answer.small_blocks, answer.blocks)}, {percent(answer.large_blocks, answer.blocks)}",
        ),
        ("levels", ", ".join(f"{level}: {count:,}" for level, count in sorted(answer.levels.items())) or "none"),
        ("segments", f"{answer.segments_total:,}, depth {_depth_text(segments)}"),
        ("segments opened", f"{answer.segments_opened:,.1f} by a look-up of 0.1 % of the rows"),
    ]
    print_table(["", ""], rows, headings=False)
    if depth.histogram:
        print_table([("depth", "right"), ("blocks", "right"), ""], _bars(depth.histogram), title="blocks by depth")
    if answer.look_ups:
        print_table(
            ["look-up", ("blocks", "right"), ("at best", "right"), ("bytes", "right"), ("at best", "right")],
            [
                (
                    _look_up_text(each.share, each.column, answer.columns),
                    f"{each.blocks:,.1f}",
                    f"{each.ideal_blocks:,.1f}",
                    size_text(round(each.bytes)),
                    size_text(round(each.ideal_bytes)),
                )
                for each in answer.look_ups
            ],
            title="look-ups, expected",
        )
    if answer.recorded:
        print_table(
            ["filter", ("times", "right"), ("blocks", "right"), ("bytes", "right"), ("skipped", "right")],
            [
                (
                    each.filter,
                    f"{each.times:,}",
                    f"{each.cost.blocks:,.1f}",
                    size_text(round(each.cost.bytes)),
                    f"{100 * each.cost.skip:.1f} %",
                )
                for each in answer.recorded
            ],
            title="recorded filters",
        )
    for text, reason in answer.left_out.items():
        click.echo(f"left out: {text}: {reason}", err=True)


def _depth_text(depth: DepthFigures) -> str:
    text = f"{depth.average_depth:,.2f} on average, {depth.p95_depth:,} at 95 %, {depth.p99_depth:,} at 99 %"
    return f"{text}, {depth.max_depth:,} at most" + ("" if depth.is_exact else " (of a sample)")


def _bars(histogram: Mapping[int, int]) -> list[tuple[str, str, str]]:
    """Return a line for each depth bucket: its upper bound, its number of blocks, and a bar."""
    highest = max(histogram.values())
    rows = []
    for depth, count in sorted(histogram.items()):
        length = max(1, round(_BAR * count / highest))
        rows.append((f"{depth:,}" if depth <= 16 else f"to {depth:,}", f"{count:,}", "#" * length))
    return rows


def _look_up_text(share: float, column: str | None, columns: tuple[str, ...]) -> str:
    of = column if column is not None else ", ".join(columns)
    return f"one value of {of}" if not share else f"{100 * share:g} % of the rows by {of}"
