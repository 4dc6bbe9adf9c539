"""Clients that commit numbered blocks, prune and run jobs, and record the outcome of every request."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import httpx2
import msgspec

#: Timeout of a request in seconds; a slower request counts as failed.
TIMEOUT_S: Final = 10.0
_PAUSE_S: Final = 0.05
#: Statuses below 500 that mean nothing was done and the request may be retried: too slow, or overloaded.
_NOT_NOW: Final = frozenset({408, 429})
#: The maximum that the service accepts: otherwise jobs would meet more faults than they have attempts.
_JOB_ATTEMPTS: Final = 100
_OVER: Final = ("succeeded", "failed", "cancelled")

Kind = Literal["commit", "prune", "job"]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One request. ``outcome``: ``ok``, or the error: an HTTP status with the service's code, or a connection error."""

    kind: Kind
    began_s: float
    ended_s: float
    outcome: str


class Ledger:
    """Records requests and their outcomes. Times are monotonic seconds. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempts: list[Attempt] = []
        #: Locations of acknowledged commits, and of commits that have begun.
        self.acknowledged: set[str] = set()
        self.begun: set[str] = set()
        self.refused: list[str] = []
        self.jobs: dict[str, str] = {}
        #: Jobs that were refused, or failed for another reason than the store's absence.
        self.jobs_failed: list[str] = []

    def note(self, attempt: Attempt) -> None:
        """Add a request."""
        with self._lock:
            self._attempts.append(attempt)

    def since(self, began_s: float) -> list[Attempt]:
        """Return the requests that ended at that time or later."""
        with self._lock:
            return [attempt for attempt in self._attempts if attempt.ended_s >= began_s]


class RequestClient:
    """Sends requests to one address with one key and records them, on kept-alive or new connections."""

    def __init__(self, url: str, key: str, ledger: Ledger) -> None:
        self._ledger = ledger
        self._http = httpx2.Client(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=TIMEOUT_S, trust_env=False
        )

    def ask(
        self, kind: Kind, method: str, path: str, body: Any = None, key: str | None = None
    ) -> httpx2.Response | None:
        """Return the answer; None when there was none, or it says to retry."""
        began_s = time.monotonic()
        headers = {} if key is None else {"Idempotency-Key": key}
        answer: httpx2.Response | None = None
        try:
            answer = self._http.request(method, path, json=body, headers=headers)
            outcome = "ok" if answer.is_success else f"{answer.status_code} {_code(answer)}"
        except httpx2.TimeoutException:
            outcome = f"no answer within {TIMEOUT_S:.0f} s"
        except httpx2.ConnectError:
            outcome = "connection refused"
        except httpx2.TransportError:
            outcome = "connection broken"
        self._ledger.note(Attempt(kind=kind, began_s=began_s, ended_s=time.monotonic(), outcome=outcome))
        return answer if answer is not None and (answer.is_success or _is_final(answer.status_code)) else None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _is_final(status: int) -> bool:
    return 400 <= status < 500 and status not in _NOT_NOW


def _code(answer: httpx2.Response) -> str:
    if answer.headers.get("content-type") != "application/problem+json":
        return "of nginx"
    return str(answer.json()["code"])


def _unreadable(job: dict[str, Any]) -> bool:
    """Whether a verification failed only because the store was unavailable, which it must report."""
    findings = (job.get("result") or {}).get("findings", ())
    return bool(findings) and {finding["code"] for finding in findings} == {"unreachable"}


class Load:
    """``locations``: numbered files that no table contains yet. A context manager: the load runs during the block."""

    def __init__(self, url: str, key: str, table: str, locations: Iterator[str]) -> None:
        self.ledger = Ledger()
        namespace, _, name = table.partition(".")
        self._path = f"/v1/namespaces/{namespace}/tables/{name}"
        self._table = table
        self._locations = locations
        self._ended = threading.Event()
        self._finishing = threading.Event()
        self._lock = threading.Lock()
        loops: list[Callable[[RequestClient], None]] = [
            self._commit,
            self._commit,
            self._commit,
            self._prune,
            self._prune,
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(loop, RequestClient(url, key, self.ledger)), daemon=True)
            for loop in [*loops, self._job]
        ]
        self.failures: list[BaseException] = []

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Start nothing new; finished when the outcome of everything started is known."""
        self._finishing.set()
        for thread in self._threads:
            thread.join(180)
        self._ended.set()

    def _run(self, loop: Callable[[RequestClient], None], client: RequestClient) -> None:
        try:
            while not self._finishing.is_set():
                loop(client)
                time.sleep(_PAUSE_S)
        except BaseException as error:
            self.failures.append(error)
            raise
        finally:
            client.close()

    def _commit(self, client: RequestClient) -> None:
        """Commit one file, retrying with the same key until the outcome is known."""
        with self._lock:
            location = next(self._locations)
            self.ledger.begun.add(location)
        key = str(uuid.uuid4())
        for tries in itertools.count():
            answer = client.ask("commit", "POST", f"{self._path}/register", {"paths": [location]}, key)
            if answer is not None and answer.is_success:
                self.ledger.acknowledged.add(location)
                return
            if answer is not None:
                self.ledger.refused.append(f"{location}: {answer.status_code} {answer.text}")
                return
            if self._ended.is_set() or tries > 2_000:
                return
            time.sleep(2 * _PAUSE_S)

    def _prune(self, client: RequestClient) -> None:
        client.ask("prune", "POST", f"{self._path}/prune", {"filter": "n >= 0 AND n < 10"})

    def _job(self, client: RequestClient) -> None:
        """Run one job and poll until it ends."""
        key = str(uuid.uuid4())
        body = {"kind": "verify", "table": self._table, "arguments": {}, "max_attempts": _JOB_ATTEMPTS}
        submitted = None
        while submitted is None:
            if self._ended.is_set():
                return
            submitted = client.ask("job", "POST", "/v1/jobs", body, key)
            if submitted is None:
                time.sleep(1)
        if not submitted.is_success:
            self.ledger.jobs_failed.append(f"not taken: {submitted.status_code} {submitted.text}")
            return
        job_id = submitted.json()["job_id"]
        self.ledger.jobs[job_id] = "queued"
        while not self._ended.is_set():
            time.sleep(1)
            answer = client.ask("job", "GET", f"/v1/jobs/{job_id}")
            if answer is None:
                continue
            if not answer.is_success:
                self.ledger.jobs_failed.append(f"{job_id}: {answer.status_code} {answer.text}")
                return
            job = answer.json()
            self.ledger.jobs[job_id] = job["state"]
            if job["state"] in _OVER:
                if job["state"] != "succeeded" and not _unreadable(job):
                    self.ledger.jobs_failed.append(answer.text)
                return
