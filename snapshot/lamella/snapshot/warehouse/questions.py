"""Queries on a snapshot: prunes, differences, aggregates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.columnar.snapshot_blocks import BatchSizes
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import Predicate
from lamella.snapshot.manifest import CONSTANTS, DELETES, Block, Snapshot, SnapshotPointer, require_features
from lamella.snapshot.pages import PageSource
from lamella.snapshot.prune.aggregate import Aggregation, read_plan
from lamella.snapshot.prune.aggregate_answer import answer as aggregate_answer
from lamella.snapshot.prune.block_layer import number_of_segment
from lamella.snapshot.prune.difference import Side, difference
from lamella.snapshot.prune.options import Allowance, single_requests
from lamella.snapshot.prune.paging import PageTokens
from lamella.snapshot.prune.pipeline import Deferred, NotNow
from lamella.snapshot.prune.result import PruneResult
from lamella.snapshot.prune.writer import answer_of, entry_count
from lamella.snapshot.warehouse.finder import Finder
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


class Questions:
    """Answers queries from statistics. ``root`` is the warehouse, ``tokens`` signs page tokens."""

    def __init__(
        self,
        manifests: Manifests,
        pages: PageSource,
        tokens: PageTokens,
        root: str,
        timer: Callable[[], float],
        batch_sizes: BatchSizes,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.finder = Finder(manifests, pages, tokens, root, timer, batch_sizes, clock)
        self._manifests = manifests
        self._timer = timer

    def prune(self, pointer: SnapshotPointer, request: PruneRequest) -> PruneAnswer:
        """Returns the blocks (or segments) of a snapshot that may have matching rows.

        Raises:
            InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded, InvalidRequest: the request is invalid.
            InvalidPageToken: the token belongs to another request or snapshot; SegmentNotFound: one of ``segments``.
        """
        return self.prune_predicate(pointer, self.finder.read(request), request)

    def blocks_of(
        self, pointer: SnapshotPointer, segment_id: str, reader_features: Iterable[str] = ()
    ) -> SegmentBlocks:
        """Returns the addresses of a segment's blocks.

        Raises:
            SegmentNotFound: the snapshot does not have it.
            ReaderFeatureMissing: its readers need another feature.
        """
        layers = self.finder.layers(pointer)
        require_features(layers.head.features, reader_features)
        row = number_of_segment(layers.segments.texts("segment_id"), segment_id)
        sidecar = self._manifests.sidecar(layers.sidecar(row))
        rows = np.arange(len(sidecar))
        own = sidecar.schema_id
        return SegmentBlocks(
            segment_id=segment_id,
            location=sidecar.texts("location"),
            row_count=sidecar.numbers("row_count").tolist(),
            file_size=sidecar.numbers("file_size").tolist(),
            schema_id=[own if each is None else each for each in sidecar.older_schema_ids(rows, own)],
            constants=sidecar.constants(rows) if sidecar.has_member(CONSTANTS) else None,
            deletes=sidecar.deletes(rows) if sidecar.has_member(DELETES) else None,
        )

    def prune_batch(
        self,
        pointer: SnapshotPointer,
        request: BatchRequest,
        *,
        max_blocks: int | None = None,
        max_tests: int | None = None,
    ) -> BatchAnswer:
        """Returns the answers to many filters; each segment is read once for all of them. Raises as
        :meth:`find_batch`.
        """
        results = self.find_batch(pointer, request, max_blocks=max_blocks, max_tests=max_tests)
        head = self._manifests.head(pointer)
        answers = tuple(answer_of(result) for result in results)
        return BatchAnswer(snapshot_id=head.snapshot_id, timestamp_ms=head.timestamp_ms, answers=answers)

    def find_batch(
        self,
        pointer: SnapshotPointer,
        request: BatchRequest,
        *,
        max_blocks: int | None = None,
        max_tests: int | None = None,
    ) -> list[PruneResult]:
        """Returns the results of many filters, before they are written.

        Raises:
            LimitExceeded: too many filters, or more than ``max_blocks`` blocks, runs or segments in all answers; the
                errors of :meth:`prune`, with the filter's number in ``details.filter``.
            NotNow: all together take more than ``max_tests``; no segment is opened then.
        """
        sidecars: dict[str, Sidecar] = {}
        allowance = Allowance(max_blocks)
        results = []
        read: list[tuple[PruneRequest, Predicate]] = []
        tests = selected = 0
        for number, single in enumerate(single_requests(request)):
            with _of_filter(number):
                read.append((single, self.finder.read(single)))
                if max_tests is not None:
                    cost = self.finder.cost(pointer, read[-1][1], single)
                    tests += cost.block_tests or 0
                    selected += 0 if single.shape == "ranges" else cost.selected_blocks
                    allowance.check(selected)
        if max_tests is not None and tests > max_tests:
            raise NotNow(Deferred(block_tests=tests, selected_blocks=selected))
        for number, (single, predicate) in enumerate(read):
            with _of_filter(number):
                found = self.finder.find_predicate(pointer, predicate, single, sidecars=sidecars)
                allowance.take(entry_count(found))
                results.append(found)
        return results

    def diff(
        self,
        before: SnapshotPointer,
        after: SnapshotPointer,
        request: DiffRequest,
        *,
        seen_from: SnapshotPointer | None = None,
        max_blocks: int | None = None,
        max_tests: int | None = None,
    ) -> DiffAnswer:
        """Returns the blocks that were added and removed between two snapshots, as far as they may match a filter.

        Names and types are those of the newer snapshot, or of ``seen_from``, which is at least as new. The request need
        not name the snapshots. Raises as :meth:`prune`, LimitExceeded for more than ``max_blocks``, and NotNow if it
        takes more than ``max_tests``; no segment is opened then.
        """
        heads = [self._manifests.head(pointer) for pointer in (seen_from or before, seen_from or after)]
        newer = max(heads, key=lambda head: head.timestamp_ms)
        for pointer in (before, after):
            require_features(self._manifests.head(pointer).features, request.reader_features)
        predicate = self.finder.read(request)
        bound = self.finder.bound(predicate, newer.schema, request)
        columns = None
        if request.columns is not None:
            columns = newer.schema.select(request.columns, case_sensitive=request.case_sensitive)
        sides = (self._side(before, newer), self._side(after, newer))
        return difference(*sides, bound, columns, newer.schema.schema_id, Allowance(max_blocks), max_tests)

    def _side(self, pointer: SnapshotPointer, newer: Snapshot) -> Side:
        layers = self.finder.layers(pointer)
        return Side(
            head=layers.head,
            segments=layers.segments,
            load=lambda row: self._manifests.blocks(newer, layers.sidecar(row)),
            manifest=lambda row: self.blocks_at(pointer, row),
        )

    def blocks_at(self, pointer: SnapshotPointer, row: int) -> tuple[Block, ...]:
        """Returns the blocks of the segment at a row of the snapshot's layer, from its manifest."""
        return self._manifests.segment(self._manifests.ref_at(self._manifests.snapshot(pointer), row)).blocks

    def prune_predicate(
        self,
        pointer: SnapshotPointer,
        predicate: Predicate,
        request: PruneRequest,
    ) -> PruneAnswer:
        """Like :meth:`prune`, for a filter that has already been read; ``request.filter`` is ignored."""
        return answer_of(self.finder.find_predicate(pointer, predicate, request))

    def aggregate(
        self, pointer: SnapshotPointer, request: AggregateRequest, *, max_tests: int | None = None
    ) -> AggregateAnswer:
        """Returns counts, minima and maxima of the rows that match a filter, as far as statistics prove them.

        Raises:
            InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded, InvalidRequest: the request is invalid.
            NotNow: it takes more than ``max_tests``; no segment is opened then.
        """
        return self.aggregate_predicate(pointer, self.finder.read(request), request, max_tests=max_tests)

    def aggregate_predicate(
        self,
        pointer: SnapshotPointer,
        predicate: Predicate,
        request: AggregateRequest,
        *,
        max_tests: int | None = None,
    ) -> AggregateAnswer:
        """Like :meth:`aggregate`, for a filter that has already been read; ``request.filter`` is ignored."""
        layers = self.finder.layers(pointer)
        head = layers.head
        bound = self.finder.bound(predicate, head.schema, request)
        plan = read_plan(request, head.schema)
        aggregation = Aggregation(
            head, layers.segments, lambda row: self._manifests.blocks(head, layers.sidecar(row)), self._timer
        )
        answer = aggregate_answer(head, plan, aggregation.run(bound, plan, max_tests), request, bound)
        if answer.scan:
            require_features(head.features, request.reader_features)
        return answer


@contextmanager
def _of_filter(number: int) -> Iterator[None]:
    """Adds the number of the filter to errors."""
    try:
        yield
    except InvalidRequest as error:
        error.details["filter"] = number
        raise
