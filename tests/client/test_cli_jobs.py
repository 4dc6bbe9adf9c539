"""`lamella job`, `schedule`, `policy` and `worker`: what they ask and what they show."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from lamella.client.cli.app import cli
from lamella.client.cli.connection import Target
from lamella.client.http import NO_RETRY, Lamella
from lamella.client.http.fake_transport import FakeTransport, json_response, problem_response
from lamella.client.http.transport import HttpRequest, HttpResponse
from lamella.client.jobs.report import JOB_ID
from lamella.snapshot import wire

JOB = wire.JobInfo(
    job_id="j1",
    kind="compact",
    state="running",
    origin="policy",
    arguments={"max_bytes": 5},
    priority=0,
    attempts=1,
    max_attempts=3,
    created_ms=1_700_000_000_000,
    not_before_ms=0,
    cancel_requested=True,
    table="db.t",
    origin_name="compact",
    worker="host:1",
    progress=wire.Progress(done=1_500, total=3_000, unit="blocks", message="writing"),
)
DONE = msgspec.structs.replace(JOB, state="succeeded", cancel_requested=False, result={"rows": 7})
FAILED = msgspec.structs.replace(JOB, state="failed", error=wire.JobError(code="job_timeout", detail="too long"))


class Run:
    """Runs commands against answers, one a request (the last one again and again)."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.fake = FakeTransport(self._answer)

    def _answer(self, _: HttpRequest) -> HttpResponse:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return answer if isinstance(answer, HttpResponse) else json_response(answer)

    def __call__(self, *args: str, text: str | None = None, env: dict[str, str] | None = None) -> Result:
        def connect(target: Target) -> Lamella:
            return Lamella(target.url, transport=self.fake, policy=NO_RETRY, sleep=lambda _: None)

        return CliRunner().invoke(cli, args, obj=connect, input=text, env=env)

    @property
    def body(self) -> Any:
        """The last body that was sent."""
        return json.loads(self.fake.requests[-1].body)


def test_submit_sends_arguments_by_their_type() -> None:
    """Numbers and truth values are those, dotted names members, lengths of time seconds."""
    run = Run(JOB)
    done = run(
        *("job", "submit", "update", "db.t", "-a", "set.a=b+1", "-a", "set.c=2", "-a", "where=a = 1"),
        *("--argument", "fast=true", "-a", "n=5", "--priority", "-3", "--delay", "15m", "--attempt-timeout", "90"),
    )
    assert done.exit_code == 0, done.output
    assert run.body == {
        "kind": "update",
        "table": "db.t",
        "arguments": {"set": {"a": "b+1", "c": 2}, "where": "a = 1", "fast": True, "n": 5},
        "priority": -3,
        "delay_s": 900,
        "timeout_s": 90,
    }
    assert done.output == "job j1 is running\n"
    assert json.loads(run("job", "submit", "verify", "db.t", "--json").output)["job_id"] == "j1"


@pytest.mark.parametrize(
    "args",
    [
        ("job", "submit", "update", "db.t", "-a", "where"),
        ("job", "submit", "update", "db.t", "-a", "set=1", "-a", "set.a=1"),
        ("job", "submit", "compact", "db.t", "--delay", "soon"),
        ("job", "list", "--state", "done"),
        ("schedule", "set", "db.t", "s", "compact"),
        ("schedule", "set", "db.t", "s", "compact", "--every", "1h", "--cron", "* * * * *"),
        ("worker", "--command-prefix", "spark-submit '"),
        ("worker", "--lease-s", "1"),
        ("worker", "--kinds", "vacuum,nothing"),
    ],
)
def test_wrong_usage_asks_nothing(args: tuple[str, ...]) -> None:
    """Exit status 2, and no request."""
    run = Run(JOB)
    assert run(*args).exit_code == 2
    assert run.fake.requests == []


def test_waiting_shows_the_end_and_says_by_its_status_whether_it_is_good() -> None:
    """0 when the job succeeded, else 1."""
    good = Run(JOB, JOB, DONE)
    done = good("job", "submit", "compact", "db.t", "--wait")
    assert done.exit_code == 0, done.output
    assert '{"rows":7}' in done.output
    bad = Run(JOB, FAILED)("job", "wait", "j1")
    assert bad.exit_code == 1
    assert "too long [job_timeout]" in bad.output
    assert Run(JOB)("job", "wait", "j1", "--at-most", "0").exit_code == 1


def test_jobs_are_listed_and_shown() -> None:
    """With state, progress and origin in words; `--json` is the service's answer."""
    listed = Run(wire.JobList(jobs=(JOB, DONE)))("job", "list", "--state", "running", "--limit", "1")
    assert "running, being cancelled" in listed.output
    assert "writing 1,500 of 3,000 blocks" in listed.output
    assert "policy compact" in listed.output
    assert listed.output.count("j1") == 1
    shown = Run(FAILED)("job", "show", "j1")
    assert "host:1" in shown.output
    assert '{"max_bytes":5}' in shown.output
    assert msgspec.json.decode(Run(DONE)("job", "show", "j1", "--json").output, type=wire.JobInfo) == DONE
    assert Run(JOB)("job", "cancel", "j1").output == "job j1 is running, being cancelled\n"
    assert Run(DONE)("job", "retry", "j1").output == "job j1 is succeeded\n"


def test_kinds_are_listed_with_their_arguments() -> None:
    """From the JSON schema that the service answers."""
    from lamella.snapshot.job_kinds import job_kind_named

    schema = msgspec.json.schema(job_kind_named("index_refresh").arguments)
    kind = wire.JobKindInfo(name="index_refresh", text="Index.", needs_table=True, arguments=schema)
    shown = Run(wire.JobKindList(kinds=(kind,)))("job", "kinds").output
    assert "string, needed" in shown
    assert "full, incremental, quick" in shown
    assert "integer" in shown


