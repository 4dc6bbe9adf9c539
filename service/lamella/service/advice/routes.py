"""Routes of ``.../advice``, ``.../what-if``, ``.../candidates``, ``.../auto``, ``.../why-not`` and ``.../recorded``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.advice.advice import Advice
from lamella.service.advice.auto import Auto
from lamella.service.catalog import Catalog, TableRecord, current_table
from lamella.service.http.admission import read_json
from lamella.service.http.routing import ServedOperation, json_response, require_json
from lamella.service.process.threads import Threads
from lamella.snapshot.advice import operations
from lamella.snapshot.wire import (
    AdviceRequest,
    AutoReport,
    AutoRequest,
    AutoStart,
    CandidatesRequest,
    WhatIfRequest,
    WhyNotRequest,
)

_ADVICE: Final = msgspec.json.Decoder(AdviceRequest)
_WHAT_IF: Final = msgspec.json.Decoder(WhatIfRequest)
_CANDIDATES: Final = msgspec.json.Decoder(CandidatesRequest)
_AUTO: Final = msgspec.json.Decoder(AutoRequest)
_AUTO_START: Final = msgspec.json.Decoder(AutoStart)
_AUTO_REPORT: Final = msgspec.json.Decoder(AutoReport)
_WHY_NOT: Final = msgspec.json.Decoder(WhyNotRequest)
#: Concurrent requests of this kind in a process, so that they do not use up the prunes' threads.
_AT_ONCE: Final = 2

_Answer = TypeVar("_Answer")


class AdviceRoutes:
    """Routes for advice."""

    def __init__(self, *, catalog: Catalog, advice: Advice, auto: Auto) -> None:
        self._catalog = catalog
        self._advice = advice
        self._auto = auto
        self._threads = Threads(_AT_ONCE)

    async def advise(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        return await self._answer(request, lambda table: self._advice.advise(table, read_json(_ADVICE, body)))

    async def what_if(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        return await self._answer(request, lambda table: self._advice.what_if(table, read_json(_WHAT_IF, body)))

    async def candidates(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        return await self._answer(request, lambda table: self._advice.candidates(table, read_json(_CANDIDATES, body)))

    async def list_auto(self, request: Request) -> Response:
        return await self._answer(request, self._auto.ledger)

    async def plan_auto(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        return await self._answer(request, lambda table: self._auto.plan(table, read_json(_AUTO, body)))

    async def start_auto(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        return await self._answer(request, lambda table: self._auto.start(table, read_json(_AUTO_START, body)))

    async def report_auto(self, request: Request) -> Response:
        require_json(request)
        body, action_id = await request.body(), request.path_params["action_id"]
        return await self._answer(
            request, lambda table: self._auto.report(table, action_id, read_json(_AUTO_REPORT, body))
        )

    async def why_not(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        return await self._answer(request, lambda table: self._advice.why_not(table, read_json(_WHY_NOT, body)))

    async def list_recorded(self, request: Request) -> Response:
        return await self._answer(request, self._advice.recorded)

    async def clear_recorded(self, request: Request) -> Response:
        return await self._answer(request, self._advice.clear)

    async def _answer(self, request: Request, work: Callable[[TableRecord], _Answer]) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        return json_response(await self._threads.run(lambda: work(current_table(self._catalog, namespace, name))))

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.ADVISE, self.advise),
            ServedOperation(operations.WHAT_IF, self.what_if),
            ServedOperation(operations.CANDIDATES, self.candidates),
            ServedOperation(operations.LIST_AUTO, self.list_auto),
            ServedOperation(operations.PLAN_AUTO, self.plan_auto),
            ServedOperation(operations.START_AUTO, self.start_auto),
            ServedOperation(operations.REPORT_AUTO, self.report_auto),
            ServedOperation(operations.WHY_NOT, self.why_not),
            ServedOperation(operations.LIST_RECORDED, self.list_recorded),
            ServedOperation(operations.CLEAR_RECORDED, self.clear_recorded),
        )
