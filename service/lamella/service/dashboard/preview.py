"""Facts and previews for pages, and values that are computed in the background."""

from __future__ import annotations

import copy
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
from markupsafe import escape

from lamella.service.dashboard import words
from lamella.service.http.idempotency import IdempotencyKey, read_key
from lamella.snapshot.concurrency import time_left_s, wait_until
from lamella.snapshot.errors import Overloaded
from lamella.snapshot.wire import JobError, JobInfo, JobLine, Progress

#: Longest JSON of a value on a page; the REST API has all of it.
_MAX_CHARACTERS: Final = 20_000
_MAX_DEPTH: Final = 3
_MAX_FACTS: Final = 60
_TONES: Final = {"succeeded": "good", "failed": "bad", "running": "warn"}
#: Members of results with a value before and after, and their labels.
_BEFORE_AFTER: Final = (
    ("blocks_before", "blocks_after", "Blocks"),
    ("bytes_before", "bytes_after", "Size"),
    ("predicted_before", "predicted_after", "Segments that a look-up is sent to, predicted"),
    ("measured_before", "measured_after", "Segments that a look-up is sent to, measured"),
)


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A named fact."""

    name: str
    text: str


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A progress bar: ``done`` of ``total`` (None: unknown), as numbers and in words."""

    done: int
    total: int | None
    text: str
    message: str = ""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a listing. ``since``: its latest event, and when. ``problem``: of its last failed attempt."""

    job: JobInfo
    tone: str
    since: str
    since_ms: int
    bar: Bar | None
    problem: str
    can_cancel: bool
    can_retry: bool


def fact(name: str, text: object) -> Fact:
    """Return a fact whose value is text, or a number."""
    return Fact(name=name, text=words.count(text) if isinstance(text, int | float) else str(text))


def line_of(job: JobInfo, now_ms: int) -> Line:
    """Return a job as a line."""
    since, since_ms = _since(job, now_ms)
    return Line(
        job=job,
        tone=_TONES.get(job.state, ""),
        since=since,
        since_ms=since_ms,
        bar=None if job.is_finished else bar_of(job.progress),
        problem="" if job.error is None else shortened(f"{job.error.code}: {job.error.detail}", 200),
        can_cancel=not job.is_finished and not job.cancel_requested,
        can_retry=job.state in ("failed", "cancelled") or (job.state == "queued" and job.not_before_ms > now_ms),
    )


def bar_of(progress: Progress | None) -> Bar | None:
    """Return the progress of a job; None if it has reported none."""
    if progress is None:
        return None
    form = words.size if progress.unit == "bytes" else words.count
    unit = "" if progress.unit in ("", "bytes") else f" {progress.unit}"
    total = progress.total if progress.total else None
    text = f"{form(progress.done)}{unit}" if total is None else f"{form(progress.done)} of {form(total)}{unit}"
    if total is None and not progress.done:
        text = ""
    return Bar(done=progress.done, total=total, text=text, message=shortened(progress.message, 300))


def facts_of_job(job: JobInfo) -> tuple[Fact, ...]:
    """Return facts of a job other than its times."""
    found = [
        fact("Requested by", job.origin if job.origin_name is None else f"{job.origin} {job.origin_name}"),
        fact("Attempts", f"{job.attempts} of {job.max_attempts}"),
        fact("Priority", job.priority),
    ]
    if job.worker is not None:
        found.append(fact("Worker", job.worker))
    if job.timeout_s is not None:
        found.append(fact("Time limit of an attempt", words.span(job.timeout_s)))
    if job.started_ms is not None and job.finished_ms is not None:
        found.append(fact("Took", words.span((job.finished_ms - job.started_ms) / 1000)))
    return tuple(found)


def facts_of_result(result: object) -> tuple[Fact, ...]:
    """Return the result of a job, as far as it has names and values."""
    if not isinstance(result, Mapping):
        return () if result is None else (fact("Answer", shortened(_json(result), 300)),)
    found: list[Fact] = []
    seen: set[str] = set()
    for before, after, name in _BEFORE_AFTER:
        if _is_number(result.get(before)) and _is_number(result.get(after)):
            seen.update((before, after))
            found.append(fact(name, f"{_spelled(before, result[before])} → {_spelled(after, result[after])}"))
    _collect(found, "", {name: value for name, value in result.items() if name not in seen}, 0)
    return tuple(found[:_MAX_FACTS])


def error_facts(error: JobError) -> tuple[Fact, ...]:
    """Return the details of an error as facts."""
    found: list[Fact] = []
    _collect(found, "", error.details, 0)
    return tuple(found[:_MAX_FACTS])


def shown_json(value: object) -> str:
    """Return a value as JSON on several lines, cut if it is very long."""
    return shortened(msgspec.json.format(_json(value), indent=2), _MAX_CHARACTERS)


def shortened(text: str, max_length: int) -> str:
    """Return a text, cut if it has more characters than that."""
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def end_of(lines: Sequence[JobLine], max_bytes: int) -> list[JobLine]:
    """Return the last lines that together fit on a page; at least one, if there is any."""
    found: list[JobLine] = []
    left = max_bytes
    for line in reversed(lines):
        left -= len(escape(line.text).encode()) + 120
        if found and left < 0:
            break
        found.append(line)
    return found[::-1]


def _since(job: JobInfo, now_ms: int) -> tuple[str, int]:
    if job.finished_ms is not None:
        return "ended", job.finished_ms
    if job.state == "running" and job.started_ms is not None:
        return "started", job.started_ms
    if job.not_before_ms > now_ms:
        return "is due", job.not_before_ms
    return "asked for", job.created_ms


def _collect(found: list[Fact], before: str, values: Mapping[Any, Any], depth: int) -> None:
    for key, value in values.items():
        if len(found) >= _MAX_FACTS:
            return
        name = f"{before}{_name(str(key))}"
        if isinstance(value, Mapping):
            if depth < _MAX_DEPTH:
                _collect(found, f"{name}: ", value, depth + 1)
        elif isinstance(value, list):
            if value:
                found.append(fact(name, _listed(value)))
        elif value is not None and value != "":
            found.append(fact(name, _spelled(str(key), value)))


def _listed(values: list[Any]) -> str:
    if all(isinstance(value, str | int | float) for value in values) and len(values) <= 10:
        return shortened(", ".join(str(value) for value in values), 300)
    return words.plural(len(values), "entry", "entries")


def _spelled(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name.endswith("_ms") and isinstance(value, int) and value > 1_000_000_000_000:
            return words.moment(value)
        return words.size(value) if "bytes" in name else words.count(value)
    return shortened(str(value), 300)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _name(key: str) -> str:
    return words.sentence(shortened(key.removesuffix("_ms").removesuffix("_bytes").replace("_", " "), 80))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a listing."""

    name: str
    is_number: bool = False


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A table of texts."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """A preview. ``says`` is one sentence; ``tone``: "warn" if there is nothing to do, or no undo. ``measure``: on the
    button that reads more of the table to say more; empty: there is none."""

    says: str
    tone: Literal["", "good", "warn"] = ""
    facts: tuple[Fact, ...] = ()
    listing: Listing | None = None
    notes: tuple[str, ...] = ()
    measure: str = ""


#: The parameter of an address that asks a preview to read what it would not read by itself.
MEASURE: Final = "measure"
#: What a page reads by itself if manifests do not suffice: at least and at most so many blocks, so many bytes of files,
#: for so many seconds. A sample of fewer blocks says little.
FEW_BLOCKS: Final = 8
MAX_BLOCKS: Final = 32
CHEAP_BYTES: Final = 64 << 20
CHEAP_S: Final = 5.0


def cheap_sample(blocks: int, size_bytes: int) -> int:
    """Return how many of ``blocks`` blocks with ``size_bytes`` bytes a page reads by itself; 0: they are too large."""
    if not blocks:
        return 0
    affordable = CHEAP_BYTES * blocks // max(size_bytes, 1)
    return min(MAX_BLOCKS, blocks, affordable) if affordable >= min(FEW_BLOCKS, blocks) else 0


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """A block whose reads end after that time with Unavailable, or at the deadline that there is already."""
    now, left_s = time.monotonic(), time_left_s()
    wait_until(now + (seconds if left_s is None else min(seconds, left_s)))
    try:
        yield
    finally:
        wait_until(None if left_s is None else now + left_s)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question before something is removed: ``asks`` names it, ``says`` has the consequences, ``act`` is on the
    button. ``carried``: fields of the form that does it; ``back``: the address for cancelling.
    """

    asks: str
    says: str
    act: str
    back: str
    facts: tuple[Fact, ...] = ()
    warnings: tuple[str, ...] = ()
    carried: tuple[tuple[str, str], ...] = ()


