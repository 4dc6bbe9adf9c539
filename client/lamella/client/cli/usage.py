"""``lamella audit``, ``lamella prune-rates``, ``lamella feedback``: usage of a service."""

from __future__ import annotations

from itertools import islice

import click

from lamella.client.cli.arguments import since_option
from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.output import percent, print_table, size_text, time_text
from lamella.snapshot.counts import counted
from lamella.snapshot.wire import AuditList, FeedbackCleared, PruneRate, ServiceRate


@click.command("audit")
@click.argument("table", metavar="NAMESPACE.TABLE", required=False)
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of changes to list."
)
@with_session()
def audit(session: Session, table: str | None, limit: int) -> None:
    """Show requested changes, newest first, including refused ones."""
    answer = tuple(islice(session.lake.audit(table, page_size=min(limit, 100)), limit))
    if session.as_data:
        session.emit(AuditList(entries=answer))
        return
    print_table(
        ["when", "who", "from", "what", "about", ("status", "right"), "error"],
        [
            (
                time_text(each.at_ms),
                each.actor,
                each.client,
                each.operation,
                each.target or "",
                str(each.status),
                each.code or "",
            )
            for each in answer
        ],
    )


@click.command("prune-rates")
@click.argument("table", metavar="NAMESPACE.TABLE")
@since_option
@with_session()
def prune_rates(session: Session, table: str, since_s: int) -> None:
    """Show how much the prunes of a table skipped, for all clients."""
    answer = session.lake.table(table).prune_rates(since_s)
    if session.as_data:
        session.emit(answer, answer.series)
        return
    print_table(
        ["from", ("prunes", "right"), ("blocks skipped", "right"), ("bytes skipped", "right"), ("skipped", "right")],
        [*(_line(time_text(each.bucket_ms or 0), each) for each in answer.series), _line("all", answer.total)],
    )


def _line(begin: str, rate: PruneRate) -> tuple[str, str, str, str, str]:
    skipped_bytes = rate.bytes_total - rate.kept_bytes
    return (
        begin,
        f"{rate.prunes:,}",
        percent(rate.considered_blocks - rate.kept_blocks, rate.considered_blocks),
        percent(int(skipped_bytes), int(rate.bytes_total)),
        size_text(int(skipped_bytes)),
    )


@click.command("service-rates")
@since_option
@with_session()
def service_rates(session: Session, since_s: int) -> None:
    """Show what the service did over time: requests, quantiles, errors, commits."""
    answer = session.lake.service_rates(since_s)
    if session.as_data:
        session.emit(answer, answer.series)
        return
    columns = ("requests", "errors", "prunes", "prune p50", "prune p99", "commits", "cache hits", "store calls")
    print_table(
        ["from", *((column, "right") for column in columns)],
        [
            *(_rate_line(time_text(each.bucket_ms or 0), each) for each in answer.series),
            _rate_line("all", answer.total),
        ],
    )


def _rate_line(begin: str, rate: ServiceRate) -> tuple[str, ...]:
    return (
        begin,
        f"{rate.requests:,}",
        f"{rate.errors:,}",
        f"{rate.prunes:,}",
        _ms_text(rate.prune_p50_ms),
        _ms_text(rate.prune_p99_ms),
        f"{rate.commits:,}",
        percent(rate.cache_hits, rate.cache_hits + rate.cache_misses),
        f"{rate.store_calls:,}",
    )


def _ms_text(ms: float | None) -> str:
    return "" if ms is None else f"{ms:,.3g} ms"


@click.group()
def feedback() -> None:
    """Blocks that readers reported to contain no matching row."""


@feedback.command("show")
@click.argument("table", metavar="NAMESPACE.TABLE")
@with_session()
def show_feedback(session: Session, table: str) -> None:
    """Show how much feedback is stored for a table."""
    answer = session.lake.table(table).feedback()
    if session.as_data:
        session.emit(answer)
        return
    state = "is used" if answer.enabled else "is not used: it is disabled for the service or the table"
    click.echo(
        f"{table}: {answer.facts:,} of {counted(answer.max_facts, 'fact')} about {counted(answer.filters, 'filter')}, "
        f"{size_text(answer.size_bytes)} of {size_text(answer.max_bytes)}; feedback {state}"
    )


@feedback.command("clear")
@click.argument("table", metavar="NAMESPACE.TABLE")
@with_session()
def clear_feedback(session: Session, table: str) -> None:
    """Delete all feedback for a table."""
    count = session.lake.table(table).clear_feedback()
    if session.as_data:
        session.emit(FeedbackCleared(facts=count))
    else:
        click.echo(f"{table}: {counted(count, 'fact')} deleted")
