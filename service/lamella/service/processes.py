"""The processes that serve: one, or workers and the process that looks after them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from lamella.service.stopping import SIGNALS, end_by

#: Exit status of a server, and of a worker, that could not start.
_DID_NOT_START: Final = 3
_POLL_S: Final = 0.1


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


def run_workers(make_app: Callable[[], FastAPI], workers: int, options: dict[str, Any]) -> None:
    """Serve in so many processes until this one is stopped by a signal; SystemExit when they could not start.

    ``make_app`` is called in each of them, so it can be pickled, and loading it takes little time.
    """
    config = uvicorn.Config(partial(_made, make_app), factory=True, workers=workers, **options)
    supervisor = _Workers(config, sockets=[config.bind_socket()])
    supervisor.run()
    if any(process.process.exitcode == _DID_NOT_START for process in supervisor.processes):
        sys.exit(_DID_NOT_START)


def _made(make_app: Callable[[], FastAPI]) -> FastAPI:
    """The app of a worker, which stops as by SIGTERM when its supervisor is killed."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        threading.Thread(target=_outlive, args=(supervisor,), name="supervisor", daemon=True).start()
    return make_app()


def _outlive(supervisor: BaseProcess) -> None:
    supervisor.join()
    os.kill(os.getpid(), signal.SIGTERM)


class _Worker(Process):
    """As uvicorn asks a worker whether it is well, but one that was killed meanwhile is not waited for."""

    def _healthcheck(self, timeout: float) -> bool | None:
        # Its end of the pipe is open in this process too, so its death alone ends no wait for its answer.
        give_up_s = time.monotonic() + timeout
        try:
            self.parent_conn.send(b"ping")
            while not self.parent_conn.poll(_POLL_S):
                if time.monotonic() >= give_up_s or not self.process.is_alive():
                    return None
            started: bool = self.parent_conn.recv()
        except (OSError, EOFError, pickle.UnpicklingError):
            return None
        return started


class _Workers(Multiprocess):
    """As uvicorn looks after workers, but a second signal ends them, and this process, at once."""

    def keep_subprocess_alive(self) -> None:
        """Replace workers that ended, or do not answer."""
        for process in self.processes:
            process.__class__ = _Worker  # uvicorn makes them itself, and asks nobody of which class
        super().keep_subprocess_alive()

    def join_all(self) -> None:
        """Wait until they have ended."""
        # Or the system would go on taking connections, which nobody answers, when the last worker has stopped to.
        for listening in self.sockets:
            listening.close()
        while any(process.process.is_alive() for process in self.processes):
            for process in self.processes:
                process.process.join(_POLL_S)
            for number in self.signal_queue:
                if number in SIGNALS:
                    self._end_now(number)

    def _end_now(self, number: int) -> None:
        for process in self.processes:
            process.kill()
        end_by(number)
