"""The program of a job: its command line, environment, process and output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import msgspec

from lamella.client.http.credential import TOKEN, TOKEN_FILE
from lamella.client.jobs import supervisor
from lamella.client.jobs.report import (
    ATTEMPT,
    CHECKPOINT,
    JOB_ID,
    LEASE,
    CheckpointEvent,
    ErrorEvent,
    LogEvent,
    ProgressEvent,
    ResultEvent,
    read_event,
    read_object,
)
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.job_kinds import command_line, job_kind_named
from lamella.snapshot.wire import ClaimAnswer, JobError, JobLine, LogLevel, Progress

#: Maximum size of an environment variable (Linux: 32 pages of 4 KiB).
_LONGEST_VARIABLE: Final = 128 * 1024 - 64


def program_of(claimed: ClaimAnswer, prefix: Sequence[str]) -> list[str]:
    """Return the command line of a job.

    ``prefix``: words put before the programs of job kinds that use Spark; such a program is passed as a file:
    ``spark-submit --master ... <the lamella command> compact ...``.

    Raises:
        InvalidRequest: a kind unknown to this installation, or arguments that the kind does not accept.
    """
    job = claimed.job
    assert job is not None  # noqa: S101  # there is a job to be run
    kind = job_kind_named(job.kind)
    if kind.program:
        own = list(kind.program)
        extra: tuple[str, ...] = ()
    else:
        # With `--json` the answer is one line, which becomes the job's result.
        extra = ("--json",)
        main = Path(__file__).parents[1] / "cli" / "__main__.py"
        own = [str(main)] if prefix and kind.is_spark else [sys.executable, "-m", "lamella.client.cli"]
    words = command_line(kind, claimed.table, job.arguments, extra=extra)
    return [*(prefix if kind.is_spark else ()), *own, *words]


def environment_of(
    claimed: ClaimAnswer,
    lease_token: str,
    url: str,
    token: str | None,
    base: Mapping[str, str] | None = None,
    *,
    token_file: str | None = None,
) -> dict[str, str]:
    """Return the environment of a job's program: this process's environment, the service's URL, the credentials
    (``token`` or a file that contains it), and the job's id.

    Raises:
        InvalidRequest: the checkpoint is too long for an environment variable.
    """
    job = claimed.job
    assert job is not None  # noqa: S101  # there is a job to be run
    found = {
        **(os.environ if base is None else base),
        "LAMELLA_URL": url,
        JOB_ID: job.job_id,
        LEASE: lease_token,
        ATTEMPT: str(job.attempts),
        "PYTHONUNBUFFERED": "1",
    }
    found.pop(CHECKPOINT, None)
    shown = {TOKEN: token, TOKEN_FILE: token_file}
    if any(value is not None for value in shown.values()):
        for name in shown:  # a program accepts one of them only
            found.pop(name, None)
        found |= {name: value for name, value in shown.items() if value is not None}
    if claimed.checkpoint is not None:
        text = msgspec.json.encode(claimed.checkpoint).decode()
        if len(text.encode()) > _LONGEST_VARIABLE:
            raise InvalidRequest("the job's checkpoint is too long to be handed to its program")
        found[CHECKPOINT] = text
    return found


#: Longer lines are split.
_LINE_BYTES: Final = 1 << 20
#: Seconds to wait for output after the program ended: a process that left its group may still have the pipe open.
_DRAIN_S: Final = 5.0

_LOST: Final = 255

Stream = Literal["stdout", "stderr"]


class JobProcess:
    """A program in a process group of its own, which ends with this process.

    ``on_line``: called from threads of this object with each line of output, without the line end. ``on_exit``: called
    when the program has ended and all its output was read.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        grace_s: float,
        on_line: Callable[[Stream, bytes], None],
        on_exit: Callable[[], None],
    ) -> None:
        self._on_line = on_line
        self._on_exit = on_exit
        self._lock = threading.Lock()
        self._is_over = self._is_lost = False
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(supervisor.__file__)), str(grace_s), *command],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None  # noqa: S101  # it is a pipe
        assert self._process.stderr is not None  # noqa: S101
        self._readers = [
            threading.Thread(target=self._read, args=("stdout", self._process.stdout), daemon=True),
            threading.Thread(target=self._read, args=("stderr", self._process.stderr), daemon=True),
        ]
        try:
            for thread in (*self._readers, threading.Thread(target=self._wait, daemon=True)):
                thread.start()
        except BaseException:  # the system cannot start a thread, so nothing would supervise the program
            self.kill()
            self._process.wait()
            raise

    @property
    def pid(self) -> int:
        """The process id of the group leader."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, 128 plus the signal number for a signal; None while the program runs or its output is being
        read.

        255 when the status cannot be known because this process ignores SIGCHLD.
        """
        with self._lock:
            if not self._is_over:
                return None
        if self._is_lost:
            return _LOST
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    def terminate(self) -> None:
        """Send SIGTERM to the process group."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the process group."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if not self._is_over:  # the leader is not reaped yet, so the group id cannot be reused
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)

    def _wait(self) -> None:
        try:
            if hasattr(os, "waitid"):  # not available on every system
                try:
                    os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
                except ChildProcessError:
                    self._is_lost = True
            else:
                self._process.wait()
            self.kill()  # processes that the program left behind
            for reader in self._readers:
                reader.join(_DRAIN_S)
        finally:
            with self._lock:
                self._process.wait()
                self._is_over = True
            self._on_exit()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None and not any(reader.is_alive() for reader in self._readers):
                pipe.close()

    def _read(self, stream: Stream, pipe: BinaryIO) -> None:
        while line := pipe.readline(_LINE_BYTES):
            # An error here must not end the reading: the program would block on a full pipe.
            with suppress(Exception):
                self._on_line(stream, line.rstrip(b"\r\n"))


#: Maximum number of lines that wait for the service; the oldest are dropped first.
_MAX_WAITING: Final = 2_000
#: Maximum number of lines per request.
_AT_ONCE: Final = 500
_MAX_CHARACTERS: Final = 2_000


class JobUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What to send to the service next; None: unchanged."""

    progress: Progress | None = None
    checkpoint: Any = None
    lines: tuple[JobLine, ...] = ()


