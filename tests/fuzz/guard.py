"""The one rule of every hostile input: an answer or an error of ours, within bounds."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Final, TypeVar

from lamella.snapshot.errors import MAX_MESSAGE_CHARACTERS, LamellaError

_T = TypeVar("_T")

#: What no single input may take, in CPU seconds of the thread. The worst that is known takes a fifth of it on a slow
#: machine; a runaway takes minutes. CPU time, since the clock on the wall also counts what others do.
MAX_CPU_S: Final = 30.0


def survive(call: Callable[[], _T], shown: object) -> _T | LamellaError:
    """The answer of ``call``, or the error of ours that it raised; anything else fails with ``shown``."""
    started = time.thread_time()
    answer: _T | LamellaError
    try:
        answer = call()
    except LamellaError as error:
        answer = error
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {_cut(error)} for {_cut(shown)}") from error
    took = time.thread_time() - started
    assert took < MAX_CPU_S, f"{took:.1f} CPU seconds for {_cut(shown)}"
    if isinstance(answer, LamellaError):
        assert type(answer) is not LamellaError, f"an error without a code of its own: {answer!r} for {_cut(shown)}"
        assert len(str(answer)) <= MAX_MESSAGE_CHARACTERS + 1, "a message repeats its input"
    return answer


def peak_bytes(call: Callable[[], object]) -> int:
    """The memory that Python's own allocators held at most while ``call`` ran, in bytes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _cut(shown: object) -> str:
    text = shown if isinstance(shown, str) else repr(shown)
    return text if len(text) <= 2_000 else f"{text[:1_000]} ... {text[-200:]} ({len(text)} characters)"
