"""Whether requests can be served: the catalog and the warehouse answer, and take writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lamella.service.catalog import Catalog
from lamella.service.config.settings import Settings
from lamella.service.process.health import Probe, check_all, in_own_thread
from lamella.service.process.lifecycle import Lifecycle
from lamella.snapshot.errors import AlreadyExists, ObjectNotFound
from lamella.snapshot.storage import Store, check_create_only, check_write

#: The object by which a warehouse is known to be there.
MARKER: Final = "_lamella_v1.json"


class Readiness:
    """Answers the probes of whoever runs the service. Belongs to one event loop."""

    def __init__(self, *, settings: Settings, catalog: Catalog, store: Store, lifecycle: Lifecycle) -> None:
        self._settings = settings
        self._store = store
        self._lifecycle = lifecycle
        self._parts = (
            self._probe(catalog.ping, "the catalog database"),
            self._probe(self._check_store, "the warehouse"),
        )
        self._writes = (
            self._probe(catalog.check_write, "a write to the catalog database", settings.ready_write_interval_s),
            self._probe(self._check_store_write, "a write to the warehouse", settings.ready_write_interval_s),
        )

    async def check_ready(self) -> None:
        """Return when requests can be served: the catalog answers, and the warehouse can be read and written.

        The warehouse is known by a marker object, written by the first service that uses it, once the store has
        shown that it lets nobody replace an object. The parts are asked once a second at most, and asked to write every
        ``ready_write_interval_s``; none is waited for longer than ``ready_timeout_s``.

        Raises:
            Unavailable: a part does not answer in time, the catalog takes no write, or the process is being stopped.
            StoreError: storage failed or refused.
        """
        self._lifecycle.require_serving()
        await check_all((*self._parts, *self._writes) if self._settings.ready_write_interval_s else self._parts)
        self._lifecycle.is_started = True

    async def check_started(self) -> None:
        """Return once requests could be served for the first time; from then on nothing is asked any more.

        By the time that there is an app, its catalog has the schema of this release and its caches are open.

        Raises:
            Unavailable: a part does not answer in time.
            StoreError: storage failed or refused.
        """
        if not self._lifecycle.is_started:
            await check_all(self._parts)
            self._lifecycle.is_started = True

    def _probe(self, work: Callable[[], None], what: str, result_ttl_s: float | None = None) -> Probe:
        timeout_s = self._settings.ready_timeout_s
        return Probe(lambda: in_own_thread(work), what=what, timeout_s=timeout_s, result_ttl_s=result_ttl_s)

    def _check_store(self) -> None:
        marker = f"{self._settings.warehouse_url}/{MARKER}"
        try:
            self._store.stat(marker)
        except ObjectNotFound:
            check_create_only(self._store, self._settings.warehouse_url)
            try:
                self._store.put(marker, b'{"format_version":1}\n')
            except AlreadyExists:
                return  # another worker was faster

    def _check_store_write(self) -> None:
        check_write(self._store, self._settings.warehouse_url)