def unstored_key(now_ms: int) -> IdempotencyKey:
    """A claim for asking a mutation what it would do: it has no key, so that nothing is stored."""
    return read_key(None, "GET", "", "", b"", now_ms)


_T = TypeVar("_T")
#: Takes what is to be called when the service ends.
WhenClosing = Callable[[Callable[[], None]], object]

#: Cached results of user input, the time a page waits for one, and how long a result is shown that depends on more than
#: a snapshot.
MAX_READY: Final = 64
WAIT_S: Final = 0.15
FRESH_S: Final = 60.0
#: How long a failure is shown again: reloading a page must not start the same work at once.
_FAILURE_S: Final = 10.0


class _Figure(Generic[_T]):
    """A value or a failure, ready or in progress; ``made_s``: when it became ready."""

    def __init__(self, future: Future[_T], timer: Callable[[], float]) -> None:
        self.future = future
        self.made_s = math.inf
        future.add_done_callback(lambda _: setattr(self, "made_s", timer()))


class BackgroundFigures(Generic[_T]):
    """Caches the last ``max_values`` values by key; one thread computes them, one by one, until the service stops.

    A key contains everything that a value depends on, so that values never go stale; otherwise a value older than
    ``fresh_s`` is computed again when requested. ``when_closing`` registers what to call when the service stops.
    ``timer`` returns seconds.
    """

    def __init__(
        self,
        when_closing: WhenClosing,
        max_values: int,
        *,
        name: str,
        fresh_s: float = math.inf,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_values = max_values
        self._fresh_s = fresh_s
        self._timer = timer
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, _Figure[_T]] = OrderedDict()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        when_closing(self.close)

    def peek(self, key: Hashable, make: Callable[[], _T], *, wait_s: float = 0.0) -> _T | None:
        """Return the value, or None if it is not ready after ``wait_s``.

        Raises the error of ``make``, for some seconds; and Overloaded if too many are in progress.
        """
        future = self._future(key, make)
        wait([future], wait_s)
        if not future.done():
            return None
        error = future.exception()
        if error is not None:
            raise copy.copy(error) from error.__cause__  # otherwise the traceback would grow with each request
        return future.result()

    def close(self) -> None:
        """Begin nothing more; what is being made ends by itself, and nobody waits for it."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _future(self, key: Hashable, make: Callable[[], _T]) -> Future[_T]:
        with self._lock:
            found = self._values.get(key)
            if found is not None and not self._is_over(found):
                self._values.move_to_end(key)
                return found.future
            if found is None and len(self._values) >= self._max_values:
                self._drop_oldest()
            made = self._pool.submit(make)
            self._values[key] = _Figure(made, self._timer)
            return made

    def _is_over(self, figure: _Figure[_T]) -> bool:
        if not figure.future.done():
            return False
        if figure.future.cancelled():
            return True
        longest_s = self._fresh_s if figure.future.exception() is None else _FAILURE_S
        return self._timer() - figure.made_s > longest_s

    def _drop_oldest(self) -> None:
        """Remove the value that was unused for longest, but none in progress."""
        for key, value in self._values.items():
            if value.future.done():
                del self._values[key]
                return
        raise Overloaded("too much work is in progress; reload the page in a while", retry_after_s=5)
