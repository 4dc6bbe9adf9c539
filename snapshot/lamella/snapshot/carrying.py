"""Threads that take the caller's context along, so that what is done for a request is known to be done for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class CarryingPool(ThreadPoolExecutor):
    """Work sees the context (:mod:`contextvars`) of whoever asked for it; what it changes there stays its own."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As the base does; ``map`` goes through this, too."""
        run: Any = copy_context().run  # each time anew: one context cannot be entered twice at once
        future: Future[T] = super().submit(run, fn, *args, **kwargs)
        return future
