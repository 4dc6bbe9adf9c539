"""Another layout: sorted by another key, or in blocks of another size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from lamella.snapshot.advice.forecast import may_match
from lamella.snapshot.advice.relayout import cut_zones, merged_zones, sorted_zones, split_zones
from lamella.snapshot.advice.rows import SampledColumn, drawn, stacked
from lamella.snapshot.cluster.extent import extents
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NULL, MAY_NUMBER, NULLS_KNOWN, Zones
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression.bound import columns_of
from lamella.snapshot.schema import Leaf
from lamella.snapshot.schema.cluster_key import cluster_leaves
from lamella.snapshot.warehouse.block_sample import read_columns
from lamella.snapshot.warehouse.trial import Rows, Trial, TrialFilter, union
from lamella.snapshot.wire.advice import Cost, Forecast, WhatIfAnswer

#: Rows that a layout is tried with.
_ROWS: Final = 40_000
_MOST_PIECES: Final = 1_000


#: Answers whose limits are further apart, as parts of all blocks, say too little.
_WIDE: Final = 0.1
_NOT_WHOLE: Final = "constants of the filter were not kept and could not be drawn"


class LayoutTrial(Trial):
    """Other blocks. Skip indexes would have to be built anew and are not taken into account, now or then."""

    #: What the reasons of answers that cannot be told end with.
    _ask = "; ask with sample_blocks"

    def reclustered(self) -> WhatIfAnswer:
        """Sorted by another key, in as many blocks."""
        keys = cluster_leaves(
            self._scene.head.schema, self._request.cluster_key or (), case_sensitive=self._request.case_sensitive
        )
        if not keys:
            raise InvalidRequest("a cluster key has a column")
        leaves = self._leaves(keys)
        count = len(self._scene)
        mean_rows = float(self._scene.row_count.mean()) if count else 0.0
        unbounded = [leaf.name for leaf in keys if not self._has_bounds(leaf)]
        if unbounded and not self._request.sample_blocks:
            reason = f"the manifests have no bounds of {unbounded[0]}{self._ask}"
            return self._answer([self._untold(each, reason) for each in self._filters])
        sample = self._read_sample(leaves) if self._request.sample_blocks else self._drawn_sample(leaves)
        if not count or not len(sample[keys[0]].valid):
            return self._answer([self._unchanged(each, "the table has no rows") for each in self._filters])
        zones = sorted_zones(sample, keys, count, mean_rows, self._rng)
        self._rests_on.append("indexes left out of account")
        if self._read:
            return self._answer([self._tried(each, zones, zones, len(zones[keys[0]])) for each in self._filters])
        most = {leaf: self._doubted(leaf, found) for leaf, found in zones.items()}
        return self._answer([self._tried(each, zones, most, len(zones[keys[0]])) for each in self._filters])

    def resized(self) -> WhatIfAnswer:
        """The same rows in the same sequence, in blocks of another size."""
        target = self._request.rows_per_block or 0
        if target < 1:
            raise InvalidRequest("rows_per_block is at least 1")
        self._rests_on.append("indexes left out of account")
        mean_rows = float(self._scene.row_count.mean()) if len(self._scene) else 1.0
        leaves = self._leaves([])
        if target >= mean_rows:
            self._ask = ""  # larger blocks are made of statistics alone
            edges = np.floor((np.cumsum(self._scene.row_count) - self._scene.row_count) / target)
            starts = np.flatnonzero(np.concatenate([[True], np.diff(edges) > 0]))[: len(self._scene)]
            zones = {leaf: merged_zones(self._scene.zones(leaf), leaf.dtype, starts) for leaf in leaves}
            least = {leaf: self._trusted(leaf, found) for leaf, found in zones.items()}
            return self._answer([self._tried(each, least, zones, len(starts)) for each in self._filters])
        pieces = min(_MOST_PIECES, max(1, round(mean_rows / target)))
        if self._request.sample_blocks and leaves:
            return self._cut(leaves, target)
        first = self._cluster_column()
        self._rests_on.append(
            "blocks taken to be sorted by the first column of the cluster key, and by nothing else"
            if first is not None
            else "blocks taken to be sorted by nothing; ask with sample_blocks"
        )
        zones = {leaf: split_zones(self._scene.zones(leaf), pieces, is_sorted=leaf.id == first) for leaf in leaves}
        least = {leaf: self._trusted(leaf, found) for leaf, found in zones.items()}
        forecasts = []
        for each in self._filters:
            found = self._tried(each, least, zones, len(self._scene) * pieces)
            if found.then is not None and found.then.skip <= found.now.skip and self._may_gain(each):
                found = self._untold(each, f"how rows lie within a block is not in manifests{self._ask}")
            forecasts.append(found)
        return self._answer(forecasts)

    def _cut(self, leaves: Sequence[Leaf], target: int) -> WhatIfAnswer:
        """Smaller blocks, by the rows of some of those that are there."""
        candidates = union([each.kept for each in self._filters if each.is_whole])
        chosen = self._drawn_from(candidates)
        found = read_columns(self._store, self._scene, chosen, leaves)
        self._read = len(chosen)
        self._rests_on.append(f"the rows of {len(found.blocks):,} blocks")
        zones, owner = _pieces(found.columns, found.blocks, leaves, target)
        forecasts = []
        for each in self._filters:
            now = self._now(each)
            mine = np.isin(found.blocks, each.kept)
            if not len(each.kept):
                forecasts.append(self._unchanged(each, ""))
                continue
            if not mine.any() or not each.is_whole:
                forecasts.append(self._untold(each, "no block of it is in the sample" if each.is_whole else _NOT_WHOLE))
                continue
            hits = may_match(each.node, zones.__getitem__, len(owner)) > 0
            shares = np.array([hits[owner == place].mean() for place in np.flatnonzero(mine)])
            ratio = float(shares.mean())
            count = now.blocks * ratio * float(np.bincount(owner)[mine].mean())
            cost = Cost(blocks=count, bytes=now.bytes * ratio, skip=1.0 - (1.0 - now.skip) * ratio)
            forecasts.append(Forecast(filter=each.text, times=each.times, now=now, then=cost))
        return self._answer(forecasts)

    def _tried(
        self, filter: TrialFilter, least: Mapping[Leaf, Zones], most: Mapping[Leaf, Zones], count: int
    ) -> Forecast:
        """By zone maps that rule out as much as there may be known then, and by some that rule out what surely is."""
        if not filter.is_whole:
            return self._untold(filter, _NOT_WHOLE)
        unbounded = [leaf.name for leaf in columns_of(filter.node) if leaf in most and not self._has_bounds(leaf)]
        if unbounded and not self._read:
            return self._untold(filter, f"the manifests have no bounds of {unbounded[0]}{self._ask}")
        limits = [float(may_match(filter.node, zones.__getitem__, count).sum()) for zones in (least, most)]
        hits = sum(limits) / len(limits)
        share = hits / count if count else 0.0
        if count and (limits[1] - limits[0]) / count > _WIDE:
            return self._untold(filter, f"which blocks have nulls and NaN is not in manifests{self._ask}")
        # Blocks of the trial may be more or fewer than there would be.
        blocks = share * self._scene.blocks_total if self._request.cluster_key is not None else hits * self._share
        size_bytes = share * self._scene.head.summary.compressed_byte_size
        then = Cost(blocks=blocks, bytes=size_bytes, skip=1.0 - share)
        return Forecast(filter=filter.text, times=filter.times, now=self._now(filter), then=then)

    def _has_bounds(self, leaf: Leaf) -> bool:
        """Whether some block's bounds are known, or no block has a value."""
        zones = self._scene.zones(leaf)
        valued = zones.has(MAY_NUMBER)
        return not bool(valued.any()) or bool((valued & zones.has(LOW_KNOWN) & zones.has(HIGH_KNOWN)).any())

    def _may_gain(self, filter: TrialFilter) -> bool:
        """Whether a part of a block that is read may be left out: some column of it has more than one value there."""
        for leaf in columns_of(filter.node):
            if leaf.dtype.order is None or leaf.repeated:
                continue
            if not extents("linear", [self._scene.zones(leaf).take(filter.kept)]).is_constant.all():
                return True
        return False

    def _doubted(self, leaf: Leaf, zones: Zones) -> Zones:
        """Zone maps of drawn rows, which may also have nulls and NaN where the manifests do not say that there are
        none."""
        now = self._scene.zones(leaf)
        flags = zones.flags
        if not now.has(NULLS_KNOWN).all():
            flags = (flags | np.uint8(MAY_NULL)) & ~np.uint8(NULLS_KNOWN)
        if now.has(MAY_NAN).any():
            flags = flags | np.uint8(MAY_NAN)
        return Zones(zones.low, zones.high, flags)

    def _trusted(self, leaf: Leaf, zones: Zones) -> Zones:
        """Zone maps without the nulls and NaN that blocks may have, but are not known to have."""
        flags = zones.flags & ~np.uint8(MAY_NAN)
        if not self._scene.zones(leaf).has(NULLS_KNOWN).all():
            flags = np.where(zones.has(NULLS_KNOWN), flags, flags & ~np.uint8(MAY_NULL))
        return Zones(zones.low, zones.high, flags)

    def _leaves(self, keys: Sequence[Leaf]) -> list[Leaf]:
        named = [leaf for each in self._filters for leaf in columns_of(each.node)]
        return [leaf for leaf in dict.fromkeys([*keys, *named]) if leaf.dtype.order is not None and not leaf.repeated]

    def _cluster_column(self) -> int | None:
        key = self._scene.head.cluster_key
        return None if key is None else self._scene.head.schema.leaf(key.columns[0], case_sensitive=True).id

    def _drawn_sample(self, leaves: Sequence[Leaf]) -> dict[Leaf, SampledColumn]:
        rows = self._scene.row_count.astype(np.float64)
        count = min(_ROWS, int(rows.sum()))
        self._rests_on.append(f"{count:,} rows drawn from the statistics of blocks")
        if not count:
            nothing = np.zeros(0, dtype=bool)
            return {leaf: SampledColumn(np.zeros(0), nothing, nothing) for leaf in leaves}
        blocks = np.sort(self._rng.choice(len(rows), count, p=rows / rows.sum()))
        return {
            leaf: drawn(self._scene.blocks_outlook(leaf), blocks, rows, self._rng)
            for leaf in leaves
            if self._has_bounds(leaf)
        }

    def _read_sample(self, leaves: Sequence[Leaf]) -> dict[Leaf, SampledColumn]:
        chosen = self._drawn_from(np.arange(len(self._scene)))
        found = read_columns(self._store, self._scene, chosen, leaves)
        self._read = len(chosen)
        if not len(found.blocks):
            raise InvalidRequest("none of the sampled blocks can be read", sample_blocks=self._request.sample_blocks)
        self._rests_on.append(f"the rows of {len(found.blocks):,} blocks")
        return {leaf: stacked([each[leaf] for each in found.columns]) for leaf in leaves}


def _pieces(
    columns: Sequence[Mapping[Leaf, SampledColumn]], blocks: Rows, leaves: Sequence[Leaf], target: int
) -> tuple[dict[Leaf, Zones], Rows]:
    """The zone maps of the blocks' pieces, and for each piece the place of its block."""
    owner: list[int] = []
    edges: list[int] = [0]
    for place in range(len(blocks)):
        count = len(next(iter(columns[place].values())).valid)
        pieces = max(1, round(count / target))
        start = edges[-1]
        edges += (start + np.linspace(0, count, pieces + 1)[1:].round().astype(int)).tolist()
        owner += [place] * pieces
    zones = {}
    for leaf in leaves:
        zones[leaf] = cut_zones(stacked([each[leaf] for each in columns]), leaf.dtype, np.array(edges))
    return zones, np.array(owner)
