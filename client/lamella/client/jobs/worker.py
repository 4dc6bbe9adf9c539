"""The worker: claims jobs from the service, one or several at a time, and runs each in a process.

It keeps no state. However it ends, its jobs are returned to the queue, or taken over when their leases run out.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final
from uuid import uuid4

import msgspec

from lamella.client.http import Lamella
from lamella.client.jobs.attempt import Attempt, AttemptOutcome, AttemptSettings, WorkerLog, lease_seconds
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.job_kinds import job_kinds


@contextmanager
def on_signals(act: Callable[[], None]) -> Iterator[None]:
    """Call ``act`` for each SIGTERM and SIGINT, in a separate thread, since a signal handler must not take locks.

    Works in the main thread only.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)

    def note(_number: int, _frame: FrameType | None) -> None:
        os.write(writable, b".")

    def pass_on() -> None:
        while os.read(readable, 1):
            act()

    thread = threading.Thread(target=pass_on, daemon=True)
    thread.start()
    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(writable)
        thread.join()
        os.close(readable)


#: Seconds between requests for jobs that schedules and policies make due.
_DUE_S: Final = 10.0
#: Attempts of a worker with ``once`` to reach a service that does not answer.
_TRIES_ONCE: Final = 5
#: Longest wait in seconds between requests while the service does not answer.
_LONGEST_WAIT_S: Final = 30.0


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a worker.

    ``kinds``: job kinds to run; None: all kinds of this installation. ``concurrency``: jobs at a time. ``poll_s``:
    seconds between polls when no job is due. ``once``: end when no job is due. ``name``: shown in listings.
    """

    kinds: tuple[str, ...] | None = None
    concurrency: int = 1
    poll_s: float = 5.0
    once: bool = False
    name: str = ""


class Worker:
    """Runs jobs until it is stopped. ``lake`` should not retry requests: the worker does."""

    def __init__(
        self, lake: Lamella, settings: WorkerSettings, attempts: AttemptSettings, log: WorkerLog | None = None
    ) -> None:
        self._lake = lake
        self._settings = settings
        self._attempts = attempts
        self._log = log if log is not None else WorkerLog()
        self._name = settings.name or f"{socket.gethostname()}:{os.getpid()}"
        self._kinds: Sequence[str] = settings.kinds if settings.kinds is not None else sorted(job_kinds())
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._running: dict[Attempt, threading.Thread] = {}
        self._ended: list[AttemptOutcome] = []
        self._due_s = 0.0
        self._troubles = 0
        self._claim: tuple[str, float] | None = None

    def stop(self) -> None:
        """Claim no more jobs and return the running ones to the queue. A second call kills their programs.

        May be called from any thread, but not from a signal handler; returns immediately.
        """
        hurry = self._stopped.is_set()
        self._stopped.set()
        self._wake.set()
        if hurry:
            with self._lock:
                running = list(self._running)
            for attempt in running:
                attempt.release(at_once=True)

    def run(self) -> tuple[AttemptOutcome, ...]:
        """Work until :meth:`stop`, or with ``once`` until no job is due; returns the outcomes of the attempts.

        Raises:
            LamellaError: with ``once``, when the service did not answer several times in a row.
        """
        self._log.write("worker started", worker=self._name, kinds=list(self._kinds), pid=os.getpid())
        try:
            while not self._stopped.is_set():
                wait_s = self._step()
                if wait_s is None:
                    break
                self._wake.wait(wait_s)
                self._wake.clear()
        finally:
            with self._lock:
                running = dict(self._running)
            for attempt in running:
                attempt.release()
            for thread in running.values():
                thread.join()
            self._log.write("worker stopped", worker=self._name)
        return tuple(self._ended)

    def _step(self) -> float | None:
        """Claim a job if one is due and there is capacity; returns the seconds to wait, None to end."""
        with self._lock:
            is_full, is_idle = len(self._running) >= self._settings.concurrency, not self._running
        self._trigger_due_jobs()
        if is_full:
            return self._settings.poll_s
        try:
            if self._take():
                self._troubles = 0
                return 0.0
        except LamellaError as error:
            self._troubles += 1
            self._log.write("service failed", "warning", code=error.code, detail=error.message)
            if self._settings.once and self._troubles >= _TRIES_ONCE:
                raise
            return min(_LONGEST_WAIT_S, self._settings.poll_s * 2.0 ** min(self._troubles, 10))
        self._troubles = 0
        return None if self._settings.once and is_idle else self._settings.poll_s

    def _trigger_due_jobs(self) -> None:
        while time.monotonic() >= self._due_s and not self._stopped.is_set():
            self._due_s = time.monotonic() + _DUE_S
            try:
                answer = self._lake.jobs.due()
            except LamellaError as error:  # jobs that are already queued can still run
                self._log.write("cannot ask for due jobs", "warning", code=error.code, detail=error.message)
                return
            for job_id in answer.enqueued:
                self._log.write("enqueued", job=job_id)
            if answer.more:
                self._due_s = 0.0

    def _take(self) -> bool:
        """Start the next job; returns false when there is none."""
        # If the answer was lost, the same claim is sent again: the job may already belong to this worker.
        if self._claim is None or lease_seconds() >= self._claim[1] + self._attempts.lease_s:
            self._claim = str(uuid4()), lease_seconds()
        token, sent_s = self._claim
        claimed = self._lake.jobs.claim(self._name, token, lease_s=self._attempts.lease_s, kinds=self._kinds)
        self._claim = None
        if claimed.job is None:
            return False
        attempt = Attempt(self._lake, claimed, claimed.job, token, sent_s, self._attempts, self._log)
        thread = threading.Thread(target=self._run, args=(attempt,), name=f"job {claimed.job.job_id}")
        with self._lock:
            self._running[attempt] = thread
        try:
            thread.start()
        except RuntimeError as error:  # no thread: return the job before its lease ends
            with self._lock:
                del self._running[attempt]
            self._log.write("job not started", "error", job=claimed.job.job_id, detail=str(error))
            self._ended.append(attempt.hand_back())
            return False
        return True

    def _run(self, attempt: Attempt) -> None:
        ended: AttemptOutcome = "lost"
        try:
            ended = attempt.run()
        finally:
            with self._lock:
                del self._running[attempt]
                self._ended.append(ended)
            self._wake.set()
