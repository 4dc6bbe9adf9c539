"""Explains why one block is kept for a filter or not: the prune's own verdict, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, cast

import msgspec
import numpy as np

from lamella.snapshot.columnar.zones import MAY_NAN, MAY_NULL, MAY_NUMBER, Zones
from lamella.snapshot.errors import NotFound
from lamella.snapshot.expression import BoundPredicate, Predicate, text_of
from lamella.snapshot.expression.bound import columns_of
from lamella.snapshot.expression.nodes import And
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.pages import PageSource
from lamella.snapshot.prune.block_layer import Layers, number_of_segment
from lamella.snapshot.prune.explain import Layer, judged
from lamella.snapshot.prune.indexes import IndexLayer
from lamella.snapshot.prune.options import read_options
from lamella.snapshot.prune.outcome import NONE, SOME, VERDICT_NAMES
from lamella.snapshot.prune.pages import page_layer, page_segments
from lamella.snapshot.prune.result import PruneResult, SegmentSelection
from lamella.snapshot.schema import Leaf
from lamella.snapshot.stats.bucket import Bucket
from lamella.snapshot.stats.column import Nan
from lamella.snapshot.warehouse.block_view import zones_nan, zones_text
from lamella.snapshot.warehouse.finder import Finder
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import IndexUse, PruneRequest

#: A prune's verdict; NONE: the block is not kept.
BlockVerdict = Literal["NONE", "SOME", "UNKNOWN", "ALL"]
LayerName = Literal["snapshot", "segment", "block"]
#: The layer that excluded a block.
Decider = Literal["snapshot", "segment", "block", "index", "request", "pages"]
#: An index's result for a block and a predicate.
Said = Literal["ruled_out", "may_match", "not_indexed", "unreadable"]


class ColumnBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds that a filter was compared with. ``min`` and ``max`` are SQL literals, None if unknown; ``is_cut``:
    one is too long to show. ``nulls`` and ``nan``: whether rows are null or NaN; ``nan`` is None for types without
    NaN. ``is_constant``: the block's own value of a column that its file does not hold. ``bucket``: a number of
    buckets, and the one that all values are in."""

    column: str
    min: str | None = None
    max: str | None = None
    is_cut: bool = False
    nulls: Nan = "maybe"
    nan: Nan | None = None
    is_constant: bool = False
    bucket: Bucket | None = None


