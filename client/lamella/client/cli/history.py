"""``lamella tag``, ``lamella branch``, ``lamella rollback``, ``lamella changes``."""

from __future__ import annotations

import click

from lamella.client.cli.arguments import (
    age_of,
    instant_of,
    one_snapshot,
    reader_features_of,
    reader_features_option,
    snapshot_of,
    time_of,
)
from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.failure import CommandFailure
from lamella.client.cli.output import print_table, size_text, time_text
from lamella.snapshot import wire
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import LamellaError


@click.group()
def tag() -> None:
    """List, make, move and drop tags. A tag names a snapshot and keeps it from expiring."""


@tag.command("list")
@click.argument("table", metavar="NAMESPACE.TABLE")
@with_session()
def list_tags(session: Session, table: str) -> None:
    """List the tags of a table."""
    found = session.lake.table(table).tags()
    if session.as_data:
        session.emit(wire.TagList(tags=found))
        return
    print_table(
        ["tag", "snapshot", "of", "made", "until"],
        [(t.name, t.snapshot_id, time_text(t.timestamp_ms), time_text(t.created_at_ms), _until(t)) for t in found],
    )


@tag.command("create")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("name")
@click.option(
    "--snapshot", "snapshot_id", metavar="ID", help="Tag this snapshot (an id, tag or number), not the current one."
)
@click.option("--timestamp", metavar="TIME", help="Tag the snapshot of that time: ISO 8601, or Unix milliseconds.")
@click.option("--time-zone", default="UTC", show_default=True, help="Time zone of a time without one.")
@click.option("--expires", metavar="TIME", help="When the tag expires: ISO 8601, or Unix milliseconds.")
@click.option("--max-age", metavar="AGE", help="The tag expires after this time: 90s, 15m, 12h, 30d, 4w.")
@with_session()
def create_tag(
    session: Session,
    table: str,
    name: str,
    snapshot_id: str | None,
    timestamp: str | None,
    time_zone: str,
    expires: str | None,
    max_age: str | None,
) -> None:
    """Tag a snapshot. The name must be new."""
    _put(session, table, name, snapshot_id, timestamp, time_zone, expires, max_age, move=False)


@tag.command("move")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("name")
@click.option(
    "--snapshot", "snapshot_id", metavar="ID", help="To this snapshot (an id, tag or number), not the current one."
)
@click.option("--timestamp", metavar="TIME", help="To the snapshot of that time: ISO 8601, or Unix milliseconds.")
@click.option("--time-zone", default="UTC", show_default=True, help="Time zone of a time without one.")
@click.option("--expires", metavar="TIME", help="A new expiry time: ISO 8601, or Unix milliseconds.")
@click.option("--max-age", metavar="AGE", help="A new expiry time, counted from now: 90s, 15m, 12h, 30d, 4w.")
@with_session()
def move_tag(
    session: Session,
    table: str,
    name: str,
    snapshot_id: str | None,
    timestamp: str | None,
    time_zone: str,
    expires: str | None,
    max_age: str | None,
) -> None:
    """Move a tag to another snapshot. Its expiry time stays unless a new one is given."""
    _put(session, table, name, snapshot_id, timestamp, time_zone, expires, max_age, move=True)


@tag.command("drop")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("name")
@with_session()
def drop_tag(session: Session, table: str, name: str) -> None:
    """Drop a tag. The snapshot stays for as long as the table's retention allows."""
    session.lake.table(table).drop_tag(name)
    if session.as_data:
        session.emit({})
    else:
        click.echo(f"tag {name} is dropped")


@click.group()
def branch() -> None:
    """List, create and drop branches, and move commits between them. A branch is the table NAMESPACE.TABLE@BRANCH."""


