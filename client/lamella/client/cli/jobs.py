"""``lamella job``, ``lamella schedule``, ``lamella policy``, ``lamella worker``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, get_args

import click
import msgspec

from lamella.client.cli.arguments import argument_options, arguments_of, complete_kind, kind_argument, seconds_of
from lamella.client.cli.connection import (
    Session,
    connect,
    service_option,
    service_options,
    target_of,
    with_session,
)
from lamella.client.cli.output import bar, print_table, time_text
from lamella.client.http import NO_RETRY
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.near_names import near_member
from lamella.snapshot.wire import (
    JobInfo,
    JobKindList,
    JobLine,
    JobList,
    JobLog,
    JobState,
    Policy,
    PolicyInfo,
    PutSchedule,
    Rule,
    ScheduleInfo,
    ScheduleList,
)

_STATES = get_args(JobState)


@click.group()
def job() -> None:
    """Submit, list, show, cancel and retry jobs, which workers run."""


@job.command("kinds")
@with_session()
def kinds(session: Session) -> None:
    """List the job kinds of the service, with their arguments."""
    answer = session.lake.jobs.kinds()
    if session.as_data:
        session.emit(JobKindList(kinds=answer))
        return
    print_table(["kind", "for"], [(kind.name, kind.text) for kind in answer])
    rows = [(kind.name, name, text) for kind in answer for name, text in _members(kind.arguments)]
    print_table(["kind", "argument", "type"], rows, title="arguments")


@job.command("submit")
@kind_argument
@click.argument("table", metavar="NAMESPACE.TABLE", required=False)
@argument_options
@click.option("--priority", type=int, default=0, show_default=True, help="Jobs with a higher priority run first.")
@click.option("--max-attempts", type=click.IntRange(min=1), help="Maximum number of attempts.")
@click.option("--attempt-timeout", metavar="TIME", help="End an attempt that takes longer: 90s, 15m, 12h.")
@click.option("--delay", metavar="TIME", help="Wait this long before the first attempt: 90s, 15m, 12h.")
@click.option("--unique", is_flag=True, help="If the same job is already pending, show it and submit none.")
@click.option("--wait", "waits", is_flag=True, help="Wait until the job ends; exit status 1 unless it succeeded.")
@with_session()
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
    """Submit a job of a KIND for a table. A worker runs it: `lamella worker` starts one."""
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
    elif session.as_data:
        session.emit(made)
    else:
        click.echo(f"job {made.job_id} is {made.state}")


@job.command("list")
@click.option("--table", metavar="NAMESPACE.TABLE", help="Only jobs of this table.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(_STATES), help="Only jobs in this state; repeatable."
)
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only jobs of this kind; repeatable.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of jobs to list."
)
@with_session()
def list_jobs(session: Session, table: str | None, states: tuple[Any, ...], kinds: tuple[str, ...], limit: int) -> None:
    """List jobs, newest first."""
    listed = session.lake.jobs.list(table, states=states or None, kinds=kinds or None, page_size=min(limit, 1000))
    answer = tuple(islice(listed, limit))
    if session.as_data:
        session.emit(JobList(jobs=answer))
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
            for each in answer
        ],
    )


@job.command("show")
@click.argument("job_id", metavar="JOB")
@with_session()
def show_job(session: Session, job_id: str) -> None:
    """Show one job: its arguments, progress and outcome."""
    _show_job(session, session.lake.jobs.get(job_id))


@job.command("log")
@click.argument("job_id", metavar="JOB")
@click.option("--follow", "-f", is_flag=True, help="Follow the log until the job ends.")
@with_session()
def log(session: Session, job_id: str, follow: bool) -> None:
    """Write the log of a job. With --json each line is a JSON object."""
    for line in session.lake.jobs.follow(job_id) if follow else _lines(session, job_id):
        if session.as_data:
            session.emit(line)
        else:
            mark = "" if line.level == "info" else f"{line.level}: "
            click.echo(f"{time_text(line.at_ms)} {mark}{line.text}")


@job.command("cancel")
@click.argument("job_id", metavar="JOB")
@with_session()
def cancel(session: Session, job_id: str) -> None:
    """Cancel a job. Its worker stops a running job within seconds; what the job committed stays."""
    _done(session, session.lake.jobs.cancel(job_id))


@job.command("retry")
@click.argument("job_id", metavar="JOB")
@with_session()
def retry(session: Session, job_id: str) -> None:
    """Queue a failed or cancelled job again. A job that waits for its time becomes due now."""
    _done(session, session.lake.jobs.retry(job_id))


@job.command("wait")
@click.argument("job_id", metavar="JOB")
@click.option("--at-most", metavar="TIME", help="Stop waiting after this time: 90s, 15m, 12h.")
@with_session()
def wait(session: Session, job_id: str, at_most: str | None) -> None:
    """Wait until a job ends. Exit status 1 unless it succeeded."""
    _wait(session, job_id, seconds_of(at_most, "--at-most"))


def _wait(session: Session, job_id: str, timeout_s: float | None) -> None:
    with _job_progress() as see:
        answer = session.lake.jobs.wait(job_id, timeout_s=timeout_s, on_job=see)
    _show_job(session, answer)
    if answer.state != "succeeded":
        raise click.exceptions.Exit(1)


def _lines(session: Session, job_id: str) -> Iterator[JobLine]:
    part: JobLog | None = None
    while part is None or part.lines:
        part = session.lake.jobs.log(job_id, after=0 if part is None else part.after)
        yield from part.lines


def _done(session: Session, answer: JobInfo) -> None:
    if session.as_data:
        session.emit(answer)
    else:
        click.echo(f"job {answer.job_id} is {_state(answer)}")


def _show_job(session: Session, answer: JobInfo) -> None:
    if session.as_data:
        session.emit(answer)
        return
    times = [
        (name, time_text(at_ms))
        for name, at_ms in (
            ("asked for", answer.created_ms),
            ("not before", answer.not_before_ms if answer.state == "queued" else None),
            ("started", answer.started_ms),
            ("heard of", answer.heartbeat_ms),
            ("over", answer.finished_ms),
        )
        if at_ms
    ]
    rows: list[tuple[str, str]] = [
        ("job", answer.job_id),
        ("kind", answer.kind),
        ("table", answer.table or "none"),
        ("arguments", msgspec.json.encode(answer.arguments).decode()),
        ("state", _state(answer)),
        ("attempt", f"{answer.attempts} of {answer.max_attempts}"),
        ("asked by", answer.origin if answer.origin_name is None else f"{answer.origin} {answer.origin_name}"),
        ("worker", answer.worker or "none"),
        ("progress", _progress(answer) or "none"),
        *times,
    ]
    if answer.error is not None:
        rows.append(("error", f"{answer.error.detail} [{answer.error.code}]"))
    if answer.result is not None:
        rows.append(("result", msgspec.json.encode(answer.result).decode()))
    print_table(["", ""], rows, headings=False)


def _state(answer: JobInfo) -> str:
    return "running, being cancelled" if answer.state == "running" and answer.cancel_requested else answer.state


def _progress(answer: JobInfo) -> str:
    reported = answer.progress
    if reported is None:
        return ""
    count = f"{reported.done:,}" if reported.total is None else f"{reported.done:,} of {reported.total:,}"
    return " ".join(
        part for part in (reported.message, count if reported.done or reported.total else "", reported.unit) if part
    )


def _members(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the arguments that a JSON schema describes, with their types."""
    definitions = schema.get("$defs", {})
    answer = definitions.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    required = set(answer.get("required", ()))
    for name, member in answer.get("properties", {}).items():
        kinds = [part.get("type") for part in member.get("anyOf", [member])]
        text = " or ".join(str(kind) for kind in kinds if kind not in (None, "null"))
        if "enum" in member:
            text = ", ".join(str(value) for value in member["enum"])
        yield name, text + (", needed" if name in required else "")


