"""Routes of prunes and aggregates: ``.../prune``, ``.../prune/batch``, ``.../diff``, ``.../aggregate``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec
from cachetools import LRUCache
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import Catalog, current_table
from lamella.service.history.history import History, trusted_manifests
from lamella.service.http.admission import QUICK_BODY_BYTES, read_json
from lamella.service.http.lanes import Lanes
from lamella.service.http.responses import (
    BufferedResponse,
    ResponseFormat,
    StreamingResponse,
    encode_now,
    encode_response,
    respond,
    respond_json,
    respond_large,
)
from lamella.service.http.routing import ServedOperation, require_json
from lamella.service.http.streaming import MIN_BLOCK_BYTES, WHOLE_BYTES, LargeAnswers
from lamella.service.prune.block_urls import BlockUrls
from lamella.service.telemetry.metrics import Metrics
from lamella.service.telemetry.tracing import Traces, describe_prune
from lamella.service.usage.filters import PruneNotes, PruneRates
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.prune.pipeline import Deferred, NotNow
from lamella.snapshot.prune.result import PruneResult
from lamella.snapshot.prune.segment_text import SegmentTexts
from lamella.snapshot.prune.writer import write_batch
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import AggregateRequest, BatchRequest, DiffRequest, PruneRequest
from lamella.snapshot.wire.operation import JSON
from lamella.snapshot.wire.operations import prune as operations

_PRUNE_REQUEST: Final = msgspec.json.Decoder(PruneRequest)
_MAX_SHAPES: Final = 1_024
#: Literals, as far as they can be told in a request's text.
_LITERALS: Final = re.compile(rb"'[^']*'|\d+")


class PruneRoutes:
    """Which blocks a query must read."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        lanes: Lanes,
        block_urls: BlockUrls,
        history: History,
        warehouse: Warehouse,
        traces: Traces,
        large_answers: LargeAnswers,
        segment_texts: SegmentTexts,
        notes: PruneNotes,
    ) -> None:
        self._catalog = catalog
        self._lanes = lanes
        self._block_urls = block_urls
        self._history = history
        self._warehouse = warehouse
        self._traces = traces
        self._large_answers = large_answers
        self._segment_texts = segment_texts
        self._notes = notes
        #: Tests that prunes of a table took which differ in literals alone; only of those that were wide the last time.
        self._wide_shapes: LRUCache[tuple[str, str, bytes], int] = LRUCache(_MAX_SHAPES)

    async def prune(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        parameters = request.path_params
        namespace, name, wanted = parameters["namespace"], parameters["table"], ResponseFormat.of(request)
        shape = (namespace, name, _masked(body))
        known_tests = self._wide_shapes.get(shape, 0)
        if known_tests:
            self._lanes.check_wide(request, known_tests)  # refused before it is read, where it would be
        found = self._found_now(namespace, name, body)
        self._note_shape(shape, found)
        made: BufferedResponse | StreamingResponse | PruneResult | None
        if isinstance(found, Deferred):
            if found.block_tests is None:
                # All in one hop to a thread: a large filter, table or answer must not hold up the others' requests.
                made = await self._lanes.weighed(
                    request, lambda max_tests: self._made(namespace, name, body, wanted, max_tests)
                )
            else:
                made = await self._lanes.in_lane(
                    request, found, lambda: self._made(namespace, name, body, wanted, None)
                )
        else:
            made = encode_now(found, wanted, self._segment_texts)
            if made is None:
                made = found if _is_large(found) else await self._encoded(request, found, wanted)
        if isinstance(made, PruneResult):
            return await respond_large(made, wanted, self._large_answers, self._segment_texts, request)
        return await respond(made, wanted, self._large_answers, request)

    def _note_shape(self, shape: tuple[str, str, bytes], found: PruneResult | Deferred) -> None:
        tests = found.block_tests if isinstance(found, Deferred) else 0
        if tests is not None and tests > self._lanes.WIDE_TESTS:
            self._wide_shapes[shape] = tests
        elif tests is not None:
            self._wide_shapes.pop(shape, None)

    async def _encoded(
        self, request: Request, found: PruneResult, wanted: ResponseFormat
    ) -> BufferedResponse | StreamingResponse:
        return await self._lanes.narrow(request, lambda: encode_response(found, wanted, self._segment_texts))

    def _found_now(self, namespace: str, name: str, body: bytes) -> PruneResult | Deferred:
        """The answer when it is near and small enough to be found on the event loop; else what a thread has to do."""
        if len(body) > QUICK_BODY_BYTES or not self._catalog.is_instant:
            return Deferred()
        request = read_json(_PRUNE_REQUEST, body)
        if request.timestamp is not None or request.page_token is not None or request.sign_urls:
            return Deferred()
        record = self._catalog.current(namespace, name)
        if record is None or request.snapshot_id not in (None, record.pointer.snapshot_id):
            return Deferred()
        with self._traces.span("prune") as span:
            found = self._warehouse.find_now(record.pointer, request)
            if span is not None:
                describe_prune(span, found if isinstance(found, PruneResult) else None)
        if isinstance(found, PruneResult):
            self._notes.note(record, request, found)
            return found
        return _as_listed(request, found)

    def _made(
        self, namespace: str, name: str, body: bytes, wanted: ResponseFormat, max_tests: int | None
    ) -> BufferedResponse | StreamingResponse | PruneResult:
        """The answer; a large one as what was found. Raises NotNow for what takes more tests than ``max_tests``."""
        request = read_json(_PRUNE_REQUEST, body)
        record = current_table(self._catalog, namespace, name)
        # a page belongs to the snapshot of the first one, whatever has become current since
        pinned = None if request.page_token is None else self._warehouse.page_tokens.read(request)[0]
        pointer = self._history.pointer(
            record,
            snapshot_id=request.snapshot_id if pinned is None else pinned,
            timestamp=request.timestamp if pinned is None else None,
            time_zone=request.time_zone,
        )
        with trusted_manifests():
            with self._traces.span("prune") as span:
                if max_tests is None:
                    found = self._warehouse.find(pointer, request)
                else:
                    within = self._warehouse.find_within(pointer, request, max_tests)
                    if isinstance(within, Deferred):
                        cost = _as_listed(request, within)
                        if request.sign_urls:
                            self._block_urls.require_few(cost.selected_blocks)
                        raise NotNow(cost)
                    found = within
                if span is not None:
                    describe_prune(span, found)
            self._notes.note(record, request, found)
            if request.sign_urls:
                found = self._block_urls.in_answer(record, found)
            return found if _is_large(found) else encode_response(found, wanted, self._segment_texts)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (ServedOperation(operations.PRUNE, self.prune, direct=True, takes_own_slot=True),)


def _as_listed(request: PruneRequest, cost: Deferred) -> Deferred:
    """A cost by which no answer is large that may be small however many blocks are kept: of few blocks, or of runs."""
    is_less = request.limit is not None or request.page_size is not None or request.shape == "ranges"
    return Deferred(block_tests=cost.block_tests) if is_less or request.level == "segment" else cost


def _masked(body: bytes) -> bytes:
    """A request without its literals; empty for one that is not looked at on the event loop."""
    return b"" if len(body) > QUICK_BODY_BYTES else _LITERALS.sub(b"?", body)


def _is_large(found: PruneResult) -> bool:
    """Whether its answer surely is so large that it has to have a turn to be sent."""
    is_listed = found.selection is not None and found.shape != "ranges"
    return is_listed and found.block_count * MIN_BLOCK_BYTES > WHOLE_BYTES


_BATCH: Final = msgspec.json.Decoder(BatchRequest)
_DIFF: Final = msgspec.json.Decoder(DiffRequest)
_ENCODER: Final = msgspec.json.Encoder()


class PruneManyRoutes:
    """What one prune does not answer."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        lanes: Lanes,
        history: History,
        warehouse: Warehouse,
        metrics: Metrics,
        traces: Traces,
        large_answers: LargeAnswers,
        prune_rates: PruneRates,
        segment_texts: SegmentTexts,
        answer_blocks_max: int,
    ) -> None:
        self._catalog = catalog
        self._lanes = lanes
        self._history = history
        self._warehouse = warehouse
        self._metrics = metrics
        self._traces = traces
        self._large_answers = large_answers
        self._prune_rates = prune_rates
        self._segment_texts = segment_texts
        self._answer_blocks_max = answer_blocks_max

    async def prune_batch(self, request: Request) -> Response:
        return await self._answer(request, self._batch)

    async def diff(self, request: Request) -> Response:
        return await self._answer(request, self._diff)

    async def _answer(self, request: Request, work: Callable[[str, str, bytes, int | None], bytes]) -> Response:
        require_json(request)
        body = await request.body()
        parameters = request.path_params
        data = await self._lanes.weighed(
            request, lambda max_tests: work(parameters["namespace"], parameters["table"], body, max_tests)
        )
        return await respond_json(data, self._large_answers, request)

    def _batch(self, namespace: str, name: str, body: bytes, max_tests: int | None) -> bytes:
        request = read_json(_BATCH, body)
        record = current_table(self._catalog, namespace, name)
        pointer = self._history.pointer(
            record, snapshot_id=request.snapshot_id, timestamp=request.timestamp, time_zone=request.time_zone
        )
        with trusted_manifests(), self._traces.span("prune batch"):
            max_blocks = self._answer_blocks_max
            results = self._warehouse.find_batch(pointer, request, max_blocks=max_blocks, max_tests=max_tests)
            data = write_batch(self._warehouse.head(pointer), results, self._segment_texts)
        for result in results:
            self._metrics.pruned(result.answer)
            if result.selection is not None:
                self._prune_rates.note(record, result.answer.report, result.block_count)
        return data

    def _diff(self, namespace: str, name: str, body: bytes, max_tests: int | None) -> bytes:
        request = read_json(_DIFF, body)
        record = current_table(self._catalog, namespace, name)
        if (request.from_snapshot_id is None) == (request.from_timestamp is None):
            raise InvalidRequest("give exactly one of from_snapshot_id and from_timestamp")
        point, zone = self._history.pointer, request.time_zone
        before = point(record, snapshot_id=request.from_snapshot_id, timestamp=request.from_timestamp, time_zone=zone)
        after = point(record, snapshot_id=request.to_snapshot_id, timestamp=request.to_timestamp, time_zone=zone)
        with trusted_manifests():
            max_blocks = self._answer_blocks_max
            answer = self._warehouse.diff(before, after, request, max_blocks=max_blocks, max_tests=max_tests)
            return _ENCODER.encode(answer)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.PRUNE_BATCH, self.prune_batch, takes_own_slot=True),
            ServedOperation(operations.DIFF, self.diff, takes_own_slot=True),
        )


_AGGREGATE_REQUEST = msgspec.json.Decoder(AggregateRequest)
_AGGREGATE_ENCODER = msgspec.json.Encoder()


class AggregateRoutes:
    """Aggregates from metadata."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        lanes: Lanes,
        history: History,
        warehouse: Warehouse,
        metrics: Metrics,
        traces: Traces,
    ) -> None:
        self._catalog = catalog
        self._lanes = lanes
        self._history = history
        self._warehouse = warehouse
        self._metrics = metrics
        self._traces = traces

    async def aggregate(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        parameters = request.path_params
        data = await self._lanes.weighed(
            request, lambda max_tests: self._aggregate(parameters["namespace"], parameters["table"], body, max_tests)
        )
        return Response(data, media_type=JSON)

    def _aggregate(self, namespace: str, name: str, body: bytes, max_tests: int | None) -> bytes:
        request = read_json(_AGGREGATE_REQUEST, body)
        record = current_table(self._catalog, namespace, name)
        pointer = self._history.pointer(
            record, snapshot_id=request.snapshot_id, timestamp=request.timestamp, time_zone=request.time_zone
        )
        with trusted_manifests(), self._traces.span("aggregate"):
            answer = self._warehouse.aggregate(pointer, request, max_tests=max_tests)
        self._metrics.aggregated(answer)
        return _AGGREGATE_ENCODER.encode(answer)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (ServedOperation(operations.AGGREGATE, self.aggregate, takes_own_slot=True),)
