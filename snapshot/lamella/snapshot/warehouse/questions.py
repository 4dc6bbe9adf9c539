"""Questions to a snapshot: prunes, differences, aggregates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lamella.snapshot.columnar import Companion
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import Predicate, bind, read_filter, text_of
from lamella.snapshot.layout import TableLayout, table_root
from lamella.snapshot.manifest import ObjectRef, Snapshot, SnapshotPointer
from lamella.snapshot.pages import PageSource
from lamella.snapshot.prune.aggregate import Aggregation
from lamella.snapshot.prune.aggregate_answer import answer as aggregate_answer
from lamella.snapshot.prune.aggregate_plan import read_plan
from lamella.snapshot.prune.answer import answer
from lamella.snapshot.prune.batch import single_requests
from lamella.snapshot.prune.difference import Side, difference
from lamella.snapshot.prune.options import read_options
from lamella.snapshot.prune.pages import page_segments, with_pages
from lamella.snapshot.prune.paging import PageTokens
from lamella.snapshot.prune.pipeline import Pruning, next_position
from lamella.snapshot.prune.reader_columns import with_reader_columns
from lamella.snapshot.prune.residual import residuals_of
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
)


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

    def prune(self, pointer: SnapshotPointer, request: PruneRequest) -> PruneAnswer:
        """The blocks (or segments) of a snapshot that may hold matching rows.

        Raises:
            InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded, InvalidRequest: the request is wrong.
            InvalidPageToken: the token belongs to another request or snapshot; SegmentNotFound: one of ``segments``.
        """
        return self.prune_predicate(pointer, read_filter(request.filter, time_zone=request.time_zone), request)

    def prune_batch(self, pointer: SnapshotPointer, request: BatchRequest) -> BatchAnswer:
        """The answers to many filters; each segment is read once for all of them.

        Raises:
            LimitExceeded: too many filters; the errors of :meth:`prune`, ``details.filter`` is the filter's number.
        """
        held: dict[str, Companion] = {}
        answers = []
        for number, single in enumerate(single_requests(request)):
            try:
                predicate = read_filter(single.filter, time_zone=single.time_zone)
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
        predicate = read_filter(request.filter, time_zone=request.time_zone)
        bound = bind(predicate, newer.schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
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
        head = self._manifests.head(pointer)
        bound = bind(predicate, head.schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
        segments = self._manifests.layer(pointer)
        columns = None
        if request.columns is not None:
            columns = head.schema.select(request.columns, case_sensitive=request.case_sensitive)
        refs = _companion_refs(segments)
        start = None if request.page_token is None else self._tokens.position(request, head.snapshot_id)
        options = read_options(request, head.schema, start)

        def load(row: int) -> Companion:
            ref = refs(row)
            if held is None:
                return self._manifests.blocks(head, ref)
            if ref.location not in held:
                held[ref.location] = self._manifests.blocks(head, ref)
            return held[ref.location]

        funnel = Pruning(head, segments, load, self._timer).run(
            bound, blocks=request.level != "segment", explain=request.explain, options=options
        )
        if request.level == "page":
            leaves = None if columns is None else [head.schema.by_id()[column_id] for column_id in columns]
            funnel = with_pages(funnel, bound, self._pages, page_segments(segments), leaves, self._timer)
        residuals = residuals_of(predicate, funnel.kept, head.schema, request)
        token = self._tokens.following(head.snapshot_id, request, next_position(funnel))
        text = text_of(predicate)
        found = answer(head, segments, funnel, request, columns, text, residuals=residuals, next_page_token=token)
        own_blocks = TableLayout(table_root(self._root, head.table_id)).blocks + "/"
        return with_reader_columns(found, head, funnel.kept, request, own_blocks)

    def aggregate(self, pointer: SnapshotPointer, request: AggregateRequest) -> AggregateAnswer:
        """Counts, least and greatest values of the rows that match a filter, as far as statistics prove them.

        Raises:
            InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded, InvalidRequest: the request is wrong.
        """
        return self.aggregate_predicate(pointer, read_filter(request.filter, time_zone=request.time_zone), request)

    def aggregate_predicate(
        self, pointer: SnapshotPointer, predicate: Predicate, request: AggregateRequest
    ) -> AggregateAnswer:
        """As :meth:`aggregate`, for a filter that has been read already; ``request.filter`` is not looked at."""
        head = self._manifests.head(pointer)
        bound = bind(predicate, head.schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
        plan = read_plan(request, head.schema)
        segments = self._manifests.layer(pointer)
        refs = _companion_refs(segments)
        aggregation = Aggregation(head, segments, lambda row: self._manifests.blocks(head, refs(row)), self._timer)
        return aggregate_answer(head, plan, aggregation.run(bound, plan), request, bound)


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
