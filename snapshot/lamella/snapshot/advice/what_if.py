"""Estimates what filters would read after a change: another index, cluster key or block size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.advice.index_gain import LookUp, chance_of, chances_of, look_up_values, may_match, scale_of
from lamella.snapshot.advice.relayout import cut_zones, merged_zones, sorted_zones, split_zones, with_ends
from lamella.snapshot.advice.scores import index_size, sized
from lamella.snapshot.cluster.extent import extents
from lamella.snapshot.cluster.key import key_terms
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NULL, MAY_NUMBER, NULLS_KNOWN, Zones
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import bind
from lamella.snapshot.expression.bound import (
    BoundIsTrue,
    BoundLeaf,
    BoundPredicate,
    BoundTest,
    Comparison,
    Pair,
    columns_of,
    columns_of_terms,
    leaves_of,
)
from lamella.snapshot.expression.text import text_of
from lamella.snapshot.index import kind_named
from lamella.snapshot.index.building import PART_BLOCKS, BuiltPart, build_part
from lamella.snapshot.index.definition import defined, term_key, term_of
from lamella.snapshot.index.kind import Expected
from lamella.snapshot.manifest import SnapshotPointer, TableIndex
from lamella.snapshot.prune.indexes import OpenIndex
from lamella.snapshot.prune.outcome import NONE
from lamella.snapshot.schema import Leaf
from lamella.snapshot.storage import Store
from lamella.snapshot.warehouse.block_sample import BlockSample, MeasuredIndex, read_columns, refined
from lamella.snapshot.warehouse.finder import IndexAccess
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.read_costs import ReplayedFilter, replayed_filters
from lamella.snapshot.wire.advice import Cost, Forecast, IndexSize, WhatIfAnswer, WhatIfRequest
from lamella.snapshot.workload.distribution import Numbers, SampledColumn, sample_values, stacked
from lamella.snapshot.workload.recorded_filters import Recorded

Rows = npt.NDArray[np.int64]


class TrialFilter(msgspec.Struct, frozen=True, eq=False):
    """A filter that was used ``times`` times. ``selected``: the blocks that it reads now, ascending. ``is_whole``:
    False if some of its constants were not recorded and could not be sampled, so that a part of it is missing.
    ``empty``: those of ``selected`` that readers reported to have no row for it; None: nobody reported.
    """

    node: BoundPredicate
    times: int
    text: str
    selected: Any
    is_whole: bool = True
    empty: Any = None


def trial_filters(
    scene: BlockSample,
    indexes: Sequence[OpenIndex],
    replayed: Sequence[ReplayedFilter],
    *,
    case_sensitive: bool = False,
) -> list[TrialFilter]:
    """Returns the filters with the blocks that each reads now, by bounds and ``indexes``.

    Raises:
        InvalidFilter, UnknownColumn, FilterTypeMismatch: one of the filters.
    """
    bounds = [
        bind(each.predicate, scene.head.schema, time_zone=each.time_zone, case_sensitive=case_sensitive)
        for each in replayed
    ]
    return [
        TrialFilter(
            node, each.times, each.text or text_of(each.predicate), selected_blocks(scene, node, indexes), each.is_whole
        )
        for node, each in zip(bounds, replayed, strict=True)
    ]


def selected_blocks(scene: BlockSample, node: BoundPredicate, indexes: Sequence[OpenIndex]) -> Rows:
    """Returns the blocks that a filter reads now, ascending."""
    codes = scene.tested(node)
    selected = np.flatnonzero(codes != NONE)
    if not len(selected) or not indexes:
        return selected
    return scene.numbers_of(refined(indexes, scene, node, scene.parts(selected, codes))[0])


class Trial:
    """The common base of the answers to all changes."""

    def __init__(
        self, scene: BlockSample, store: Store, request: WhatIfRequest, filters: Sequence[TrialFilter]
    ) -> None:
        self._scene = scene
        self._store = store
        self._request = request
        self._filters = filters
        self._rng = np.random.default_rng(request.seed)
        self._share = max(scene.blocks_total, 1) / max(len(scene), 1)
        self._rests_on = [f"statistics of {len(scene):,} of {counted(scene.blocks_total, 'block')}"]
        self._read = 0

    def _now(self, filter: TrialFilter) -> Cost:
        return self._cost(
            float(len(filter.selected)), float(self._scene.file_size[filter.selected].sum()), len(self._scene)
        )

    def _unchanged(self, filter: TrialFilter, reason: str) -> Forecast:
        """Returns a forecast that the filter reads the same as now."""
        now = self._now(filter)
        return Forecast(filter=filter.text, times=filter.times, now=now, then=now, reason=reason)

    def _untold(self, filter: TrialFilter, reason: str) -> Forecast:
        """Returns a forecast that cannot be estimated."""
        return Forecast(filter=filter.text, times=filter.times, now=self._now(filter), reason=reason)

    def _cost(self, blocks: float, size_bytes: float, count: int) -> Cost:
        """Returns ``blocks`` of ``count``, scaled to the whole table."""
        skip = 1.0 - blocks / count if count else 0.0
        return Cost(blocks=blocks * self._share, bytes=size_bytes * self._share, skip=skip)

    def _answer(self, forecasts: Sequence[Forecast], size: IndexSize | None = None) -> WhatIfAnswer:
        known = [each for each in forecasts if each.then is not None]
        counted = known or forecasts
        weights = [each.times for each in counted]
        return WhatIfAnswer(
            snapshot_id=self._scene.head.snapshot_id,
            blocks_total=self._scene.blocks_total,
            bytes_total=self._scene.head.summary.compressed_byte_size,
            now=_mean([each.now for each in counted], weights),
            then=_mean([each.then for each in known if each.then is not None], weights) if known else None,
            filters=tuple(forecasts),
            unknown=len(forecasts) - len(known),
            measured=self._read > 0,
            blocks_read=self._read,
            size=size,
            rests_on=tuple(self._rests_on),
        )

    def _sample_of(self, candidates: Rows) -> Rows:
        """Samples blocks to read, ascending."""
        count = min(self._request.sample_blocks, len(candidates))
        return np.sort(self._rng.choice(candidates, count, replace=False)) if count else candidates[:0]


def union(parts: Iterable[Rows]) -> Rows:
    return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *parts]))


def _mean(costs: Sequence[Cost], weights: Sequence[int]) -> Cost:
    total = max(sum(weights), 1)

    def mean(values: Iterable[float]) -> float:
        return sum(value * weight for value, weight in zip(values, weights, strict=True)) / total

    return Cost(
        blocks=mean(cost.blocks for cost in costs),
        bytes=mean(cost.bytes for cost in costs),
        skip=mean(cost.skip for cost in costs),
    )


#: Number of sampled blocks that suffice for one filter.
ENOUGH: Final = 30
_ASK: Final = "repeat the request with sample_blocks"
NOT_WHOLE: Final = "the constants of the filter were not recorded and could not be drawn"


class IndexTrial(Trial):
    """A trial of one more index."""

    def __init__(
        self, scene: BlockSample, store: Store, request: WhatIfRequest, filters: Sequence[TrialFilter]
    ) -> None:
        super().__init__(scene, store, request, filters)
        change = request.index
        if change is None:
            raise AssertionError("the request has an index")
        self._kind = kind_named(change.kind)
        self._index: TableIndex = defined(
            index_id="what-if",
            name="what_if",
            kind=change.kind,
            expression=change.expression,
            options=change.options,
            schema=scene.head.schema,
            time_zone=change.time_zone,
            now_ms=0,
        )
        self._term = term_of(change.expression, scene.head.schema, change.time_zone)

    def answer(self) -> WhatIfAnswer:
        """Returns the answer from a sample if the request has one, else from manifests."""
        candidates = union([each.selected for each in self._filters if self._reason(each.node) is None])
        chosen = self._sample_of(candidates)
        if len(chosen):
            return self._measured(chosen)
        value_distribution = self._scene.distribution_by_block(self._term) if isinstance(self._term, Leaf) else None
        size = None
        if value_distribution is not None:
            size = index_size(sized(self._kind, value_distribution, self._index.options, self._scene))
            self._rests_on.append(value_distribution.rests_on)
        return self._answer(self._predicted(), size)

    def _reason(self, node: BoundPredicate) -> str | None:
        """Returns why the index would not be probed."""
        mine = self._mine(node)
        reasons = [self._kind.answers(test, self._index.options) for test in mine]
        if None in reasons:
            return None
        return reasons[0] if reasons else f"no predicate is on {self._index.expression}"

    def _mine(self, node: BoundPredicate) -> list[BoundTest]:
        """Returns the predicates over the index's term."""
        key = term_key(self._term)
        tests = [leaf for leaf in dict.fromkeys(leaves_of(node)) if not isinstance(leaf, Pair)]
        return [test for test in tests if test.term is not None and term_key(test.term) == key]

    def _look_ups(self, node: BoundPredicate) -> dict[BoundTest, LookUp]:
        """Returns the predicates that look for values."""
        found = {}
        for test in self._mine(node):
            values = look_up_values(test)
            if values is not None and self._kind.answers(test, self._index.options) is None:
                found[test] = LookUp(values, may_match(test, self._scene.zones, len(self._scene)))
        return found

    def _predicted(self) -> list[Forecast]:
        """Returns forecasts from manifests."""
        look_ups = [self._look_ups(each.node) for each in self._filters]
        scale = 1.0
        if isinstance(self._term, Leaf):
            tests = [test for tests in look_ups for test in tests.values()]
            scale = scale_of(tests, self._scene.distribution_by_block(self._term), self._scene.zones(self._term))
        return [self._expected(each, mine, scale) for each, mine in zip(self._filters, look_ups, strict=True)]

    def _expected(self, filter: TrialFilter, look_ups: Mapping[BoundTest, LookUp], scale: float) -> Forecast:
        reason = self._reason(filter.node)
        if reason is not None or not len(filter.selected):
            return self._unasked(filter, reason or "")
        if not isinstance(self._term, Leaf):
            return self._untold(filter, f"manifests do not have the values of an expression; {_ASK}")
        value_distribution, options = self._scene.distribution_by_block(self._term), self._index.options
        expected, of_fewest = (
            self._kind.expected(each, options)
            for each in (value_distribution.profile, value_distribution.profile.fewest)
        )
        there: dict[BoundLeaf, Numbers] = {}
        absent: dict[BoundLeaf, Numbers] = {}
        for test, look_up in look_ups.items():
            found = chances_of(look_up, value_distribution, self._scene.zones(self._term), expected, scale, of_fewest)
            if found is not None:
                there[test], absent[test] = found.there, found.absent
        answered = [test for test in self._mine(filter.node) if self._kind.answers(test, options) is None]
        reported = self._reported(filter, look_ups, expected, of_fewest)
        if reported is not None:
            return reported
        is_all = filter.is_whole and len(there) == len(answered)
        why = ""
        if not is_all:
            why = "manifests only allow estimates for look-ups" if filter.is_whole else NOT_WHOLE
            if expected.read_chance is None:
                why = expected.reason
            elif len(there) < len(look_ups):
                why = "the number of distinct values is not known"
        now = self._now(filter)
        then, without = (self._weighed(filter, known) for known in (there, absent))
        if not is_all and then.blocks >= now.blocks:
            return self._untold(filter, f"{why}; {_ASK}")
        return Forecast(
            filter=filter.text,
            times=filter.times,
            now=now,
            then=then,
            if_absent=without if absent else None,
            reason=f"or fewer: {why}" if why else expected.reason if expected.keeps_all else "",
        )

    def _reported(
        self, filter: TrialFilter, look_ups: Mapping[BoundTest, LookUp], expected: Expected, of_fewest: Expected
    ) -> Forecast | None:
        """Returns the forecast of a look-up of one value whose blocks without a row were reported: the others are read,
        and those only by mistake of the index. None: the filter is not such a look-up, or the chance of a mistake
        depends on the number of distinct values, which was not counted."""
        if filter.empty is None or not filter.is_whole:
            return None
        node = filter.node.child if isinstance(filter.node, BoundIsTrue) else filter.node
        look_up = look_ups.get(node) if isinstance(node, Comparison) else None
        if look_up is None or len(look_up.values) != 1 or expected.read_chance is None:
            return None
        is_counted = isinstance(self._term, Leaf) and self._scene.distribution_by_block(self._term).profile.is_counted
        chances = np.asarray(expected.read_chance)
        fewest = of_fewest.read_chance
        if not is_counted and (fewest is None or not np.allclose(chances, fewest)):
            return None
        is_empty = np.isin(filter.selected, filter.empty)
        left = np.where(is_empty, chances[filter.selected], 1.0)
        size_bytes = float((left * self._scene.file_size[filter.selected]).sum())
        then = self._cost(float(left.sum()), size_bytes, len(self._scene))
        return Forecast(filter=filter.text, times=filter.times, now=self._now(filter), then=then)

    def _unasked(self, filter: TrialFilter, reason: str) -> Forecast:
        """Returns the forecast if the index would not be probed, or if no blocks are left to probe; unless a missing
        part of the filter is the reason."""
        if not filter.is_whole and len(filter.selected):
            return self._untold(filter, NOT_WHOLE)
        return self._unchanged(filter, reason)

    def _weighed(self, filter: TrialFilter, known: Mapping[BoundLeaf, Numbers]) -> Cost:
        count = len(self._scene)
        chance = chance_of(filter.node, self._scene.zones, count, known)[filter.selected]
        return self._cost(float(chance.sum()), float((chance * self._scene.file_size[filter.selected]).sum()), count)

    def _measured(self, chosen: Rows) -> WhatIfAnswer:
        built = build_part(self._store, self._index, self._scene.head, [self._scene.block(row) for row in chosen])
        self._read = len(chosen)
        self._rests_on.append(f"an index of {counted(len(chosen) - len(built.left_out), 'block')} read for it")
        if built.left_out:
            self._rests_on.append(
                f"{counted(len(built.left_out), 'block')} could not be indexed: {built.left_out[0].reason}"
            )
        index = MeasuredIndex(self._kind, self._index, self._term, built)
        pairs = [self._ratio(each, chosen, index) for each in self._filters]
        applying = [pair for pair, each in zip(pairs, self._filters, strict=True) if self._reason(each.node) is None]
        before, after = (sum(side) for side in zip(*applying, strict=True)) if applying else (0, 0)
        forecasts = []
        for each, (mine, left) in zip(self._filters, pairs, strict=True):
            now, reason = self._now(each), self._reason(each.node)
            if reason is not None or not len(each.selected):
                forecasts.append(self._unasked(each, reason or ""))
                continue
            # If the sample has hardly any block of the filter, the ratio of the other filters is used.
            ratio = left / mine if mine >= min(ENOUGH, len(each.selected)) else after / before
            then = Cost(blocks=now.blocks * ratio, bytes=now.bytes * ratio, skip=1.0 - (1.0 - now.skip) * ratio)
            why = "" if each.is_whole else f"or fewer: {NOT_WHOLE}"
            forecasts.append(Forecast(filter=each.text, times=each.times, now=now, then=then, reason=why))
        return self._answer(forecasts, self._measured_size(built.part, len(chosen)))

    def _measured_size(self, part: BuiltPart | None, count: int) -> IndexSize | None:
        if part is None:
            return None
        size_bytes = len(part.data) / count * self._scene.blocks_total
        return IndexSize(
            options=self._index.options,
            parts=-(-self._scene.blocks_total // PART_BLOCKS),
            distinct_per_block=0.0,
            is_counted=False,
            size_bytes=size_bytes,
            bytes_per_block=len(part.data) / count,
            share=size_bytes / max(self._scene.head.summary.compressed_byte_size, 1),
            reason="from the sample",
        )

    def _ratio(self, filter: TrialFilter, chosen: Rows, index: OpenIndex) -> tuple[int, int]:
        """Returns the number of sampled blocks that the filter reads now, and that it would read afterwards."""
        mine = chosen[np.isin(chosen, filter.selected)]
        if not len(mine):
            return 0, 0
        parts = self._scene.parts(mine, self._scene.tested(filter.node))
        left, _ = refined([index], self._scene, filter.node, parts)
        return len(mine), sum(len(part.rows) for part in left)


#: Number of rows for trying a layout.
_ROWS: Final = 40_000
#: What a trial of a layout rests on.
NO_INDEXES: Final = "indexes are not considered"
_MAX_PIECES: Final = 1_000


#: Answers whose limits are further apart, as fractions of all blocks, say too little.
_WIDE: Final = 0.1


class LayoutTrial(Trial):
    """A trial of other blocks. Skip indexes would have to be rebuilt and are ignored, before and after."""

    #: Ends the reasons of answers that cannot be estimated.
    _ask = "; repeat the request with sample_blocks"
    #: Blocks of the whole table in the new layout; None: as many as now.
    _blocks_then: int | None = None

    def reclustered(self, blocks: int | None = None) -> WhatIfAnswer:
        """Returns the answer for sorting by another key, in as many blocks, or in ``blocks`` of the whole table."""
        keys = key_terms(
            self._scene.head.schema, self._request.cluster_key or (), case_sensitive=self._request.case_sensitive
        )
        if not keys:
            raise InvalidRequest("a cluster key needs at least one column")
        columns = columns_of_terms(keys)
        leaves = self._leaves(columns)
        count = len(self._scene)
        if blocks is not None and count:
            self._blocks_then = blocks
            count = max(1, round(blocks / self._share))
        mean_rows = float(self._scene.row_count.sum()) / count if count else 0.0
        unbounded = [leaf.name for leaf in columns if not self._has_bounds(leaf)]
        if unbounded and not self._request.sample_blocks:
            reason = f"the manifests have no bounds of {unbounded[0]}{self._ask}"
            return self._answer([self._untold(each, reason) for each in self._filters])
        sample = self._read_sample(leaves) if self._request.sample_blocks else self._sampled_values(leaves)
        if not count or not len(sample[columns[0]].valid):
            return self._answer([self._unchanged(each, "the table has no rows") for each in self._filters])
        zones = sorted_zones(sample, keys, count, mean_rows, self._rng)
        self._rests_on.append(NO_INDEXES)
        if self._read:
            return self._answer([self._tried(each, zones, zones, len(zones[columns[0]])) for each in self._filters])
        zones = {leaf: with_ends(found, self._scene.zones(leaf), leaf.dtype) for leaf, found in zones.items()}
        wide = {leaf: self._doubted(leaf, found) for leaf, found in zones.items()}
        return self._answer([self._tried(each, zones, wide, len(zones[columns[0]])) for each in self._filters])

    def resized(self) -> WhatIfAnswer:
        """Returns the answer for the same rows in the same order, in blocks of another size."""
        target = self._request.rows_per_block or 0
        if target < 1:
            raise InvalidRequest("rows_per_block must be at least 1")
        self._rests_on.append(NO_INDEXES)
        mean_rows = float(self._scene.row_count.mean()) if len(self._scene) else 1.0
        leaves = self._leaves([])
        if target >= mean_rows:
            self._ask = ""  # larger blocks are estimated from statistics alone
            edges = np.floor((np.cumsum(self._scene.row_count) - self._scene.row_count) / target)
            starts = np.flatnonzero(np.concatenate([[True], np.diff(edges) > 0]))[: len(self._scene)]
            zones = {leaf: merged_zones(self._scene.zones(leaf), leaf.dtype, starts) for leaf in leaves}
            narrow = {leaf: self._trusted(leaf, found) for leaf, found in zones.items()}
            return self._answer([self._tried(each, narrow, zones, len(starts)) for each in self._filters])
        pieces = min(_MAX_PIECES, max(1, round(mean_rows / target)))
        if self._request.sample_blocks and leaves:
            return self._cut(leaves, target)
        first = self._cluster_column()
        self._rests_on.append(
            "blocks are assumed to be sorted only by the first column of the cluster key"
            if first is not None
            else "blocks are assumed to be unsorted; repeat the request with sample_blocks"
        )
        zones = {leaf: split_zones(self._scene.zones(leaf), pieces, is_sorted=leaf.id == first) for leaf in leaves}
        narrow = {leaf: self._trusted(leaf, found) for leaf, found in zones.items()}
        forecasts = []
        for each in self._filters:
            found = self._tried(each, narrow, zones, len(self._scene) * pieces)
            if found.then is not None and found.then.skip <= found.now.skip and self._may_gain(each):
                found = self._untold(each, f"manifests do not have the order of rows in a block{self._ask}")
            forecasts.append(found)
        return self._answer(forecasts)

    def _cut(self, leaves: Sequence[Leaf], target: int) -> WhatIfAnswer:
        """Returns the answer for smaller blocks, using the rows of some existing ones."""
        candidates = union([each.selected for each in self._filters if each.is_whole])
        chosen = self._sample_of(candidates)
        found = read_columns(self._store, self._scene, chosen, leaves)
        self._read = len(chosen)
        self._rests_on.append(f"the rows of {counted(len(found.blocks), 'block')}")
        zones, owner = _pieces(found.columns, found.blocks, leaves, target)
        forecasts = []
        for each in self._filters:
            now = self._now(each)
            mine = np.isin(found.blocks, each.selected)
            if not len(each.selected):
                forecasts.append(self._unchanged(each, ""))
                continue
            if not mine.any() or not each.is_whole:
                forecasts.append(
                    self._untold(each, "the sample has none of its blocks" if each.is_whole else NOT_WHOLE)
                )
                continue
            hits = may_match(each.node, zones.__getitem__, len(owner)) > 0
            shares = np.array([hits[owner == row].mean() for row in np.flatnonzero(mine)])
            ratio = float(shares.mean())
            count = now.blocks * ratio * float(np.bincount(owner)[mine].mean())
            cost = Cost(blocks=count, bytes=now.bytes * ratio, skip=1.0 - (1.0 - now.skip) * ratio)
            forecasts.append(Forecast(filter=each.text, times=each.times, now=now, then=cost))
        return self._answer(forecasts)

    def _tried(
        self, filter: TrialFilter, narrow: Mapping[Leaf, Zones], wide: Mapping[Leaf, Zones], count: int
    ) -> Forecast:
        """Estimates with two sets of zone maps: one that rules out as much as may be known then, and one that rules out
        only what is certain."""
        if not filter.is_whole:
            return self._untold(filter, NOT_WHOLE)
        unbounded = [leaf.name for leaf in columns_of(filter.node) if leaf in wide and not self._has_bounds(leaf)]
        if unbounded and not self._read:
            return self._untold(filter, f"the manifests have no bounds of {unbounded[0]}{self._ask}")
        limits = [float(may_match(filter.node, zones.__getitem__, count).sum()) for zones in (narrow, wide)]
        if count and (limits[1] - limits[0]) / count > _WIDE:
            return self._untold(filter, f"manifests do not say which blocks have nulls and NaN{self._ask}")
        # The trial may have more or fewer blocks than the real layout.
        of_blocks = float(self._scene.blocks_total if self._blocks_then is None else self._blocks_then)
        if self._request.cluster_key is None:
            of_blocks = count * self._share
        hits = sum(limits) / len(limits)
        share = hits / count if count else 0.0
        if len(filter.selected):  # rows that match are not excluded; some block has them then
            share = max(share, 1.0 / max(of_blocks, 1))
        blocks = share * of_blocks
        size_bytes = share * self._scene.head.summary.compressed_byte_size
        then = Cost(blocks=blocks, bytes=size_bytes, skip=1.0 - share)
        return Forecast(filter=filter.text, times=filter.times, now=self._now(filter), then=then)

    def _has_bounds(self, leaf: Leaf) -> bool:
        """Returns whether some block's bounds are known, or no block has a value."""
        zones = self._scene.zones(leaf)
        valued = zones.has(MAY_NUMBER)
        return not bool(valued.any()) or bool((valued & zones.has(LOW_KNOWN) & zones.has(HIGH_KNOWN)).any())

    def _may_gain(self, filter: TrialFilter) -> bool:
        """Returns whether a part of a block that is read may be skipped: some column of it has more than one value
        there."""
        for leaf in columns_of(filter.node):
            if leaf.dtype.order is None or leaf.repeated:
                continue
            if not extents("linear", [self._scene.zones(leaf).take(filter.selected)]).is_constant.all():
                return True
        return False

    def _doubted(self, leaf: Leaf, zones: Zones) -> Zones:
        """Returns zone maps of sampled rows that may also have nulls and NaN unless the manifests exclude these."""
        now = self._scene.zones(leaf)
        flags = zones.flags
        if not now.has(NULLS_KNOWN).all():
            flags = (flags | np.uint8(MAY_NULL)) & ~np.uint8(NULLS_KNOWN)
        if now.has(MAY_NAN).any():
            flags = flags | np.uint8(MAY_NAN)
        doubted = Zones(zones.low, zones.high, flags)
        doubted.spans = zones.spans
        return doubted

    def _trusted(self, leaf: Leaf, zones: Zones) -> Zones:
        """Returns zone maps without the nulls and NaN that blocks may have, but are not known to have."""
        flags = zones.flags & ~np.uint8(MAY_NAN)
        if not self._scene.zones(leaf).has(NULLS_KNOWN).all():
            flags = np.where(zones.has(NULLS_KNOWN), flags, flags & ~np.uint8(MAY_NULL))
        return Zones(zones.low, zones.high, flags)

    def _leaves(self, keys: Sequence[Leaf]) -> list[Leaf]:
        named = [leaf for each in self._filters for leaf in columns_of(each.node)]
        return [leaf for leaf in dict.fromkeys([*keys, *named]) if leaf.dtype.order is not None and not leaf.repeated]

    def _cluster_column(self) -> int | None:
        key = self._scene.head.cluster_key
        return None if key is None else columns_of_terms(key_terms(self._scene.head.schema, key.columns[:1]))[0].id

    def _sampled_values(self, leaves: Sequence[Leaf]) -> dict[Leaf, SampledColumn]:
        rows = self._scene.row_count.astype(np.float64)
        count = min(_ROWS, int(rows.sum()))
        self._rests_on.append(f"{counted(count, 'row')} drawn from the statistics of blocks")
        if not count:
            nothing = np.zeros(0, dtype=bool)
            return {leaf: SampledColumn(np.zeros(0), nothing, nothing) for leaf in leaves}
        blocks = np.sort(self._rng.choice(len(rows), count, p=rows / rows.sum()))
        return {
            leaf: sample_values(self._scene.distribution_by_block(leaf), blocks, rows, self._rng)
            for leaf in leaves
            if self._has_bounds(leaf)
        }

    def _read_sample(self, leaves: Sequence[Leaf]) -> dict[Leaf, SampledColumn]:
        chosen = self._sample_of(np.arange(len(self._scene)))
        found = read_columns(self._store, self._scene, chosen, leaves)
        self._read = len(chosen)
        if not len(found.blocks):
            raise InvalidRequest("none of the sampled blocks can be read", sample_blocks=self._request.sample_blocks)
        self._rests_on.append(f"the rows of {counted(len(found.blocks), 'block')}")
        return {leaf: stacked([each[leaf] for each in found.columns]) for leaf in leaves}


def _pieces(
    columns: Sequence[Mapping[Leaf, SampledColumn]], blocks: Rows, leaves: Sequence[Leaf], target: int
) -> tuple[dict[Leaf, Zones], Rows]:
    """Returns the zone maps of the blocks' pieces, and for each piece the index of its block."""
    owner: list[int] = []
    edges: list[int] = [0]
    for row in range(len(blocks)):
        count = len(next(iter(columns[row].values())).valid)
        pieces = max(1, round(count / target))
        start = edges[-1]
        edges += (start + np.linspace(0, count, pieces + 1)[1:].round().astype(int)).tolist()
        owner += [row] * pieces
    zones = {}
    for leaf in leaves:
        zones[leaf] = cut_zones(stacked([each[leaf] for each in columns]), leaf.dtype, np.array(edges))
    return zones, np.array(owner)


#: Maximum number of blocks that are read for a sample.
MAX_SAMPLED: Final = 10_000


class WhatIf:
    """Answers from manifests, and from a sample of blocks on request."""

    def __init__(self, manifests: Manifests, access: IndexAccess, store: Store) -> None:
        self._manifests = manifests
        self._access = access
        self._store = store

    def answer(
        self,
        pointer: SnapshotPointer,
        request: WhatIfRequest,
        replayed: Sequence[ReplayedFilter],
        recorded: Sequence[Recorded] = (),
    ) -> WhatIfAnswer:
        """Returns what the given and the recorded filters would read.

        Raises:
            InvalidRequest: not exactly one change, or an invalid one; no filters; an invalid sample size or seed.
            InvalidFilter, UnknownColumn, FilterTypeMismatch: the index' expression, a filter, a column of the key.
        """
        changes = [request.index, request.cluster_key, request.rows_per_block]
        if sum(change is not None for change in changes) != 1:
            raise InvalidRequest("give exactly one of index, cluster_key and rows_per_block")
        if not 0 <= request.sample_blocks <= MAX_SAMPLED:
            raise InvalidRequest(f"sample_blocks must be from 0 to {MAX_SAMPLED}", sample_blocks=request.sample_blocks)
        if request.seed < 0:
            raise InvalidRequest("seed must be 0 or greater", seed=request.seed)
        if not replayed and not recorded:
            raise InvalidRequest("there are no filters: pass some, or let prunes record theirs (record_prunes)")
        scene = BlockSample(self._manifests, pointer)
        again = replayed_filters(scene, recorded, case_sensitive=request.case_sensitive, seed=request.seed)
        replayed = [*replayed, *again.filters]
        indexes = self._access.indexes(scene.head) if request.index is not None else []
        filters = trial_filters(scene, indexes, replayed, case_sensitive=request.case_sensitive)
        if request.index is not None:
            found = IndexTrial(scene, self._store, request, filters).answer()
        else:
            trial = LayoutTrial(scene, self._store, request, filters)
            found = trial.reclustered() if request.cluster_key is not None else trial.resized()
        rests_on = found.rests_on
        if recorded:
            sample_values = sum(not each.is_full for each in recorded)
            rests_on = (
                *rests_on,
                f"{len(recorded):,} recorded filters, {sample_values:,} of them with drawn constants",
            )
        return msgspec.structs.replace(found, rests_on=rests_on, left_out=again.left_out)
