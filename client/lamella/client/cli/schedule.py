"""``lamella schedule``."""

from __future__ import annotations

import click

from lamella.client.cli.connection import Session, connected
from lamella.client.cli.job_options import argument_options, arguments_of, kind_argument, seconds_of
from lamella.client.cli.output import print_table, time_text
from lamella.snapshot.wire import PutSchedule, ScheduleInfo, ScheduleList


@click.group()
def schedule() -> None:
    """Jobs of a table that are asked for at set times, as long as a worker runs."""


@schedule.command("set")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("name")
@kind_argument
@argument_options
@click.option("--every", metavar="TIME", help="Again after so long: 15m, 12h, 7d.")
@click.option("--cron", metavar="FIELDS", help='At these times, five fields of cron: "30 3 * * SUN".')
@click.option("--time-zone", default="UTC", show_default=True, help="Of --cron.")
@click.option("--disabled", is_flag=True, help="Keep it, and do nothing for now.")
@click.option("--priority", type=int, default=0, show_default=True, help="Jobs with a larger one come first.")
@click.option("--max-attempts", type=click.IntRange(min=1), help="Start each job so often at most.")
@click.option("--attempt-timeout", metavar="TIME", help="End an attempt that takes longer: 90s, 15m, 12h.")
@connected()
def set_(
    session: Session,
    table: str,
    name: str,
    kind: str,
    arguments: tuple[str, ...],
    every: str | None,
    cron: str | None,
    time_zone: str,
    disabled: bool,
    priority: int,
    max_attempts: int | None,
    attempt_timeout: str | None,
) -> None:
    """Have a job of a KIND done again and again. A schedule of that NAME is replaced."""
    if (every is None) == (cron is None):
        raise click.UsageError("give exactly one of --every and --cron")
    asked = PutSchedule(
        kind=kind,
        arguments=arguments_of(arguments),
        every_s=seconds_of(every, "--every"),
        cron=cron,
        time_zone=time_zone,
        enabled=not disabled,
        priority=priority,
        max_attempts=max_attempts,
        timeout_s=seconds_of(attempt_timeout, "--attempt-timeout"),
    )
    made = session.lake.table(table).set_schedule(name, asked)
    if session.as_json:
        session.emit(made)
    else:
        click.echo(f"schedule {name}: {kind} {_times(made)}, {_next(made)}")


@schedule.command("list")
@click.argument("table", metavar="NAMESPACE.TABLE")
@connected()
def list_(session: Session, table: str) -> None:
    """List the schedules of a table."""
    found = session.lake.table(table).schedules()
    if session.as_json:
        session.emit(ScheduleList(schedules=found))
        return
    print_table(
        ["name", "kind", "times", "next", "last", "last job"],
        [
            (
                each.name,
                each.kind,
                _times(each),
                _next(each),
                "never" if each.last_ms is None else time_text(each.last_ms),
                each.last_job_id or "",
            )
            for each in found
        ],
    )


@schedule.command("drop")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("name")
@connected()
def drop(session: Session, table: str, name: str) -> None:
    """Drop a schedule. Jobs that it asked for stay."""
    session.lake.table(table).drop_schedule(name)
    if session.as_json:
        session.emit({})
    else:
        click.echo(f"schedule {name} is gone")


def _times(found: ScheduleInfo) -> str:
    return f"every {found.every_s:,} s" if found.cron is None else f"{found.cron} {found.time_zone}"


def _next(found: ScheduleInfo) -> str:
    return "disabled" if found.next_ms is None else f"next {time_text(found.next_ms)}"
