"""One attempt at a job: runs the program and reports its progress and outcome to the service.

The lease is counted from before each heartbeat was sent, on a clock that never goes backwards, so a worker never
believes in its lease for longer than the service does. When the lease runs out the program is killed at once: another
worker may run the job.
"""

from __future__ import annotations

import datetime as dt
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Generic, Literal, Self, TextIO, TypeVar

import msgspec

from lamella.client import tracing
from lamella.client.http import Lamella
from lamella.client.jobs.program import JobOutput, JobProcess, JobUpdate, environment_of, program_of
from lamella.snapshot.errors import (
    BY_CODE,
    InvalidRequest,
    JobLeaseLost,
    JobNotFound,
    LamellaError,
    ManifestError,
    NotFound,
    NotParquet,
)
from lamella.snapshot.job_kinds import job_kind_named
from lamella.snapshot.wire import ClaimAnswer, FinishJob, Heartbeat, JobError, JobInfo, JobOutcome, LogLevel


def lease_seconds() -> float:
    """Return seconds of a clock that never goes backwards and, where the system supports it, also runs while it sleeps.

    Leases must age while a machine is suspended; on Linux ``time.monotonic`` stands still then.
    """
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class WorkerLog:
    """Writes log lines, to standard error by default. Safe to share between threads."""

    def __init__(self, stream: TextIO | None = None, *, as_json: bool = True) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._as_json = as_json
        self._lock = threading.Lock()

    def write(self, event: str, level: LogLevel = "info", **fields: Any) -> None:
        """Write one line: an event, and fields that describe it."""
        time = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        given = {name: value for name, value in fields.items() if value is not None}
        if self._as_json:
            line = msgspec.json.encode({"time": time, "level": level, "event": event, **given}).decode()
        else:
            line = f"{time} {level:7} {event}" + "".join(f" {name}={value}" for name, value in given.items())
        with self._lock:
            self._stream.write(line + "\n")
            self._stream.flush()


T = TypeVar("T")


class BackgroundTask(Generic[T]):
    """Runs one call at a time in a thread of its own. At the end of the ``with`` block a running call is left to
    finish."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1)
        self._under_way: Future[T] | None = None

    def begin(self, work: Callable[[], T]) -> bool:
        """Start ``work`` and return true; return false if a call is already running."""
        if self._under_way is not None:
            return False
        self._under_way = self._threads.submit(work)
        return True

    def result(self) -> T | None:
        """Return the result of a finished call, once; None while there is none."""
        if self._under_way is None or not self._under_way.done():
            return None
        done, self._under_way = self._under_way, None
        return done.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False)


#: Minimum seconds between two updates to the service.
_UPDATE_INTERVAL_S: Final = 1.0
#: Seconds between a failed request and the next one.
_AGAIN_S: Final = 1.0
#: Seconds between checks for work.
_CHECK_INTERVAL_S: Final = 0.25
#: Errors that a retry does not fix.
_FINAL: Final = (InvalidRequest, NotFound, NotParquet, ManifestError)

UpdateOutcome = Literal["arrived", "failed", "lost"]
StopReason = Literal["cancel", "release", "timeout"]
AttemptOutcome = Literal["succeeded", "failed", "cancelled", "released", "lost"]


class AttemptSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How programs are run.

    ``lease_s``: seconds the service waits for a heartbeat. ``grace_s``: seconds between asking a program to end and
    killing it. ``timeout_s``: time limit in seconds for programs whose job sets none. ``prefix``: see
    :func:`~lamella.client.jobs.program.program_of`. ``token`` or ``token_file``: the credentials of programs.
    """

    lease_s: int
    grace_s: float
    timeout_s: float | None = None
    prefix: tuple[str, ...] = ()
    token: str | None = None
    token_file: str | None = None
    environment: Mapping[str, str] | None = None


