"""The parts of one running service, and the threads that its blocking work runs in."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.api import JSON
from lamella.service.catalog import Catalog
from lamella.service.committer import Committer
from lamella.service.idempotency import Claim, Sealed, claim, once
from lamella.service.metrics import Metrics
from lamella.service.settings import Settings
from lamella.service.state import History
from lamella.service.tables import Tables
from lamella.snapshot.errors import AlreadyExists, ObjectNotFound, Unavailable
from lamella.snapshot.ids import Ids
from lamella.snapshot.layout import Store, check_create_only
from lamella.snapshot.warehouse import Warehouse

_T = TypeVar("_T")
_FORGET_EVERY_MS = 600_000

#: The object by which a warehouse is known to be there.
MARKER = "_lamella_v1.json"


def _token_secret(settings: Settings, catalog: Catalog) -> bytes:
    if settings.token_secret is not None:
        return settings.token_secret.encode()
    return catalog.secret("page tokens", secrets.token_bytes(32))


class Services:
    """Built once for an app and handed to its routes; there is no global state beside it."""

    def __init__(
        self, settings: Settings, *, store: Store, catalog: Catalog, ids: Ids, clock: Callable[[], int]
    ) -> None:
        self.settings = settings
        self.store = store
        self.catalog = catalog
        self.clock = clock
        self.metrics = Metrics()
        self.warehouse = Warehouse(
            store,
            settings.warehouse_url,
            ids=ids,
            cache_bytes=settings.cache_bytes,
            page_cache_bytes=settings.page_cache_bytes,
            page_files=settings.page_files,
            prepare_pages=settings.page_companions,
            token_secret=_token_secret(settings, catalog),
        )
        self.history = History(catalog, self.warehouse, store)
        self.tables = Tables(catalog, self.warehouse, store, ids, clock)
        self.committer = Committer(
            catalog=catalog,
            warehouse=self.warehouse,
            store=store,
            history=self.history,
            metrics=self.metrics,
            clock=clock,
            threads=settings.ingest_threads,
            deadline_s=settings.commit_deadline_s,
        )
        self._readers: CapacityLimiter | None = None
        self._writers: CapacityLimiter | None = None
        self._forget_at_ms = 0

    async def read(self, work: Callable[[], _T]) -> _T:
        """Run blocking work that changes nothing in a thread; slow mutations do not take its place."""
        if self._readers is None:  # made here because it belongs to the event loop
            self._readers = CapacityLimiter(self.settings.read_threads)
        return await anyio.to_thread.run_sync(work, limiter=self._readers)

    async def mutate(self, request: Request, work: Callable[[Claim], Sealed], body: bytes = b"") -> Response:
        """Run a mutation in a thread, once per idempotency key, and make its answer a response."""
        if self._writers is None:
            self._writers = CapacityLimiter(self.settings.write_threads)
        key = request.headers.get("idempotency-key")
        claimed = claim(key, request.method, request.url.path, body, self.clock())

        def once_only() -> Sealed:
            sealed = once(self.catalog, claimed, lambda: work(claimed))
            self._forget_old_answers()
            return sealed

        sealed = await anyio.to_thread.run_sync(once_only, limiter=self._writers)
        headers = {}
        if sealed.replayed:
            self.metrics.replays.inc()
            headers["Idempotency-Replayed"] = "true"
        media_type = JSON if sealed.body else None
        return Response(sealed.body, sealed.status, headers, media_type)

    def _forget_old_answers(self) -> None:
        now_ms = self.clock()
        if now_ms < self._forget_at_ms:
            return
        self._forget_at_ms = now_ms + _FORGET_EVERY_MS
        try:
            self.catalog.forget_answers(before_ms=now_ms - self.settings.idempotency_ttl_s * 1000)
        except Unavailable:
            self._forget_at_ms = 0  # the mutation itself is done; the next one tries again

    def check_ready(self) -> None:
        """Return when requests can be served: the catalog answers, and the warehouse can be read and written.

        The warehouse is known by a marker object, written by the first service that uses it, once the store has
        shown that it lets nobody replace an object.

        Raises:
            Unavailable: the catalog does not answer.
            StoreError: storage failed or refused.
        """
        self.catalog.ping()
        self._check_store()

    def _check_store(self) -> None:
        marker = f"{self.settings.warehouse_url}/{MARKER}"
        try:
            self.store.stat(marker)
        except ObjectNotFound:
            check_create_only(self.store, self.settings.warehouse_url)
            try:
                self.store.put(marker, b'{"format_version":1}\n')
            except AlreadyExists:
                return  # another worker was faster

    def close(self) -> None:
        """Release the catalog's connections."""
        self.catalog.close()
