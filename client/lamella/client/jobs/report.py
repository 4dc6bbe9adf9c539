"""Progress reports of a job's program, to a worker or to a person.

A worker receives lines on standard output that begin with a marker, followed by JSON.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

import msgspec

from lamella.snapshot.wire import LogLevel

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


# Reports to a worker are lines on standard output that begin with a marker, followed by JSON:
#
#     @lamella {"type":"progress","done":3,"total":10,"unit":"blocks","message":"writing"}
#     @lamella {"type":"log","level":"warning","text":"..."}
#     @lamella {"type":"checkpoint","value":...}
#     @lamella {"type":"result","value":...}
#     @lamella {"type":"error","code":"commit_conflict","detail":"...","details":{}}
#
# Standard output is used because it passes through ``spark-submit``: the JVM between the worker and the program passes
# on no other file. All other lines, and standard error, are the job's log. A line that is a JSON object is the result
# unless the program reports another one, since ``lamella ... --json`` prints its answer so.

MARK: Final = "@lamella "

#: Environment variables of a job's program. The checkpoint is JSON.
JOB_ID: Final = "LAMELLA_JOB_ID"
LEASE: Final = "LAMELLA_JOB_LEASE"
ATTEMPT: Final = "LAMELLA_JOB_ATTEMPT"
CHECKPOINT: Final = "LAMELLA_JOB_CHECKPOINT"


class ProgressEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="progress"):
    """The progress of the job; see :class:`~lamella.snapshot.wire.Progress`."""

    done: int = 0
    total: int | None = None
    unit: str = ""
    message: str = ""


class LogEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="log"):
    """A line for the log."""

    text: str
    level: LogLevel = "info"


class CheckpointEvent(msgspec.Struct, frozen=True, kw_only=True, tag="checkpoint"):
    """The state from which the next attempt continues, if there is one."""

    value: Any


class ResultEvent(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """The result of the job."""

    value: Any


class ErrorEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="error"):
    """Why the program is about to fail. The last one counts."""

    code: str
    detail: str
    details: dict[str, Any] = {}


Event = ProgressEvent | LogEvent | CheckpointEvent | ResultEvent | ErrorEvent

_DECODER: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)
_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)
_MARK: Final = MARK.encode()


def event_line(event: Event) -> bytes:
    """Return an event as a line, with the line end."""
    return _MARK + _ENCODER.encode(event) + b"\n"


def read_event(line: bytes) -> Event | None:
    """Return the event of a line; None for any other line, including one that only resembles an event."""
    if not line.startswith(_MARK):
        return None
    try:
        return _DECODER.decode(line[len(_MARK) :])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def read_object(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object on a line; None when the line is not one."""
    if not line.startswith(b"{"):
        return None
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# Usage: ``with job_reporter("compacting", polls=True) as reporter`` gives a reporter. Before each part, check
# ``reporter.cancelled()``; after it, call ``reporter.progress(done, count, "blocks")``.
#
# Under a worker (``LAMELLA_JOB_ID`` is set) everything is sent to the worker as described above. Otherwise progress is
# a bar on standard error if a person is watching.
#
# A program exits with status 0 only when it has done everything. It is stopped by SIGTERM: because the job was
# cancelled, takes too long, or the worker shuts down and returns the job to the queue.

#: Progress is told no more often; what comes in between is left out, but for the last.
_MIN_S: Final = 0.2


class Reporter(Protocol):
    """The interface through which a job reports."""

    def progress(self, done: int, total: int | None = None, unit: str = "", message: str = "") -> None:
        """Report ``done`` of ``total`` (None: unknown) in a unit such as "blocks"; ``message``: the current step."""
        ...

    def log(self, text: str, level: LogLevel = "info") -> None:
        """Add a line to the job's log."""
        ...

    def checkpoint(self, value: Any) -> None:
        """Store a JSON value, which the next attempt gets as :attr:`resumed`."""
        ...

    def result(self, value: Any) -> None:
        """Report the job's result."""
        ...

    @property
    def resumed(self) -> Any:
        """The last checkpoint of an earlier attempt; None when there is none."""
        ...

    def cancelled(self) -> bool:
        """Whether the job must stop: finish the current step and exit with a nonzero status."""
        ...


def is_job(environment: Mapping[str, str] | None = None) -> bool:
    """Whether a worker runs this program."""
    return bool((os.environ if environment is None else environment).get(JOB_ID))


def send_event(event: Event) -> None:
    """Send the worker an event, from anywhere in a program that a worker runs."""
    _write(sys.stdout.buffer, event_line(event))


class JobStopped:
    """A flag set by a signal handler. It is not a :class:`threading.Event`, whose lock the interrupted thread might
    hold."""

    is_set = False