def test_a_log_is_written_line_by_line() -> None:
    """With its times; levels are named unless they are the usual one."""
    lines = (
        wire.JobLine(number=1, at_ms=0, text="one"),
        wire.JobLine(number=2, at_ms=1, text="two", level="error"),
    )
    parts = (wire.JobLog(state="succeeded", lines=lines, after=2), wire.JobLog(state="succeeded", after=2))
    for flags in ((), ("--follow",)):
        shown = Run(*parts)("job", "log", "j1", *flags).output
        assert shown == "1970-01-01T00:00:00.000Z one\n1970-01-01T00:00:00.001Z error: two\n"
    as_json = Run(*parts)("job", "log", "j1", "--json").output.splitlines()
    assert [msgspec.json.decode(line, type=wire.JobLine) for line in as_json] == list(lines)


def test_schedules_are_set_listed_and_dropped() -> None:
    """Lengths of time in any unit; the next time is shown."""
    info = wire.ScheduleInfo(
        name="s",
        kind="vacuum",
        arguments={},
        time_zone="Europe/Berlin",
        enabled=True,
        priority=0,
        created_ms=1,
        cron="30 3 * * *",
        next_ms=0,
    )
    run = Run(info)
    made = run("schedule", "set", "db.t", "s", "vacuum", "--every", "2d", "-a", "execute=true", "--disabled")
    assert made.output == "schedule s: vacuum 30 3 * * * Europe/Berlin, next 1970-01-01T00:00:00.000Z\n"
    assert run.body == {"kind": "vacuum", "arguments": {"execute": True}, "every_s": 172_800, "enabled": False}
    off = msgspec.structs.replace(info, enabled=False, cron=None, every_s=60, next_ms=None)
    listed = Run(wire.ScheduleList(schedules=(info, off)))("schedule", "list", "db.t").output
    assert "every 60 s" in listed
    assert "disabled" in listed
    assert Run({})("schedule", "drop", "db.t", "s").output == "schedule s is dropped\n"


def test_a_schedule_is_run_now_as_it_is_stored() -> None:
    """With its arguments and limits, once; also while it is disabled. `--wait` waits for the job."""
    info = wire.ScheduleInfo(
        name="s",
        kind="vacuum",
        arguments={"execute": True},
        time_zone="UTC",
        enabled=False,
        priority=2,
        created_ms=1,
        every_s=60,
        max_attempts=5,
        timeout_s=30,
    )
    run = Run(info, JOB)
    assert run("schedule", "run", "db.t", "s").output == "job j1 is running\n"
    assert run.body == {
        "kind": "vacuum",
        "table": "db.t",
        "arguments": {"execute": True},
        "priority": 2,
        "max_attempts": 5,
        "timeout_s": 30,
        "unique": True,
    }
    assert Run(info, JOB, FAILED)("schedule", "run", "db.t", "s", "--wait").exit_code == 1
    assert Run(info, JOB, DONE)("schedule", "run", "db.t", "s", "--wait").exit_code == 0


def test_policies_are_set_shown_and_dropped(tmp_path: Path) -> None:
    """From a file or standard input; the last check is shown with its reasons."""
    policy = wire.Policy(compact=wire.CompactRule(small_blocks=5))
    finding = wire.RuleFinding(
        rule="compact", due=True, reason="7 small blocks, 5 or more", measured=7, threshold=5, last_job_id="j1"
    )
    run = Run(wire.PolicyInfo(policy=policy, updated_ms=1))
    file = tmp_path / "policy.json"
    file.write_bytes(msgspec.json.encode(policy))
    for args, text in (((str(file),), None), (("-",), file.read_text("utf-8"))):
        done = run("policy", "set", "db.t", *args, text=text)
        assert done.exit_code == 0, done.output
        assert run.body == {"compact": {"small_blocks": 5}}
        assert "has not been checked yet" in done.output
    checked = wire.PolicyInfo(policy=policy, updated_ms=1, checked_ms=0, findings=(finding,))
    shown = Run(checked)("policy", "show", "db.t").output
    assert "7 small blocks, 5 or more" in shown
    assert "j1" in shown
    wrong = run("policy", "set", "db.t", "-", text='{"compact": {"blocks": 5}}')
    assert wrong.exit_code == 2
    assert "not a policy" in wrong.output
    assert Run({})("policy", "drop", "db.t").output == "db.t has no policy now\n"


def test_kinds_are_completed() -> None:
    """The shell offers the kinds that are known here."""
    env = {"_LAMELLA_COMPLETE": "bash_complete", "COMP_WORDS": "lamella job submit rec", "COMP_CWORD": "3"}
    done = CliRunner().invoke(cli, [], env={**os.environ, **env}, prog_name="lamella", auto_envvar_prefix=None)
    assert "recluster" in done.output


def test_a_command_that_a_worker_runs_tells_it_why_it_failed() -> None:
    """The error is a line on standard output for the worker, and one on standard error for the log."""
    failing = problem_response(404, "table_not_found", "there is no table db.t")
    done = Run(failing)("vacuum", "db.t", "--json", env={JOB_ID: "j"})
    assert done.exit_code == 1
    assert done.stdout.startswith('@lamella {"type":"error","code":"table_not_found","detail":"there is no table db.t"')
    assert "error: there is no table db.t [table_not_found]" in done.stderr
    assert "@lamella" not in Run(failing)("vacuum", "db.t", "--json").output
