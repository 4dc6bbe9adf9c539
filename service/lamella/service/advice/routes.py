"""``.../advice``, ``.../what-if``, ``.../why-not``, ``.../recorded``: advice about skip indexes and layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.catalog import TableRecord
from lamella.service.http.admission import read_json
from lamella.service.http.routing import OF_A_FILTER, OF_A_SNAPSHOT, TABLE, Operation, json_response, require_json
from lamella.service.process.threads import Threads
from lamella.service.services import Services
from lamella.snapshot.errors import IndexNotFound, UnknownColumn
from lamella.snapshot.wire import (
    AdviceAnswer,
    AdviceRequest,
    RecordedCleared,
    RecordedList,
    WhatIfAnswer,
    WhatIfRequest,
    WhyNotAnswer,
    WhyNotRequest,
)

_ADVICE: Final = msgspec.json.Decoder(AdviceRequest)
_WHAT_IF: Final = msgspec.json.Decoder(WhatIfRequest)
_WHY_NOT: Final = msgspec.json.Decoder(WhyNotRequest)
#: Questions of this kind at work at once in a process, so that they do not take the prunes' threads.
_AT_ONCE: Final = 2

_Answer = TypeVar("_Answer")


class AdviceRoutes:
    """Advice."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._threads = Threads(_AT_ONCE)

    async def advise(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        return await self._answer(request, lambda table: self._services.advice.advise(table, read_json(_ADVICE, body)))

    async def what_if(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        return await self._answer(
            request, lambda table: self._services.advice.what_if(table, read_json(_WHAT_IF, body))
        )

    async def why_not(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        return await self._answer(
            request, lambda table: self._services.advice.why_not(table, read_json(_WHY_NOT, body))
        )

    async def list_recorded(self, request: Request) -> Response:
        return await self._answer(request, self._services.advice.recorded)

    async def clear_recorded(self, request: Request) -> Response:
        return await self._answer(request, self._services.advice.clear)

    async def _answer(self, request: Request, work: Callable[[TableRecord], _Answer]) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        return json_response(await self._threads.run(lambda: work(self._services.table(namespace, name))))

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="POST",
                path=TABLE + "/advice",
                handler=self.advise,
                needs=on_table("read"),
                changes=False,
                summary="Score columns and kinds of indexes",
                tag="Advice",
                description="How much look-ups of single values skip, from 0 to 100, by the bounds in manifests and by "
                "an index beside them; how large an index gets, and how sharp within a budget. From manifests alone: "
                "no block is read, and what manifests do not say is said to be unknown.",
                is_question=True,
                request_type=AdviceRequest,
                answer_type=AdviceAnswer,
                errors=(*OF_A_SNAPSHOT, UnknownColumn),
            ),
            Operation(
                method="POST",
                path=TABLE + "/what-if",
                handler=self.what_if,
                needs=on_table("read"),
                changes=False,
                summary="Foretell what a change would skip",
                tag="Advice",
                description="An index more, another cluster key, or another block size: what given or recorded filters "
                "read now, and would read then. With `sample_blocks` some blocks are read to measure it, else nothing.",
                is_question=True,
                is_large=True,
                request_type=WhatIfRequest,
                answer_type=WhatIfAnswer,
                errors=(*OF_A_SNAPSHOT, *OF_A_FILTER),
            ),
            Operation(
                method="POST",
                path=TABLE + "/why-not",
                handler=self.why_not,
                needs=on_table("read"),
                changes=False,
                summary="Say why indexes do not help with a filter",
                tag="Advice",
                description="For each index and each predicate of the filter: why it is not asked, or what it said.",
                is_question=True,
                is_large=True,
                request_type=WhyNotRequest,
                answer_type=WhyNotAnswer,
                errors=(*OF_A_SNAPSHOT, *OF_A_FILTER, IndexNotFound),
            ),
            Operation(
                method="GET",
                path=TABLE + "/recorded",
                handler=self.list_recorded,
                needs=on_table("maintain"),
                summary="List the filters that were recorded",
                tag="Advice",
                description="Each once, the latest first, with how often it was asked and what it kept. Without "
                "constants, unless the service or the table's property `lamella.record_prunes` says otherwise.",
                answer_type=RecordedList,
                errors=OF_A_SNAPSHOT,
            ),
            Operation(
                method="DELETE",
                path=TABLE + "/recorded",
                handler=self.clear_recorded,
                needs=on_table("maintain"),
                summary="Forget the filters that were recorded",
                tag="Advice",
                answer_type=RecordedCleared,
                errors=OF_A_SNAPSHOT,
            ),
        )
