"""The program of the kind of job that tests bring: it does nothing, slowly, and as badly as it is told to.

Everything that it does stands in a ledger, a file of JSON lines that all runs append to.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

from lamella.client.jobs.report import ATTEMPT, JOB_ID, ErrorEvent, job_reporter, send_event


def note(ledger: Path, table: str, event: str, **more: object) -> None:
    """One line of the ledger."""
    line = {
        "event": event,
        "table": table,
        "job": os.environ[JOB_ID],
        "attempt": int(os.environ[ATTEMPT]),
        "pid": os.getpid(),
        "at": time.monotonic(),
        **more,
    }
    with ledger.open("ab", buffering=0) as file:
        file.write((json.dumps(line) + "\n").encode())


@click.command()
@click.argument("table")
@click.option("--ledger", type=click.Path(path_type=Path), required=True)
@click.option("--steps", type=int, default=1)
@click.option("--step-s", type=float, default=0.02)
@click.option("--fails", type=int, default=0, help="So many attempts fail.")
@click.option("--how", type=click.Choice(["exit", "final", "busy", "kill", "stubborn", "orphan"]), default="exit")
@click.option("--polls", is_flag=True, help="Ends by itself when it is asked to.")
def main(ledger: Path, table: str, steps: int, step_s: float, fails: int, how: str, polls: bool) -> None:
    """Go through some steps; the next attempt goes on where this one left off."""
    bad = int(os.environ[ATTEMPT]) <= fails
    with job_reporter("pretending", polls=polls) as reporter:
        first = int(reporter.resumed or 0)
        note(ledger, table, "begin", first=first)
        if bad and how == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if bad and how == "orphan":  # a helper that would outlive it
            helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            note(ledger, table, "helper", helper=helper.pid)
        for step in range(first, steps):
            if reporter.cancelled():
                note(ledger, table, "stopped", step=step)
                sys.exit(3)
            time.sleep(step_s)
            reporter.progress(step + 1, steps, "steps", "pretending")
            reporter.checkpoint(step + 1)
            reporter.log(f"step {step + 1}")
            if bad and step + 1 > steps // 2 and how not in ("stubborn", "orphan"):
                note(ledger, table, "fails")
                fail(how)
        note(ledger, table, "end")
        reporter.result({"steps": steps - first})


def fail(how: str) -> None:
    """End badly."""
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "final":
        send_event(ErrorEvent(code="invalid_filter", detail="no such thing"))
    if how == "busy":
        send_event(ErrorEvent(code="commit_conflict", detail="somebody was faster"))
    print("it did not work", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
