"""A query's way through the layers for one block: snapshot, segment, block, pages, and what is left of the filter.

The stages are those that answer queries; only the other blocks are dropped on the way, since nobody asks about them.
"""

from __future__ import annotations

import time

import msgspec

from lamella.snapshot.expression import Predicate, bind, text_of
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import SegmentRef, SnapshotPointer
from lamella.snapshot.pages import PageSource
from lamella.snapshot.prune.answer import answer
from lamella.snapshot.prune.layers import Layers
from lamella.snapshot.prune.options import read_options
from lamella.snapshot.prune.pages import page_segments, with_pages
from lamella.snapshot.prune.pipeline import Pruning
from lamella.snapshot.prune.residual import residuals_of
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import PruneAnswer, PruneRequest


class BlockPrune:
    """Prunes of one snapshot; ``cache_bytes`` bounds what is held of its companions."""

    def __init__(self, store: Store, pointer: SnapshotPointer, cache_bytes: int) -> None:
        self._pointer = pointer
        self._manifests = Manifests(store, cache_bytes)
        self._pages = PageSource(store, self._manifests.read, cache_bytes=cache_bytes // 4)

    def answer(self, predicate: Predicate, ref: SegmentRef, row: int) -> PruneAnswer:
        """What a query with this filter is answered about block number ``row`` of a segment.

        Raises:
            InvalidRequest: a filter that does not fit the schema.
            ManifestError, ObjectNotFound, StoreError: a companion cannot be read.
        """
        request = PruneRequest(level="page", segments=(ref.segment_id,), case_sensitive=True, residuals=True)
        head = self._manifests.head(self._pointer)
        bound = bind(predicate, head.schema, case_sensitive=True)
        segments = self._manifests.layer(self._pointer)
        pruning = Pruning(
            Layers(head, segments), lambda _row: self._manifests.blocks(head, ref.companion), time.perf_counter
        )
        options = read_options(request, head.schema, None)
        funnel = pruning.run(bound, blocks=True, explain=False, options=options)
        kept = tuple(part.where(part.rows == row) for part in funnel.kept or ())
        walked = funnel.walked and msgspec.structs.replace(funnel.walked, kept=kept, order=None, bounds=None)
        funnel = msgspec.structs.replace(funnel, kept=kept, walked=walked)
        funnel = with_pages(funnel, bound, self._pages, page_segments(segments), None, time.perf_counter)
        residuals = residuals_of(predicate, funnel.kept, head.schema, request)
        return answer(head, segments, funnel, request, None, text_of(predicate), residuals=residuals)
