"""The processes that serve: one, or workers and the process that looks after them.

On Linux workers are forked from a process that has loaded all code: loading it takes seconds of processor time, and
the memory of it is shared. That process never opens a store, a catalog, an event loop or a thread that workers would
inherit. Elsewhere each worker is a new process that loads everything itself.

Each worker listens on a socket of its own, all on one port (``SO_REUSEPORT``), and the system spreads new connections
over them by a hash of the client's address and port. On one shared socket whichever worker is idle takes all.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, Final

import uvicorn
from fastapi import FastAPI

from lamella.service.stopping import SIGNALS, end_by

#: Exit status of a server, and of a worker, that could not start.
_DID_NOT_START: Final = 3
#: How often a worker is asked whether it is there, and how soon after another was replaced it is.
_PING_S: Final = 0.5
_IS_LINUX: Final = sys.platform == "linux"
_CONTEXT: Final = multiprocessing.get_context("fork" if _IS_LINUX else "spawn")
_LOG: Final = logging.getLogger("uvicorn.error")


def run_alone(app: FastAPI, options: dict[str, Any]) -> None:
    """Serve in this process until it is stopped by a signal; SystemExit when it could not start."""
    server = uvicorn.Server(uvicorn.Config(app, **options))
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def raised(number: int, _frame: FrameType | None) -> None:
        # When the server has ended it raises the signal again that ended it; then all that was asked for is done.
        if not server.started:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)

    for number in SIGNALS:
        signal.signal(number, raised)
    server.run()
    if not server.started:
        sys.exit(_DID_NOT_START)


def run_workers(
    make_app: Callable[[], FastAPI], workers: int, options: dict[str, Any], *, hung_s: float = 60.0
) -> None:
    """Serve in so many processes until this one is stopped by a signal; SystemExit when they could not start.

    ``make_app`` is called in each of them, and can be pickled. A worker that ends is replaced, and one that does not
    answer for ``hung_s`` seconds is ended and replaced. SIGTERM and SIGINT are passed on to the workers, which end when
    they have finished; a second one ends all processes at once.
    """
    if _Supervisor(make_app, workers, options, hung_s).run():
        sys.exit(_DID_NOT_START)


def listening_sockets(host: str, port: int, count: int) -> list[socket.socket]:
    """Sockets bound to one address, one for each worker; the same one for all where the system would not spread them.

    Raises OSError when the address cannot be had, or another process has it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Bound alone first: two services of one user that share a port would both seem to work.
    first = _bound(family, host, port, is_shared=False)
    if not _IS_LINUX or count == 1:
        return [first] * count
    port = first.getsockname()[1]
    first.close()
    found: list[socket.socket] = []
    try:
        found.extend(_bound(family, host, port, is_shared=True) for _ in range(count))
    except OSError:
        for one in found:
            one.close()
        raise
    return found


def _bound(family: socket.AddressFamily, host: str, port: int, *, is_shared: bool) -> socket.socket:
    found = socket.socket(family)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind((host, port))
    except OSError:
        found.close()
        raise
    return found


class _Worker:
    """A process that serves on ``listening``. ``inherited``: what the others have, which a forked one must not keep."""

    def __init__(
        self,
        make_app: Callable[[], FastAPI],
        options: dict[str, Any],
        listening: socket.socket,
        inherited: Iterable[socket.socket | Connection],
    ) -> None:
        self.listening = listening
        self.pings, theirs = _CONTEXT.Pipe()
        others = [each for each in (*inherited, self.pings) if each is not listening] if _IS_LINUX else []
        arguments = (make_app, options, listening, theirs, others)
        self.process = _CONTEXT.Process(target=_serve_as_worker, args=arguments)  # type: ignore[attr-defined]
        # A signal that comes before the worker has handlers of its own must not be taken by those of this process.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        theirs.close()
        self._pinged_s = time.monotonic()
        self._is_pinged = False

    def is_well(self, hung_s: float) -> bool:
        """Whether it is there, and has answered within the time; never waits."""
        try:
            if self._is_pinged and self.pings.poll():
                self.pings.recv()
                self._is_pinged = False
            if not self._is_pinged:
                self.pings.send(None)
                self._pinged_s, self._is_pinged = time.monotonic(), True
        except (OSError, EOFError):
            return False
        return self.process.is_alive() and time.monotonic() - self._pinged_s < hung_s

    def end(self) -> None:
        """Have it finish, and end."""
        self.process.terminate()

    def kill(self) -> None:
        """End it at once, and return when it has ended."""
        self.process.kill()
        self.process.join()
        self.pings.close()