class JobOutput:
    """Collects lines and events from the threads that read the output. ``last_number``: the number of the log's last
    line."""

    def __init__(self, last_number: int) -> None:
        self._lock = threading.Lock()
        self._number = last_number
        self._lines: deque[JobLine] = deque()
        self._left_out = 0
        self._progress: Progress | None = None
        self._checkpoint: Any = None
        self._printed: dict[str, Any] | None = None
        self._result: Any = None
        self._error: JobError | None = None

    def line(self, stream: Stream, line: bytes) -> None:
        """Add a line of output."""
        event = read_event(line) if stream == "stdout" else None
        if event is None:
            printed = read_object(line) if stream == "stdout" else None
            if printed is None:
                self.note(line.decode("utf-8", "replace"))
                return
            with self._lock:
                self._printed = printed
            return
        if isinstance(event, LogEvent):
            self.note(event.text, event.level)
            return
        with self._lock:
            if isinstance(event, ProgressEvent):
                self._progress = Progress(
                    done=event.done, total=event.total, unit=event.unit, message=event.message[:_MAX_CHARACTERS]
                )
            elif isinstance(event, CheckpointEvent):
                self._checkpoint = event.value
            elif isinstance(event, ResultEvent):
                self._result = event.value
            elif isinstance(event, ErrorEvent):
                self._error = JobError(code=event.code, detail=event.detail, details=event.details)

    def note(self, text: str, level: LogLevel = "info") -> None:
        """Add a line to the log."""
        with self._lock:
            self._number += 1
            at_ms = time.time_ns() // 1_000_000
            self._lines.append(JobLine(number=self._number, at_ms=at_ms, text=text[:_MAX_CHARACTERS], level=level))
            while len(self._lines) > _MAX_WAITING:
                self._lines.popleft()
                self._left_out += 1

    @property
    def result(self) -> Any:
        """The job's result: the reported one, otherwise the last JSON object that it printed."""
        with self._lock:
            return self._result if self._result is not None else self._printed

    @property
    def error(self) -> JobError | None:
        """The error that the program reported."""
        with self._lock:
            return self._error

    @property
    def has_update(self) -> bool:
        """Whether there is anything that the service has not received."""
        with self._lock:
            return bool(self._lines) or self._progress is not None or self._checkpoint is not None

    @property
    def waiting(self) -> int:
        """Number of lines that the service has not received."""
        with self._lock:
            return len(self._lines)

    def pending_update(self) -> JobUpdate:
        """Return what to send next; it is kept until :meth:`forget` confirms it."""
        with self._lock:
            lines = [self._lines[at] for at in range(min(len(self._lines), _AT_ONCE))]
            if lines and self._left_out:
                note = f"[{self._left_out} lines before this one are left out] {lines[0].text}"
                lines[0] = msgspec.structs.replace(lines[0], text=note[:_MAX_CHARACTERS])
            return JobUpdate(progress=self._progress, checkpoint=self._checkpoint, lines=tuple(lines))

    def forget(self, pending_update: JobUpdate) -> None:
        """Drop an update that the service received or rejected."""
        with self._lock:
            if pending_update.lines:
                self._left_out = 0
                while self._lines and self._lines[0].number <= pending_update.lines[-1].number:
                    self._lines.popleft()
            if self._progress is pending_update.progress:
                self._progress = None
            if self._checkpoint is pending_update.checkpoint:
                self._checkpoint = None