@branch.command("list")
@click.argument("table", metavar="NAMESPACE.TABLE")
@with_session()
def list_branches(session: Session, table: str) -> None:
    """List the branches of a table. `main` is the table itself."""
    found = session.lake.table(table).branches()
    if session.as_data:
        session.emit(wire.BranchList(branches=found))
        return
    print_table(
        ["branch", "snapshot", "number", "of", "rows", "from", "fast-forward", "iceberg"],
        [
            (
                each.name,
                each.snapshot_id,
                each.number,
                time_text(each.timestamp_ms),
                each.row_count,
                "" if each.fork_number is None else each.fork_number,
                "possible" if each.can_fast_forward else "",
                each.iceberg_snapshot_id or "",
            )
            for each in found
        ],
    )


@branch.command("create")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("name")
@click.option("--snapshot", "snapshot_id", metavar="ID", help="Begin at this snapshot (an id, tag, branch or number).")
@click.option("--timestamp", metavar="TIME", help="Begin at the snapshot of that time: ISO 8601, or Unix milliseconds.")
@click.option("--time-zone", default="UTC", show_default=True, help="Time zone of a time without one.")
@click.option("--max-idle", metavar="AGE", help="A vacuum drops it when its last commit is older: 12h, 30d, 4w.")
@click.option("--replace", is_flag=True, help="If there is a branch of that name, drop it.")
@with_session()
def create_branch(
    session: Session,
    table: str,
    name: str,
    snapshot_id: str | None,
    timestamp: str | None,
    time_zone: str,
    max_idle: str | None,
    replace: bool,
) -> None:
    """Create a branch at the current snapshot, or at another one. No file is copied."""
    one_snapshot(snapshot_id, timestamp)
    made = session.lake.table(table).create_branch(
        name,
        snapshot_id,
        timestamp=time_of(timestamp),
        time_zone=time_zone,
        max_idle=age_of(max_idle),
        replace=replace,
    )
    if session.as_data:
        session.emit(made)
    else:
        click.echo(f"branch {made.name} is at snapshot {made.snapshot_id}, number {made.number}")


@branch.command("drop")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("name")
@with_session()
def drop_branch(session: Session, table: str, name: str) -> None:
    """Drop a branch. Its snapshots stay for the time in which tables can be undropped."""
    session.lake.table(table).drop_branch(name)
    if session.as_data:
        session.emit({})
    else:
        click.echo(f"branch {name} is dropped")


@branch.command("fast-forward")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("to", metavar="BRANCH")
@with_session()
def fast_forward(session: Session, table: str, to: str) -> None:
    """Give a table, or TABLE@BRANCH, the snapshots of another branch that it lacks.

    It must have none that the other branch lacks.
    """
    done = session.lake.table(table).fast_forward(to)
    if session.as_data:
        session.emit(done)
    else:
        click.echo(f"{table} is at snapshot {done.snapshot_id}; new in its history: {done.snapshots}")


