"""The serving processes: one, or workers and their supervisor.

On Linux workers are forked from a process that has loaded all code: loading it takes seconds of processor time, and its
memory is shared. That process never opens a store, a catalog, an event loop or a thread, which workers would inherit.
Elsewhere each worker is a new process that loads everything itself.

Each worker listens on its own socket, all on one port (``SO_REUSEPORT``), and the system distributes new connections by
a hash of the client's address and port. On one shared socket an idle worker would accept all connections.
"""

from __future__ import annotations

import errno
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, Final

import uvicorn
from fastapi import FastAPI

from lamella.service.process.lifecycle import SIGNALS, end_by
from lamella.snapshot.errors import InvalidSettings

#: Exit status of a server, and of a worker, that could not start.
_DID_NOT_START: Final = 3
#: Interval between pings of a worker, and between replacements of workers.
_PING_S: Final = 0.5
_IS_LINUX: Final = sys.platform == "linux"
_CONTEXT: Final = multiprocessing.get_context("fork" if _IS_LINUX else "spawn")
_LOG: Final = logging.getLogger("uvicorn.error")


def run_alone(app: FastAPI, options: dict[str, Any], sockets: list[socket.socket]) -> None:
    """Serve on sockets of :func:`listening` until a signal stops this process; SystemExit if it could not start."""
    server = uvicorn.Server(uvicorn.Config(app, **options))
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def raised(number: int, _frame: FrameType | None) -> None:
        # The server raises the signal that stopped it again when it has ended; all requests are finished by then.
        if not server.started:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)

    for number in SIGNALS:
        signal.signal(number, raised)
    server.run(sockets)
    if not server.started:
        sys.exit(_DID_NOT_START)


def run_workers(
    make_app: Callable[[], FastAPI],
    options: dict[str, Any],
    sockets: Sequence[list[socket.socket]],
    *,
    unresponsive_s: float = 60.0,
) -> None:
    """Serve in a process for each list of sockets until a signal stops this one; SystemExit if they could not start.

    ``make_app`` is called in each of them, and can be pickled. A worker that ends is replaced, and one that does not
    answer for ``unresponsive_s`` seconds is killed and replaced. SIGTERM and SIGINT are passed on to the workers,
    which finish their requests and end; a second one kills all processes.
    """
    if _Supervisor(make_app, options, sockets, unresponsive_s).run():
        sys.exit(_DID_NOT_START)


@contextmanager
def listening(host: str, port: int, workers: int = 1) -> Iterator[list[list[socket.socket]]]:
    """Open for each worker its sockets, one for each address of the host; closed at the end.

    All workers share the same ones if the system would not distribute connections over several.

    Raises:
        InvalidSettings: the address cannot be used: it is in use, not of this machine, not permitted, or invalid.
    """
    with ExitStack() as opened:
        try:
            # Bound without SO_REUSEPORT first: two services of one user that share a port would both seem to work.
            first = _bound(_addresses(host, port), opened, is_shared=False)
            sockets = [first] * workers
            if workers > 1 and _IS_LINUX:
                names = [(found.family, found.getsockname()) for found in first]
                for found in first:
                    found.close()
                sockets = [_bound(names, opened, is_shared=True) for _ in range(workers)]
        except (OSError, UnicodeError) as error:  # the latter for an impossible host name
            raise InvalidSettings(
                f"cannot listen on {host}, port {port}: {_why(error)}", problems=[_why(error)], host=host, port=port
            ) from error
        yield sockets


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, Any]]:
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _bound(
    addresses: Iterable[tuple[socket.AddressFamily, Any]], opened: ExitStack, *, is_shared: bool
) -> list[socket.socket]:
    """Bind a socket for each address that this machine has; with port 0 all get the port of the first one."""
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    for family, (host, port, *more) in addresses:
        try:
            found = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
        except OSError as error:  # no IPv6 here
            missing = error
            continue
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            found.bind((host, sockets[0].getsockname()[1] if sockets else port, *more))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            missing = error  # such as ::1 for "localhost" without IPv6
        else:
            sockets.append(found)
    if missing is not None and not sockets:
        raise missing
    return sockets


def _why(error: OSError | UnicodeError) -> str:
    if isinstance(error, socket.gaierror | UnicodeError):
        return "no address of that name is known; set another host (--host or LAMELLA_HOST)"
    match error.errno:
        case errno.EADDRINUSE:
            return (
                "another program uses that port, perhaps a running service; stop it, or choose another port "
                "(--port or LAMELLA_PORT)"
            )
        case errno.EADDRNOTAVAIL:
            return "this machine does not have that address; set another host (--host or LAMELLA_HOST)"
        case errno.EACCES:
            return (
                "the system does not permit this user to use that port; choose one above 1023 (--port or LAMELLA_PORT)"
            )
        case _:
            return os.strerror(error.errno) if error.errno else str(error)


