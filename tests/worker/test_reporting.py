"""What a job's program tells, and what its worker makes of it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from lamella.client.jobs import supervisor
from lamella.client.jobs.program import JobOutput, JobProcess, Stream
from lamella.client.jobs.report import (
    CHECKPOINT,
    JOB_ID,
    ErrorEvent,
    LineReporter,
    LogEvent,
    event_line,
    is_job,
    job_reporter,
    read_event,
)
from lamella.snapshot.wire import Progress
from support.worker_process import is_alive, until


def output_of(out: io.BytesIO) -> JobOutput:
    """What a worker knows after these lines."""
    output = JobOutput(0)
    for line in out.getvalue().splitlines():
        output.line("stdout", line)
    return output


def test_everything_that_is_reported_arrives() -> None:
    """Progress, log, checkpoint, result and error, whatever text is in them."""
    out = io.BytesIO()
    reporter = LineReporter(out)
    reporter.progress(3, 10, "blocks", "writing \n é")
    reporter.log("one\ntwo", "warning")
    reporter.checkpoint({"at": [1, None]})
    reporter.result({"rows": 7})
    reporter.error("commit_conflict", "somebody was faster", {"blocks": ["x"]})
    output = output_of(out)
    pending_update = output.pending_update()
    assert pending_update.progress == Progress(done=3, total=10, unit="blocks", message="writing \n é")
    assert pending_update.checkpoint == {"at": [1, None]}
    assert [(line.number, line.level, line.text) for line in pending_update.lines] == [
        (1, "warning", "one"),
        (2, "warning", "two"),
    ]
    assert output.result == {"rows": 7}
    assert output.error is not None
    assert (output.error.code, output.error.details) == ("commit_conflict", {"blocks": ["x"]})


def test_progress_is_sent_seldom_and_the_last_one_always() -> None:
    """A program that reports each of a million rows does not flood its worker."""
    out = io.BytesIO()
    reporter = LineReporter(out)
    for done in range(1_000_000):
        reporter.progress(done, 1_000_000)
    reporter.flush()
    lines = out.getvalue().splitlines()
    assert len(lines) < 1_000
    assert b'"done":999999' in lines[-1]


@pytest.mark.parametrize(
    "line",
    [
        b"plain text",
        b'@lamella {"type":"nothing"}',
        b'@lamella {"type":"progress","done":"x"}',
        b"@lamella {",
        b"@lamella " + b"[" * 100_000,
        b'@lamella {"type":"log","text":"\xff"}',
        b"[1, 2]",
        b"{not json}",
        b"\xff\xfe",
        b"",
    ],
)
def test_whatever_is_no_event_is_a_line_of_the_log(line: bytes) -> None:
    """Output of libraries, damaged lines, bytes that are no text: nothing is lost, and nothing breaks."""
    output = JobOutput(4)
    output.line("stdout", line)
    (only,) = output.pending_update().lines
    assert (only.number, only.level) == (5, "info")
    assert only.text == line.decode("utf-8", "replace")[:2_000]
    assert (output.result, output.error) == (None, None)


def test_the_last_object_that_is_printed_is_the_result_unless_one_is_reported() -> None:
    """As `--json` writes it; on standard error it is text."""
    output = JobOutput(0)
    output.line("stderr", b'{"level":"info"}')
    assert (output.result, output.has_update) == (None, True)
    for line in (b'{"a":1}', b'{"a":2}', b"some text"):
        output.line("stdout", line)
    assert output.result == {"a": 2}
    output.line("stdout", b'@lamella {"type":"result","value":[3]}')
    output.line("stdout", b'{"a":4}')
    assert output.result == [3]


def test_updates_stay_until_the_service_has_them() -> None:
    """What came while they were sent is news again, and lines keep their numbers."""
    output = JobOutput(0)
    output.line("stdout", b'@lamella {"type":"progress","done":1}')
    output.note("one")
    sent = output.pending_update()
    output.line("stdout", b'@lamella {"type":"progress","done":2}')
    output.note("two")
    assert [line.number for line in output.pending_update().lines] == [1, 2]
    output.forget(sent)
    left = output.pending_update()
    assert left.progress == Progress(done=2)
    assert [(line.number, line.text) for line in left.lines] == [(2, "two")]
    output.forget(left)
    assert not output.has_update


def test_a_log_that_grows_faster_than_it_is_sent_loses_its_oldest_lines() -> None:
    """And says how many; one request takes only so many along."""
    output = JobOutput(0)
    for number in range(5_000):
        output.note(f"line {number}")
    first = output.pending_update()
    assert len(first.lines) == 500
    assert first.lines[0].number == 3_001
    assert first.lines[0].text == "[3000 lines before this one are left out] line 3000"
    output.forget(first)
    assert output.pending_update().lines[0].text == "line 3500"
    assert output.waiting == 1_500


def test_events_survive_their_way() -> None:
    """Each kind is read as it was written."""
    for event in (
        LogEvent(text="\u2028\n", level="debug"),
        ErrorEvent(code="c", detail="d", details={"x": Path("/y")}),
    ):
        line = event_line(event)
        assert line.count(b"\n") == 1
        read = read_event(line.rstrip(b"\n"))
        assert type(read) is type(event)


def test_a_program_run_by_hand_reports_to_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    """Without a worker and without a terminal only the log is written, on standard error."""
    assert not is_job({})
    with job_reporter("trying") as reporter:
        reporter.progress(1, 2, "blocks")
        reporter.log("a [line]", "warning")
        reporter.log("hidden", "debug")
        reporter.checkpoint(1)
        reporter.result(2)
        assert (reporter.resumed, reporter.cancelled()) == (None, False)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.split() == ["warning:", "a", "[line]"]


PROGRAM = """
import time
from lamella.client.jobs.report import job_reporter
with job_reporter("x", polls=True) as reporter:
    reporter.log(f"resumed {reporter.resumed}")
    while not reporter.cancelled():
        time.sleep(0.01)
    reporter.log("cancelled")
