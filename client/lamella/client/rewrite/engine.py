"""Engines: where tasks run. A stage is handed over once, its tasks one by one; results come as they are ready.

Drawn small: a stage is a value that can be pickled and called, tasks and results are JSON. :class:`LocalEngine` runs
them in processes of this machine; Spark's engine is in :mod:`lamella.client.spark.engine`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

import msgspec

from lamella.client.rewrite.stages import Stage
from lamella.snapshot.errors import StoreError

T = TypeVar("T")
R = TypeVar("R")

#: How often a task is tried for which storage failed.
_TRIES: Final = 3


class Engine(Protocol):
    """Runs tasks."""

    @property
    def is_near(self) -> bool:
        """Whether they run on this machine, so that scratch space may be a folder of it."""
        ...

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""
        ...

    def run(self, stage: Stage, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """The number and the result of each task, in the order in which they are done.

        Raises what a task raised, once it was tried several times; others may still be under way then. Who stops
        asking for results, ends them.
        """
        ...


class SerialEngine:
    """Runs one task after another, in this thread."""

    is_near = True
    parallelism = 1

    def run(self, stage: Stage, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """As of :class:`Engine`."""
        for number, task in enumerate(tasks):
            yield number, msgspec.json.decode(call(stage, msgspec.json.encode(task)), type=stage.result_type)


class LocalEngine:
    """Runs tasks in ``processes`` processes of this machine (None: one for each core). A context manager."""

    is_near = True

    def __init__(self, processes: int | None = None) -> None:
        self._processes = processes or os.cpu_count() or 1
        self._pool: ProcessPoolExecutor | None = None

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""
        return self._processes

    def run(self, stage: Stage, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """As of :class:`Engine`; a task that is alone runs in this process, which need not start others."""
        if len(tasks) == 1 and self._pool is None:
            yield from SerialEngine().run(stage, tasks)
            return
        waiting = iter(enumerate(tasks))
        under_way: dict[Future[bytes], int] = {}
        try:
            while True:
                while len(under_way) < self._processes and (following := next(waiting, None)) is not None:
                    number, task = following
                    under_way[self._submit(stage, task)] = number
                if not under_way:
                    return
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    yield under_way.pop(future), msgspec.json.decode(future.result(), type=stage.result_type)
        finally:
            for future in under_way:
                future.cancel()

    def _submit(self, stage: Stage, task: Any) -> Future[bytes]:
        if self._pool is None:
            # Not forked: a fork takes over locks of threads that it does not have.
            context = get_context("forkserver")
            self._pool = ProcessPoolExecutor(self._processes, mp_context=context, initializer=_end_with_parent)
        return self._pool.submit(call, stage, msgspec.json.encode(task))

    def close(self) -> None:
        """End the processes; tasks that are under way are finished first."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _end_with_parent() -> None:
    """End this process when its parent is killed.

    Otherwise it would wait for tasks for ever: it holds both ends of the pipe that they come through.
    """
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def call(stage: Stage, task: bytes) -> bytes:
    """One task, tried again when storage fails; raises StoreError at last."""
    function: Callable[[Any], Any] = stage  # type: ignore[assignment]  # stages are called, each with its own task
    decoded = msgspec.json.decode(task, type=stage.task_type)
    for left in range(_TRIES - 1, -1, -1):
        try:
            return msgspec.json.encode(function(decoded))
        except StoreError:
            if not left:
                raise
    raise AssertionError("unreachable")
