"""The audit trail: which changes were asked for over HTTP, by whom, of what, and what came of it.

An operation that changes something is watched (:meth:`Audit.watched`), so that no route has to think of it. Entries are
written about a second later, in the log and in the catalog, by a thread; a process that is killed may lose those of its
last second. What was committed is in the tables' histories anyway.
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
from lamella.service.http.routing import CODE, REQUEST_ID, Handler
from lamella.service.process.threads import BatchDeletion, Debouncer
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import LamellaError, RateLimited
from lamella.snapshot.ids import Ids
from lamella.snapshot.wire import AuditEntry, AuditList, Problem

_DELAY_S: Final = 1.0
#: Entries that are held while they cannot be written; about ten megabytes.
_MAX_HELD: Final = 20_000
#: Written in one transaction.
_TOGETHER: Final = 1_000
_LONGEST_TARGET: Final = 300
_LONGEST_CLIENT: Final = 255
#: The client went away, or the service stopped, before there was an answer.
_NO_ANSWER: Final = 499
_TARGET: Final = "lamella.target"
#: Only what can be a name is noted of a body, since anything else may be anything.
_NAMES: Final = re.compile(rf"[A-Za-z0-9_.:@=*-]{{1,{_LONGEST_TARGET}}}")
_OF: Final = "this listing of the trail"
_PROBLEM: Final = msgspec.json.Decoder(Problem)


def about(request: Request, target: str) -> None:
    """Say which table or namespace a request is about, where its path does not; a text that is no name is left out."""
    if _NAMES.fullmatch(target):
        request.scope[_TARGET] = target


class Audit:
    """Keeps the trail. ``clock`` gives Unix milliseconds."""

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
        self._noted: deque[AuditEntry] = deque()
        self._unstored: list[AuditEntry] = []
        self._writing = threading.Lock()
        self._later = Debouncer(self.write, _DELAY_S, "audit")
        self._forgetting = BatchDeletion(
            clock,
            settings.audit_retention_s * 1000,
            lambda before_ms, limit: catalog.forget_audit(before_ms=before_ms, limit=limit),
        )

    def watched(self, operation: str, handler: Handler) -> Handler:
        """A handler whose requests are all noted as that operation, whatever comes of them.

        But for those of nobody known, which are counted and logged: who has no key must not fill the trail.
        """

        async def watched(request: Request) -> Response:
            try:
                response = await handler(request)
            except BaseException:
                if is_known(request):
                    self.note(request, operation, _NO_ANSWER)
                raise
            # nor who asks too often: that is counted, too
            code = _code(request, response)
            if is_known(request) and code != RateLimited.code:
                self.note(request, operation, response.status_code, code)
            return response

        return watched

    def note(self, request: Request, operation: str, status: int, code: str | None = None) -> None:
        """Take note of a change that was asked for; waits for nothing."""
        if len(self._noted) >= _MAX_HELD:
            self._metrics.audited(kept=0, lost=1)
            return
        client = request.client
        self._noted.append(
            AuditEntry(
                audit_id=str(self._ids.new()),
                at_ms=self._clock(),
                actor=actor_of(request),
                client="" if client is None else client.host[:_LONGEST_CLIENT],
                operation=operation,
                target=_target(request),
                status=status,
                code=code,
                request_id=str(request.scope.get(REQUEST_ID, "")),
            )
        )
        self._later.soon()

    def page(self, before_id: str | None, limit: int, table: str | None = None) -> list[AuditEntry]:
        """Entries, the newest first, from behind ``before_id``; ``table``: only those about ``namespace.table``.

        Raises Unavailable.
        """
        self.write()
        return self._catalog.audit(before_id=before_id, limit=limit, target=table)

    def list(self, *, page_size: int, page_token: str | None, table: str | None) -> AuditList:
        """Part of the trail; raises InvalidPageToken, Unavailable."""
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
        """Write what was noted; what the catalog does not take now is held for the next time."""
        with self._writing:
            waiting, self._unstored = self._unstored, []
            while self._noted:
                entry = self._noted.popleft()
                self._log.info("audit", **msgspec.structs.asdict(entry))
                waiting.append(entry)
            for start in range(0, len(waiting), _TOGETHER):
                part = waiting[start : start + _TOGETHER]
                try:
                    self._catalog.add_audit(part)
                except LamellaError:  # an entry that is there already, after all, does no harm
                    self._hold(waiting[start:])
                    return
                self._metrics.audited(kept=len(part), lost=0)
            with suppress(LamellaError):  # there is a next time
                self._forgetting.run()

    def close(self) -> None:
        """Write the last entries, and end the thread."""
        self._later.close()
        self.write()

    def _hold(self, entries: Sequence[AuditEntry]) -> None:
        self._unstored = list(entries[-_MAX_HELD:])
        self._metrics.audited(kept=0, lost=len(entries) - len(self._unstored))
        self._later.soon()


def _target(request: Request) -> str | None:
    said = request.scope.get(_TARGET)
    if said is not None:
        return str(said)
    given = request.path_params
    text = given.get("job_id")
    if "namespace" in given:
        # a namespace may be called as a table is; who may read what was done with one may not know of the other
        text = f"{given['namespace']}.{given.get('table', '*')}"
    if text is None:
        return None
    # PostgreSQL holds no NUL, and a terminal obeys what else cannot be printed
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text[:_LONGEST_TARGET])


def _code(request: Request, response: Response) -> str | None:
    """The code of the error that was answered, also of one that was stored under an idempotency key."""
    raised: str | None = request.scope.get(CODE)
    if raised is not None or response.media_type != MEDIA_TYPE:
        return raised
    return _PROBLEM.decode(response.body).code
