"""``lamella job``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, get_args

import click
import msgspec

from lamella.client.cli.connection import Session, connected
from lamella.client.cli.job_options import argument_options, arguments_of, kind_argument, seconds_of
from lamella.client.cli.output import print_table, time_text
from lamella.client.cli.progress import bar
from lamella.snapshot.wire import JobInfo, JobKindList, JobLine, JobList, JobLog, JobState

_STATES = get_args(JobState)


@click.group()
def job() -> None:
    """Have jobs done by a worker, look at them, cancel them, try them again."""


@job.command("kinds")
@connected()
def kinds(session: Session) -> None:
    """List the kinds of jobs that the service knows, with their arguments."""
    found = session.lake.jobs.kinds()
    if session.as_json:
        session.emit(JobKindList(kinds=found))
        return
    print_table(["kind", "for"], [(kind.name, kind.text) for kind in found])
    rows = [(kind.name, name, text) for kind in found for name, text in _members(kind.arguments)]
    print_table(["kind", "argument", "type"], rows, title="arguments")


@job.command("submit")
@kind_argument
@click.argument("table", metavar="NAMESPACE.TABLE", required=False)
@argument_options
@click.option("--priority", type=int, default=0, show_default=True, help="Jobs with a larger one come first.")
@click.option("--max-attempts", type=click.IntRange(min=1), help="Start it so often at most.")
@click.option("--attempt-timeout", metavar="TIME", help="End an attempt that takes longer: 90s, 15m, 12h.")
@click.option("--delay", metavar="TIME", help="Not before so long from now: 90s, 15m, 12h.")
@click.option("--unique", is_flag=True, help="Add none when one like it is pending; show that one.")
@click.option("--wait", "waits", is_flag=True, help="Wait until it is over; exit status 1 unless it succeeded.")
@connected()
def submit(
    session: Session,
    kind: str,
    table: str | None,
    arguments: tuple[str, ...],
    priority: int,
    max_attempts: int | None,
    attempt_timeout: str | None,
    delay: str | None,
    unique: bool,
    waits: bool,
) -> None:
    """Have a job of a KIND done for a table. It waits for a worker: `lamella worker` starts one."""
    made = session.lake.jobs.submit(
        kind,
        table,
        arguments_of(arguments),
        priority=priority,
        max_attempts=max_attempts,
        timeout_s=seconds_of(attempt_timeout, "--attempt-timeout"),
        delay_s=seconds_of(delay, "--delay") or 0,
        unique=unique,
    )
    if waits:
        _wait(session, made.job_id, None)
    elif session.as_json:
        session.emit(made)
    else:
        click.echo(f"job {made.job_id} is {made.state}")


@job.command("list")
@click.option("--table", metavar="NAMESPACE.TABLE", help="Only jobs of this table.")
@click.option("--state", "states", multiple=True, type=click.Choice(_STATES), help="Only jobs in it; repeatable.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only jobs of this kind; repeatable.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="So many at most, the newest first."
)
@connected()
def list_(session: Session, table: str | None, states: tuple[Any, ...], kinds: tuple[str, ...], limit: int) -> None:
    """List jobs, newest first."""
    listed = session.lake.jobs.list(table, states=states or None, kinds=kinds or None, page_size=min(limit, 1000))
    found = tuple(islice(listed, limit))
    if session.as_json:
        session.emit(JobList(jobs=found))
        return
    print_table(
        ["job", "kind", "table", "state", ("attempt", "right"), "progress", "by", "since"],
        [
            (
                each.job_id,
                each.kind,
                each.table or "",
                _state(each),
                f"{each.attempts}/{each.max_attempts}",
                _progress(each),
                each.origin if each.origin_name is None else f"{each.origin} {each.origin_name}",
                time_text(each.created_ms),
            )
            for each in found
        ],
    )


@job.command("show")
@click.argument("job_id", metavar="JOB")
@connected()
def show(session: Session, job_id: str) -> None:
    """Show one job: what it is, how far, and what came of it."""
    _show(session, session.lake.jobs.get(job_id))


@job.command("log")
@click.argument("job_id", metavar="JOB")
@click.option("--follow", "-f", is_flag=True, help="Go on with what it writes until it is over.")
@connected()
def log(session: Session, job_id: str, follow: bool) -> None:
    """Write the log of a job. With --json each line is an object of its own."""
    for line in session.lake.jobs.follow(job_id) if follow else _lines(session, job_id):
        if session.as_json:
            session.emit(line)
        else:
            mark = "" if line.level == "info" else f"{line.level}: "
            click.echo(f"{time_text(line.at_ms)} {mark}{line.text}")


@job.command("cancel")
@click.argument("job_id", metavar="JOB")
@connected()
def cancel(session: Session, job_id: str) -> None:
    """Cancel a job. One that runs is ended by its worker within seconds; what it committed stays."""
    _done(session, session.lake.jobs.cancel(job_id))


@job.command("retry")
@click.argument("job_id", metavar="JOB")
@connected()
def retry(session: Session, job_id: str) -> None:
    """Queue a job again that failed or was cancelled. One that waits for its time is due at once."""
    _done(session, session.lake.jobs.retry(job_id))


@job.command("wait")
@click.argument("job_id", metavar="JOB")
@click.option("--at-most", metavar="TIME", help="Give up after so long: 90s, 15m, 12h.")
@connected()
def wait(session: Session, job_id: str, at_most: str | None) -> None:
    """Wait until a job is over. Exit status 1 unless it succeeded."""
    _wait(session, job_id, seconds_of(at_most, "--at-most"))


def _wait(session: Session, job_id: str, timeout_s: float | None) -> None:
    with _following() as see:
        found = session.lake.jobs.wait(job_id, timeout_s=timeout_s, on_job=see)
    _show(session, found)
    if found.state != "succeeded":
        raise click.exceptions.Exit(1)


def _lines(session: Session, job_id: str) -> Iterator[JobLine]:
    part: JobLog | None = None
    while part is None or part.lines:
        part = session.lake.jobs.log(job_id, after=0 if part is None else part.after)
        yield from part.lines


def _done(session: Session, found: JobInfo) -> None:
    if session.as_json:
        session.emit(found)
    else:
        click.echo(f"job {found.job_id} is {_state(found)}")


def _show(session: Session, found: JobInfo) -> None:
    if session.as_json:
        session.emit(found)
        return
    times = [
        (name, time_text(at_ms))
        for name, at_ms in (
            ("asked for", found.created_ms),
            ("not before", found.not_before_ms if found.state == "queued" else None),
            ("started", found.started_ms),
            ("heard of", found.heartbeat_ms),
            ("over", found.finished_ms),
        )
        if at_ms
    ]
    rows: list[tuple[str, str]] = [
        ("job", found.job_id),
        ("kind", found.kind),
        ("table", found.table or "none"),
        ("arguments", msgspec.json.encode(found.arguments).decode()),
        ("state", _state(found)),
        ("attempt", f"{found.attempts} of {found.max_attempts}"),
        ("asked by", found.origin if found.origin_name is None else f"{found.origin} {found.origin_name}"),
        ("worker", found.worker or "none"),
        ("progress", _progress(found) or "none"),
        *times,
    ]
    if found.error is not None:
        rows.append(("error", f"{found.error.detail} [{found.error.code}]"))
    if found.result is not None:
        rows.append(("result", msgspec.json.encode(found.result).decode()))
    print_table(["", ""], rows, headings=False)


def _state(found: JobInfo) -> str:
    return "running, to be cancelled" if found.state == "running" and found.cancel_requested else found.state


def _progress(found: JobInfo) -> str:
    told = found.progress
    if told is None:
        return ""
    count = f"{told.done:,}" if told.total is None else f"{told.done:,} of {told.total:,}"
    return " ".join(part for part in (told.message, count if told.done or told.total else "", told.unit) if part)


def _members(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The arguments that a JSON schema describes, and their types."""
    definitions = schema.get("$defs", {})
    found = definitions.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    required = set(found.get("required", ()))
    for name, member in found.get("properties", {}).items():
        kinds = [part.get("type") for part in member.get("anyOf", [member])]
        text = " or ".join(str(kind) for kind in kinds if kind not in (None, "null"))
        if "enum" in member:
            text = ", ".join(str(value) for value in member["enum"])
        yield name, text + (", needed" if name in required else "")


@contextmanager
def _following() -> Iterator[Callable[[JobInfo], None]]:
    """A bar that moves as the job does."""
    with bar("waiting") as move:

        def see(found: JobInfo) -> None:
            told = found.progress
            doing = f"{found.kind} is {_state(found)}" + (f", {told.message}" if told and told.message else "")
            move(0 if told is None else told.done, None if told is None else told.total, doing)

        yield see
