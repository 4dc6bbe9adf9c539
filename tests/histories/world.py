"""A service in this process, and writers that can be stopped at each step of their input and output.

A step is a request before it is sent, its answer before it is read, and each side of every write to the store. What
happens at a step is a test's choice: another writer changes the table, or this one is killed. A killed writer has no
effect from then on: whatever else it tries, cleaning up included, does not reach the service or the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from lamella.client import Lamella
from lamella.client.http.exchange import RetryPolicy
from lamella.client.http.transport import HttpRequest, HttpResponse
from lamella.client.rewrite.target import Target
from lamella.service import composition
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.commit import Shape
from lamella.snapshot.storage import FsspecStore, ObjectStat
from lamella.snapshot.warehouse import Warehouse
from support.app_client import AppClient
from support.faulty_store import FaultyStore

#: As often as by default, but without the time.
_POLICY: Final = RetryPolicy(base_delay_s=0.0005, max_delay_s=0.002)
_SHAPE: Final = Shape(segment_blocks=3, group_segments=3, fan_in=2)
_current: ContextVar[Writer | None] = ContextVar("writer", default=None)


class Killed(BaseException):
    """Stops a writer at once, as SIGKILL stops a process: nothing handles it."""


class Writer:
    """One program that changes tables. ``at_step``: called with the number of each step, from 1."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.steps = 0
        self.is_dead = False
        self.at_step: Callable[[int], None] = lambda _step: None
        self.lake = Lamella("http://lamella.test", transport=self, policy=_POLICY)

    def step(self) -> None:
        """Raises Killed, now or from now on."""
        if self.is_dead:
            raise Killed
        self.steps += 1
        self.at_step(self.steps)
        if self.is_dead:
            raise Killed

    @contextmanager
    def working(self) -> Iterator[None]:
        """What is written in this context is written by this writer."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def send(self, request: HttpRequest) -> HttpResponse:
        """The service's answer."""
        self.step()
        answer = self._world.app.request(
            request.method, request.target, content=request.body, headers=list(request.headers)
        )
        self.step()
        return HttpResponse(status=answer.status_code, headers=dict(answer.headers), body=answer.content)

    def close(self) -> None:
        """Nothing is open."""


class _WritersStore(FsspecStore):
    """Counts the steps of the writer in whose context it writes."""

    def put(self, location: str, data: bytes) -> ObjectStat:
        """Create an object."""
        with _steps():
            return super().put(location, data)

    def replace(self, location: str, data: bytes) -> None:
        """Create an object or take its place."""
        with _steps():
            super().replace(location, data)

    def delete(self, location: str) -> None:
        """Remove an object."""
        with _steps():
            super().delete(location)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Remove objects."""
        with _steps():
            return super().delete_many(locations)


@contextmanager
def _steps() -> Iterator[None]:
    writer = _current.get()
    if writer is not None:
        writer.step()
    yield
    if writer is not None:
        writer.step()


class World:
    """A catalog and a warehouse below a folder, or a warehouse elsewhere, with a service that can fail and restart.

    ``store``: the service's; its faults are the test's choice. ``files``: the same without faults.
    """

    def __init__(self, folder: Path, *, warehouse: str | None = None, options: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self.warehouse = warehouse or f"file://{folder}/warehouse"
        self.options = options or {}
        self.files = FsspecStore(self.options)
        self.store = FaultyStore(self.files)
        self.app: AppClient
        self.start()
        self.operator = Writer(self)

    @property
    def settings(self) -> dict[str, Any]:
        """Of every service over this catalog."""
        return {
            "warehouse": self.warehouse,
            "catalog": str(self.folder / "catalog.db"),
            "retention_max_age_s": 0,
            "vacuum_min_age_s": 0,
        }

    def start(self) -> None:
        """Start a service without anything in memory."""
        chosen = Settings(**self.settings, store_options=self.options, log_requests=False, log_level="error")
        self.app = AppClient(create_app(chosen, store=self.store), raise_server_exceptions=False).__enter__()

    def stop(self) -> None:
        """End it."""
        self.app.__exit__(None, None, None)

    def restart(self) -> None:
        """As after a crash; what it knew is gone."""
        self.stop()
        self.start()


@contextmanager
def small_parts(options: dict[str, Any] | None = None) -> Iterator[None]:
    """In this context the client's stores, with these options, count steps, and segments have few blocks, so that small
    tables have several of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Target, "store", lambda _target: _WritersStore(options))
        patch.setattr(composition, "Warehouse", partial(Warehouse, shape=_SHAPE))
        yield
