"""``lamella tables cluster-by``, ``lamella clustering``, ``lamella regroup``: how a table is laid out."""

from __future__ import annotations

from collections.abc import Mapping

import click

from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.output import percent, print_table, size_text, spinner
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.wire import ClusteringAnswer, DepthFigures, RegroupAnswer

KINDS: tuple[ClusterKind, ...] = ("linear", "zorder", "hilbert")
#: Characters of the longest bar.
_BAR = 40
_by = click.option("--by", metavar="A,B,...", help="Another key than the table's: columns with commas between them.")
_kind = click.option("--kind", type=click.Choice(KINDS), help="The kind of the key that --by names; else linear.")


@click.command("cluster-by")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("columns", metavar="COLUMN...", nargs=-1)
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default="linear",
    show_default=True,
    help="Sorted column by column, or along a curve through all columns.",
)
@click.option("--none", "is_none", is_flag=True, help="Take the cluster key away.")
@with_session()
def cluster_by(session: Session, table: str, columns: tuple[str, ...], kind: ClusterKind, is_none: bool) -> None:
    """Lay rows out by these columns from now on. Blocks stay as they are until a job rewrites them."""
    if bool(columns) == is_none:
        raise click.UsageError("give the columns, or --none")
    info = session.lake.table(table).cluster_by(columns, kind)
    if session.as_json:
        session.emit(info)
    elif info.key_id is None:
        click.echo(f"table {table} has no cluster key")
    else:
        click.echo(f"table {table} is clustered by {', '.join(info.columns)} ({info.kind}), key {info.key_id}")


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@_by
@_kind
@click.option("--where", metavar="SQL", help="Only blocks that may hold a row for which it is true.")
@click.option("--snapshot", "snapshot_id", metavar="ID", help="A snapshot of the history instead of the current one.")
@click.option(
    "--recorded",
    type=click.IntRange(min=0, max=1000),
    default=20,
    show_default=True,
    help="Ask so many of the recorded filters again, the latest.",
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
    """Show how well a table is laid out for its cluster key, or for one that it could have."""
    found = session.lake.table(table).clustering(
        _names(by, kind), kind, snapshot_id=snapshot_id, where=where, recorded=recorded
    )
    if session.as_json:
        session.emit(found)
    else:
        _show(found)


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@_by
@_kind
@click.option("--max-segments", type=click.IntRange(min=2, max=256), metavar="N", help="Replace so many at a time.")
@click.option("--target-depth", type=click.IntRange(min=1), metavar="N", help="Segments that a key value lies in.")
@click.option(
    "--min-gain",
    type=click.FloatRange(min=0),
    metavar="X",
    help="Leave alone what gains less for each part of the segments that is replaced.",
)
@click.option("--dry-run", is_flag=True, help="Only say what the first part would do.")
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
    """Put blocks into other segments, so that look-ups by the cluster key skip more of these. No data is written.

    What is done is kept, whenever this ends.
    """
    with spinner("regrouping") as say:
        replaced = 0

        def show(part: RegroupAnswer) -> None:
            nonlocal replaced
            replaced += part.replaced
            say(f"{replaced:,} segments replaced, about {part.remaining:,} to go")

        done = session.lake.table(table).regroup(
            _names(by, kind),
            kind or "linear",
            max_segments=max_segments,
            target_depth=target_depth,
            min_gain=min_gain,
            dry_run=dry_run,
            on_part=show,
        )
    if session.as_json:
        session.emit(done)
        return
    would = "would be" if dry_run else "were"
    click.echo(
        f"{done.replaced:,} segments with {done.blocks:,} blocks {would} replaced by {done.made:,}: {done.reason}"
    )
    click.echo(
        f"a look-up is sent to {done.predicted_before:,.1f} segments, then {done.predicted_after:,.1f}, predicted"
    )
    if done.measured_before is not None and done.measured_after is not None:
        click.echo(
            f"a look-up is sent to {done.measured_before:,.1f} segments, now {done.measured_after:,.1f}, measured"
        )
    if done.given_up:
        click.echo(f"{done.given_up:,} groups were given up, since others changed their segments", err=True)


def _names(by: str | None, kind: ClusterKind | None) -> tuple[str, ...]:
    if kind is not None and by is None:
        raise click.UsageError("--kind is of the key that --by names")
    return () if by is None else tuple(name.strip() for name in by.split(","))


def _show(found: ClusteringAnswer) -> None:
    key = f"{', '.join(found.columns)} ({found.kind})"
    depth, segments = found.depth, found.segment_depth
    rows = [
        ("key", key if found.key_id is None else f"{key}, key {found.key_id} of the table"),
        ("blocks", f"{found.blocks:,} of {found.blocks_total:,}, {size_text(found.file_size_bytes)}"),
        ("depth", _depth_text(depth)),
        ("overlaps", f"{depth.average_overlaps:,.1f} on average"),
        ("not written for the key", percent(found.unclustered_blocks, found.blocks)),
        ("of one key value", percent(found.constant_blocks, found.blocks)),
        ("of unknown bounds", percent(found.unknown_blocks, found.blocks)),
        ("not rewritten any more", percent(found.settled_blocks, found.blocks)),
        ("small, large", f"{percent(found.small_blocks, found.blocks)}, {percent(found.large_blocks, found.blocks)}"),
        ("levels", ", ".join(f"{level}: {count:,}" for level, count in sorted(found.levels.items())) or "none"),
        ("segments", f"{found.segments_total:,}, depth {_depth_text(segments)}"),
        ("segments looked into", f"{found.segments_kept:,.1f} by a look-up of a thousandth of the rows"),
    ]
    print_table(["", ""], rows, headings=False)
    if depth.histogram:
        print_table([("depth", "right"), ("blocks", "right"), ""], _bars(depth.histogram), title="blocks by depth")
    if found.look_ups:
        print_table(
            ["look-up", ("blocks", "right"), ("at best", "right"), ("bytes", "right"), ("at best", "right")],
            [
                (
                    _look_up_text(each.share, each.column, found.columns),
                    f"{each.blocks:,.1f}",
                    f"{each.ideal_blocks:,.1f}",
                    size_text(round(each.bytes)),
                    size_text(round(each.ideal_bytes)),
                )
                for each in found.look_ups
            ],
            title="look-ups, expected",
        )
    if found.recorded:
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
                for each in found.recorded
            ],
            title="recorded filters",
        )
    for text, reason in found.left_out.items():
        click.echo(f"left out: {text}: {reason}", err=True)


def _depth_text(depth: DepthFigures) -> str:
    text = f"{depth.average_depth:,.2f} on average, {depth.p95_depth:,} at 95 %, {depth.p99_depth:,} at 99 %"
    return f"{text}, {depth.max_depth:,} at most" + ("" if depth.is_exact else " (of a sample)")


def _bars(histogram: Mapping[int, int]) -> list[tuple[str, str, str]]:
    """A line for each depth: up to which, how many, and a bar."""
    most = max(histogram.values())
    rows = []
    for depth, count in sorted(histogram.items()):
        length = max(1, round(_BAR * count / most))
        rows.append((f"{depth:,}" if depth <= 16 else f"to {depth:,}", f"{count:,}", "#" * length))
    return rows


def _look_up_text(share: float, column: str | None, columns: tuple[str, ...]) -> str:
    of = column if column is not None else ", ".join(columns)
    return f"one value of {of}" if not share else f"{100 * share:g} % of the rows by {of}"
