"""``lamella worker``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from lamella.client.cli.connection import asks_service, shown_by
from lamella.client.cli.job_options import complete_kind, seconds_of
from lamella.client.http import NO_RETRY, Lamella


@click.command()
@click.option(
    "--kinds",
    metavar="A,B,...",
    shell_complete=complete_kind,
    help="Take only jobs of these kinds. Default: all that are known here.",
)
@click.option("--concurrency", type=click.IntRange(min=1), default=1, show_default=True, help="Jobs at once.")
@click.option(
    "--lease-s",
    type=click.IntRange(min=3),
    default=60,
    show_default=True,
    help="Another worker takes a job over when this one was not heard of for so many seconds.",
)
@click.option(
    "--poll-s",
    type=click.FloatRange(min=0.05),
    default=5.0,
    show_default=True,
    help="Seconds until it asks again when there was nothing to do.",
)
@click.option(
    "--grace-s",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds that a program may take to end when it is asked to, before it is killed.",
)
@click.option("--attempt-timeout", metavar="TIME", help="End programs that take longer, where their job does not say.")
@click.option("--once", is_flag=True, help="Do what is due, and end. Exit status 1 when not all of it succeeded.")
@click.option(
    "--command-prefix",
    metavar="COMMAND",
    help='Stands before the programs that bring a Spark session: "spark-submit --master spark://host:7077".',
)
@click.option("--name", metavar="TEXT", help="What it is called in listings. Default: host and process.")
@asks_service(json_help="Log as JSON lines also when a person is looking.")
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
    url: str,
    token: str | None,
    token_file: str | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Do jobs until it is stopped, each in a process of its own.

    SIGTERM and Ctrl-C hand back what runs: it is queued again, and no attempt is lost. A second one does not wait for
    programs to end by themselves.
    """
    from lamella.client.jobs.attempt import AttemptSettings
    from lamella.client.jobs.signals import on_signals
    from lamella.client.jobs.worker import Worker, WorkerSettings
    from lamella.client.jobs.worker_log import WorkerLog
    from lamella.snapshot.jobs import job_kinds

    token, token_file = shown_by(click.get_current_context(), token, token_file)
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
        token=token,
        token_file=None if token_file is None else str(Path(token_file).absolute()),
    )
    # A request that hangs must not cost a job, and tries are the worker's own.
    with Lamella(
        url,
        token=token,
        token_file=token_file,
        timeout_s=min(timeout_s, lease_s / 3),
        policy=NO_RETRY,
        traces=False,  # a worker asks all day long
    ) as lake:
        found = Worker(lake, settings, attempts, WorkerLog(as_json=as_json or not sys.stderr.isatty()))
        with on_signals(found.stop):
            ended = found.run()
    if once and any(each != "succeeded" for each in ended):
        raise click.exceptions.Exit(1)