class LayerWhy(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of one layer by itself; ``reasons``: if it is UNKNOWN, the missing statistics that could have
    decided."""

    layer: LayerName
    verdict: BlockVerdict
    reasons: tuple[str, ...] = ()
    bounds: tuple[ColumnBounds, ...] = ()


class IndexWhy(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a skip index for the block; ``reason``: the same in words."""

    index: str
    kind: str
    expression: str
    said: Said
    reason: str


class ConjunctWhy(msgspec.Struct, frozen=True, kw_only=True):
    """A conjunct of the filter, evaluated on each layer separately, with the ``indexes`` that were probed for it.

    ``indexes`` is empty if bounds decide the block, or if no index answers such a predicate.
    """

    predicate: str
    layers: tuple[LayerWhy, ...]
    indexes: tuple[IndexWhy, ...] = ()

    @property
    def block(self) -> LayerWhy:
        """Returns the verdict of the block's own bounds."""
        return self.layers[-1]


class PagesWhy(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a block that its pages leave: ``row_count`` rows in ``range_count`` ranges; ``matching_rows`` of them
    are in ranges where all rows match.

    ``is_whole``: nothing is known of its row groups. ``reason``: why its pages are unknown.
    """

    range_count: int
    row_count: int
    matching_rows: int
    is_whole: bool = False
    reason: str | None = None


class BlockWhy(msgspec.Struct, frozen=True, kw_only=True):
    """Why a block is kept, or not. ``verdict`` is the prune's; ``decided_by``: the layer that excluded it, None if it
    is kept.

    ``text``: the same in words. ``layers``: verdicts on the whole ``filter``, each layer by itself. ``pages``: at level
    "page". ``live_row_count``: the rows that are not deleted, None if their number is unknown.
    """

    snapshot_id: str
    segment_id: str
    number: int
    location: str
    row_count: int
    filter: str
    verdict: BlockVerdict
    decided_by: Decider | None
    text: str
    layers: tuple[LayerWhy, ...]
    conjuncts: tuple[ConjunctWhy, ...]
    pages: PagesWhy | None = None
    live_row_count: int | None = None


def selected_text(
    verdict: BlockVerdict, conjuncts: Sequence[ConjunctWhy], given_up: str | None, *, has_deletes: bool
) -> str:
    """Returns why a block is kept, in words. ``given_up``: a note on an index that could have excluded it."""
    if verdict == "ALL":
        bounds = _lie(each.block for each in conjuncts)
        rows = "row that is not deleted" if has_deletes else "row"
        return f"kept: every {rows} matches" + (f", as {bounds}" if bounds else "")
    more = "" if given_up is None else f"; {given_up}"
    if verdict == "UNKNOWN":
        reasons = dict.fromkeys(reason for each in conjuncts for reason in each.block.reasons)
        return f"kept: {_listed(reasons) or 'what could rule it out is not known'}{more}"
    open_ = [each.block for each in conjuncts if each.block.verdict != "ALL"]
    bounds = _lie(open_)
    if not bounds:
        return f"kept: nothing rules it out{more}"
    verb = "overlap" if len({each.column for layer in open_ for each in layer.bounds}) > 1 else "overlaps"
    return f"kept: {bounds}, which {verb} the filter{more}"


def ruled_out_text(layer: LayerName, conjuncts: Sequence[ConjunctWhy]) -> str:
    """Returns why the bounds of a layer exclude a block, in words."""
    who = {
        "snapshot": "skipped with the whole table: there ",
        "segment": "skipped with its segment: there ",
        "block": "skipped: ",
    }[layer]
    for conjunct in conjuncts:
        for each in conjunct.layers:
            if each.layer == layer and each.verdict == "NONE":
                bounds = _lie([each])
                so = f"{bounds}, so " if bounds else ""
                return f"{who}{so}{conjunct.predicate} is true for no row"
    return f"{who}the parts of the filter together rule out every row"


def index_text(indexes: Sequence[str], conjuncts: Sequence[ConjunctWhy]) -> str:
    """Returns which indexes excluded a block, in words."""
    if len(indexes) != 1:
        return f"skipped by indexes {_listed(map(repr, indexes))} together"
    for conjunct in conjuncts:
        if any(each.index == indexes[0] and each.said == "ruled_out" for each in conjunct.indexes):
            return f"skipped by index {indexes[0]!r}: {conjunct.predicate} is true for no row"
    return f"skipped by index {indexes[0]!r}"


def _lie(layers: Iterable[LayerWhy]) -> str:
    """Returns the bounds of the columns of some layers' entries, in words."""
    return _listed(dict.fromkeys(_bounds_text(bounds) for layer in layers for bounds in layer.bounds))


def _bounds_text(bounds: ColumnBounds) -> str:
    name = bounds.column
    if bounds.is_constant:
        value = "NULL" if bounds.nulls == "all" else "NaN" if bounds.nan == "all" else bounds.min
        return f"{name} is {value} in every row (a constant of the block)"
    if bounds.nulls == "all":
        return f"{name} is NULL in every row"
    if bounds.nan == "all":
        return f"{name} is NaN in every row that has a value"
    bucket = "" if bounds.bucket is None else f" and in bucket {bounds.bucket[1]} of {bounds.bucket[0]}"
    if bounds.min is not None and bounds.max is not None:
        return f"{name} lies in [{bounds.min}, {bounds.max}]{bucket}"
    if bounds.min is not None:
        return f"{name} is at least {bounds.min}{bucket}"
    if bounds.max is not None:
        return f"{name} is at most {bounds.max}{bucket}"
    return f"{name} is{bucket.removeprefix(' and')}" if bucket else f"{name} has no bounds"


def _listed(parts: Iterable[str]) -> str:
    found = list(parts)
    return found[0] if len(found) == 1 else " and ".join([", ".join(found[:-1]), *found[-1:]]) if found else ""


_VERDICTS: Final = cast("tuple[BlockVerdict, ...]", VERDICT_NAMES)


class BlockReasons:
    """Explains verdicts. Reads what a prune reads, limited to one block; ``timer`` returns seconds."""

    def __init__(self, manifests: Manifests, finder: Finder, pages: PageSource, timer: Callable[[], float]) -> None:
        self._manifests = manifests
        self._finder = finder
        self._pages = pages
        self._timer = timer

    def why(self, pointer: SnapshotPointer, request: PruneRequest, segment_id: str, number: int) -> BlockWhy:
        """Explains why the block ``number`` of a segment is in the answer to a prune, or is not.

        This refers to the complete answer: paging and time limits of a request are ignored. At level "page" the block's
        own pages are checked, as in a prune.

        Raises:
            SegmentNotFound: the snapshot does not have the segment; NotFound: the segment has no block with that
                number.
            InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded, InvalidRequest: the request is invalid.
            StoreError, ManifestError: an object cannot be read.
        """
        layers = self._finder.layers(pointer)
        row = number_of_segment(layers.segments.texts("segment_id"), segment_id)
        sidecar = self._manifests.blocks(layers.head, layers.sidecar(row))
        if not 0 <= number < len(sidecar):
            count = len(sidecar)
            raise NotFound(f"the segment has no block {number}, but {count}", segment_id=segment_id, block=number)
        predicate = self._finder.read(request)
        request_of_block = msgspec.structs.replace(
            request,
            level="block",
            shape="records",
            columns=None,
            reader_columns=(),
            explain=False,
            residuals=False,
            page_size=None,
            page_token=None,
            max_ms=None,
        )
        found = self._finder.find_predicate(pointer, predicate, request_of_block)
        bound = self._finder.bound(predicate, layers.head.schema, request)
        block = SegmentSelection(
            row, sidecar, np.array([number]), np.array([_code(found, row, number)], dtype=np.uint8)
        )
        case = _Case(layers, block, bound)
        conjuncts = tuple(
            case.conjunct(text_of(part), self._finder.bound(part, layers.head.schema, request))
            for part in _conjuncts(predicate)
        )
        pages = None
        if request.level == "page" and block.codes[0] != NONE:
            pages = self._page_ranges(bound, block, layers)
        verdict, by, text = case.decision(found, request_of_block, conjuncts, pages)
        return BlockWhy(
            snapshot_id=layers.head.snapshot_id,
            segment_id=segment_id,
            number=number,
            location=sidecar.text_at("location", number),
            row_count=case.row_count,
            filter=text_of(predicate),
            verdict=verdict,
            decided_by=by,
            text=text,
            layers=case.layers,
            conjuncts=conjuncts,
            pages=pages,
            live_row_count=case.live_row_count,
        )

    def _page_ranges(self, bound: BoundPredicate, block: SegmentSelection, layers: Layers) -> PagesWhy:
        segment = page_segments(layers.segments)
        (left,) = page_layer(bound, [block], self._pages, segment, None, self._timer).pages
        if left is None:
            return PagesWhy(range_count=0, row_count=0, matching_rows=0)
        if left.whole:
            count = int(block.numbers("row_count")[0])
            return PagesWhy(range_count=1, row_count=count, matching_rows=0, is_whole=True, reason=left.reason)
        proven = left.all_match or [False] * len(left.row_count)
        return PagesWhy(
            range_count=len(left.row_count),
            row_count=sum(left.row_count),
            matching_rows=sum(rows for rows, matching in zip(left.row_count, proven, strict=True) if matching),
            reason=left.reason,
        )


class _Case:
    """One block with the verdict of a prune, and one filter."""

    def __init__(self, layers: Layers, block: SegmentSelection, bound: BoundPredicate) -> None:
        self._head = layers.head
        self._block = block
        self._bound = bound
        self.row_count = int(block.numbers("row_count")[0])
        number = int(block.rows[0])
        sidecar = block.sidecar
        live_row_count = int(sidecar.live_row_counts()[number])
        self.live_row_count = live_row_count if live_row_count >= 0 else None
        self._has_deletes = sidecar.deletes(block.rows) != [None]
        self._constants = frozenset(sidecar.constants(block.rows)[0] or ())
        snapshot = Layer("snapshot", layers.summary, np.array([layers.head.summary.row_count]))
        self._entries = (
            (snapshot, 0),
            (Layer.of("segment", layers.segments), block.segment),
            (Layer.of("block", block.sidecar), number),
        )
        self.layers = self._judged(bound, with_bounds=False)
        _, segment, own = (layer.verdict for layer in self.layers)
        is_open = segment != "NONE" and own in ("SOME", "UNKNOWN")
        self._indexes: IndexLayer | None = layers.indexes if is_open else None
        self._alone = {} if self._indexes is None else self._indexes.one_by_one()
        #: The block after bounds, before indexes.
        self._open = SegmentSelection(block.segment, block.sidecar, block.rows, np.array([SOME], dtype=np.uint8))

    def conjunct(self, text: str, bound: BoundPredicate) -> ConjunctWhy:
        """Explains one conjunct of the filter."""
        said = []
        for alone in self._alone.values():
            questions = alone.questions(bound)
            if questions is not None:
                questions.refine([self._open])
                said.append(_said(questions.uses[0]))
        return ConjunctWhy(predicate=text, layers=self._judged(bound, with_bounds=True), indexes=tuple(said))

    def decision(
        self, found: PruneResult, request: PruneRequest, conjuncts: tuple[ConjunctWhy, ...], pages: PagesWhy | None
    ) -> tuple[BlockVerdict, Decider | None, str]:
        """Returns the verdict, the layer that excluded the block, and an explanation."""
        verdict = _VERDICTS[int(self._block.codes[0])]
        if pages is not None and not pages.range_count:
            return "NONE", "pages", "skipped: none of its pages can hold a row that matches"
        if verdict != "NONE":
            text = selected_text(verdict, conjuncts, self._given_up(found), has_deletes=self._has_deletes)
            return verdict, None, text
        if not self.row_count:
            return verdict, "block", "skipped: it has no rows"
        for layer in self.layers if self.layers[1].verdict == "NONE" else self.layers[1:]:
            if layer.verdict == "NONE":
                return verdict, layer.layer, ruled_out_text(layer.layer, conjuncts)
        indexes = self._ruling_out()
        if not indexes and not read_options(request, self._head.schema).plain:
            return verdict, "request", f"left out: the filter keeps it, but not the request's {_options(request)}"
        # A cached prune result may depend on a part of an index that can no longer be read.
        indexes = indexes or [use.name for use in found.answer.report.indexes if use.ruled_out]
        return verdict, "index", index_text(indexes, conjuncts)

    def _judged(self, bound: BoundPredicate, *, with_bounds: bool) -> tuple[LayerWhy, ...]:
        found = []
        for layer, entry in self._entries:
            codes, lacking = judged(bound, layer)
            constants = self._constants if layer.name == "block" else frozenset()
            found.append(
                LayerWhy(
                    layer=layer.name,
                    verdict=_VERDICTS[int(codes[entry])],
                    reasons=tuple(reason for reason, mask in lacking.items() if mask[entry]),
                    bounds=tuple(
                        _bounds(leaf, layer.lookup(leaf), entry, is_constant=leaf.id in constants)
                        for leaf in columns_of(bound)
                    )
                    if with_bounds
                    else (),
                )
            )
        return tuple(found)

    def _ruling_out(self) -> list[str]:
        """Returns the indexes that exclude the block: one that does so alone, or all that were probed if only their
        combination does."""
        if self._indexes is None:
            return []
        result = self._indexes.refine(self._bound, [self._open])
        if result.selected:
            return []
        for name, alone in self._alone.items():
            if not alone.refine(self._bound, [self._open]).selected:
                return [name]
        return [use.name for use in result.uses]

    def _given_up(self, found: PruneResult) -> str | None:
        """Returns the index that would exclude the block, which the prune kept."""
        stopped = {use.name: use.stopped for use in found.answer.report.indexes if use.stopped is not None}
        for name in self._ruling_out() if stopped else ():
            if name in stopped:
                return f"index {name!r} would rule it out, but was not evaluated for it, since {stopped[name]}"
        return None


def _code(found: PruneResult, row: int, number: int) -> int:
    """A prune's verdict of a block."""
    for part in found.parts():
        if part.segment == row:
            codes = part.codes[part.rows == number]
            return int(codes[0]) if len(codes) else NONE
    return NONE


def _conjuncts(predicate: Predicate) -> list[Predicate]:
    if isinstance(predicate, And):
        return [part for child in predicate.children for part in _conjuncts(child)]
    return [predicate]


def _bounds(leaf: Leaf, zones: Zones, entry: int, *, is_constant: bool) -> ColumnBounds:
    shown, flags = zones_text(leaf.dtype, zones, entry), int(zones.flags[entry])
    some: Nan = "maybe" if flags & (MAY_NUMBER | MAY_NAN) else "all"
    return ColumnBounds(
        column=leaf.name,
        min=shown.min,
        max=shown.max,
        is_cut=shown.is_cut,
        nulls=some if flags & MAY_NULL else "none",
        nan=zones_nan(leaf.dtype, zones, entry),
        is_constant=is_constant,
        bucket=None if zones.buckets is None else zones.buckets.of(entry),
    )


def _said(use: IndexUse) -> IndexWhy:
    said: Said
    if use.failure is not None:
        said, reason = "unreadable", use.failure
    elif use.not_indexed:
        said, reason = "not_indexed", "it does not cover the block; refresh it"
    elif use.ruled_out:
        said, reason = "ruled_out", "no row can match"
    else:
        said, reason = "may_match", "a row may match"
    return IndexWhy(index=use.name, kind=use.kind, expression=use.expression, said=said, reason=reason)


def _options(request: PruneRequest) -> str:
    given = {
        "join keys": bool(request.join),
        "order": bool(request.order_by),
        "limit": request.limit is not None,
        "segments": request.segments is not None,
    }
    return " and ".join(name for name, is_given in given.items() if is_given)
