"""Steps as they happen, on stderr: stdout belongs to the results."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lamella.client.cli.output import console

if TYPE_CHECKING:
    from pyspark import SparkContext
    from rich.status import Status

POLL_S = 0.5


class Steps:
    """Names each step, shows that it is under way, and says how long it took."""

    def __init__(self) -> None:
        self._out = console(stderr=True)

    def say(self, text: str) -> None:
        """One line."""
        self._out.print(text, soft_wrap=True)

    @contextmanager
    def step(self, text: str, *, spark: SparkContext | None = None) -> Iterator[None]:
        """A step; with ``spark`` its tasks are counted while it runs."""
        started = time.monotonic()
        over = threading.Event()
        with self._out.status(text) as status:
            watcher = None
            if spark is not None and self._out.is_terminal:
                watcher = threading.Thread(target=_watch, args=(status, text, spark, over), daemon=True)
                watcher.start()
            try:
                yield
            finally:
                over.set()
                if watcher is not None:
                    watcher.join()
        self._out.print(f"{text}: {time.monotonic() - started:.1f} s")


def _watch(status: Status, text: str, spark: SparkContext, over: threading.Event) -> None:
    tracker = spark.statusTracker()
    while not over.wait(POLL_S):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        total = sum(stage.numTasks for stage in stages if stage is not None)
        status.update(f"{text}: {done} of {total} tasks" if total else text)