class _Supervisor:
    """Starts workers, and looks after them."""

    def __init__(self, make_app: Callable[[], FastAPI], workers: int, options: dict[str, Any], hung_s: float) -> None:
        self._make_app = make_app
        self._hung_s = hung_s
        config = uvicorn.Config(make_app, factory=True, **options)  # sets up the log
        host, port = options.get("host", config.host), options.get("port", config.port)
        try:
            self._sockets = listening_sockets(host, port, workers)
        except OSError as error:
            _LOG.error("cannot listen on %s port %d: %s", host, port, error.strerror)
            sys.exit(1)
        self._options = options
        self._workers: list[_Worker] = []
        self._signals: list[int] = []
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)

    def run(self) -> bool:
        """Return when all have ended; True: one of them could not start."""
        for number in SIGNALS:
            signal.signal(number, self._signalled)
        gc.collect()
        gc.freeze()  # collections in a worker would copy the pages that it shares with the others
        for listening in self._sockets:
            self._workers.append(self._started(listening))
        host, port = self._sockets[0].getsockname()[:2]
        _LOG.info("Uvicorn running on %s port %d with %d workers", host, port, len(self._workers))
        could_not_start = False
        while not self._signals and not could_not_start:
            could_not_start = self._look()
        for worker in self._workers:
            worker.end()
        for listening in self._sockets:
            # Or the system would go on taking connections, which nobody answers, when the workers have stopped to.
            listening.close()
        while any(worker.process.is_alive() for worker in self._workers):
            self._pause([worker.process.sentinel for worker in self._workers if worker.process.is_alive()])
            if len(self._signals) > 1:
                for worker in self._workers:
                    worker.kill()
                end_by(self._signals[-1])
        return could_not_start or any(worker.process.exitcode == _DID_NOT_START for worker in self._workers)

    def _look(self) -> bool:
        """Replace workers that ended or hang; True: one of them could not start, as none ever will."""
        self._pause([worker.process.sentinel for worker in self._workers])
        for place, worker in enumerate(self._workers):
            if self._signals:
                break
            if worker.is_well(self._hung_s):
                continue
            worker.kill()
            if worker.process.exitcode == _DID_NOT_START:
                return True
            _LOG.info("Worker process [%d] died, with status %s", worker.process.pid, worker.process.exitcode)
            time.sleep(_PING_S)
            self._workers[place] = self._started(worker.listening)
        return False

    def _started(self, listening: socket.socket) -> _Worker:
        inherited: list[socket.socket | Connection] = [*self._sockets, self._woken, self._wake]
        inherited += [worker.pings for worker in self._workers]
        return _Worker(self._make_app, self._options, listening, inherited)

    def _pause(self, sentinels: list[int]) -> None:
        """Return after a moment, or when a worker has ended or a signal has come."""
        if wait([*sentinels, self._woken], timeout=_PING_S) and self._woken in wait([self._woken], timeout=0):
            self._woken.recv(64)

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)
        self._wake.send(b".")


def _serve_as_worker(
    make_app: Callable[[], FastAPI],
    options: dict[str, Any],
    listening: socket.socket,
    pings: Connection,
    inherited: list[socket.socket | Connection],
) -> None:
    """What a worker process does."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    for each in inherited:
        each.close()
    threading.Thread(target=_answer_pings, args=(pings,), daemon=True).start()
    uvicorn.Server(uvicorn.Config(make_app, factory=True, **options)).run([listening])


def _answer_pings(pings: Connection) -> None:
    """Until the process that looks after this one is gone; then this one finishes, and ends, too."""
    try:
        while True:
            pings.send(pings.recv())
    except (OSError, EOFError):
        os.kill(os.getpid(), signal.SIGTERM)
