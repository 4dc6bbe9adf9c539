"""Runs mutations: limits them by table, runs each once per idempotency key, waits for them and answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import actor_of
from lamella.service.access.principal import ANONYMOUS
from lamella.service.catalog import Catalog
from lamella.service.config.settings import Settings
from lamella.service.http.idempotency import (
    IdempotencyKey,
    Pending,
    StoredResponse,
    answer_of,
    read_key,
    replay_of,
    resolve,
)
from lamella.service.http.problem import MEDIA_TYPE, problem_bytes
from lamella.service.http.routing import SNAPSHOT_ID
from lamella.service.process.deadline import begin_within_s
from lamella.service.process.threads import BatchDeletion, Threads, ThreadUse
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import LamellaError, Overloaded, Unavailable
from lamella.snapshot.wire.operation import JSON


class MutationLimit:
    """Counts the pending mutations. Belongs to one event loop, so it needs no lock.

    ``max_waiting``: mutations of one table at once; ``max_bytes``: their bodies, over all tables. A larger body is
    admitted if there is no other.
    """

    def __init__(self, *, max_waiting: int, max_bytes: int, metrics: Metrics) -> None:
        self._max_waiting = max_waiting
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._inside: Counter[str] = Counter()
        self._bytes = 0

    @contextmanager
    def enter(self, table: str, size_bytes: int) -> Iterator[None]:
        """Count a mutation until the end of the block; ``table`` is any text that identifies the table.

        Raises:
            Overloaded: too many are pending; nothing was done.
        """
        if self._inside[table] >= self._max_waiting:
            self._metrics.mutations_refused.labels("table").inc()
            raise Overloaded(f"{self._max_waiting} mutations of this table are pending", retry_after_s=1, limit="table")
        if self._bytes and self._bytes + size_bytes > self._max_bytes:
            self._metrics.mutations_refused.labels("bytes").inc()
            raise Overloaded(
                "the bodies of the pending mutations are too large together", retry_after_s=1, limit="bytes"
            )
        self._inside[table] += 1
        self._bytes += size_bytes
        try:
            yield
        finally:
            self._bytes -= size_bytes
            self._inside[table] -= 1
            if not self._inside[table]:
                del self._inside[table]


#: The work of a mutation; it runs in a thread.
Work = Callable[[IdempotencyKey], StoredResponse | Pending]


class Mutations:
    """Runs mutations, ``write_threads`` at once; those that wait in a queue take no thread."""

    def __init__(self, settings: Settings, catalog: Catalog, metrics: Metrics, clock: Callable[[], int]) -> None:
        self._settings = settings
        self._catalog = catalog
        self._metrics = metrics
        self._clock = clock
        self._threads = Threads(settings.write_threads)
        self._forgetting = BatchDeletion(
            clock,
            settings.idempotency_ttl_s * 1000,
            lambda before_ms, limit: catalog.forget_answers(before_ms=before_ms, limit=limit),
        )
        self._limit = MutationLimit(
            max_waiting=settings.mutation_queue, max_bytes=settings.mutation_queue_bytes, metrics=metrics
        )

    @property
    def thread_use(self) -> ThreadUse:
        """Return how busy the threads are."""
        return self._threads.use

    async def run(
        self,
        request: Request,
        work: Work,
        body: bytes = b"",
        *,
        threads: Threads | None = None,
        key: str | None = None,
    ) -> Response:
        """Run a mutation and return the response. ``threads``: for long work, so that it takes no thread from commits.

        ``key``: used instead of the header ``Idempotency-Key``.

        Raises:
            LamellaError: the error of ``work``, unless the key has an answer.
            Overloaded: too many mutations are pending.
        """
        key = request.headers.get("idempotency-key") if key is None else key
        idempotency_key = read_key(
            key, _scope_prefix(request), request.url.path, request.url.query, body, self._clock()
        )
        table_name = "/".join(request.path_params.get(part, "") for part in ("namespace", "table"))
        with self._limit.enter(table_name, len(body)):
            try:
                own = self._threads if threads is None else threads
                outcome = await own.run(lambda: self._begin(idempotency_key, work))
                while isinstance(outcome, Pending):
                    outcome = await self._wait(outcome, own)
            except LamellaError as error:
                if key is None:
                    raise
                failed = error  # Python deletes the name of an exception at the end of its clause
                outcome = await self._threads.run(
                    lambda: resolve(
                        self._catalog, idempotency_key, failed, lambda: problem_bytes(failed, instance=request.url.path)
                    ),
                    is_begun=True,
                )
        if self._forgetting.is_due:
            await self._threads.run(self._forget_old_answers, is_begun=True)
        if outcome.snapshot_id is not None:
            request.scope[SNAPSHOT_ID] = outcome.snapshot_id
        return self._response(outcome)

    def _begin(self, idempotency_key: IdempotencyKey, work: Work) -> StoredResponse | Pending:
        return replay_of(self._catalog, idempotency_key) or work(idempotency_key)

    async def _wait(self, pending: Pending, threads: Threads) -> StoredResponse | Pending:
        try:
            return await answer_of(pending.answered, begin_within_s(self._settings.commit_deadline_s))
        except LamellaError as error:
            again, failed = pending.again, error
            if again is None:
                raise
        return await threads.run(lambda: again(failed), is_begun=True)

    def _response(self, stored_response: StoredResponse) -> Response:
        headers = {}
        if stored_response.replayed:
            self._metrics.replays.inc()
            headers["Idempotency-Replayed"] = "true"
        media_type = MEDIA_TYPE if stored_response.status >= 400 else JSON
        return Response(
            stored_response.body, stored_response.status, headers, media_type if stored_response.body else None
        )

    def _forget_old_answers(self) -> None:
        with suppress(Unavailable):  # the mutation itself is done; the next one tries again
            self._forgetting.run()


def _scope_prefix(request: Request) -> str:
    """Return the method and the principal, if known: a principal's key must not return the answers of another one."""
    actor = actor_of(request)
    return request.method if actor == ANONYMOUS else f"{actor} {request.method}"
