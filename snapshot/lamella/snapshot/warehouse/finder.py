"""The blocks of a snapshot that can match a filter, found over what is held of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from lamella.snapshot.cache import Shelf
from lamella.snapshot.columnar import Companion
from lamella.snapshot.columnar.assembly import Load
from lamella.snapshot.columnar.chunk import Columns
from lamella.snapshot.columnar.refs import CompanionRefs
from lamella.snapshot.columnar.resident import Grain, ResidentBlocks
from lamella.snapshot.expression import BoundPredicate, Filters, Predicate, text_of
from lamella.snapshot.feedback.asking import FeedbackSource, told_of
from lamella.snapshot.layout import TableLayout, table_root
from lamella.snapshot.manifest import Snapshot, SnapshotPointer
from lamella.snapshot.manifest.block_key import BlockKeys
from lamella.snapshot.pages import PageSource
from lamella.snapshot.prune.evaluate import Evaluator
from lamella.snapshot.prune.found import Found, block_count_of, found_by
from lamella.snapshot.prune.index_layer import IndexLayer
from lamella.snapshot.prune.layers import Layers, VerdictShelf
from lamella.snapshot.prune.options import read_options
from lamella.snapshot.prune.pages import page_segments, with_pages
from lamella.snapshot.prune.paging import PageTokens
from lamella.snapshot.prune.pipeline import Deferred, Funnel, NotNow, Pruning, Remembered, next_position
from lamella.snapshot.prune.reader_columns import with_reader_columns
from lamella.snapshot.prune.residual import residuals_of
from lamella.snapshot.prune.walk import Walked
from lamella.snapshot.schema import Schema
from lamella.snapshot.warehouse.index_access import IndexAccess
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import AggregateRequest, DiffRequest, PruneRequest

#: What the layers of a snapshot take in memory beside what each segment takes, roughly.
_LAYERS_BYTES: Final = 4_096
#: What a prune's outcome takes beside its arrays, texts and the filter that it is kept under, roughly.
_FUNNEL_BYTES: Final = 8_192
#: Limits of what :meth:`Questions.find_now` looks at: about a millisecond of work.
_NOW_SEGMENTS: Final = 20_000
_NOW_BLOCKS: Final = 20_000
_NOW_KEPT: Final = 500

Asked = PruneRequest | DiffRequest | AggregateRequest


class Finder:
    """Finds what a prune keeps. ``root`` is the warehouse, ``tokens`` signs where an answer was cut.

    ``grain``: how many blocks are tested together.
    """

    def __init__(
        self,
        manifests: Manifests,
        pages: PageSource,
        tokens: PageTokens,
        root: str,
        timer: Callable[[], float],
        grain: Grain,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._manifests = manifests
        self._pages = pages
        self._tokens = tokens
        self._root = root
        self._timer = timer
        self._grain = grain
        self._clock = clock
        #: What readers reported, where it is believed; set by whoever keeps it.
        self.feedback: FeedbackSource | None = None
        self._filters = Filters()
        self._seen: Shelf[Layers] = Shelf(manifests.resident, "layers")
        self._funnels: Shelf[Remembered] = Shelf(manifests.resident, "funnel")
        self._verdicts: VerdictShelf = Shelf(manifests.resident, "verdicts")
        self._access = IndexAccess(manifests)
        self._columns = Columns(Shelf(manifests.resident, "column"), manifests.disk)

    def _indexes_of(self, head: Snapshot, segments: Companion, refs: CompanionRefs) -> IndexLayer | None:
        indexes = self._access.indexes(head)
        if not indexes:
            return None
        return IndexLayer(indexes, self._keys_of(segments, refs), self._timer)

    def read(self, request: Asked) -> Predicate:
        """The filter of a request; raises InvalidFilter, LimitExceeded.

        ``now()`` and its like are what the clock says now, once for the whole request. Where the answer is one of
        several (a page, or some of the segments), they would differ from one to the next: there they are not used.
        """
        parts = isinstance(request, PruneRequest) and (
            request.page_size is not None
            or request.page_token is not None
            or request.segments is not None
            or request.level == "segment"
        )
        now_us = None if self._clock is None or parts else self._clock() * 1_000
        return self._filters.read(request.filter, time_zone=request.time_zone, now_us=now_us)

    def bound(self, predicate: Predicate, schema: Schema, request: Asked) -> BoundPredicate:
        """A filter over the columns of a schema; raises UnknownColumn, FilterTypeMismatch."""
        return self._filters.bound(
            predicate, schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive
        )

    def find(self, pointer: SnapshotPointer, request: PruneRequest) -> Found:
        """As :meth:`prune`, before it takes a form to travel in (see :mod:`lamella.snapshot.prune.encode`)."""
        return self.find_predicate(pointer, self.read(request), request)

    def find_within(self, pointer: SnapshotPointer, request: PruneRequest, most_tests: int) -> Found | Deferred:
        """As :meth:`find`, unless it takes more tests than that: then its cost, found out before a segment is opened.

        What is remembered takes none. Where the request itself ends the looking early, nobody knows how many it takes.
        """
        try:
            return self.find_predicate(pointer, self.read(request), request, most_tests=most_tests)
        except NotNow as error:
            return error.cost

    def cost(self, pointer: SnapshotPointer, predicate: Predicate, request: PruneRequest) -> Deferred:
        """What a prune costs, found out before a segment is opened; none where it is remembered, or not known."""
        layers = self.layers(pointer)
        filter = Evaluator(self.bound(predicate, layers.head.schema, request))
        if request.level == "segment" or _ends_early(request):
            return Deferred()
        if _is_simple(request) and self._funnels.get((layers.head.snapshot_id, filter.key)) is not None:
            return Deferred()
        return Pruning(layers, _unopened, self._timer).cost(filter)

    def find_predicate(
        self,
        pointer: SnapshotPointer,
        predicate: Predicate,
        request: PruneRequest,
        *,
        held: dict[str, Companion] | None = None,
        most_tests: int | None = None,
    ) -> Found:
        """As :meth:`find`, for a filter that has been read already; ``request.filter`` is not looked at.

        ``held``: companions by location that other prunes have opened, and that this one adds to. Raises NotNow where
        it takes more than ``most_tests``, unless the request itself ends the looking early.
        """
        most_tests = None if _ends_early(request) else most_tests
        layers = self.layers(pointer)
        head = layers.head

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

        return self._found(layers, load, predicate, request, load_many=load_many, most_tests=most_tests)

    def find_now(self, pointer: SnapshotPointer, request: PruneRequest) -> Found | Deferred:
        """As :meth:`find` when that takes about a millisecond and reads nothing: for callers that must not wait.

        Else what is known of its cost: what it needs is not in memory, or many blocks are to be looked at. An answer of
        at most 500 blocks can be encoded without reading, too. How long the filter may be is for the caller to say.
        """
        held = self._manifests.held_layer(pointer)
        if held is None or len(held[1]) > _NOW_SEGMENTS:
            return Deferred()
        head, segments = held
        layers = self._layers(head, segments)
        predicate = self.read(request)
        if not _is_simple(request) or (self.feedback is not None and not self.feedback.is_near(head)):
            if _ends_early(request):
                return Deferred()
            return Pruning(layers, _unopened, self._timer).cost(Evaluator(self.bound(predicate, head.schema, request)))
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

        try:
            found = self._found(layers, load, predicate, request, most_blocks=_NOW_BLOCKS)
        except NotNow as error:
            return Deferred() if _ends_early(request) else error.cost
        if found.block_count <= _NOW_KEPT:  # their addresses are in the companions
            rows = found.segment_rows
            if any(self._manifests.held_blocks(head, layers.companion(row)) is None for row in rows):
                return Deferred(block_tests=found.block_count)
        is_finding = False
        return found

    def _found(
        self,
        layers: Layers,
        load: Callable[[int], Companion],
        predicate: Predicate,
        request: PruneRequest,
        *,
        load_many: Load | None = None,
        most_blocks: int | None = None,
        most_tests: int | None = None,
    ) -> Found:
        head, segments = layers.head, layers.segments
        bound = self.bound(predicate, head.schema, request)
        columns = None
        if request.columns is not None:
            columns = head.schema.select(request.columns, case_sensitive=request.case_sensitive)
        start = None if request.page_token is None else self._tokens.position(request, head.snapshot_id)
        options = read_options(request, head.schema, start)
        pruning = Pruning(layers, load, self._timer, load_many)
        if options.plain and request.level != "segment" and not request.explain:
            funnel = self._remembered(pruning, head.snapshot_id, Evaluator(bound), most_blocks, most_tests)
            funnel = self._told(funnel, layers, predicate, request, most_blocks)
        else:
            funnel = pruning.run(
                bound,
                blocks=request.level != "segment",
                explain=request.explain,
                options=options,
                most_blocks=most_blocks,
                most_tests=most_tests,
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

    def _remembered(
        self, pruning: Pruning, snapshot_id: str, filter: Evaluator, most_blocks: int | None, most_tests: int | None
    ) -> Funnel:
        """What a filter alone leaves of a snapshot, which never changes."""
        name = (snapshot_id, filter.key)
        known = self._funnels.get(name)
        if known is not None:
            return pruning.again(known)
        found = pruning.run(filter, most_blocks=most_blocks, most_tests=most_tests)
        if any(use.failure is not None for use in found.indexes):  # it may be read the next time
            return found
        self._funnels.put(name, found.remembered(), found.size_bytes + filter.key.size_bytes + _FUNNEL_BYTES)
        return found

    def _told(
        self, funnel: Funnel, layers: Layers, predicate: Predicate, request: PruneRequest, most_blocks: int | None
    ) -> Funnel:
        """Without the blocks that readers found empty; what they say changes, so it is not part of what is kept.

        Raises NotNow: of more than ``most_blocks`` blocks, or of blocks whose keys are not in memory.
        """
        if self.feedback is None or not funnel.kept:
            return funnel
        keys = self._held_keys_of(layers)
        if most_blocks is None:
            keys = self._keys_of(layers.segments, layers.companion)
        told = told_of(self.feedback, layers.head, predicate, request, keys, self._timer)
        if told is None:
            return funnel
        if most_blocks is not None and block_count_of(funnel.kept) > most_blocks:
            raise NotNow
        kept = told.refine(funnel.kept)
        return msgspec.structs.replace(funnel, kept=kept, walked=Walked(kept=kept), feedback=told.use)

    def _keys_of(self, segments: Companion, refs: CompanionRefs) -> Callable[[int], BlockKeys]:
        """Gives the block keys of a segment by its row."""
        manifests = CompanionRefs(segments, "manifest")
        return lambda row: self._manifests.keys_of(refs(row), manifests(row))

    def _held_keys_of(self, layers: Layers) -> Callable[[int], BlockKeys]:
        """As :meth:`_keys_of` for callers that must not wait: raises NotNow when they would have to be read."""

        def keys(row: int) -> BlockKeys:
            companion = self._manifests.held_blocks(layers.head, layers.companion(row))
            found = None if companion is None else companion.block_keys()
            if found is None:
                raise NotNow
            return found

        return keys

    def layers(self, pointer: SnapshotPointer) -> Layers:
        """The layers of a snapshot."""
        return self._layers(self._manifests.head(pointer), self._manifests.layer(pointer))

    def _layers(self, head: Snapshot, segments: Companion) -> Layers:
        """Those of the last snapshots that were asked for are kept."""
        found = self._seen.get(head.snapshot_id)
        if found is None:
            refs = CompanionRefs(segments)
            blocks = ResidentBlocks(
                segments,
                self._columns,
                _view(head),
                self._grain,
                is_near=lambda row: self._manifests.is_near(refs(row)),
            )
            found = Layers(head, segments, blocks, self._verdicts, refs, self._indexes_of(head, segments, refs))
            self._seen.put(head.snapshot_id, found, _LAYERS_BYTES + refs.BYTES_A_SEGMENT * len(segments))
        return found


def _view(head: Snapshot) -> str:
    """What names the schema that companions are seen from, with those that they may have been written with.

    Their numbers do not: of two changes that began with the same snapshot, each has its own schema of that number.
    """
    return hashlib.sha256(msgspec.json.encode(head.history)).hexdigest()


def _ends_early(request: PruneRequest) -> bool:
    """True when not all blocks that the segments leave are tested, and the request says where that ends."""
    return not (
        request.limit is None and request.page_size is None and request.segments is None and request.max_ms is None
    )


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


def _unopened(_row: int) -> Companion:
    raise AssertionError("an estimate opens no segment")
