"""Mutations that end by kill -9 at a chosen step. Runs in processes of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from multiprocessing.context import ForkServerContext
from typing import Literal

import pytest
from sqlalchemy import event

from lamella.service.app import create_app
from lamella.service.catalog import open_catalog
from lamella.service.config.settings import Settings
from lamella.snapshot.storage import FsspecStore
from support.app_client import AppClient
from support.watched_store import WatchedStore

Step = Literal["write", "statement", "commit"]


def processes(monkeypatch: pytest.MonkeyPatch) -> ForkServerContext:
    """Where such processes come from: a server that has imported this module, and finds what the test finds."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def register(warehouse: str, table: str, file: str, key: str, step: Step, number: int) -> None:
    """Register ``file``, but die right before the ``number``-th write to the store, statement or commit of the catalog.

    Ends with an error unless the registration succeeded or this process died.
    """
    post(warehouse, f"{table}/register", {"paths": [file]}, key, step, number)


def post(warehouse: str, path: str, body: object, key: str, step: Step, number: int) -> None:
    """As :func:`register`, any mutation."""
    count = 0

    def at(kind: Step) -> None:
        nonlocal count
        count += kind == step
        if kind == step and count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    catalog = open_catalog(f"{warehouse}/_catalog.db")
    event.listen(catalog._engine, "before_cursor_execute", lambda *_: at("statement"))
    event.listen(catalog._engine, "commit", lambda _: at("commit"))
    store = WatchedStore(FsspecStore(), lambda _: at("write"))
    app = create_app(Settings(warehouse=warehouse, log_requests=False), store=store, catalog=catalog)
    answer = AppClient(app).post(path, json=body, headers={"Idempotency-Key": key})
    catalog.close()
    answer.raise_for_status()
