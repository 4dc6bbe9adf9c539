"""The process itself: what it runs, and whether it keeps up."""

from __future__ import annotations

import gc
import itertools
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from prometheus_client import CollectorRegistry, Gauge, Histogram

from lamella.service.metering.bounds import CALL_S, WAIT_S
from lamella.service.release import release


class ProcessMetrics:
    """Release, event loop, threads, and how long the oldest commit has been under way. ``timer`` gives seconds."""

    def __init__(self, registry: CollectorRegistry, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self.build = Gauge(
            "lamella_build_info",
            "Always 1; the release that runs, and the Python that runs it.",
            ("version", "python"),
            registry=registry,
            multiprocess_mode="max",
        )
        self.build.labels(release(), platform.python_version()).set(1)
        self.loop_lag = Histogram(
            "lamella_event_loop_lag_seconds",
            "How much later than it was due a timer of the event loop went off, looked at four times a second.",
            buckets=WAIT_S,
            registry=registry,
        )
        self.threads_busy = Gauge(
            "lamella_threads_busy",
            "Threads that are at work, by what they are for.",
            ("pool",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.threads_max = Gauge(
            "lamella_threads_max",
            "Threads that may be at work at once, by what they are for.",
            ("pool",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.threads_waiting = Gauge(
            "lamella_threads_waiting",
            "Pieces of work that wait for a thread, by what it is for.",
            ("pool",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.commits_in_progress = Gauge(
            "lamella_commits_in_progress",
            "Registrations and commits that wait for their turn or are at work.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.oldest_commit = Gauge(
            "lamella_commit_oldest_seconds",
            "How long the registration or commit has been under way that began first of those that are; 0: none is.",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.gc_pause = Histogram(
            "lamella_gc_pause_seconds",
            "Time that all threads stood still for Python's garbage collector, by generation; 2 is a full collection.",
            ("generation",),
            buckets=CALL_S,
            registry=registry,
        )
        self._pauses = [self.gc_pause.labels(str(generation)) for generation in range(len(gc.get_threshold()))]
        self._paused: list[tuple[int, float]] = []
        self._pause_begun_s = 0.0
        self._numbers = itertools.count()
        self._begun_s: dict[int, float] = {}

    @contextmanager
    def watching_pauses(self) -> Iterator[None]:
        """Note each collection of the garbage collector, for :meth:`fold`."""
        gc.callbacks.append(self._collecting)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, about: dict[str, int]) -> None:
        # A collection begins in the middle of anything, so this takes no lock: a metric has one.
        if phase == "start":
            self._pause_begun_s = time.perf_counter()
        else:
            self._paused.append((about["generation"], time.perf_counter() - self._pause_begun_s))

    def commit_begun(self) -> Callable[[], None]:
        """A commit is under way until what is returned is called."""
        number = next(self._numbers)
        self._begun_s[number] = self._timer()
        self.commits_in_progress.inc()
        return partial(self._commit_ended, number)

    def _commit_ended(self, number: int) -> None:
        if self._begun_s.pop(number, None) is not None:
            self.commits_in_progress.dec()

    def threads(self, pool: str, *, busy: int, most: int, waiting: int) -> None:
        """Note how busy the threads of a pool are."""
        self.threads_busy.labels(pool).set(busy)
        self.threads_max.labels(pool).set(most)
        self.threads_waiting.labels(pool).set(waiting)

    def fold(self) -> None:
        """Bring up to date what nobody tells of."""
        paused, self._paused = self._paused, []
        for generation, took_s in paused:
            self._pauses[generation].observe(took_s)
        begun_s = list(self._begun_s.values())  # in one step, since others begin and end meanwhile
        self.oldest_commit.set(self._timer() - min(begun_s) if begun_s else 0.0)