class LineReporter:
    """Reports to a worker. Safe to share between threads."""

    def __init__(self, out: BinaryIO, *, checkpoint: Any = None, stopped: JobStopped | None = None) -> None:
        self._out = out
        self._resumed = checkpoint
        self._stopped = stopped if stopped is not None else JobStopped()
        self._lock = threading.Lock()
        self._reported_s = -_MIN_S
        self._delayed: ProgressEvent | None = None

    def progress(self, done: int, total: int | None = None, unit: str = "", message: str = "") -> None:
        """See :class:`Reporter`."""
        event = ProgressEvent(done=done, total=total, unit=unit, message=message)
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._reported_s < _MIN_S:
                self._delayed = event
                return
            self._reported_s, self._delayed = now_s, None
        self._send(event)

    def log(self, text: str, level: LogLevel = "info") -> None:
        """See :class:`Reporter`."""
        for line in text.splitlines() or [""]:
            self._send(LogEvent(text=line, level=level))

    def checkpoint(self, value: Any) -> None:
        """See :class:`Reporter`."""
        self._send(CheckpointEvent(value=value))

    def result(self, value: Any) -> None:
        """See :class:`Reporter`."""
        self._send(ResultEvent(value=value))

    def error(self, code: str, detail: str, details: dict[str, Any]) -> None:
        """Report why the program is about to fail."""
        self._send(ErrorEvent(code=code, detail=detail, details=details))

    @property
    def resumed(self) -> Any:
        """See :class:`Reporter`."""
        return self._resumed

    def cancelled(self) -> bool:
        """See :class:`Reporter`."""
        return self._stopped.is_set

    def flush(self) -> None:
        """Send the last progress if it was delayed."""
        with self._lock:
            delayed, self._delayed = self._delayed, None
        if delayed is not None:
            self._send(delayed)

    def _send(self, event: Event) -> None:
        with self._lock:
            _write(self._out, event_line(event))


class PlainReporter:
    """Shows a progress bar on standard error if a person is watching; the log goes there too."""

    def __init__(self, shown: Progress, doing: str, stopped: JobStopped) -> None:
        self._shown = shown
        self._task: TaskID = shown.add_task(doing, total=None, unit="")
        self._doing = doing
        self._stopped = stopped

    def progress(self, done: int, total: int | None = None, unit: str = "", message: str = "") -> None:
        """See :class:`Reporter`."""
        self._shown.update(
            self._task, description=message or self._doing, completed=done, total=total, unit=unit, refresh=False
        )

    def log(self, text: str, level: LogLevel = "info") -> None:
        """Write a line to standard error; debug lines are left out."""
        if level != "debug":
            self._shown.console.print(text if level == "info" else f"{level}: {text}")

    def checkpoint(self, value: Any) -> None:
        """Do nothing: a person runs the program again from the start."""

    def result(self, value: Any) -> None:
        """Do nothing: the program prints its answer."""

    @property
    def resumed(self) -> Any:
        """None."""
        return None

    def cancelled(self) -> bool:
        """See :class:`Reporter`; a second Ctrl-C ends the program immediately."""
        return self._stopped.is_set


@contextmanager
def job_reporter(doing: str, *, polls: bool = False) -> Iterator[Reporter]:
    """Yield a reporter for the duration of the block.

    ``doing``: the activity, for people. ``polls``: the block calls :meth:`Reporter.cancelled` every few seconds; then
    SIGTERM and the first SIGINT only set that flag.
    """
    stopped = JobStopped()
    with _on_sigterm(stopped) if polls else _nothing():
        if is_job():
            checkpoint_text = os.environ.get(CHECKPOINT)
            reporter = LineReporter(
                sys.stdout.buffer,
                checkpoint=None if checkpoint_text is None else msgspec.json.decode(checkpoint_text),
                stopped=stopped,
            )
            try:
                yield reporter
            finally:
                reporter.flush()
        else:
            with _bar() as shown:
                yield PlainReporter(shown, doing, stopped)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    err = Console(stderr=True, markup=False, highlight=False, emoji=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[unit]}"))
    return Progress(*columns, TimeElapsedColumn(), console=err, disable=not err.is_terminal, transient=True)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _on_sigterm(stopped: JobStopped) -> Iterator[None]:
    """Set ``stopped`` on SIGTERM and SIGINT; outside the main thread signal handlers stay unchanged."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped.is_set = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, before[signal.SIGINT])

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write(out: BinaryIO, line: bytes) -> None:
    sys.stdout.flush()  # keep the order of earlier output
    out.write(line)
    out.flush()
