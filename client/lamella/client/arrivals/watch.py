"""The loop that registers files as they arrive, and what stops it.

A source (a queue or a directory) gives files in batches; each batch is one request, and one commit of the service. Only
then is the source told, so a program that is killed at any moment leaves files that come again. The service registers
each file once, so nothing is lost and nothing doubled.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, Protocol

import msgspec

from lamella.client.http import Table
from lamella.snapshot.errors import (
    CommitConflict,
    DeletionPending,
    LamellaError,
    QuotaExceeded,
    SchemaConflict,
    StoreError,
    Unavailable,
)
from lamella.snapshot.wire import ArrivalsAnswer, RefusedFile

#: Errors that may be over when the same request is sent again. Others end the program.
_PASSING: Final = (CommitConflict, DeletionPending, QuotaExceeded, SchemaConflict, StoreError, Unavailable)
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0


class StopRequested(BaseException):  # not an error: no library that waits may swallow it
    """A signal came while nothing was under way."""


class Stop:
    """Set by the first SIGTERM or SIGINT; a second one has its usual effect. Belongs to the main thread."""

    def __init__(self) -> None:
        self.is_set = False
        self._is_waiting = False

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Set this on signals, while the block runs."""
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def note(_number: int, _frame: FrameType | None) -> None:
            self.is_set = True
            for number, handler in before.items():
                signal.signal(number, handler)
            if self._is_waiting:
                raise StopRequested

        for number in before:
            signal.signal(number, note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def wait(self, work: Callable[[], None]) -> None:
        """Run something that waits; a signal ends it at once, so nothing may be half done in it."""
        try:
            try:
                self._is_waiting = True
                if not self.is_set:
                    work()
            finally:
                self._is_waiting = False
        except StopRequested:
            pass

    def sleep(self, seconds: float) -> None:
        """Sleep until the time is over or a signal comes."""
        self.wait(lambda: time.sleep(seconds))


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one request. ``marks``: what the source needs to know about them when the request is done."""

    files: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    marks: tuple[object, ...] = ()
    #: Messages that cannot be read, as files that were refused.
    unreadable: tuple[RefusedFile, ...] = ()
    #: Events without a file, by reason.
    ignored: dict[str, int] = {}


class Source(Protocol):
    """Where files arrive."""

    def take(self) -> Batch | None:
        """Returns the next files, after a wait for them; None if there are none. Raises LamellaError."""
        ...

    def done(self, batch: Batch, answer: ArrivalsAnswer) -> None:
        """Forget the files of a batch that need not come again. Raises LamellaError: they come again, which does no
        harm."""
        ...


class Report(Protocol):
    """Tells people or programs what happens."""

    def taken(self, answer: ArrivalsAnswer) -> None:
        """The service answered for a batch."""
        ...

    def trouble(self, error: LamellaError, wait_s: float) -> None:
        """Something failed, and is tried again after ``wait_s`` seconds."""
        ...


class Watch:
    """Registers what a source gives. ``once``: ends when the source has nothing; errors then end it as well."""

    def __init__(
        self,
        table: Table,
        source: Source,
        report: Report,
        stop: Stop,
        *,
        prefix: str | None = None,
        suffix: str | None = None,
        once: bool = False,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self._table = table
        self._source = source
        self._report = report
        self._stop = stop
        self._prefix = prefix
        self._suffix = suffix
        self._once = once
        self._sleep = stop.sleep if sleep is None else sleep
        self._troubles = 0

    def run(self) -> int:
        """Work until :class:`Stop` is set, or with ``once`` until there is nothing. Returns the count of refused files.

        Raises LamellaError: an error that does not pass (no such table, no permission), or with ``once`` any.
        """
        refused = 0
        batch: Batch | None = None
        while not self._stop.is_set:
            try:
                if batch is None:
                    batch = self._source.take()
                if batch is None:
                    if self._once:
                        break
                    continue
                answer = self._sent(batch)
                refused += len(answer.refused)
                self._report.taken(answer)
                finished, batch = batch, None
                self._source.done(finished, answer)
                self._troubles = 0
            except _PASSING as error:
                if self._once:
                    raise
                wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**self._troubles)
                self._troubles = min(self._troubles + 1, 10)
                self._report.trouble(error, wait_s)
                self._sleep(wait_s)
        return refused

    def _sent(self, batch: Batch) -> ArrivalsAnswer:
        answer = ArrivalsAnswer(snapshot_id="", changed=False)
        if batch.files or batch.removed:
            answer = self._table.register_arrivals(
                batch.files, removed=batch.removed, prefix=self._prefix, suffix=self._suffix
            )
        ignored = dict(Counter(answer.ignored) + Counter(batch.ignored))
        return msgspec.structs.replace(answer, ignored=ignored, refused=(*answer.refused, *batch.unreadable))
