"""``.../prune``: the reason for everything else."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.answers import ARROW, MSGPACK, Begun, Wanted, Whole, encoded, encoded_now, respond
from lamella.service.api import Operation, require_json
from lamella.service.catalog import TableRecord
from lamella.service.json_body import read_json
from lamella.service.routes.failures import OF_A_FILTER, OF_A_SNAPSHOT
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.service.state import trusted_manifests
from lamella.service.tracing import tell_of_prune
from lamella.snapshot.errors import InvalidPageToken, LocationRefused, NotSignable, Overloaded, SegmentNotFound
from lamella.snapshot.prune.found import Found
from lamella.snapshot.wire import PruneAnswer, PruneRequest

_REQUEST: Final = msgspec.json.Decoder(PruneRequest)
#: A larger request is read in a thread.
_SMALL_BYTES: Final = 2_048


class PruneRoutes:
    """Which blocks a query must read."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def prune(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        parameters = request.path_params
        namespace, name, wanted = parameters["namespace"], parameters["table"], Wanted.of(request)
        services = self._services
        found = self._found_now(namespace, name, body)
        answer: Whole | Begun | None
        if found is None:
            # All of it in one hop to a thread: a large filter, table or answer must not hold up the others' requests.
            answer = await services.read(lambda: self._encoded(namespace, name, body, wanted))
        else:
            answer = encoded_now(found, wanted, services.segment_texts)
            if answer is None:
                answer = await services.read(lambda: encoded(found, wanted, services.segment_texts))
        return await respond(answer, wanted, services.large_answers, request)

    def _found_now(self, namespace: str, name: str, body: bytes) -> Found | None:
        """The answer when it is near and small enough to be found on the event loop; None: a thread must."""
        services = self._services
        if len(body) > _SMALL_BYTES or not services.catalog.is_instant:
            return None
        asked = read_json(_REQUEST, body)
        if asked.timestamp is not None or asked.page_token is not None or asked.sign_urls:
            return None
        record = services.catalog.current(namespace, name)
        if record is None or asked.snapshot_id not in (None, record.pointer.snapshot_id):
            return None
        with services.traces.span("prune") as span:
            found = services.warehouse.find_now(record.pointer, asked)
            if span is not None:
                tell_of_prune(span, found)
        if found is not None:
            self._note(record, asked, found)
        return found

    def _encoded(self, namespace: str, name: str, body: bytes, wanted: Wanted) -> Whole | Begun:
        services = self._services
        asked = read_json(_REQUEST, body)
        record = services.table(namespace, name)
        # a page belongs to the snapshot of the first one, whatever has become current since
        pinned = None if asked.page_token is None else services.warehouse.page_tokens.read(asked)[0]
        pointer = services.history.pointer(
            record,
            snapshot_id=asked.snapshot_id if pinned is None else pinned,
            timestamp=asked.timestamp if pinned is None else None,
            time_zone=asked.time_zone,
        )
        with trusted_manifests():
            with services.traces.span("prune") as span:
                found = services.warehouse.find(pointer, asked)
                if span is not None:
                    tell_of_prune(span, found)
            self._note(record, asked, found)
            if asked.sign_urls:
                found = services.block_urls.in_answer(record, found)
            return encoded(found, wanted, services.segment_texts)

    def _note(self, record: TableRecord, asked: PruneRequest, found: Found) -> None:
        services = self._services
        services.metrics.pruned(found.answer)
        services.recorder.note(record, asked, found)
        answer = found.answer
        # Segments alone, some segments, and parts of an answer do not say what was skipped of the snapshot.
        is_whole = asked.segments is None and asked.page_size is None and asked.page_token is None
        if is_whole and answer.complete and found.parts is not None:
            services.prune_rates.note(record, answer.report, found.block_count)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="POST",
                path=TABLE + "/prune",
                handler=self.prune,
                needs=on_table("read"),
                changes=False,
                summary="Ask which blocks a filter leaves",
                tag="Prune",
                description="A block that holds a matching row is always among them, under Spark SQL's semantics. "
                "`report` says how many entries each stage looked at and kept, and which predicates could not prune "
                "and why. With `sign_urls` each block has a URL that reads it without credentials. "
                "Large answers come in pieces, compressed by `Accept-Encoding`.",
                direct=True,
                other_media_types=(ARROW, MSGPACK),
                is_question=True,
                is_large=True,
                request_type=PruneRequest,
                answer_type=PruneAnswer,
                errors=(
                    *OF_A_SNAPSHOT,
                    *OF_A_FILTER,
                    InvalidPageToken,
                    SegmentNotFound,
                    LocationRefused,
                    NotSignable,
                    Overloaded,
                ),
            ),
        )
