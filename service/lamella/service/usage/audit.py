"""The audit trail: which changes were requested over HTTP, by whom, on what, and with which result.

Every operation that changes something is wrapped (:meth:`Audit.watched`), so that no route can forget it. A thread
writes entries about a second later, to the log and the catalog. A killed process may lose those of its last second;
commits are in the tables' histories anyway.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from structlog.typing import FilteringBoundLogger

from lamella.service.access import actor_of, is_known
from lamella.service.catalog import Catalog
from lamella.service.config.settings import Settings
from lamella.service.http.page_token import PageTokens
from lamella.service.http.problem import MEDIA_TYPE
from lamella.service.http.routing import CODE, REQUEST_ID, SNAPSHOT_ID, Handler
from lamella.service.process.threads import BatchDeletion, Debouncer
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import LamellaError, RateLimited
from lamella.snapshot.ids import Ids
from lamella.snapshot.wire import AuditEntry, AuditList, Problem

_DELAY_S: Final = 1.0
#: Most entries in memory while they cannot be written; about ten megabytes.
_MAX_PENDING: Final = 20_000
#: Most entries in one transaction.
_TOGETHER: Final = 1_000
_LONGEST_TARGET: Final = 300
_LONGEST_CLIENT: Final = 255
#: The client disconnected, or the service stopped, before there was an answer.
_NO_ANSWER: Final = 499
_TARGET: Final = "lamella.target"
#: Only valid names are recorded from a body, since anything else may be secret.
_NAMES: Final = re.compile(rf"[A-Za-z0-9_.:@=*-]{{1,{_LONGEST_TARGET}}}")
_OF: Final = "this listing of the audit trail"
_PROBLEM: Final = msgspec.json.Decoder(Problem)


def about(request: Request, *targets: str) -> None:
    """Set the tables or the namespace that a request is about, if its path does not have it; invalid names are ignored.
    Each of several targets has an entry of its own."""
    valid = tuple(target for target in targets if _NAMES.fullmatch(target))
    if valid:
        request.scope[_TARGET] = valid


class Audit:
    """Writes the trail. ``clock`` returns Unix milliseconds."""

    def __init__(
        self,
        catalog: Catalog,
        ids: Ids,
        metrics: Metrics,
        clock: Callable[[], int],
        settings: Settings,
        log: FilteringBoundLogger,
        tokens: PageTokens | None = None,
    ) -> None:
        self._tokens = PageTokens() if tokens is None else tokens
        self._catalog = catalog
        self._ids = ids
        self._metrics = metrics
        self._clock = clock
        self._log = log
        self._pending: deque[AuditEntry] = deque()
        self._unstored: list[AuditEntry] = []
        self._writing = threading.Lock()
        self._debouncer = Debouncer(self.write, _DELAY_S, "audit")
        self._forgetting = BatchDeletion(
            clock,
            settings.audit_retention_s * 1000,
            lambda before_ms, limit: catalog.forget_audit(before_ms=before_ms, limit=limit),
        )

    def watched(self, operation: str, handler: Handler) -> Handler:
        """Return a handler whose requests are all recorded as that operation, whatever the result.

        Unauthenticated requests are counted and logged instead: clients without a key must not fill the trail.
        """

        async def watched(request: Request) -> Response:
            try:
                response = await handler(request)
            except BaseException:
                if is_known(request):
                    self.note(request, operation, _NO_ANSWER)
                raise
            # rate-limited requests are counted as well
            code = _code(request, response)
            if is_known(request) and code != RateLimited.code:
                self.note(request, operation, response.status_code, code)
            return response

        return watched

    def note(self, request: Request, operation: str, status: int, code: str | None = None) -> None:
        """Record a requested change; does not block."""
        if len(self._pending) >= _MAX_PENDING:
            self._metrics.audited(stored=0, lost=1)
            return
        client = request.client
        committed = request.scope.get(SNAPSHOT_ID)
        for target in _targets(request):
            self._pending.append(
                AuditEntry(
                    audit_id=str(self._ids.new()),
                    at_ms=self._clock(),
                    actor=actor_of(request),
                    client="" if client is None else client.host[:_LONGEST_CLIENT],
                    operation=operation,
                    target=target,
                    status=status,
                    code=code,
                    request_id=str(request.scope.get(REQUEST_ID, "")),
                    snapshot_id=committed.get(target) if isinstance(committed, dict) else committed,
                )
            )
        self._debouncer.soon()

    def page(self, before_id: str | None, limit: int, table: str | None = None) -> list[AuditEntry]:
        """Return entries older than ``before_id``, newest first; ``table``: only those about ``namespace.table``.

        Raises Unavailable.
        """
        self.write()
        return self._catalog.audit(before_id=before_id, limit=limit, target=table)

    def of_snapshots(self, snapshot_ids: Sequence[str]) -> dict[str, list[AuditEntry]]:
        """Return the entries of requests that committed these snapshots, by the snapshot's id. Raises Unavailable."""
        self.write()
        found: dict[str, list[AuditEntry]] = {}
        for entry in self._catalog.audit_of_snapshots(snapshot_ids):
            found.setdefault(str(entry.snapshot_id), []).append(entry)
        return found

    def list(self, *, page_size: int, page_token: str | None, table: str | None) -> AuditList:
        """Return a page of the trail. Raises InvalidPageToken, Unavailable."""
        scope = table or ""
        before_id = None if page_token is None else self._tokens.read_id(page_token, _OF, scope)
        found = self.page(before_id, page_size + 1, table)
        shown = found[:page_size]
        more = len(found) > page_size
        return AuditList(
            entries=tuple(shown),
            next_page_token=self._tokens.write(shown[-1].audit_id.encode(), _OF, scope) if more else None,
        )

    def write(self) -> None:
        """Write the recorded entries; those that the catalog does not store now stay for the next time."""
        with self._writing:
            waiting, self._unstored = self._unstored, []
            while self._pending:
                entry = self._pending.popleft()
                self._log.info("audit", **msgspec.structs.asdict(entry))
                waiting.append(entry)
            for start in range(0, len(waiting), _TOGETHER):
                part = waiting[start : start + _TOGETHER]
                try:
                    self._catalog.add_audit(part)
                except LamellaError:  # an entry that was stored after all does no harm
                    self._requeue(waiting[start:])
                    return
                self._metrics.audited(stored=len(part), lost=0)
            with suppress(LamellaError):  # the next round retries
                self._forgetting.run()

    def close(self) -> None:
        """Write the last entries, and stop the thread."""
        self._debouncer.close()
        self.write()

    def _requeue(self, entries: Sequence[AuditEntry]) -> None:
        self._unstored = list(entries[-_MAX_PENDING:])
        self._metrics.audited(stored=0, lost=len(entries) - len(self._unstored))
        self._debouncer.soon()


def _targets(request: Request) -> tuple[str | None, ...]:
    said: tuple[str, ...] | None = request.scope.get(_TARGET)
    return (_target(request),) if said is None else said


def _target(request: Request) -> str | None:
    given = request.path_params
    text = given.get("job_id")
    if "namespace" in given:
        # a namespace may be named like a table; readers of one may not know of the other
        text = f"{given['namespace']}.{given.get('table', given.get('view', '*'))}"
    if text is None:
        return None
    # PostgreSQL stores no NUL, and terminals interpret control characters
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text[:_LONGEST_TARGET])


def _code(request: Request, response: Response) -> str | None:
    """Return the code of the error in the answer, also of one that was stored under an idempotency key."""
    raised: str | None = request.scope.get(CODE)
    if raised is not None or response.media_type != MEDIA_TYPE:
        return raised
    return _PROBLEM.decode(response.body).code
