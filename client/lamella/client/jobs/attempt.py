"""One attempt at a job: its program runs, and the service is told its progress and its outcome.

Until when the job is this worker's is counted from before each heartbeat was sent, by a clock that only goes forward,
so a worker never believes longer than the service that it has a job. When that time is over the program is killed at
once: another worker may run the job.
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
    """Seconds that never go backwards, and where the system can tell also pass while it sleeps.

    A machine that was suspended must not think that its leases did not age; on Linux ``time.monotonic`` stands still
    meanwhile.
    """
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class WorkerLog:
    """Writes to standard error unless told otherwise. Safe to share between threads."""

    def __init__(self, stream: TextIO | None = None, *, as_json: bool = True) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._as_json = as_json
        self._lock = threading.Lock()

    def write(self, event: str, level: LogLevel = "info", **fields: Any) -> None:
        """One line: what happened, and members that say to what."""
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
    """Does one thing at a time in a thread of its own, until the block ends; what is under way then is left to end."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1)
        self._under_way: Future[T] | None = None

    def begin(self, work: Callable[[], T]) -> bool:
        """Begin, unless something is under way."""
        if self._under_way is not None:
            return False
        self._under_way = self._threads.submit(work)
        return True

    def result(self) -> T | None:
        """What came of it, once; None: nothing yet."""
        if self._under_way is None or not self._under_way.done():
            return None
        done, self._under_way = self._under_way, None
        return done.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False)


#: What is new is told no more often than this, in seconds.
_NEWS_S: Final = 1.0
#: How long after a request that failed the next one is sent, in seconds.
_AGAIN_S: Final = 1.0
#: How often it is looked whether there is something to do, in seconds.
_LOOK_S: Final = 0.25
#: Errors that would come again.
_FINAL: Final = (InvalidRequest, NotFound, NotParquet, ManifestError)

UpdateOutcome = Literal["arrived", "failed", "lost"]
StopReason = Literal["cancel", "release", "timeout"]
AttemptOutcome = Literal["succeeded", "failed", "cancelled", "released", "lost"]


class AttemptSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How programs are run.

    ``lease_s``: how long the service waits for a heartbeat. ``grace_s``: how long a program may take to end when it is
    asked to. ``timeout_s``: how long a program may take where its job does not say. ``prefix``: see
    :func:`~lamella.client.jobs.program.program_of`. ``token`` or ``token_file``: what programs show the service.
    """

    lease_s: int
    grace_s: float
    timeout_s: float | None = None
    prefix: tuple[str, ...] = ()
    token: str | None = None
    token_file: str | None = None
    environment: Mapping[str, str] | None = None


class Attempt:
    """Runs a job that was claimed with ``lease_token`` by a request that was sent at ``claimed_s``, by
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
        self._told = JobOutput(claimed.log_lines)
        self._wake = threading.Event()
        self._released = threading.Event()
        self._hurried = threading.Event()
        self._cancelled = threading.Event()
        self._stopping: StopReason | None = None
        self._kill_s: float | None = None

    @property
    def job_id(self) -> str:
        """Of its job."""
        return self._job.job_id

    def release(self, *, at_once: bool = False) -> None:
        """End the program, ``at_once`` without a grace, and hand the job back.

        May be called from any thread, and returns at once.
        """
        if at_once:
            self._hurried.set()
        self._released.set()
        self._wake.set()

    def hand_back(self) -> AttemptOutcome:
        """Give the job back without having begun; never raises a LamellaError."""
        return self._finish("released", None)

    def run(self) -> AttemptOutcome:
        """Run the program to its end, or to its lease's; never raises a LamellaError."""
        job = self._job
        told = {"lamella.job.id": job.job_id, "lamella.job.attempt": job.attempts}
        with tracing.part(f"job {job.kind}", told) as span:
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
                on_line=self._told.line,
                on_exit=self._wake.set,
            )
        except LamellaError as error:
            ended = self._finish("failed", JobError(code=error.code, detail=error.message), retry=False)
        except (OSError, ValueError, RuntimeError) as error:  # the last: the system starts no thread
            ended = self._finish("failed", JobError(code="job_not_started", detail=str(error)))
        else:
            self._told.note("$ " + " ".join(command), "debug")
            self._say("running", pid=child.pid)
            try:
                is_over = self._supervised(child)
            finally:
                child.kill()  # whatever happened here: who does not watch over a program may not let it run
            ended = self._ended(child.status, self._stopping) if is_over else "lost"
        took_s = round(time.monotonic() - started_s, 3)
        self._say("ended", "info" if ended == "succeeded" else "warning", outcome=ended, took_s=took_s)
        return ended

    def _supervised(self, child: JobProcess) -> bool:
        """Watch over the program until it is over; False: the job was lost, and the program was killed."""
        timeout_s = self._job.timeout_s if self._job.timeout_s is not None else self._settings.timeout_s
        times_out_s = None if timeout_s is None else lease_seconds() + timeout_s
        beaten_s, every_s = lease_seconds(), self._settings.lease_s / 3
        # A heartbeat that hangs must not keep this thread from seeing that the lease is over.
        with BackgroundTask[UpdateOutcome]() as aside:
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
                heard = aside.result()
                if heard == "lost":
                    self._lose(child, "another worker has the job, or nobody")
                    return False
                if heard is not None:
                    every_s = self._settings.lease_s / 3 if heard == "arrived" else _AGAIN_S
                wait_s = min(_NEWS_S, every_s) if self._told.has_news else every_s
                if now_s >= beaten_s + wait_s and aside.begin(self._beat):
                    beaten_s = now_s
                # Not for long, so that news are told soon; `wake` ends it at once.
                self._wake.wait(min(_LOOK_S, max(0.0, self._until_s - lease_seconds())))
                self._wake.clear()
        return True

    def _beat(self) -> UpdateOutcome:
        """Send a heartbeat."""
        news, sent_s = self._told.news(), lease_seconds()
        try:
            answer = self._lake.jobs.heartbeat(self._job.job_id, self._heartbeat(news))
        except (JobLeaseLost, JobNotFound):
            heard: UpdateOutcome = "lost"
        except InvalidRequest as error:
            # What the program told is not taken. That must not cost it the job.
            self._told.forget(news)
            self._told.note(f"the service did not take what the job told: {error.message}", "warning")
            heard = "failed"
        except LamellaError as error:
            self._say("heartbeat failed", "warning", code=error.code, detail=error.message)
            heard = "failed"
        else:
            self._told.forget(news)
            self._until_s = sent_s + self._settings.lease_s
            if answer.cancel_requested:
                self._cancelled.set()
            heard = "arrived"
        self._wake.set()
        return heard

    def _heartbeat(self, news: JobUpdate) -> Heartbeat:
        return Heartbeat(
            lease_token=self._lease_token,
            lease_s=self._settings.lease_s,
            progress=news.progress,
            log=news.lines,
            checkpoint=news.checkpoint,
        )

    def _stop(self, child: JobProcess, why: StopReason) -> None:
        """Ask the program to end, and see to it that it does."""
        self._stopping = why
        self._kill_s = lease_seconds() + self._settings.grace_s
        self._say("stopping", why=why)
        child.terminate()

    def _lose(self, child: JobProcess, why: str) -> None:
        """The job is not this worker's any more."""
        self._say("lost", "error", detail=why)
        child.kill()
        while child.status is None:  # nothing of it may still run when the next job of the table begins here
            self._wake.wait(0.5)
            self._wake.clear()

    def _ended(self, status: int | None, stopping: StopReason | None) -> AttemptOutcome:
        """Tell the service how the program ended."""
        if status == 0:
            return self._finish("succeeded", None)
        if stopping == "cancel":
            return self._finish("cancelled", None)
        if stopping == "release":
            return self._finish("released", None)
        if stopping == "timeout":
            return self._finish("failed", JobError(code="job_timeout", detail="the program took too long"))
        error = self._told.error
        if error is not None:
            return self._finish("failed", error, retry=not issubclass(BY_CODE.get(error.code, LamellaError), _FINAL))
        how = f"with status {status}" if status is None or status < 128 else f"by signal {status - 128}"
        final = status == 2 or (
            # It did what it could, and says what it could not. Without an answer, it broke off.
            self._told.result is not None and status in job_kind_named(self._job.kind).final_statuses
        )
        return self._finish(
            "failed", JobError(code="job_program_failed", detail=f"the program ended {how}"), retry=not final
        )

    def _finish(self, outcome: JobOutcome, error: JobError | None, *, retry: bool = True) -> AttemptOutcome:
        """Tell it, again and again if need be: as long as nobody else has the job, it is not too late."""
        give_up_s = max(lease_seconds(), self._until_s) + self._settings.lease_s
        result = self._told.result
        may_refuse = True
        while True:
            news = self._told.news()
            try:
                if self._told.waiting > len(news.lines):  # a long log goes ahead, part by part
                    self._lake.jobs.heartbeat(self._job.job_id, self._heartbeat(news))
                    self._told.forget(news)
                    continue
                told = FinishJob(
                    lease_token=self._lease_token,
                    outcome=outcome,
                    result=result,
                    error=error,
                    retry=retry,
                    progress=news.progress,
                    log=news.lines,
                    checkpoint=news.checkpoint,
                )
                self._lake.jobs.finish(self._job.job_id, told)
            except (JobLeaseLost, JobNotFound) as lost:
                self._say("lost", "error", detail=lost.message)
                return "lost"
            except LamellaError as failed:
                self._say("end not told", "warning", code=failed.code, detail=failed.message)
                if isinstance(failed, InvalidRequest) and may_refuse:
                    # What the program told is not taken. How it ended must be, all the same.
                    may_refuse, result = False, None
                    error = None if error is None else JobError(code=error.code, detail=error.detail)
                    self._told.forget(news)
                    self._told.note(f"the service did not take what the job told: {failed.message}", "warning")
                    continue
                if lease_seconds() >= give_up_s or isinstance(failed, InvalidRequest):
                    return "lost"
                time.sleep(_AGAIN_S)
            else:
                return outcome

    def _say(self, event: str, level: LogLevel = "info", **fields: Any) -> None:
        self._log.write(event, level, job=self._job.job_id, kind=self._job.kind, **fields)