@branch.command("cherry-pick")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("snapshot", metavar="SNAPSHOT")
@click.option("--strict", is_flag=True, help="Refuse an update or a merge that has not seen all blocks of the table.")
@with_session()
def cherry_pick(session: Session, table: str, snapshot: str, strict: bool) -> None:
    """Repeat what a snapshot changed: an id, or a tag or branch for its current one."""
    done = session.lake.table(table).cherry_pick(snapshot, strict=strict)
    if session.as_data:
        session.emit(done)
    else:
        click.echo(
            f"snapshot {done.snapshot_id} repeats {done.picked_snapshot_id}; blocks added: {done.added},"
            f" removed: {done.removed}, changed: {done.changed}"
        )


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("snapshot", metavar="SNAPSHOT")
@click.option("--time-zone", default="UTC", show_default=True, help="Time zone of a time without one.")
@click.option("--base", metavar="ID", help="Only if this is the id of the current snapshot.")
@with_session(timeout_s=600.0)
def rollback(session: Session, table: str, snapshot: str, time_zone: str, base: str | None) -> None:
    """Make a new snapshot with the blocks and columns of an older one: an id, a tag, or @TIME.

    The history keeps all snapshots, so a rollback can be rolled back.
    """
    snapshot_id, timestamp = snapshot_of(snapshot)
    done = session.lake.table(table).rollback(
        snapshot_id, timestamp=timestamp, time_zone=time_zone, base_snapshot_id=base
    )
    if session.as_data:
        session.emit(done)
        return
    click.echo(
        f"snapshot {done.snapshot_id} has the {counted(done.block_count, 'block')} "
        f"({counted(done.row_count, 'row')}) of "
        f"{done.restored_snapshot_id}: {counted(done.added, 'block')} added again, {done.removed:,} removed"
    )


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("since", metavar="SINCE")
@click.argument("until", metavar="UNTIL", required=False)
@click.option(
    "--where", "filter", metavar="SQL", help="Only blocks that may contain matching rows; SQL in Spark's dialect."
)
@click.option("--net", is_flag=True, help="Net changes only: leave out blocks that were added and removed in between.")
@click.option("--append-only", is_flag=True, help="Fail where blocks were removed.")
@click.option("--time-zone", default="UTC", show_default=True, help="Time zone of times without one.")
@click.option("--case-sensitive", is_flag=True, help="Match column names case-sensitively.")
@click.option("--show", type=click.IntRange(min=0), default=10, show_default=True, help="How many blocks to list.")
@reader_features_option
@with_session()
def changes(
    session: Session,
    table: str,
    since: str,
    until: str | None,
    filter: str | None,
    net: bool,
    append_only: bool,
    time_zone: str,
    case_sensitive: bool,
    show: int,
    reader_features: str | None,
) -> None:
    """Show which blocks were added and removed after SINCE, by snapshot; ids, tags, or @TIME.

    With --json: one line of JSON per snapshot, written as it arrives.
    """
    since_id, since_time = snapshot_of(since)
    until_id, until_time = snapshot_of(until)
    found = session.lake.table(table).changes(
        since_id,
        until_id,
        filter,
        since_timestamp=since_time,
        until_timestamp=until_time,
        net=net,
        append_only=append_only,
        time_zone=time_zone,
        case_sensitive=case_sensitive,
        reader_features=reader_features_of(reader_features, as_data=session.as_data),
    )
    try:
        for each in found:
            if session.as_data:
                session.emit(each)
            else:
                show = _show(each, show)
    except LamellaError as error:
        raise CommandFailure(error, source=filter) from error


def _show(changes: wire.SnapshotChanges, left: int) -> int:
    """Print one snapshot's changes with at most ``left`` blocks; returns how many more may be listed."""
    click.echo(
        f"{time_text(changes.timestamp_ms)} {changes.operation} {changes.snapshot_id}: "
        f"{counted(len(changes.added), 'block')} added, {len(changes.removed):,} removed"
    )
    blocks = [("+", block) for block in changes.added] + [("-", block) for block in changes.removed]
    if blocks[:left]:
        print_table(
            ["", "verdict", ("rows", "right"), ("size", "right"), "location"],
            [(sign, b.verdict, f"{b.row_count:,}", size_text(b.file_size), b.location) for sign, b in blocks[:left]],
        )
    return max(0, left - len(blocks))


def _put(
    session: Session,
    table: str,
    name: str,
    snapshot_id: str | None,
    timestamp: str | None,
    time_zone: str,
    expires: str | None,
    max_age: str | None,
    *,
    move: bool,
) -> None:
    one_snapshot(snapshot_id, timestamp)
    if expires is not None and max_age is not None:
        raise click.UsageError("give at most one of --expires and --max-age")
    made = session.lake.table(table).tag(
        name,
        snapshot_id,
        timestamp=time_of(timestamp),
        time_zone=time_zone,
        expires_at=instant_of(expires),
        max_age=age_of(max_age),
        move=move,
    )
    if session.as_data:
        session.emit(made)
    else:
        click.echo(
            f"tag {made.name} is snapshot {made.snapshot_id} of {time_text(made.timestamp_ms)}, until {_until(made)}"
        )


def _until(tag: wire.TagInfo) -> str:
    return "it is dropped" if tag.expires_at_ms is None else time_text(tag.expires_at_ms)
