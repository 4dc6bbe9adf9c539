"""Finds the blocks of a snapshot that can match a filter, using its skip indexes."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, overload

import msgspec
import numpy as np

from lamella.snapshot.cache import CacheNamespace, estimated_bytes
from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.columnar.chunk import Columns, Load
from lamella.snapshot.columnar.sidecar import SidecarRefs
from lamella.snapshot.columnar.snapshot_blocks import BatchSizes, SnapshotBlocks
from lamella.snapshot.errors import UnknownColumn
from lamella.snapshot.expression import BoundPredicate, Filters, Predicate, text_of
from lamella.snapshot.expression.bound import BoundTerm, BoundTest, columns_of
from lamella.snapshot.index import Kind, Part, PartRef, PossibleOutcomes, Probe, kind_named, kinds
from lamella.snapshot.index.definition import term_in, term_key
from lamella.snapshot.index.directory import Directory, Numbers
from lamella.snapshot.index.widening import can_serve
from lamella.snapshot.manifest import Snapshot, SnapshotPointer, TableIndex, require_features
from lamella.snapshot.manifest.block_key import BlockKeys
from lamella.snapshot.pages import PageSource
from lamella.snapshot.prune.block_layer import Layers, VerdictCache
from lamella.snapshot.prune.evaluate import Evaluator, FilterKey
from lamella.snapshot.prune.indexes import IndexLayer
from lamella.snapshot.prune.options import read_options
from lamella.snapshot.prune.pages import page_segments, with_pages
from lamella.snapshot.prune.paging import PageTokens
from lamella.snapshot.prune.pipeline import Deferred, NotNow, Pruning
from lamella.snapshot.prune.residual import with_reader_columns, with_residuals
from lamella.snapshot.prune.result import BlockSelection, OpenSegment, PruneResult
from lamella.snapshot.prune.writer import is_written_now
from lamella.snapshot.schema import DataType, Schema, parse_type
from lamella.snapshot.storage import TableLayout, table_root
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import AggregateRequest, DiffRequest, PruneAnswer, PruneRequest

# The indexes of a snapshot, ready to be probed: bound to its schema; local parts are opened in place.
#
# What was read of a part is kept in the shared memory cache; local parts are mapped.

#: Approximate size of a cached page without its bytes.
_PAGE_BYTES: Final = 300
#: Approximate size of an open part without its tail.
_PART_BYTES: Final = 4_096


class IndexAccess:
    """Opens the objects of indexes."""

    def __init__(self, manifests: Manifests) -> None:
        self._manifests = manifests
        self._parts: CacheNamespace[tuple[Part, Probe]] = CacheNamespace(manifests.memory_cache, "index part")
        self._pages: CacheNamespace[bytes | memoryview] = CacheNamespace(manifests.memory_cache, "index page")

    def indexes(self, head: Snapshot) -> list[SnapshotIndex]:
        """Returns the usable indexes of a snapshot: without those that are dropped, whose columns no longer exist, or
        whose kind is not installed."""
        found = []
        for index in head.skip_indexes:
            if index.dropped_ms is None and index.directories and index.kind in kinds():
                term = term_in(index, head)
                if term is not None:
                    found.append(SnapshotIndex(self, index, term))
        return found

    def directories(self, index: TableIndex) -> list[Directory]:
        """Returns the directories of an index, the last one first, since it wins."""
        return [self._manifests.directory(ref.object) for ref in reversed(index.directories)]

    def is_open(self, ref: PartRef) -> bool:
        """Returns whether :meth:`opened` reads nothing."""
        return self._parts.get(ref.location) is not None

    def opened(self, kind: Kind, ref: PartRef) -> tuple[Part, Probe]:
        """Returns a part and its probe; raises as :class:`Part`."""

        def made() -> tuple[tuple[Part, Probe], int]:
            part = Part(ref, self._manifests.ranges_of(ref.location), _Pages(self._pages, ref.location))
            return (part, kind.probe(part)), ref.tail_bytes + _PART_BYTES

        return self._parts.load(ref.location, made)


class _Pages:
    """The pages of one part in the memory cache."""

    def __init__(self, cache: CacheNamespace[bytes | memoryview], location: str) -> None:
        self._cache = cache
        self._location = location

    def get(self, page: int, /) -> bytes | memoryview | None:
        """Returns a page, if it is cached."""
        return self._cache.get((self._location, page))

    def __setitem__(self, page: int, data: bytes | memoryview, /) -> None:
        """Cache a page."""
        self._cache.put((self._location, page), data, len(data) + _PAGE_BYTES)


class _Silent:
    """The probe of a part that was built over an incompatible type: it knows nothing."""

    def possible_outcomes(self, test: BoundTest, rows: Numbers) -> PossibleOutcomes | None:  # noqa: ARG002  # whatever is requested
        """Returns None."""
        return None


_SILENT: Final = _Silent()


class SnapshotPart:
    """A part for one request."""

    def __init__(self, access: IndexAccess, kind: Kind, ref: PartRef, dtype: DataType) -> None:
        self._access = access
        self._dtype = dtype
        self._kind = kind
        self._ref = ref
        self._part: Part | None = None
        self._before = 0

    @property
    def read_bytes(self) -> int:
        """Returns the bytes read since :meth:`probe`, including those of concurrent requests."""
        return 0 if self._part is None else self._part.read_bytes - self._before

    def probe(self) -> Probe:
        """Opens the part."""
        was_open = self._access.is_open(self._ref)
        part, probe = self._access.opened(self._kind, self._ref)
        self._part, self._before = part, part.read_bytes if was_open else 0
        return probe if can_serve(parse_type(part.header.dtype), self._dtype) else _SILENT


class _SnapshotParts(Sequence[SnapshotPart]):
    """The parts of directories, one after another. A part is made when it is used, since a table may have many."""

    def __init__(self, made: Callable[[PartRef], SnapshotPart]) -> None:
        self._made = made
        self._firsts: list[int] = []
        self._refs: list[Sequence[PartRef]] = []
        self._count = 0
        self._known: dict[int, SnapshotPart] = {}

    def add(self, refs: Sequence[PartRef]) -> None:
        """Add the parts of one more directory."""
        self._firsts.append(self._count)
        self._refs.append(refs)
        self._count += len(refs)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> SnapshotPart: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[SnapshotPart]: ...
    def __getitem__(self, number: int | slice) -> SnapshotPart | Sequence[SnapshotPart]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(self._count))]
        found = self._known.get(number)
        if found is None:
            at = bisect_right(self._firsts, number) - 1
            found = self._known[number] = self._made(self._refs[at][number - self._firsts[at]])
        return found


class SnapshotIndex:
    """An index as one snapshot sees it; see :class:`lamella.snapshot.prune.indexes.OpenIndex`."""

    def __init__(self, access: IndexAccess, index: TableIndex, term: BoundTerm) -> None:
        self.name = index.name
        self.kind = kind_named(index.kind)
        self.expression = index.expression
        self.options: Mapping[str, Any] = index.options
        self.bytes_per_block = index.size_bytes / max(index.block_count, 1)
        self.key: Hashable = term_key(term)
        self._dtype = term.dtype
        self._access = access
        self._index = index

    def locate(self, keys: BlockKeys) -> tuple[Sequence[SnapshotPart], Numbers, Numbers]:
        """Returns the parts that have blocks, and for each block the number of its part (-1: none) and its row
        there."""
        parts = _SnapshotParts(lambda ref: SnapshotPart(self._access, self.kind, ref, self._dtype))
        number = np.full(len(keys), -1, dtype=np.int64)
        row = np.zeros(len(keys), dtype=np.int64)
        for directory in self._access.directories(self._index):
            open_ = (number < 0).nonzero()[0]
            if not len(open_):
                break
            part, at = directory.find(keys[open_])
            known = part >= 0
            number[open_[known]] = part[known] + len(parts)
            row[open_[known]] = at[known]
            parts.add(directory.parts)
        return parts, number, row


#: Approximate memory of a snapshot's layers without that of each segment.
_LAYERS_BYTES: Final = 4_096
#: What a prune's result takes beside its arrays, texts and the filter that it is kept under, roughly.
_RESULT_BYTES: Final = 8_192
#: Limits of what :meth:`Questions.find_now` looks at: about a millisecond of work.
_NOW_SEGMENTS: Final = 20_000
_NOW_BLOCKS: Final = 20_000

FilterRequest = PruneRequest | DiffRequest | AggregateRequest


class Finder:
    """Finds the blocks that a prune keeps. ``root`` is the warehouse, ``tokens`` signs page tokens.

    ``batch_sizes``: the number of blocks that are tested together.
    """

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
        self._manifests = manifests
        self._pages = pages
        self._tokens = tokens
        self._root = root
        self._timer = timer
        self._batch_sizes = batch_sizes
        self._clock = clock
        self._filters = Filters()
        self._seen: CacheNamespace[Layers] = CacheNamespace(manifests.memory_cache, "layers")
        #: Results without what opens sidecars, which would keep alive all that those know.
        self._results: CacheNamespace[tuple[PruneAnswer, BlockSelection]] = CacheNamespace(
            manifests.memory_cache, "funnel"
        )
        self._verdicts: VerdictCache = CacheNamespace(manifests.memory_cache, "verdicts")
        self._access = IndexAccess(manifests)
        self._columns = Columns(CacheNamespace(manifests.memory_cache, "column"), manifests.disk)

    def _indexes_of(self, head: Snapshot, segments: Sidecar, refs: SidecarRefs) -> IndexLayer | None:
        indexes = self._access.indexes(head)
        if not indexes:
            return None
        return IndexLayer(indexes, self._keys_of(segments, refs), self._timer)

    def read(self, request: FilterRequest) -> Predicate:
        """Reads the filter of a request; raises InvalidFilter, LimitExceeded.

        ``now()`` and similar functions return the clock's time, once for the whole request. If the answer is one of
        several (a page, or some of the segments), they would differ between the answers, so there they are unknown.
        """
        parts = isinstance(request, PruneRequest) and (
            request.page_size is not None
            or request.page_token is not None
            or request.segments is not None
            or request.level == "segment"
        )
        now_us = None if self._clock is None or parts else self._clock() * 1_000
        return self._filters.read(request.filter, time_zone=request.time_zone, now_us=now_us)

    def bound(self, predicate: Predicate, schema: Schema, request: FilterRequest) -> BoundPredicate:
        """Binds a filter to the columns of a schema; raises UnknownColumn, FilterTypeMismatch."""
        return self._filters.bound(
            predicate, schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive
        )

    def _bound(self, request: FilterRequest, schema: Schema) -> BoundPredicate:
        """Reads and binds the filter of a request; raises as :meth:`read` and :meth:`bound`."""
        if type(request.filter) is not str:
            return self.bound(self.read(request), schema, request)
        return self._filters.bound_text(
            request.filter,
            schema,
            lambda: self.read(request),
            time_zone=request.time_zone,
            case_sensitive=request.case_sensitive,
        )

    def find(self, pointer: SnapshotPointer, request: PruneRequest) -> PruneResult:
        """Like :meth:`prune`, before the result is encoded (see :mod:`lamella.snapshot.prune.writer`)."""
        return self.find_predicate(pointer, None, request)

    def find_within(self, pointer: SnapshotPointer, request: PruneRequest, max_tests: int) -> PruneResult | Deferred:
        """Like :meth:`find`, but if it takes more than ``max_tests`` tests, returns its cost, determined before a
        segment is opened.

        A cached result takes no tests. If the request itself ends the scan early, the number of tests is unknown.
        """
        try:
            return self.find_predicate(pointer, None, request, max_tests=max_tests)
        except NotNow as error:
            return error.cost

    def cost(self, pointer: SnapshotPointer, predicate: Predicate, request: PruneRequest) -> Deferred:
        """Returns the cost of a prune, determined before a segment is opened; zero if the result is cached or the cost
        is unknown."""
        layers = self.layers(pointer)
        filter = Evaluator(self.bound(predicate, layers.head.schema, request))
        if request.level == "segment" or _ends_early(request):
            return Deferred()
        if _is_simple(request) and self._results.get((layers.head.snapshot_id, filter.key)) is not None:
            return Deferred()
        return Pruning(layers, _unopened, self._timer).cost(filter)

    def find_predicate(
        self,
        pointer: SnapshotPointer,
        predicate: Predicate | None,
        request: PruneRequest,
        *,
        sidecars: dict[str, Sidecar] | None = None,
        max_tests: int | None = None,
    ) -> PruneResult:
        """Like :meth:`find`, for a filter that may have been read already; then ``request.filter`` is ignored.

        ``sidecars``: sidecars by location that other prunes have opened, and that this one adds to. Raises NotNow if it
        takes more than ``max_tests``, unless the request itself ends the scan early.
        """
        max_tests = None if _ends_early(request) else max_tests
        layers = self.layers(pointer)
        head = layers.head

        def load(row: int) -> Sidecar:
            ref = layers.sidecar(row)
            if sidecars is None:
                return self._manifests.blocks(head, ref)
            if ref.location not in sidecars:
                sidecars[ref.location] = self._manifests.blocks(head, ref)
            return sidecars[ref.location]

        def load_many(rows: Sequence[int], *, keep: bool = True, column_ids: Collection[int] = ()) -> list[Sidecar]:
            if sidecars is not None:
                return [load(row) for row in rows]
            refs = [layers.sidecar(row) for row in rows]
            return self._manifests.many_blocks(head, refs, keep=keep, column_ids=column_ids)

        return self._found(layers, load, predicate, request, load_many=load_many, max_tests=max_tests)

    def find_now(self, pointer: SnapshotPointer, request: PruneRequest) -> PruneResult | Deferred:
        """Like :meth:`find` if that takes about a millisecond and reads nothing, for callers that must not block.

        Otherwise returns what is known of its cost: required data is not in memory, or many blocks must be tested. An
        answer for which :func:`~lamella.snapshot.prune.writer.is_written_now` holds can also be encoded without
        reading. The caller limits the length of the filter.
        """
        layer = self._manifests.cached_layer(pointer)
        if layer is None or len(layer[1]) > _NOW_SEGMENTS:
            return Deferred()
        head, segments = layer
        layers = self._layers(head, segments)
        if not _is_simple(request):
            if _ends_early(request):
                return Deferred()
            return Pruning(layers, _unopened, self._timer).cost(Evaluator(self._bound(request, head.schema)))
        left, is_finding = _NOW_BLOCKS, True
        requested: tuple[int, ...] | None = None

        def lacks(sidecar: Sidecar) -> bool:
            nonlocal requested
            if requested is None:
                requested = _requested_columns(request, self._bound(request, head.schema), head.schema)
            return sidecar.lacks(requested)

        if segments.is_in_parts and lacks(segments):
            return Deferred()

        def load(row: int) -> Sidecar:
            nonlocal left
            if not is_finding:
                return self._manifests.blocks(head, layers.sidecar(row))
            sidecar = self._manifests.cached_blocks(head, layers.sidecar(row))
            if sidecar is None or (sidecar.is_in_parts and lacks(sidecar)):
                raise NotNow
            left -= len(sidecar)
            if left < 0:
                raise NotNow
            return sidecar

        try:
            found = self._found(layers, load, None, request, max_blocks=_NOW_BLOCKS)
        except NotNow as error:
            return Deferred() if _ends_early(request) else error.cost
        if found.selection is not None and is_written_now(found.selection):  # their addresses are in the sidecars
            for row in found.selection.segments.tolist():
                one = self._manifests.cached_blocks(head, layers.sidecar(row))
                if one is None or (one.is_in_parts and lacks(one)):
                    return Deferred(block_tests=found.block_count)
        is_finding = False
        return found

    def _found(
        self,
        layers: Layers,
        load: OpenSegment,
        predicate: Predicate | None,
        request: PruneRequest,
        *,
        load_many: Load | None = None,
        max_blocks: int | None = None,
        max_tests: int | None = None,
    ) -> PruneResult:
        head, segments = layers.head, layers.segments
        require_features(head.features, request.reader_features)
        if predicate is None and (request.explain or request.residuals):
            predicate = self.read(request)
        bound = self._bound(request, head.schema) if predicate is None else self.bound(predicate, head.schema, request)
        if segments.is_in_parts:
            self._manifests.read_columns([segments], _requested_columns(request, bound, head.schema))
        columns = None
        if request.columns is not None:
            columns = tuple(head.schema.select(request.columns, case_sensitive=request.case_sensitive))
        start = None if request.page_token is None else self._tokens.position(request, head.snapshot_id)
        options = read_options(request, head.schema, start)
        if options.plain and request.level != "segment" and not request.explain:
            result = self._remembered(layers, load, load_many, bound, max_blocks, max_tests)
        else:
            result = Pruning(layers, load, self._timer, load_many).run(
                bound,
                blocks=request.level != "segment",
                explain=request.explain,
                options=options,
                max_blocks=max_blocks,
                max_tests=max_tests,
            )
        if request.level == "page":
            leaves = None if columns is None else [head.schema.by_id()[column_id] for column_id in columns]
            result = with_pages(result, bound, self._pages, page_segments(segments), leaves, self._timer)
        answer = result.answer
        if request.explain and predicate is not None:
            report = msgspec.structs.replace(answer.report, filter=text_of(predicate))
            answer = msgspec.structs.replace(answer, report=report)
        if result.next_position is not None:
            token = self._tokens.write(head.snapshot_id, request, result.next_position)
            answer = msgspec.structs.replace(answer, next_page_token=token)
        result = msgspec.structs.replace(result, answer=answer, shape=request.shape, column_ids=columns)
        if predicate is not None and (request.residuals or request.explain):
            result = with_residuals(result, predicate, head.schema, request)
        if request.reader_columns:
            own_blocks = TableLayout(table_root(self._root, head.table_id)).blocks + "/"
            result = with_reader_columns(result, head, request, own_blocks)
        return result

    def _remembered(
        self,
        layers: Layers,
        load: OpenSegment,
        load_many: Load | None,
        bound: BoundPredicate,
        max_blocks: int | None,
        max_tests: int | None,
    ) -> PruneResult:
        """What a filter alone leaves of a snapshot, which never changes."""
        head = layers.head
        key = FilterKey.of(bound)
        name = (head.snapshot_id, key)
        known = self._results.get(name)
        if known is not None:
            answer, chosen = known
            stages = tuple([msgspec.structs.replace(stage, ms=0.0) for stage in answer.report.stages])
            report = msgspec.structs.replace(answer.report, stages=stages, reused_blocks=0, from_cache=True)
            return PruneResult(
                answer=msgspec.structs.replace(answer, report=report),
                selection=chosen,
                segments=layers.segments,
                schema_id=head.schema.schema_id,
                open_segment=load,
                members=head.summary.required_features,
            )
        pruning = Pruning(layers, load, self._timer, load_many)
        found = pruning.run(Evaluator(bound, key), max_blocks=max_blocks, max_tests=max_tests)
        report, selection = found.answer.report, found.selection
        if selection is None or any(use.failure is not None for use in report.indexes):
            return found  # an index may be read the next time
        size_bytes = selection.size_bytes + key.size_bytes + _RESULT_BYTES
        if report.not_used or report.indexes:
            size_bytes += estimated_bytes(report.not_used) + estimated_bytes(report.indexes)
        self._results.put(name, (found.answer, selection), size_bytes)
        return found

    def _keys_of(self, segments: Sidecar, refs: SidecarRefs) -> Callable[[int], BlockKeys]:
        """Returns a function that gives the block keys of a segment by its row."""
        manifests = SidecarRefs(segments, "manifest")
        return lambda row: self._manifests.keys_of(refs(row), manifests(row))

    def layers(self, pointer: SnapshotPointer) -> Layers:
        """Returns the layers of a snapshot."""
        return self._layers(self._manifests.head(pointer), self._manifests.layer(pointer))

    def _layers(self, head: Snapshot, segments: Sidecar) -> Layers:
        """Returns the layers of a snapshot; those of the most recently used snapshots are cached."""
        found = self._seen.get(head.snapshot_id)
        if found is None:
            refs = SidecarRefs(segments)
            blocks = SnapshotBlocks(
                segments,
                self._columns,
                _view(head),
                self._batch_sizes,
                is_near=lambda row: self._manifests.is_near(refs(row)),
            )
            found = Layers(head, segments, blocks, self._verdicts, refs, self._indexes_of(head, segments, refs))
            size_bytes = _LAYERS_BYTES + blocks.BYTES_A_SEGMENT * len(segments) + refs.max_bytes
            self._seen.put(head.snapshot_id, found, size_bytes)
        return found


def _view(head: Snapshot) -> str:
    """Returns a key of the schema that sidecars are converted to, with the schemas that they may have been written
    with.

    Schema ids are not sufficient: two changes based on the same snapshot both create a schema with the same id.
    """
    return hashlib.sha256(msgspec.json.encode(head.history)).hexdigest()


def _ends_early(request: PruneRequest) -> bool:
    """Returns whether the request ends the scan before all blocks of the remaining segments are tested."""
    return not (
        request.limit is None and request.page_size is None and request.segments is None and request.max_ms is None
    )


def _requested_columns(request: PruneRequest, bound: BoundPredicate, schema: Schema) -> tuple[int, ...]:
    """Returns the ids of the columns whose statistics an answer needs."""
    found = [leaf.id for leaf in columns_of(bound)]
    for name in (*(request.columns or ()), *request.reader_columns):
        with suppress(UnknownColumn):  # whoever uses the name reports it
            found += schema.select([name], case_sensitive=request.case_sensitive)
    return tuple(found)


def _is_simple(request: PruneRequest) -> bool:
    """Returns whether the blocks of the remaining segments determine the cost."""
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


def _unopened(_row: int) -> Sidecar:
    raise AssertionError("an estimate opens no segment")
