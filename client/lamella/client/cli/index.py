"""``lamella index``: the skip indexes of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec

import click
import msgspec

from lamella.client.cli.arguments import values_of
from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.output import bar, percent, print_table, size_text, spinner, time_text
from lamella.snapshot.counts import counted
from lamella.snapshot.wire import Coverage, IndexInfo, OptimiseAnswer, RefreshAnswer

#: At most this many skipped blocks are listed for people; ``--json`` lists all.
MAX_LISTED = 20

P = ParamSpec("P")


def _of_index(timeout_s: float = 60.0) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[..., None]]:
    """Give a command the arguments that name an index, and pass a :class:`Session`."""

    def decorate(function: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
        command = click.argument("name")(with_session(timeout_s)(function))
        return click.argument("table", metavar="NAMESPACE.TABLE")(command)

    return decorate


@click.group()
def index() -> None:
    """Make, refresh and inspect the skip indexes of a table."""


@index.command("kinds")
@with_session()
def kinds(session: Session) -> None:
    """List the index kinds of the service, with their options."""
    found = session.lake.index_kinds()
    if session.as_data:
        session.emit({"kinds": found}, found)
        return
    print_table(["kind", "for"], [(kind.name, kind.text) for kind in found])
    rows = [
        (
            kind.name,
            option.name,
            option.type,
            _value(option.default),
            _bounds(option.minimum, option.maximum),
            option.text,
        )
        for kind in found
        for option in kind.options
    ]
    print_table(["kind", "option", "type", ("default", "right"), "bounds", "meaning"], rows, title="options")


@index.command("create")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("name")
@click.argument("kind")
@click.argument("expression")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the kind; repeatable.")
@click.option("--time-zone", default="UTC", show_default=True, help="Time zone of functions in the expression.")
@click.option("--refresh", "fill", is_flag=True, help="Index the table's blocks now.")
@with_session()
def create(
    session: Session,
    table: str,
    name: str,
    kind: str,
    expression: str,
    options: tuple[str, ...],
    time_zone: str,
    fill: bool,
) -> None:
    """Make an index of a KIND on a column or an expression. It covers no blocks until it is refreshed."""
    handle = session.lake.table(table)
    made = handle.create_index(name, kind, expression, options=values_of(options, "--option"), time_zone=time_zone)
    if fill:
        with _refresh_progress() as show:
            handle.refresh_index(name, on_part=show)
        made = handle.index(name)
    _show(session, made)


@index.command("list")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option("--dropped", is_flag=True, help="Also list dropped indexes.")
@click.option("--snapshot", "snapshot_id", metavar="ID", help="This snapshot instead of the current one.")
@with_session()
def list_(session: Session, table: str, dropped: bool, snapshot_id: str | None) -> None:
    """List the indexes of a table, and how many blocks each covers."""
    found = session.lake.table(table).indexes(dropped=dropped, snapshot_id=snapshot_id)
    if session.as_data:
        session.emit({"indexes": found}, found)
        return
    rows = [
        (
            each.name,
            each.kind,
            each.expression,
            _indexed(each.coverage),
            f"{each.parts:,}",
            size_text(each.size_bytes),
            _state(each),
        )
        for each in found
    ]
    print_table(
        ["name", "kind", "over", ("indexed", "right"), ("parts", "right"), ("size", "right"), "state"],
        rows,
    )


@index.command("describe")
@click.option("--snapshot", "snapshot_id", metavar="ID", help="This snapshot instead of the current one.")
@_of_index()
def describe(session: Session, table: str, name: str, snapshot_id: str | None) -> None:
    """Show one index: its definition, size and coverage."""
    _show(session, session.lake.table(table).index(name, snapshot_id=snapshot_id))


@index.command("refresh")
@click.option(
    "--mode",
    type=click.Choice(["incremental", "full", "quick"]),
    default="incremental",
    show_default=True,
    help="Index missing blocks; rebuild everything; or index only what needs no data to be read.",
)
@click.option("--max-blocks", type=click.IntRange(min=1), metavar="N", help="Commit after at most this many blocks.")
@_of_index(timeout_s=600.0)
def refresh(session: Session, table: str, name: str, mode: Any, max_blocks: int | None) -> None:
    """Index the blocks that an index does not cover. Work that is committed stays when the command is interrupted.

    Exit status 1: some blocks could not be indexed. The reasons are listed; queries keep reading those blocks.
    """
    with _refresh_progress() as show:
        answer = session.lake.table(table).refresh_index(name, mode, max_blocks=max_blocks, on_part=show)
    if session.as_data:
        session.emit(answer)
    else:
        click.echo(
            f"{counted(answer.indexed, 'block')} with {counted(answer.row_count, 'row')} indexed, "
            f"{counted(answer.parts, 'part')} of "
            f"{size_text(answer.size_bytes)}; {counted(len(answer.left_out), 'block')} left out"
        )
        if answer.coverage is not None:
            click.echo(_coverage_text(answer.coverage))
        for left in answer.left_out[:MAX_LISTED]:
            click.echo(f"left out: {left.location}: {left.reason}", err=True)
        if len(answer.left_out) > MAX_LISTED:
            click.echo(f"and {len(answer.left_out) - MAX_LISTED:,} more", err=True)
    if answer.left_out and mode != "quick":
        raise click.exceptions.Exit(1)


@index.command("optimise")
@_of_index(timeout_s=600.0)
def optimise(session: Session, table: str, name: str) -> None:
    """Regroup an index's parts along the table's segments. No data is read."""
    with _optimise_progress() as show:
        answer = session.lake.table(table).optimise_index(name, on_part=show)
    if session.as_data:
        session.emit(answer)
        return
    click.echo(f"{counted(answer.regrouped, 'part')} written in place of {answer.moved_from:,}")
    if answer.lost:
        click.echo(
            f"{counted(answer.lost, 'block was', 'blocks were')} in parts that cannot be read: refresh the index",
            err=True,
        )


@index.command("drop")
@_of_index()
def drop(session: Session, table: str, name: str) -> None:
    """Stop using an index. `restore` makes it usable again, with all its entries."""
    _done(session, session.lake.table(table).drop_index(name), "dropped; `lamella index restore` undoes this")


@index.command("restore")
@_of_index()
def restore(session: Session, table: str, name: str) -> None:
    """Restore a dropped index."""
    _done(session, session.lake.table(table).restore_index(name), "in use again")


@index.command("vacuum")
@_of_index()
def vacuum(session: Session, table: str, name: str) -> None:
    """Remove a dropped index permanently. `lamella vacuum` deletes its objects when no snapshot refers to them."""
    _done(session, session.lake.table(table).vacuum_index(name), "removed")


def _done(session: Session, info: IndexInfo, what: str) -> None:
    if session.as_data:
        session.emit(info)
    else:
        click.echo(f"index {info.name}: {what}")


def _show(session: Session, info: IndexInfo) -> None:
    if session.as_data:
        session.emit(info)
        return
    rows: list[tuple[str, str]] = [
        ("name", info.name),
        ("kind", info.kind),
        ("over", f"{info.expression} ({info.dtype})"),
        ("options", ", ".join(f"{name}={_value(value)}" for name, value in info.options.items()) or "none"),
        ("time zone", info.time_zone),
        ("made", time_text(info.created_ms)),
        ("state", _state(info)),
        ("parts", f"{info.parts:,}"),
        ("size", f"{size_text(info.size_bytes)}, {info.bytes_per_block:,.0f} bytes per block"),
    ]
    if info.coverage is not None:
        rows.append(("coverage", _coverage_text(info.coverage)))
    print_table(["", ""], rows, headings=False)


def _state(info: IndexInfo) -> str:
    if info.dropped_ms is not None:
        return f"dropped {time_text(info.dropped_ms)}"
    return "in use" if info.not_usable is None else f"not used: {info.not_usable}"


def _indexed(coverage: Coverage | None) -> str:
    return "" if coverage is None else percent(coverage.indexed, coverage.blocks)


def _coverage_text(coverage: Coverage) -> str:
    text = f"{coverage.indexed:,} of {counted(coverage.blocks, 'block')} indexed, {coverage.not_indexed:,} not"
    if coverage.stale:
        text += f" ({coverage.stale:,} of them replaced since)"
    if coverage.unused_entries:
        text += f"; {coverage.unused_entries:,} unused entries"
    return text


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode() if not isinstance(value, str) else value


def _bounds(low: float | None, high: float | None) -> str:
    return "" if low is None and high is None else f"{_bound(low)} to {_bound(high)}"


def _bound(bound: float | None) -> str:
    return "" if bound is None else f"{bound:,.10g}"


@contextmanager
def _refresh_progress() -> Iterator[Callable[[RefreshAnswer], None]]:
    with bar("indexing", "blocks") as move:
        done = 0

        def show(part: RefreshAnswer) -> None:
            nonlocal done
            done += part.indexed + len(part.left_out)
            move(done, done + part.remaining)

        yield show


@contextmanager
def _optimise_progress() -> Iterator[Callable[[OptimiseAnswer], None]]:
    with spinner("regrouping") as say:
        made = 0

        def show(part: OptimiseAnswer) -> None:
            nonlocal made
            made += part.regrouped
            say(f"{counted(made, 'part')} written, {counted(part.remaining, 'group')} left")

        yield show