@contextmanager
def _job_progress() -> Iterator[Callable[[JobInfo], None]]:
    """Show a progress bar for a job."""
    with bar("waiting") as move:

        def see(answer: JobInfo) -> None:
            reported = answer.progress
            doing = f"{answer.kind} is {_state(answer)}" + (
                f", {reported.message}" if reported and reported.message else ""
            )
            move(0 if reported is None else reported.done, None if reported is None else reported.total, doing)

        yield see


@click.group()
def schedule() -> None:
    """Jobs of a table that are submitted at set times, while a worker runs."""


@schedule.command("set")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("name")
@kind_argument
@argument_options
@click.option("--every", metavar="TIME", help="Interval: 15m, 12h, 7d.")
@click.option("--cron", metavar="FIELDS", help='At these times, five fields of cron: "30 3 * * SUN".')
@click.option("--time-zone", default="UTC", show_default=True, help="Of --cron.")
@click.option("--disabled", is_flag=True, help="Store the schedule, but submit no jobs.")
@click.option("--priority", type=int, default=0, show_default=True, help="Jobs with a higher priority run first.")
@click.option("--max-attempts", type=click.IntRange(min=1), help="Maximum number of attempts of each job.")
@click.option("--attempt-timeout", metavar="TIME", help="End an attempt that takes longer: 90s, 15m, 12h.")
@with_session()
def set_schedule(
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
    """Submit a job of a KIND repeatedly. Replaces the schedule of that NAME."""
    if (every is None) == (cron is None):
        raise click.UsageError("give exactly one of --every and --cron")
    definition = PutSchedule(
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
    made = session.lake.table(table).set_schedule(name, definition)
    if session.as_data:
        session.emit(made)
    else:
        click.echo(f"schedule {name}: {kind} {_schedule_times(made)}, {_next_run(made)}")


@schedule.command("list")
@click.argument("table", metavar="NAMESPACE.TABLE")
@with_session()
def list_schedules(session: Session, table: str) -> None:
    """List the schedules of a table."""
    answer = session.lake.table(table).schedules()
    if session.as_data:
        session.emit(ScheduleList(schedules=answer))
        return
    print_table(
        ["name", "kind", "times", "next", "last", "last job"],
        [
            (
                each.name,
                each.kind,
                _schedule_times(each),
                _next_run(each),
                "never" if each.last_ms is None else time_text(each.last_ms),
                each.last_job_id or "",
            )
            for each in answer
        ],
    )


@schedule.command("run")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("name")
@click.option("--wait", "waits", is_flag=True, help="Wait until the job ends; exit status 1 unless it succeeded.")
@with_session()
def run_schedule(session: Session, table: str, name: str, waits: bool) -> None:
    """Submit the job of a schedule now. Its next time stays."""
    made = session.lake.table(table).run_schedule(name)
    if waits:
        _wait(session, made.job_id, None)
    elif session.as_data:
        session.emit(made)
    else:
        click.echo(f"job {made.job_id} is {made.state}")


@schedule.command("drop")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("name")
@with_session()
def drop_schedule(session: Session, table: str, name: str) -> None:
    """Drop a schedule. Jobs that it submitted stay."""
    session.lake.table(table).drop_schedule(name)
    if session.as_data:
        session.emit({})
    else:
        click.echo(f"schedule {name} is dropped")


def _schedule_times(answer: ScheduleInfo) -> str:
    return f"every {answer.every_s:,} s" if answer.cron is None else f"{answer.cron} {answer.time_zone}"


def _next_run(answer: ScheduleInfo) -> str:
    return "disabled" if answer.next_ms is None else f"next {time_text(answer.next_ms)}"


@click.group()
def policy() -> None:
    """Jobs of a table that are submitted when the table needs them, while a worker runs."""


@policy.command("set")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("document", type=click.File("rb"), metavar="FILE")
@with_session()
def set_policy(session: Session, table: str, document: BinaryIO) -> None:
    """Set a table's policy from a JSON FILE (-: standard input); replaces the current one."""
    data = document.read()
    try:
        definition = msgspec.json.decode(data, type=Policy)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        near = near_member(error, Policy, data) if isinstance(error, msgspec.ValidationError) else {}
        problem = InvalidRequest(f"not a policy: {error}", **near)
        raise click.BadParameter(str(problem), param_hint="FILE") from error
    _show_policy(session, table, session.lake.table(table).set_policy(definition))


@policy.command("show")
@click.argument("table", metavar="NAMESPACE.TABLE")
@with_session()
def show_policy(session: Session, table: str) -> None:
    """Show a table's policy and the result of its last check."""
    _show_policy(session, table, session.lake.table(table).policy())


@policy.command("drop")
@click.argument("table", metavar="NAMESPACE.TABLE")
@with_session()
def drop_policy(session: Session, table: str) -> None:
    """Drop a table's policy. Jobs that it submitted stay."""
    session.lake.table(table).drop_policy()
    if session.as_data:
        session.emit({})
    else:
        click.echo(f"{table} has no policy now")


def _show_policy(session: Session, table: str, answer: PolicyInfo) -> None:
    if session.as_data:
        session.emit(answer)
        return
    rules = {
        field.name: rule
        for field in msgspec.structs.fields(answer.policy)
        if isinstance(rule := getattr(answer.policy, field.name), Rule)
    }
    print_table(["rule", "when, and what"], [(name, msgspec.json.encode(r).decode()) for name, r in rules.items()])
    if answer.checked_ms is None:
        click.echo(f"the policy of {table} has not been checked yet; a running worker triggers the check")
        return
    print_table(
        ["rule", "due", "why", "last asked", "job"],
        [
            (
                each.rule,
                "yes" if each.due else "no",
                each.reason,
                "never" if each.last_ms is None else time_text(each.last_ms),
                each.last_job_id or "",
            )
            for each in answer.findings
        ],
        title=f"checked {time_text(answer.checked_ms)}",
    )


@click.command()
@click.option(
    "--kinds",
    metavar="A,B,...",
    shell_complete=complete_kind,
    help="Run only jobs of these kinds. Default: all kinds of this installation.",
)
@click.option("--concurrency", type=click.IntRange(min=1), default=1, show_default=True, help="Jobs at once.")
@click.option(
    "--lease-s",
    type=click.IntRange(min=3),
    default=60,
    show_default=True,
    help="Seconds without a heartbeat after which another worker takes a job over.",
)
@click.option(
    "--poll-s",
    type=click.FloatRange(min=0.05),
    default=5.0,
    show_default=True,
    help="Seconds between polls when no job is due.",
)
@click.option(
    "--grace-s",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds between asking a program to end and killing it.",
)
@click.option("--attempt-timeout", metavar="TIME", help="Time limit for programs whose job sets none.")
@click.option("--once", is_flag=True, help="Run the jobs that are due, then exit; exit status 1 unless all succeeded.")
@click.option(
    "--command-prefix",
    metavar="COMMAND",
    help='Prefix for the commands of jobs that use Spark: "spark-submit --master spark://host:7077".',
)
@click.option("--name", metavar="TEXT", help="The worker's name in listings. Default: host and process id.")
@service_options()
@click.option("--json", "as_json", is_flag=True, help="Log JSON lines even to a terminal.")
def worker(
    kinds: str | None,
    concurrency: int,
    lease_s: int,
    poll_s: float,
    grace_s: float,
    attempt_timeout: str | None,
    once: bool,
    command_prefix: str | None,
    name: str | None,
    url: str | None,
    profile: str | None,
    token: str | None,
    token_file: str | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Run jobs until stopped, each in a process of its own.

    On SIGTERM and Ctrl-C the running jobs are returned to the queue, which costs them no attempt. A second signal kills
    their programs without a grace period.
    """
    from lamella.client.jobs.attempt import AttemptSettings, WorkerLog
    from lamella.client.jobs.worker import Worker, WorkerSettings, on_signals
    from lamella.snapshot.job_kinds import job_kinds

    service = service_option(click.get_current_context(), url, profile, token, token_file)
    try:
        prefix = tuple(shlex.split(command_prefix or ""))
    except ValueError as error:
        raise click.BadParameter(f"cannot be split into words: {error}", param_hint="--command-prefix") from error
    wanted = None if kinds is None else tuple(kinds.split(","))
    unknown = sorted(set(wanted or ()) - set(job_kinds()))
    if unknown:
        raise click.BadParameter(f"no such kind here: {', '.join(unknown)}", param_hint="--kinds")
    settings = WorkerSettings(
        kinds=wanted,
        concurrency=concurrency,
        poll_s=poll_s,
        once=once,
        name=name or "",
    )
    attempts = AttemptSettings(
        lease_s=lease_s,
        grace_s=grace_s,
        timeout_s=seconds_of(attempt_timeout, "--attempt-timeout"),
        prefix=prefix,
        token=service.token,
        token_file=None if service.token_file is None else str(Path(service.token_file).absolute()),
    )
    # The timeout is short, since a hanging request must not cost a job; the worker retries by itself.
    # Without traces: a worker polls all the time.
    with connect(target_of(service, min(timeout_s, lease_s / 3)), policy=NO_RETRY, traces=False) as lake:
        answer = Worker(lake, settings, attempts, WorkerLog(as_json=as_json or not sys.stderr.isatty()))
        with on_signals(answer.stop):
            ended = answer.run()
    if once and any(each != "succeeded" for each in ended):
        raise click.exceptions.Exit(1)
