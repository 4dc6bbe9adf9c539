"""Work that is done soon, by a thread of its own, for callers that must not wait for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

_LOG: Final = logging.getLogger("lamella.later")


class Later:
    """Runs ``work`` within about ``delay_s`` after it was asked for, once for all who asked meanwhile.

    The thread begins when it is first needed, so that a fork before that does no harm. Work that fails is logged, and
    done again when somebody asks the next time; so is a thread that cannot begin.
    """

    def __init__(self, work: Callable[[], object], delay_s: float, name: str) -> None:
        self._work = work
        self._delay_s = delay_s
        self._name = name
        #: Read without a lock by callers who are in a hurry: there is nothing to ask for while it is set.
        self.is_due = False
        self._lock = threading.Lock()
        self._asked = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def soon(self) -> None:
        """Have it done; nothing happens once this is closed."""
        if self.is_due:
            return
        with self._lock:
            if self._closed.is_set():
                return
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the system starts no thread now; it is tried again the next time
                    _LOG.warning("%s cannot begin", self._name, exc_info=error)
                    return
                self._thread = thread
            self.is_due = True
            self._asked.set()

    def close(self) -> None:
        """End the thread; what it is at is finished, and what was asked for is left to the caller."""
        with self._lock:
            self._closed.set()
            self._asked.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            if self._closed.wait(self._delay_s):
                return
            self._asked.clear()
            self.is_due = False  # before the work: what is asked for from now on may come too late for it
            try:
                self._work()
            except BaseException as error:  # the thread stays: callers are told that it will do what they ask for
                _LOG.warning("%s failed", self._name, exc_info=error)
