"""Questions to a snapshot: prunes, differences, aggregates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from lamella.snapshot.cache import Shelf
from lamella.snapshot.columnar import Companion
from lamella.snapshot.columnar.resident import Columns, Load, ResidentBlocks
from lamella.snapshot.errors import InvalidRequest, SegmentNotFound
from lamella.snapshot.expression import BoundPredicate, Filters, Predicate, text_of
from lamella.snapshot.layout import TableLayout, table_root
from lamella.snapshot.manifest import ObjectRef, Snapshot, SnapshotPointer
from lamella.snapshot.pages import PageSource
from lamella.snapshot.prune.aggregate import Aggregation
from lamella.snapshot.prune.aggregate_answer import answer as aggregate_answer
from lamella.snapshot.prune.aggregate_plan import read_plan
from lamella.snapshot.prune.answer import answer_of
from lamella.snapshot.prune.batch import single_requests
from lamella.snapshot.prune.difference import Side, difference
from lamella.snapshot.prune.evaluate import Evaluator
from lamella.snapshot.prune.found import Found, found_by
from lamella.snapshot.prune.layers import Layers, VerdictShelf
from lamella.snapshot.prune.options import read_options
from lamella.snapshot.prune.pages import page_segments, with_pages
from lamella.snapshot.prune.paging import PageTokens
from lamella.snapshot.prune.pipeline import Funnel, NotNow, Pruning, next_position
from lamella.snapshot.prune.reader_columns import with_reader_columns
from lamella.snapshot.prune.residual import residuals_of
from lamella.snapshot.schema import Schema
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import (
    AggregateAnswer,
    AggregateRequest,
    BatchAnswer,
    BatchRequest,
    DiffAnswer,
    DiffRequest,
    PruneAnswer,
    PruneRequest,
    SegmentBlocks,
)

#: What the layers of a snapshot take in memory beside three numbers a segment, roughly.
_LAYERS_BYTES: Final = 4_096
#: What a prune's outcome takes beside its arrays, with the filter that it is kept under, roughly.
_FUNNEL_BYTES: Final = 8_192
#: Limits of what :meth:`Questions.find_now` looks at: about a millisecond of work.
_NOW_SEGMENTS: Final = 20_000
_NOW_BLOCKS: Final = 20_000
_NOW_KEPT: Final = 500

_Asked = PruneRequest | DiffRequest | AggregateRequest


class Questions:
    """Answers from statistics. ``root`` is the warehouse, ``tokens`` signs where an answer was cut."""

    def __init__(
        self, manifests: Manifests, pages: PageSource, tokens: PageTokens, root: str, timer: Callable[[], float]
    ) -> None:
        self._manifests = manifests
        self._pages = pages
        self._tokens = tokens
        self._root = root
        self._timer = timer
        self._filters = Filters()
        self._seen: Shelf[Layers] = Shelf(manifests.resident, "layers")
        self._funnels: Shelf[Funnel] = Shelf(manifests.resident, "funnel")
        self._verdicts: VerdictShelf = Shelf(manifests.resident, "verdicts")
        self._columns = Columns(Shelf(manifests.resident, "column"), manifests.disk)

    def prune(self, pointer: SnapshotPointer, request: PruneRequest) -> PruneAnswer:
        """The blocks (or segments) of a snapshot that may hold matching rows.

        Raises:
            InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded, InvalidRequest: the request is wrong.
            InvalidPageToken: the token belongs to another request or snapshot; SegmentNotFound: one of ``segments``.
        """
        return self.prune_predicate(pointer, self._read(request), request)

    def find(self, pointer: SnapshotPointer, request: PruneRequest) -> Found:
        """As :meth:`prune`, before it takes a form to travel in (see :mod:`lamella.snapshot.prune.encode`)."""
        return self._find(pointer, self._read(request), request)

    def find_predicate(self, pointer: SnapshotPointer, predicate: Predicate, request: PruneRequest) -> Found:
        """As :meth:`find`, for a filter that has been read already; ``request.filter`` is not looked at."""
        return self._find(pointer, predicate, request)

    def find_now(self, pointer: SnapshotPointer, request: PruneRequest) -> Found | None:
        """As :meth:`find` when that takes about a millisecond and reads nothing: for callers that must not wait.

        None: what it needs is not in memory, or many blocks are to be looked at. An answer of at most 500 blocks can be
        encoded without reading, too. How long the filter may be is for the caller to say.
        """
        held = self._manifests.held_layer(pointer)
        if held is None or not _is_simple(request) or len(held[1]) > _NOW_SEGMENTS:
            return None
        head, segments = held
        layers = self._layers(head, segments)
        left, is_finding = _NOW_BLOCKS, True

        def load(row: int) -> Companion:
            nonlocal left
            if not is_finding:
                return self._manifests.blocks(head, layers.companion(row))
            companion = self._manifests.held_blocks(head, layers.companion(row))
            if companion is None:
                raise NotNow
            left -= len(companion)
            if left < 0:
                raise NotNow
            return companion

        predicate = self._read(request)
        try:
            found = self._found(layers, load, predicate, request, most_blocks=_NOW_BLOCKS)
        except NotNow:
            return None
        if found.block_count <= _NOW_KEPT:  # their addresses are in the companions
            rows = found.segment_rows
            if any(self._manifests.held_blocks(head, layers.companion(row)) is None for row in rows):
                return None
        is_finding = False
        return found

    def blocks_of(self, pointer: SnapshotPointer, segment_id: str) -> SegmentBlocks:
        """The addresses of a segment's blocks; raises SegmentNotFound when the snapshot does not have it."""
        segments = self._manifests.layer(pointer)
        ids = segments.texts("segment_id")
        if segment_id not in ids:
            raise SegmentNotFound(f"the snapshot has no segment {segment_id!r}", segment_id=segment_id)
        companion = self._manifests.companion(_companion_refs(segments)(ids.index(segment_id)))
        rows = np.arange(len(companion))
        own = companion.schema_id
        return SegmentBlocks(
            segment_id=segment_id,
            location=companion.texts("location"),
            row_count=companion.numbers("row_count").tolist(),
            file_size=companion.numbers("file_size").tolist(),
            schema_id=[own if each is None else each for each in companion.older_schema_ids(rows, own)],
        )

    def prune_batch(self, pointer: SnapshotPointer, request: BatchRequest) -> BatchAnswer:
        """The answers to many filters; each segment is read once for all of them.

        Raises:
            LimitExceeded: too many filters; the errors of :meth:`prune`, ``details.filter`` is the filter's number.
        """
        held: dict[str, Companion] = {}
        answers = []
        for number, single in enumerate(single_requests(request)):
            try:
                predicate = self._read(single)
                answers.append(self.prune_predicate(pointer, predicate, single, held=held))
            except InvalidRequest as error:
                error.details["filter"] = number
                raise
        head = self._manifests.head(pointer)
        return BatchAnswer(snapshot_id=head.snapshot_id, timestamp_ms=head.timestamp_ms, answers=tuple(answers))

    def diff(
        self,
        before: SnapshotPointer,
        after: SnapshotPointer,
        request: DiffRequest,
        *,
        seen_from: SnapshotPointer | None = None,
    ) -> DiffAnswer:
        """The blocks that came and went between two snapshots, as far as they may match a filter.

        Names and types are those of the newer snapshot, or of ``seen_from``, which is at least as new. Which snapshots
        they are, the request need not say. Raises as :meth:`prune`.
        """
        heads = [self._manifests.head(pointer) for pointer in (seen_from or before, seen_from or after)]
        newer = max(heads, key=lambda head: head.timestamp_ms)
        predicate = self._read(request)
        bound = self._bound(predicate, newer.schema, request)
        columns = None
        if request.columns is not None:
            columns = newer.schema.select(request.columns, case_sensitive=request.case_sensitive)
        sides = (self._side(before, newer), self._side(after, newer))
        return difference(*sides, bound, columns, newer.schema.schema_id)

    def _side(self, pointer: SnapshotPointer, newer: Snapshot) -> Side:
        segments = self._manifests.layer(pointer)
        refs = _companion_refs(segments)
        return Side(
            head=self._manifests.head(pointer),
            segments=segments,
            load=lambda row: self._manifests.blocks(newer, refs(row)),
            manifest=lambda row: (
                self._manifests.segment(self._manifests.ref_at(self._manifests.snapshot(pointer), row)).blocks
            ),
        )

    def prune_predicate(
        self,
        pointer: SnapshotPointer,
        predicate: Predicate,
        request: PruneRequest,
        *,
        held: dict[str, Companion] | None = None,
    ) -> PruneAnswer:
        """As :meth:`prune`, for a filter that has been read already; ``request.filter`` is not looked at.

        ``held``: companions by location that other prunes have opened, and that this one adds to.
        """
        return answer_of(self._find(pointer, predicate, request, held=held))

    def _find(
        self,
        pointer: SnapshotPointer,
        predicate: Predicate,
        request: PruneRequest,
        *,
        held: dict[str, Companion] | None = None,
    ) -> Found:
        head = self._manifests.head(pointer)
        layers = self._layers(head, self._manifests.layer(pointer))

        def load(row: int) -> Companion:
            ref = layers.companion(row)
            if held is None:
                return self._manifests.blocks(head, ref)
            if ref.location not in held:
                held[ref.location] = self._manifests.blocks(head, ref)
            return held[ref.location]

        def load_many(rows: Sequence[int], *, keep: bool = True) -> list[Companion]:
            if held is not None:
                return [load(row) for row in rows]
            return self._manifests.many_blocks(head, [layers.companion(row) for row in rows], keep=keep)

        return self._found(layers, load, predicate, request, load_many=load_many)

    def _found(
        self,
        layers: Layers,
        load: Callable[[int], Companion],
        predicate: Predicate,
        request: PruneRequest,
        *,
        load_many: Load | None = None,
        most_blocks: int | None = None,
    ) -> Found:
        head, segments = layers.head, layers.segments
        bound = self._bound(predicate, head.schema, request)
        columns = None
        if request.columns is not None:
            columns = head.schema.select(request.columns, case_sensitive=request.case_sensitive)
        start = None if request.page_token is None else self._tokens.position(request, head.snapshot_id)
        options = read_options(request, head.schema, start)
        pruning = Pruning(layers, load, self._timer, load_many)
        if options.plain and request.level != "segment" and not request.explain:
            funnel = self._remembered(pruning, head.snapshot_id, Evaluator(bound), most_blocks)
        else:
            funnel = pruning.run(
                bound,
                blocks=request.level != "segment",
                explain=request.explain,
                options=options,
                most_blocks=most_blocks,
            )
        if request.level == "page":
            leaves = None if columns is None else [head.schema.by_id()[column_id] for column_id in columns]
            funnel = with_pages(funnel, bound, self._pages, page_segments(segments), leaves, self._timer)
        residuals = residuals_of(predicate, funnel.kept, head.schema, request)
        token = self._tokens.following(head.snapshot_id, request, next_position(funnel))
        text = text_of(predicate) if request.explain else ""
        found = found_by(head, segments, funnel, request, columns, text, residuals=residuals, next_page_token=token)
        if not request.reader_columns:
            return found
        own_blocks = TableLayout(table_root(self._root, head.table_id)).blocks + "/"
        answer = with_reader_columns(found.answer, head, funnel.kept, request, own_blocks)
        return msgspec.structs.replace(found, answer=answer)

    def _remembered(self, pruning: Pruning, snapshot_id: str, filter: Evaluator, most_blocks: int | None) -> Funnel:
        """What a filter alone leaves of a snapshot, which never changes."""
        name = (snapshot_id, filter.key)
        found = self._funnels.get(name)
        if found is not None:
            return pruning.again(found)
        found = pruning.run(filter, most_blocks=most_blocks)
        # Without what opens companions, which would keep alive all that it knows.
        self._funnels.put(name, found.again(_unopened), found.size_bytes + _FUNNEL_BYTES)
        return found

    def _layers(self, head: Snapshot, segments: Companion) -> Layers:
        """The layers of a snapshot; those of the last ones that were asked for are kept."""
        found = self._seen.get(head.snapshot_id)
        if found is None:
            view = f"{head.table_id}/{head.schema.schema_id}"
            is_near = len(segments) > 0 and self._manifests.is_mapped(Layers(head, segments).companion(0))
            blocks = ResidentBlocks(segments, self._columns, view, is_near=is_near)
            found = Layers(head, segments, blocks, self._verdicts)
            self._seen.put(head.snapshot_id, found, _LAYERS_BYTES + 24 * len(segments))
        return found

    def _read(self, request: _Asked) -> Predicate:
        return self._filters.read(request.filter, time_zone=request.time_zone)

    def _bound(self, predicate: Predicate, schema: Schema, request: _Asked) -> BoundPredicate:
        return self._filters.bound(
            predicate, schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive
        )

    def aggregate(self, pointer: SnapshotPointer, request: AggregateRequest) -> AggregateAnswer:
        """Counts, least and greatest values of the rows that match a filter, as far as statistics prove them.

        Raises:
            InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded, InvalidRequest: the request is wrong.
        """
        return self.aggregate_predicate(pointer, self._read(request), request)

    def aggregate_predicate(
        self, pointer: SnapshotPointer, predicate: Predicate, request: AggregateRequest
    ) -> AggregateAnswer:
        """As :meth:`aggregate`, for a filter that has been read already; ``request.filter`` is not looked at."""
        head = self._manifests.head(pointer)
        bound = self._bound(predicate, head.schema, request)
        plan = read_plan(request, head.schema)
        segments = self._manifests.layer(pointer)
        refs = _companion_refs(segments)
        aggregation = Aggregation(head, segments, lambda row: self._manifests.blocks(head, refs(row)), self._timer)
        return aggregate_answer(head, plan, aggregation.run(bound, plan), request, bound)


def _is_simple(request: PruneRequest) -> bool:
    """True when the blocks of the segments that are left decide what there is to do."""
    return not (
        request.level == "page"
        or request.explain
        or request.residuals
        or request.order_by
        or request.join
        or request.segments is not None
        or request.max_ms is not None
        or request.page_size is not None
    )


def _unopened(rows: Sequence[int], *, keep: bool = True) -> list[Companion]:  # noqa: ARG001  # never called
    raise AssertionError("what is remembered is opened by whoever asks again")


def _companion_refs(segments: Companion) -> Callable[[int], ObjectRef]:
    """The companions of a snapshot's segments by row."""

    def ref(row: int) -> ObjectRef:
        one = np.array([row])
        return ObjectRef(
            location=segments.texts("companion.location", one)[0],
            size_bytes=int(segments.numbers("companion.size_bytes")[row]),
            sha256=segments.texts("companion.sha256", one)[0],
        )

    return ref
