"""How a job's program reports its progress, whether a worker runs it or a person.

To a worker: lines on standard output that begin with a mark, with JSON after it.
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


# What a job's program tells its worker: lines on standard output that begin with a mark, JSON behind it.
#
#     @lamella {"type":"progress","done":3,"total":10,"unit":"blocks","message":"writing"}
#     @lamella {"type":"log","level":"warning","text":"..."}
#     @lamella {"type":"checkpoint","value":...}
#     @lamella {"type":"result","value":...}
#     @lamella {"type":"error","code":"commit_conflict","detail":"...","details":{}}
#
# Standard output, since it is what comes through ``spark-submit``: a JVM between the worker and the program passes on
# no other file. All other lines, and standard error, are the job's log; but a line that is a JSON object is the result
# unless the program tells another, since that is what ``lamella ... --json`` writes.

MARK: Final = "@lamella "

#: Variables of a job's program. The checkpoint is JSON.
JOB_ID: Final = "LAMELLA_JOB_ID"
LEASE: Final = "LAMELLA_JOB_LEASE"
ATTEMPT: Final = "LAMELLA_JOB_ATTEMPT"
CHECKPOINT: Final = "LAMELLA_JOB_CHECKPOINT"


class ProgressEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="progress"):
    """How far the job is; see :class:`~lamella.snapshot.wire.Progress`."""

    done: int = 0
    total: int | None = None
    unit: str = ""
    message: str = ""


class LogEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="log"):
    """A line for the log."""

    text: str
    level: LogLevel = "info"


class CheckpointEvent(msgspec.Struct, frozen=True, kw_only=True, tag="checkpoint"):
    """What the next attempt is to go on from, if there has to be one."""

    value: Any


class ResultEvent(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """What the job answers."""

    value: Any


class ErrorEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="error"):
    """Why the program is about to end without success. The last one counts."""

    code: str
    detail: str
    details: dict[str, Any] = {}


Event = ProgressEvent | LogEvent | CheckpointEvent | ResultEvent | ErrorEvent

_DECODER: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)
_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)
_MARK: Final = MARK.encode()


def event_line(event: Event) -> bytes:
    """The line that tells an event, with its end."""
    return _MARK + _ENCODER.encode(event) + b"\n"


def read_event(line: bytes) -> Event | None:
    """The event that a line tells; None for a line that is none, or that only looks like one."""
    if not line.startswith(_MARK):
        return None
    try:
        return _DECODER.decode(line[len(_MARK) :])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def read_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object that a line is; None when it is none."""
    if not line.startswith(b"{"):
        return None
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# How a job's program says how far it is, whether a worker runs it or a person.
#
# ``with job_reporter("compacting", polls=True) as reporter`` gives a reporter. For each part, look at
# ``reporter.cancelled()`` first and call ``reporter.progress(done, count, "blocks")`` afterwards.
#
# Under a worker (the environment has ``LAMELLA_JOB_ID``) everything goes to the worker as lines on standard output;
# see above. Otherwise progress is a bar on standard error when someone is looking.
#
# A program ends with status 0 only when it has done everything. It is told to stop by SIGTERM: because the job was
# cancelled, because it takes too long, or because the worker shuts down and hands the job back.

#: Progress is told no more often; what comes in between is left out, but for the last.
_MIN_S: Final = 0.2


class Reporter(Protocol):
    """Where a job says what it does."""

    def progress(self, done: int, total: int | None = None, unit: str = "", message: str = "") -> None:
        """So much is done, of so much (None: nobody knows), of a unit such as "blocks"; ``message``: at what it is."""
        ...

    def log(self, text: str, level: LogLevel = "info") -> None:
        """A line for the job's log."""
        ...

    def checkpoint(self, value: Any) -> None:
        """A JSON value that :attr:`resumed` gives the next attempt, if there has to be one."""
        ...

    def result(self, value: Any) -> None:
        """What the job answers."""
        ...

    @property
    def resumed(self) -> Any:
        """The last checkpoint of an earlier attempt; None: this is the first, or none left one."""
        ...

    def cancelled(self) -> bool:
        """Whether the job is to end: finish the step at hand, and end with a status that is not 0."""
        ...


def is_job(environment: Mapping[str, str] | None = None) -> bool:
    """Whether a worker runs this program."""
    return bool((os.environ if environment is None else environment).get(JOB_ID))


