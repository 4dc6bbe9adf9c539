"""``.../prune``: the reason for everything else."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from cachetools import LRUCache
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.admission import QUICK_BODY_BYTES
from lamella.service.answers import (
    ARROW,
    MSGPACK,
    Begun,
    Wanted,
    Whole,
    encoded,
    encoded_now,
    respond,
    respond_large,
)
from lamella.service.api import Operation, require_json
from lamella.service.catalog import TableRecord
from lamella.service.json_body import read_json
from lamella.service.routes.failures import OF_A_FILTER, OF_A_SNAPSHOT
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.service.state import trusted_manifests
from lamella.service.streaming import LEAST_BLOCK_BYTES, WHOLE_BYTES
from lamella.service.tracing import tell_of_prune
from lamella.snapshot.errors import InvalidPageToken, LocationRefused, NotSignable, Overloaded, SegmentNotFound
from lamella.snapshot.prune.found import Found
from lamella.snapshot.prune.pipeline import Deferred, NotNow
from lamella.snapshot.wire import PruneAnswer, PruneRequest

_REQUEST: Final = msgspec.json.Decoder(PruneRequest)
_SHAPES_KEPT: Final = 1_024
#: Literals, as far as they can be told in a request's text.
_LITERALS: Final = re.compile(rb"'[^']*'|\d+")


class PruneRoutes:
    """Which blocks a query must read."""

    def __init__(self, services: Services) -> None:
        self._services = services
        #: Tests that prunes of a table took which differ in literals alone; only of those that were wide the last time.
        self._wide_shapes: LRUCache[tuple[str, str, bytes], int] = LRUCache(_SHAPES_KEPT)

    async def prune(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        parameters = request.path_params
        namespace, name, wanted = parameters["namespace"], parameters["table"], Wanted.of(request)
        services = self._services
        shape = (namespace, name, _masked(body))
        known_tests = self._wide_shapes.get(shape, 0)
        if known_tests:
            services.admission.check_testing(request, known_tests)  # refused before it is read, where it would be
        found = self._found_now(namespace, name, body)
        self._note_shape(shape, found)
        made: Whole | Begun | Found | None
        if isinstance(found, Deferred):
            if found.block_tests is None:
                # All in one hop to a thread: a large filter, table or answer must not hold up the others' requests.
                made = await services.weighed(request, lambda most: self._made(namespace, name, body, wanted, most))
            else:
                made = await services.in_lane(request, found, lambda: self._made(namespace, name, body, wanted, None))
        else:
            made = encoded_now(found, wanted, services.segment_texts)
            if made is None:
                made = found if _is_large(found) else await self._encoded(request, found, wanted)
        if isinstance(made, Found):
            return await respond_large(made, wanted, services.large_answers, services.segment_texts, request)
        return await respond(made, wanted, services.large_answers, request)

    def _note_shape(self, shape: tuple[str, str, bytes], found: Found | Deferred) -> None:
        tests = found.block_tests if isinstance(found, Deferred) else 0
        if tests is not None and tests > self._services.WIDE_TESTS:
            self._wide_shapes[shape] = tests
        elif tests is not None:
            self._wide_shapes.pop(shape, None)

    async def _encoded(self, request: Request, found: Found, wanted: Wanted) -> Whole | Begun:
        services = self._services
        async with services.admission.reading(request):
            return await services.read(lambda: encoded(found, wanted, services.segment_texts))

    def _found_now(self, namespace: str, name: str, body: bytes) -> Found | Deferred:
        """The answer when it is near and small enough to be found on the event loop; else what a thread has to do."""
        services = self._services
        if len(body) > QUICK_BODY_BYTES or not services.catalog.is_instant:
            return Deferred()
        asked = read_json(_REQUEST, body)
        if asked.timestamp is not None or asked.page_token is not None or asked.sign_urls:
            return Deferred()
        record = services.catalog.current(namespace, name)
        if record is None or asked.snapshot_id not in (None, record.pointer.snapshot_id):
            return Deferred()
        with services.traces.span("prune") as span:
            found = services.warehouse.find_now(record.pointer, asked)
            if span is not None:
                tell_of_prune(span, found if isinstance(found, Found) else None)
        if isinstance(found, Found):
            self._note(record, asked, found)
            return found
        return _as_listed(asked, found)

    def _made(
        self, namespace: str, name: str, body: bytes, wanted: Wanted, most_tests: int | None
    ) -> Whole | Begun | Found:
        """The answer; a large one as what was found. Raises NotNow for what takes more tests than ``most_tests``."""
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
                if most_tests is None:
                    found = services.warehouse.find(pointer, asked)
                else:
                    within = services.warehouse.find_within(pointer, asked, most_tests)
                    if isinstance(within, Deferred):
                        cost = _as_listed(asked, within)
                        if asked.sign_urls:
                            services.block_urls.require_few(cost.kept_blocks)
                        raise NotNow(cost)
                    found = within
                if span is not None:
                    tell_of_prune(span, found)
            self._note(record, asked, found)
            if asked.sign_urls:
                found = services.block_urls.in_answer(record, found)
            return found if _is_large(found) else encoded(found, wanted, services.segment_texts)

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
                takes_own_place=True,
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


def _as_listed(asked: PruneRequest, cost: Deferred) -> Deferred:
    """A cost by which no answer is large that may be small however many blocks are kept: of few blocks, or of runs."""
    is_less = asked.limit is not None or asked.page_size is not None or asked.shape == "ranges"
    return Deferred(block_tests=cost.block_tests) if is_less or asked.level == "segment" else cost


def _masked(body: bytes) -> bytes:
    """A request without its literals; empty for one that is not looked at on the event loop."""
    return b"" if len(body) > QUICK_BODY_BYTES else _LITERALS.sub(b"?", body)


def _is_large(found: Found) -> bool:
    """Whether its answer surely is so large that it has to have a turn to be sent."""
    is_listed = found.parts is not None and found.shape != "ranges"
    return is_listed and found.block_count * LEAST_BLOCK_BYTES > WHOLE_BYTES