class Attempt:
    """Runs a job that was claimed with ``lease_token``; ``claimed_s`` is when that request was sent, on the clock of
    :func:`~lamella.client.jobs.attempt.lease_seconds`."""

    def __init__(
        self,
        lake: Lamella,
        claimed: ClaimAnswer,
        job: JobInfo,
        lease_token: str,
        claimed_s: float,
        settings: AttemptSettings,
        log: WorkerLog,
    ) -> None:
        self._lake = lake
        self._claimed = claimed
        self._job = job
        self._lease_token = lease_token
        self._settings = settings
        self._log = log
        self._until_s = claimed_s + settings.lease_s
        self._output = JobOutput(claimed.log_lines)
        self._wake = threading.Event()
        self._released = threading.Event()
        self._hurried = threading.Event()
        self._cancelled = threading.Event()
        self._stopping: StopReason | None = None
        self._kill_s: float | None = None

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return self._job.job_id

    def release(self, *, at_once: bool = False) -> None:
        """End the program (``at_once``: without a grace period) and return the job to the queue.

        May be called from any thread; returns immediately.
        """
        if at_once:
            self._hurried.set()
        self._released.set()
        self._wake.set()

    def hand_back(self) -> AttemptOutcome:
        """Return the job to the queue without starting it; never raises a LamellaError."""
        return self._finish("released", None)

    def run(self) -> AttemptOutcome:
        """Run the program until it or its lease ends; never raises a LamellaError."""
        job = self._job
        finished = {"lamella.job.id": job.job_id, "lamella.job.attempt": job.attempts}
        with tracing.part(f"job {job.kind}", finished) as span:
            ended = self._run()
            if span is not None and ended != "succeeded":
                tracing.fail(span, ended)
        return ended

    def _run(self) -> AttemptOutcome:
        started_s = time.monotonic()
        self._say("started", attempt=self._job.attempts, table=self._claimed.table)
        try:
            command = program_of(self._claimed, self._settings.prefix)
            environment = environment_of(
                self._claimed,
                self._lease_token,
                self._lake.url,
                self._settings.token,
                self._settings.environment,
                token_file=self._settings.token_file,
            )
            child = JobProcess(
                command,
                environment | tracing.environment(),
                grace_s=self._settings.grace_s,
                on_line=self._output.line,
                on_exit=self._wake.set,
            )
        except LamellaError as error:
            ended = self._finish("failed", JobError(code=error.code, detail=error.message), retry=False)
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: the system cannot start a thread
            ended = self._finish("failed", JobError(code="job_not_started", detail=str(error)))
        else:
            self._output.note("$ " + " ".join(command), "debug")
            self._say("running", pid=child.pid)
            try:
                is_over = self._supervised(child)
            finally:
                child.kill()  # a program must not run unsupervised
            ended = self._ended(child.status, self._stopping) if is_over else "lost"
        took_s = round(time.monotonic() - started_s, 3)
        self._say("ended", "info" if ended == "succeeded" else "warning", outcome=ended, took_s=took_s)
        return ended

    def _supervised(self, child: JobProcess) -> bool:
        """Supervise the program until it ends; returns false when the job was lost and the program was killed."""
        timeout_s = self._job.timeout_s if self._job.timeout_s is not None else self._settings.timeout_s
        times_out_s = None if timeout_s is None else lease_seconds() + timeout_s
        last_beat_s, every_s = lease_seconds(), self._settings.lease_s / 3
        # Heartbeats are sent from another thread, so that one that hangs cannot hide the end of the lease.
        with BackgroundTask[UpdateOutcome]() as heartbeat_task:
            while child.status is None:
                now_s = lease_seconds()
                if now_s >= self._until_s:
                    self._lose(child, "the lease ran out")
                    return False
                if self._stopping is None:
                    if self._released.is_set():
                        self._stop(child, "release")
                    elif self._cancelled.is_set():
                        self._stop(child, "cancel")
                    elif times_out_s is not None and now_s >= times_out_s:
                        self._stop(child, "timeout")
                if self._kill_s is not None and (now_s >= self._kill_s or self._hurried.is_set()):
                    self._say("killed", "warning")
                    child.kill()
                    self._kill_s = None
                update_outcome = heartbeat_task.result()
                if update_outcome == "lost":
                    self._lose(child, "the job is not assigned to this worker")
                    return False
                if update_outcome is not None:
                    every_s = self._settings.lease_s / 3 if update_outcome == "arrived" else _AGAIN_S
                wait_s = min(_UPDATE_INTERVAL_S, every_s) if self._output.has_update else every_s
                if now_s >= last_beat_s + wait_s and heartbeat_task.begin(self._send_heartbeat):
                    last_beat_s = now_s
                # A short wait, so that updates are sent soon; `wake` interrupts it.
                self._wake.wait(min(_CHECK_INTERVAL_S, max(0.0, self._until_s - lease_seconds())))
                self._wake.clear()
        return True

    def _send_heartbeat(self) -> UpdateOutcome:
        """Send a heartbeat."""
        pending_update, sent_s = self._output.pending_update(), lease_seconds()
        try:
            answer = self._lake.jobs.heartbeat(self._job.job_id, self._heartbeat(pending_update))
        except (JobLeaseLost, JobNotFound):
            update_outcome: UpdateOutcome = "lost"
        except InvalidRequest as error:
            # The service rejects what the program reported. That must not cost the worker its job.
            self._output.forget(pending_update)
            self._output.note(f"the service rejected the job's output: {error.message}", "warning")
            update_outcome = "failed"
        except LamellaError as error:
            self._say("heartbeat failed", "warning", code=error.code, detail=error.message)
            update_outcome = "failed"
        else:
            self._output.forget(pending_update)
            self._until_s = sent_s + self._settings.lease_s
            if answer.cancel_requested:
                self._cancelled.set()
            update_outcome = "arrived"
        self._wake.set()
        return update_outcome

    def _heartbeat(self, pending_update: JobUpdate) -> Heartbeat:
        return Heartbeat(
            lease_token=self._lease_token,
            lease_s=self._settings.lease_s,
            progress=pending_update.progress,
            log=pending_update.lines,
            checkpoint=pending_update.checkpoint,
        )

    def _stop(self, child: JobProcess, why: StopReason) -> None:
        """Ask the program to end, and kill it after the grace period."""
        self._stopping = why
        self._kill_s = lease_seconds() + self._settings.grace_s
        self._say("stopping", why=why)
        child.terminate()

    def _lose(self, child: JobProcess, why: str) -> None:
        """Kill the program: the job no longer belongs to this worker."""
        self._say("lost", "error", detail=why)
        child.kill()
        while child.status is None:  # it must have ended before the table's next job starts here
            self._wake.wait(0.5)
            self._wake.clear()

    def _ended(self, status: int | None, stopping: StopReason | None) -> AttemptOutcome:
        """Report how the program ended."""
        if status == 0:
            return self._finish("succeeded", None)
        if stopping == "cancel":
            return self._finish("cancelled", None)
        if stopping == "release":
            return self._finish("released", None)
        if stopping == "timeout":
            return self._finish("failed", JobError(code="job_timeout", detail="the program took too long"))
        error = self._output.error
        if error is not None:
            return self._finish("failed", error, retry=not issubclass(BY_CODE.get(error.code, LamellaError), _FINAL))
        how = f"with status {status}" if status is None or status < 128 else f"by signal {status - 128}"
        final = status == 2 or (
            # The program reports what it could not do. Without a result it was interrupted.
            self._output.result is not None and status in job_kind_named(self._job.kind).final_statuses
        )
        return self._finish(
            "failed", JobError(code="job_program_failed", detail=f"the program ended {how}"), retry=not final
        )

    def _finish(self, outcome: JobOutcome, error: JobError | None, *, retry: bool = True) -> AttemptOutcome:
        """Report the outcome, repeatedly if necessary: until another worker has the job it is not too late."""
        give_up_s = max(lease_seconds(), self._until_s) + self._settings.lease_s
        result = self._output.result
        may_refuse = True
        while True:
            pending_update = self._output.pending_update()
            try:
                if self._output.waiting > len(pending_update.lines):  # a long log is sent ahead in parts
                    self._lake.jobs.heartbeat(self._job.job_id, self._heartbeat(pending_update))
                    self._output.forget(pending_update)
                    continue
                finished = FinishJob(
                    lease_token=self._lease_token,
                    outcome=outcome,
                    result=result,
                    error=error,
                    retry=retry,
                    progress=pending_update.progress,
                    log=pending_update.lines,
                    checkpoint=pending_update.checkpoint,
                )
                self._lake.jobs.finish(self._job.job_id, finished)
            except (JobLeaseLost, JobNotFound) as lost:
                self._say("lost", "error", detail=lost.message)
                return "lost"
            except LamellaError as failed:
                self._say("outcome not reported", "warning", code=failed.code, detail=failed.message)
                if isinstance(failed, InvalidRequest) and may_refuse:
                    # The service rejects what the program reported, but must still learn how it ended.
                    may_refuse, result = False, None
                    error = None if error is None else JobError(code=error.code, detail=error.detail)
                    self._output.forget(pending_update)
                    self._output.note(f"the service rejected the job's output: {failed.message}", "warning")
                    continue
                if lease_seconds() >= give_up_s or isinstance(failed, InvalidRequest):
                    return "lost"
                time.sleep(_AGAIN_S)
            else:
                return outcome

    def _say(self, event: str, level: LogLevel = "info", **fields: Any) -> None:
        self._log.write(event, level, job=self._job.job_id, kind=self._job.kind, **fields)
