"""What a job's program told, until the service has it."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, Final

import msgspec

from lamella.client.jobs.child import Stream
from lamella.client.jobs.events import (
    CheckpointEvent,
    ErrorEvent,
    LogEvent,
    ProgressEvent,
    ResultEvent,
    read_event,
    read_object,
)
from lamella.snapshot.wire import JobError, JobLine, LogLevel, Progress

#: Lines that wait for the service, at most; the oldest go first.
_MOST_WAITING: Final = 2_000
#: Lines that one request takes along.
_AT_ONCE: Final = 500
_MOST_CHARACTERS: Final = 2_000


class News(msgspec.Struct, frozen=True, kw_only=True):
    """What the service is told next; None: nothing new."""

    progress: Progress | None = None
    checkpoint: Any = None
    lines: tuple[JobLine, ...] = ()


class Told:
    """Collects lines and events from the threads that read them. ``last_number``: of the log's last line so far."""

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
        """Take in a line of output."""
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
                    done=event.done, total=event.total, unit=event.unit, message=event.message[:_MOST_CHARACTERS]
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
            self._lines.append(JobLine(number=self._number, at_ms=at_ms, text=text[:_MOST_CHARACTERS], level=level))
            while len(self._lines) > _MOST_WAITING:
                self._lines.popleft()
                self._left_out += 1

    @property
    def result(self) -> Any:
        """What the job answered: what it told, or else the last JSON object that it printed."""
        with self._lock:
            return self._result if self._result is not None else self._printed

    @property
    def error(self) -> JobError | None:
        """Why it failed, in its own words."""
        with self._lock:
            return self._error

    @property
    def has_news(self) -> bool:
        """Whether there is something that the service does not have."""
        with self._lock:
            return bool(self._lines) or self._progress is not None or self._checkpoint is not None

    @property
    def waiting(self) -> int:
        """Lines that the service does not have."""
        with self._lock:
            return len(self._lines)

    def news(self) -> News:
        """What to send; it stays here until :meth:`forget` is told that it arrived."""
        with self._lock:
            lines = [self._lines[at] for at in range(min(len(self._lines), _AT_ONCE))]
            if lines and self._left_out:
                note = f"[{self._left_out} lines before this one are left out] {lines[0].text}"
                lines[0] = msgspec.structs.replace(lines[0], text=note[:_MOST_CHARACTERS])
            return News(progress=self._progress, checkpoint=self._checkpoint, lines=tuple(lines))

    def forget(self, news: News) -> None:
        """The service has this, or will not take it."""
        with self._lock:
            if news.lines:
                self._left_out = 0
                while self._lines and self._lines[0].number <= news.lines[-1].number:
                    self._lines.popleft()
            if self._progress is news.progress:
                self._progress = None
            if self._checkpoint is news.checkpoint:
                self._checkpoint = None