class _Worker:
    """A process that serves on ``listening``. ``inherited``: sockets of others, which a forked worker must close."""

    def __init__(
        self,
        make_app: Callable[[], FastAPI],
        options: dict[str, Any],
        listening: list[socket.socket],
        inherited: Iterable[socket.socket | Connection],
    ) -> None:
        self.listening = listening
        self.pings, theirs = _CONTEXT.Pipe()
        others = [each for each in (*inherited, self.pings) if each not in listening] if _IS_LINUX else []
        arguments = (make_app, options, listening, theirs, others)
        self.process = _CONTEXT.Process(target=_serve_as_worker, args=arguments)  # type: ignore[attr-defined]
        # Signals that arrive before the worker has its own handlers must not run the supervisor's.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        theirs.close()
        self._pinged_s = time.monotonic()
        self._is_pinged = False

    def is_well(self, unresponsive_s: float) -> bool:
        """Return whether it is alive and has answered within the time; never blocks."""
        try:
            if self._is_pinged and self.pings.poll():
                self.pings.recv()
                self._is_pinged = False
            if not self._is_pinged:
                self.pings.send(None)
                self._pinged_s, self._is_pinged = time.monotonic(), True
        except (OSError, EOFError):
            return False
        return self.process.is_alive() and time.monotonic() - self._pinged_s < unresponsive_s

    def end(self) -> None:
        """Ask it to finish and end."""
        self.process.terminate()

    def kill(self) -> None:
        """Kill it, and return when it has ended."""
        self.process.kill()
        self.process.join()
        self.pings.close()


class _Supervisor:
    """Starts workers and watches them."""

    def __init__(
        self,
        make_app: Callable[[], FastAPI],
        options: dict[str, Any],
        sockets: Sequence[list[socket.socket]],
        unresponsive_s: float,
    ) -> None:
        self._make_app = make_app
        self._unresponsive_s = unresponsive_s
        uvicorn.Config(make_app, factory=True, **options)  # configures the log
        self._sockets = sockets
        self._options = options
        self._workers: list[_Worker] = []
        self._signals: list[int] = []
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)

    def run(self) -> bool:
        """Return when all have ended; True if one of them could not start."""
        for number in SIGNALS:
            signal.signal(number, self._signalled)
        gc.collect()
        gc.freeze()  # garbage collections in a worker would copy the shared pages
        gc.enable()
        for listening in self._sockets:
            self._workers.append(self._started(listening))
        host, port = self._sockets[0][0].getsockname()[:2]
        _LOG.info("Uvicorn running on %s port %d with %d workers", host, port, len(self._workers))
        could_not_start = False
        while not self._signals and not could_not_start:
            could_not_start = self._look()
        for worker in self._workers:
            worker.end()
        for found in (found for listening in self._sockets for found in listening):
            # Otherwise the system would accept connections that the stopped workers do not answer.
            found.close()
        while any(worker.process.is_alive() for worker in self._workers):
            self._pause([worker.process.sentinel for worker in self._workers if worker.process.is_alive()])
            if len(self._signals) > 1:
                for worker in self._workers:
                    worker.kill()
                end_by(self._signals[-1])
        return could_not_start or any(worker.process.exitcode == _DID_NOT_START for worker in self._workers)

    def _look(self) -> bool:
        """Replace workers that ended or hang; True if one of them could not start, since others would fail as well."""
        self._pause([worker.process.sentinel for worker in self._workers])
        for index, worker in enumerate(self._workers):
            if self._signals:
                break
            if worker.is_well(self._unresponsive_s):
                continue
            worker.kill()
            if worker.process.exitcode == _DID_NOT_START:
                return True
            _LOG.info("Worker process [%d] died, with status %s", worker.process.pid, worker.process.exitcode)
            time.sleep(_PING_S)
            self._workers[index] = self._started(worker.listening)
        return False

    def _started(self, listening: list[socket.socket]) -> _Worker:
        inherited: list[socket.socket | Connection] = [found for each in self._sockets for found in each]
        inherited += [self._woken, self._wake, *(worker.pings for worker in self._workers)]
        return _Worker(self._make_app, self._options, listening, inherited)

    def _pause(self, sentinels: list[int]) -> None:
        """Return after a moment, or when a worker has ended or a signal has arrived."""
        if wait([*sentinels, self._woken], timeout=_PING_S) and self._woken in wait([self._woken], timeout=0):
            self._woken.recv(64)

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)
        self._wake.send(b".")


def _serve_as_worker(
    make_app: Callable[[], FastAPI],
    options: dict[str, Any],
    listening: list[socket.socket],
    pings: Connection,
    inherited: list[socket.socket | Connection],
) -> None:
    """Run a worker process."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    for each in inherited:
        each.close()
    threading.Thread(target=_answer_pings, args=(pings,), daemon=True).start()
    uvicorn.Server(uvicorn.Config(make_app, factory=True, **options)).run(listening)


def _answer_pings(pings: Connection) -> None:
    """Answer pings until the supervisor ends; then finish and end too."""
    try:
        while True:
            pings.send(pings.recv())
    except (OSError, EOFError):
        os.kill(os.getpid(), signal.SIGTERM)