raise SystemExit(5)
"""


class Watched:
    """A child, its lines, and when it is over."""

    def __init__(self, *command: str, **environment: str) -> None:
        self.lines: list[tuple[Stream, bytes]] = []
        self.over = threading.Event()
        self.child = JobProcess(
            command,
            {**os.environ, **environment},
            grace_s=0.5,
            on_line=lambda stream, line: self.lines.append((stream, line)),
            on_exit=self.over.set,
        )

    def await_line(self, part: bytes) -> None:
        """Return once there is such a line."""
        until(lambda: any(part in line for _, line in self.lines), repr(part))

    def status(self) -> int | None:
        """The status, once it is over."""
        assert self.over.wait(60)
        return self.child.status


def test_a_program_that_polls_ends_by_itself_on_request() -> None:
    """SIGTERM reaches it through the nanny; what it still has to say arrives, and its status."""
    watched = Watched(sys.executable, "-c", PROGRAM, **{JOB_ID: "j", CHECKPOINT: '{"a":1}'})
    watched.await_line(b"resumed {'a': 1}")
    assert watched.child.status is None
    watched.child.terminate()
    assert watched.status() == 5
    assert any(b"cancelled" in line for _, line in watched.lines)


@pytest.mark.parametrize(
    ("program", "status"),
    [("", 0), ("raise SystemExit(9)", 9), ("import os; os.kill(os.getpid(), 9)", 137), ("1/0", 1)],
)
def test_the_status_of_a_program_is_what_it_ended_with(program: str, status: int) -> None:
    """A signal counts 128 more, as in a shell; all output was read before."""
    watched = Watched(sys.executable, "-c", f"print('out', flush=True)\n{program}")
    assert watched.status() == status
    assert ("stdout", b"out") in watched.lines


def test_a_program_that_cannot_be_started_says_so() -> None:
    """With the status that shells have for it."""
    watched = Watched("/nowhere/at/all")
    assert watched.status() == 127
    assert watched.lines == [("stderr", b"cannot start /nowhere/at/all: No such file or directory")]


def test_what_a_program_leaves_behind_ends_with_it() -> None:
    """Also when the program itself ended well."""
    watched = Watched(
        sys.executable,
        "-c",
        "import subprocess, sys\nprint(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid)",
    )
    assert watched.status() == 0
    until(lambda: not is_alive(int(watched.lines[0][1])), "the helper is gone")


def test_a_supervisor_whose_parent_dies_ends_the_program() -> None:
    """First politely, then by force, whatever killed the parent."""
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", supervisor.__file__, "0.3", sys.executable, "-c", stubborn],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"up\n"
    process.stdin.close()  # what the system does with the pipes of a process that died
    assert process.wait(60) == -signal.SIGKILL
    assert process.stdout.read() == b"", "nobody holds the other end any more"
    process.stdout.close()


def test_the_supervisor_needs_nothing_but_python(tmp_path: Path) -> None:
    """It is run without site-packages, wherever it stands, and has a process group of its own in any case."""
    copy = tmp_path / "nanny.py"
    copy.write_bytes(Path(supervisor.__file__).read_bytes())
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(copy), "1", "/bin/sh", "-c", "ps -o pgid= -p $$; exit 7"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.read()) == process.pid
        assert process.wait(60) == 7


def test_a_program_that_nobody_can_watch_over_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may have no thread left: another worker is to have the job, and no program may be at it then."""
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    start = threading.Thread.start
    left = iter([True, True])

    def sometimes(thread: threading.Thread) -> None:
        if not next(left, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    monkeypatch.setattr(threading.Thread, "start", sometimes)
    with pytest.raises(RuntimeError, match="new thread"):
        Watched(sys.executable, "-c", "import time; time.sleep(600)")
    (process,) = started
    assert process.returncode == -signal.SIGKILL
    for pipe in (process.stdin, process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()


def test_a_program_whose_end_cannot_be_seen_is_over_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ignores SIGCHLD is told nothing of its children; it must not take that for success."""

    def gone(*_: object) -> None:
        raise ChildProcessError

    monkeypatch.setattr(os, "waitid", gone)
    watched = Watched(sys.executable, "-c", "import time; time.sleep(600)")
    assert watched.status() == 255


def test_a_line_that_cannot_be_taken_in_does_not_stop_the_program() -> None:
    """What it prints is read on: it would wait for room in the pipe for ever."""
    over = threading.Event()

    def refuses(_stream: Stream, _line: bytes) -> None:
        raise ValueError("no such line")

    program = "for _ in range(20_000): print('x' * 80)"
    child = JobProcess([sys.executable, "-c", program], os.environ, grace_s=5.0, on_line=refuses, on_exit=over.set)
    assert over.wait(60)
    assert child.status == 0