def tell(event: Event) -> None:
    """Tell the worker something, from anywhere in a program that a worker runs."""
    _write(sys.stdout.buffer, event_line(event))


class JobStopped:
    """Set by a signal handler. No :class:`threading.Event`: its lock could be held by the very thread that is
    interrupted."""

    is_set = False


class LineReporter:
    """Tells a worker. Safe to share between threads."""

    def __init__(self, out: BinaryIO, *, checkpoint: Any = None, stopped: JobStopped | None = None) -> None:
        self._out = out
        self._resumed = checkpoint
        self._stopped = stopped if stopped is not None else JobStopped()
        self._lock = threading.Lock()
        self._told_s = -_MIN_S
        self._held: ProgressEvent | None = None

    def progress(self, done: int, total: int | None = None, unit: str = "", message: str = "") -> None:
        """As of :class:`Reporter`."""
        event = ProgressEvent(done=done, total=total, unit=unit, message=message)
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._told_s < _MIN_S:
                self._held = event
                return
            self._told_s, self._held = now_s, None
        self._tell(event)

    def log(self, text: str, level: LogLevel = "info") -> None:
        """As of :class:`Reporter`."""
        for line in text.splitlines() or [""]:
            self._tell(LogEvent(text=line, level=level))

    def checkpoint(self, value: Any) -> None:
        """As of :class:`Reporter`."""
        self._tell(CheckpointEvent(value=value))

    def result(self, value: Any) -> None:
        """As of :class:`Reporter`."""
        self._tell(ResultEvent(value=value))

    def error(self, code: str, detail: str, details: dict[str, Any]) -> None:
        """Why the program is about to end without success."""
        self._tell(ErrorEvent(code=code, detail=detail, details=details))

    @property
    def resumed(self) -> Any:
        """As of :class:`Reporter`."""
        return self._resumed

    def cancelled(self) -> bool:
        """As of :class:`Reporter`."""
        return self._stopped.is_set

    def flush(self) -> None:
        """Tell the last progress, if it was held back."""
        with self._lock:
            held, self._held = self._held, None
        if held is not None:
            self._tell(held)

    def _tell(self, event: Event) -> None:
        with self._lock:
            _write(self._out, event_line(event))


class PlainReporter:
    """Shows a person a bar on standard error, if one is looking; the log goes there too."""

    def __init__(self, shown: Progress, doing: str, stopped: JobStopped) -> None:
        self._shown = shown
        self._task: TaskID = shown.add_task(doing, total=None, unit="")
        self._doing = doing
        self._stopped = stopped

    def progress(self, done: int, total: int | None = None, unit: str = "", message: str = "") -> None:
        """As of :class:`Reporter`."""
        self._shown.update(
            self._task, description=message or self._doing, completed=done, total=total, unit=unit, refresh=False
        )

    def log(self, text: str, level: LogLevel = "info") -> None:
        """As of :class:`Reporter`; a line that is only for debugging is left out."""
        if level != "debug":
            self._shown.console.print(text if level == "info" else f"{level}: {text}")

    def checkpoint(self, value: Any) -> None:
        """Nothing: who runs a program by hand runs it again."""

    def result(self, value: Any) -> None:
        """Nothing: the program prints what it answers."""

    @property
    def resumed(self) -> Any:
        """None."""
        return None

    def cancelled(self) -> bool:
        """As of :class:`Reporter`; a second Ctrl-C ends the program at once."""
        return self._stopped.is_set


@contextmanager
def job_reporter(doing: str, *, polls: bool = False) -> Iterator[Reporter]:
    """Report for as long as the block runs.

    ``doing``: what is done, for people. ``polls``: the block asks :meth:`Reporter.cancelled` every few seconds; then
    SIGTERM, and the first SIGINT, end nothing by themselves.
    """
    stopped = JobStopped()
    with _on_sigterm(stopped) if polls else _nothing():
        if is_job():
            told = os.environ.get(CHECKPOINT)
            reporter = LineReporter(
                sys.stdout.buffer, checkpoint=None if told is None else msgspec.json.decode(told), stopped=stopped
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
    """Let SIGTERM and SIGINT set ``stopped``; where signals are another's (not in the main thread), change nothing."""
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
    sys.stdout.flush()  # what was printed before stands before it
    out.write(line)
    out.flush()
