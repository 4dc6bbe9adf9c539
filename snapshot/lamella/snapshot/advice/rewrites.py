"""Estimates what filters would read after a job has rewritten some blocks: a recluster, a compaction or a purge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.advice.index_gain import may_match
from lamella.snapshot.advice.relayout import merged_zones, sorted_zones
from lamella.snapshot.advice.what_if import NOT_WHOLE, LayoutTrial, Rows, TrialFilter
from lamella.snapshot.columnar.sidecar import joined_zones
from lamella.snapshot.columnar.zones import MAY_NAN, MAY_NULL, MAY_NUMBER, Zones
from lamella.snapshot.expression.bound import BoundTerm, columns_of, columns_of_terms
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.prune.outcome import NONE
from lamella.snapshot.schema import Leaf
from lamella.snapshot.warehouse.block_sample import BlockSample
from lamella.snapshot.warehouse.planning import RewriteGroup
from lamella.snapshot.wire import Cost, RewriteJob
from lamella.snapshot.workload.distribution import SampledColumn, sample_values


class Reads(msgspec.Struct, frozen=True, kw_only=True):
    """What one filter, used ``times`` times, reads ``now`` and ``then``, which is between ``at_least`` and ``at_most``.

    ``then`` None: it cannot be estimated; ``reason`` states why.
    """

    filter: str
    times: int
    now: Cost
    then: Cost | None = None
    at_least: Cost | None = None
    at_most: Cost | None = None
    reason: str = ""


class _Entries(msgspec.Struct, frozen=True, eq=False):
    """New blocks. An entry that may match a filter stands for ``min_blocks`` to ``max_blocks`` of ``min_bytes`` to
    ``max_bytes``. ``narrow``, ``wide``: zone maps that rule out as much as may be known then, and only what is
    certain."""

    narrow: Mapping[Leaf, Zones]
    wide: Mapping[Leaf, Zones]
    min_blocks: Any
    max_blocks: Any
    min_bytes: Any
    max_bytes: Any


#: Rows that are drawn for all groups together, and for each new block at least.
_ROWS: Final = 100_000
_ROWS_OF_BLOCK: Final = 50


class RewriteTrial(LayoutTrial):
    """A trial of one run of a job over blocks of the scene.

    Blocks that the job leaves are read as now, by bounds and indexes. The job adds new ones to the table's indexes:
    these are expected to leave as many of them as of the old ones, of those that bounds leave.
    """

    def rewritten(
        self, job: RewriteJob, groups: Sequence[RewriteGroup], keys: Sequence[BoundTerm], kind: ClusterKind
    ) -> list[Reads]:
        """Returns what each filter would read. ``groups``: of numbers of blocks of the scene, all of the snapshot's
        with rows. ``keys``, ``kind``: the table's cluster key.
        """
        leaves = [leaf for leaf in self._leaves(columns_of_terms(keys)) if self._has_bounds(leaf)]
        is_gone = np.zeros(len(self._scene), dtype=bool)
        for group in groups:
            is_gone[group.blocks] = True
        if job == "purge":
            entries = self._purged(groups, leaves)
        else:
            sorts = [each for each in groups if keys and (job == "recluster" or each.pieces > 1)]
            merges = [each for each in groups if not (keys and (job == "recluster" or each.pieces > 1))]
            parts = [self._merged(merges, leaves)] if merges else []
            if sorts:
                if any(not self._has_bounds(leaf) for leaf in columns_of_terms(keys)):
                    reason = "the manifests have no bounds of the cluster key"
                    return [Reads(filter=f.text, times=f.times, now=self._now(f), reason=reason) for f in self._filters]
                parts.append(self._sorted(sorts, leaves, keys, kind))
            entries = _joined(parts, leaves)
        total = len(self._scene) - int(is_gone.sum()) + float(entries.max_blocks.sum())
        return [self._reads_of(each, entries, is_gone, leaves, total, job == "purge") for each in self._filters]

    @property
    def rests_on(self) -> tuple[str, ...]:
        """The sources of the estimates."""
        return tuple(self._rests_on)

    def _reads_of(
        self, filter: TrialFilter, entries: _Entries, is_gone: Any, leaves: Sequence[Leaf], total: float, is_purge: bool
    ) -> Reads:
        now = self._now(filter)
        found = Reads(filter=filter.text, times=filter.times, now=now)
        if not is_gone[filter.selected].any():
            return msgspec.structs.replace(found, then=now, at_least=now, at_most=now)  # no block of it is rewritten
        if not filter.is_whole:
            return msgspec.structs.replace(found, reason=NOT_WHOLE)
        for leaf in columns_of(filter.node):
            if leaf.dtype.order is not None and not leaf.repeated and leaf not in leaves:
                return msgspec.structs.replace(found, reason=f"the manifests have no bounds of {leaf.name}")
        unchanged = filter.selected[~is_gone[filter.selected]]
        through = index_limit(self._scene, filter, is_gone)
        count = len(entries.min_blocks)
        # Of columns without an order nothing is known.
        unknown = Zones(None, None, np.full(count, MAY_NUMBER | MAY_NULL | MAY_NAN, dtype=np.uint8))
        low = may_match(filter.node, lambda leaf: entries.narrow.get(leaf, unknown), count) > 0
        high = may_match(filter.node, lambda leaf: entries.wide.get(leaf, unknown), count) > 0
        size = float(self._scene.file_size[unchanged].sum())

        def cost(blocks: float, size_bytes: float) -> Cost:
            blocks += len(unchanged)
            return Cost(blocks=blocks, bytes=size + size_bytes, skip=1.0 - blocks / total if total else 0.0)

        blocks = [float(entries.min_blocks[low].sum()), float(entries.max_blocks[high].sum())]
        sizes = [float(entries.min_bytes[low].sum()), float(entries.max_bytes[high].sum())]
        limits = [cost(*each) for each in zip(blocks, sizes, strict=True)]
        # Few blocks lose all their matching rows with the deleted ones, so after a purge the upper limit is expected.
        expected, of_bytes = (blocks[1], sizes[1]) if is_purge else (sum(blocks) / 2, sum(sizes) / 2)
        if through is not None and expected > 0:
            limits[0] = cost(0.0, 0.0)
            part = min(1.0, through / expected)
            expected, of_bytes = expected * part, of_bytes * part
        return msgspec.structs.replace(found, then=cost(expected, of_bytes), at_least=limits[0], at_most=limits[1])

    def _merged(self, groups: Sequence[RewriteGroup], leaves: Sequence[Leaf]) -> _Entries:
        """Returns groups whose rows are not sorted. A group of several new blocks is one entry: which of them has a row
        is not known."""
        order = np.concatenate([each.blocks for each in groups])
        lengths = np.array([len(each.blocks) for each in groups])
        starts = np.cumsum(lengths) - lengths
        wide = {leaf: merged_zones(self._scene.zones(leaf).take(order), leaf.dtype, starts) for leaf in leaves}
        pieces = np.array([each.pieces for each in groups], dtype=np.float64)
        size_bytes = self._live_bytes(groups)
        self._rests_on.append("merged bounds of the old blocks")
        return _Entries(
            narrow={leaf: self._trusted(leaf, found) for leaf, found in wide.items()},
            wide=wide,
            min_blocks=np.ones(len(groups)),
            max_blocks=pieces,
            min_bytes=size_bytes / pieces,
            max_bytes=size_bytes,
        )

    def _purged(self, groups: Sequence[RewriteGroup], leaves: Sequence[Leaf]) -> _Entries:
        """Returns blocks without their deleted rows. These may have been the only ones that match, which nothing but
        the rows can tell."""
        left = [each for each in groups if each.row_count]
        order = np.concatenate([np.zeros(0, dtype=np.int64), *(each.blocks for each in left)])
        zones = {leaf: self._scene.zones(leaf).take(order) for leaf in leaves}
        pieces = np.array([each.pieces for each in left], dtype=np.float64)
        size_bytes = self._live_bytes(left)
        self._rests_on.append("bounds that cover the deleted rows as well")
        nothing = np.zeros(len(left))
        return _Entries(zones, zones, nothing, pieces, nothing, size_bytes)

    def _sorted(
        self, groups: Sequence[RewriteGroup], leaves: Sequence[Leaf], keys: Sequence[BoundTerm], kind: ClusterKind
    ) -> _Entries:
        """Returns groups whose rows are sorted, from rows drawn from the statistics of their old blocks."""
        rows = self._scene.row_count.astype(np.float64)
        total = float(sum(rows[each.blocks].sum() for each in groups))
        narrow: list[Mapping[Leaf, Zones]] = []
        wide: list[Mapping[Leaf, Zones]] = []
        size_bytes: list[Any] = []
        for group, live_bytes in zip(groups, self._live_bytes(groups).tolist(), strict=True):
            mine = float(rows[group.blocks].sum())
            sampled = int(min(mine, max(_ROWS * mine / total, _ROWS_OF_BLOCK * group.pieces)))
            zones = self._sorted_group(group.blocks, rows, sampled, leaves, keys, group.pieces, kind)
            narrow.append(zones)
            wide.append({leaf: self._doubted(leaf, found) for leaf, found in zones.items()})
            count = len(zones[leaves[0]])
            size_bytes.append(np.full(count, live_bytes / count))
        self._rests_on.append("rows drawn from the statistics of the old blocks")
        sizes = np.concatenate(size_bytes)
        ones = np.ones(len(sizes))
        return _Entries(_stacked(narrow, leaves), _stacked(wide, leaves), ones, ones, sizes, sizes)

    def _sorted_group(
        self,
        blocks: Rows,
        rows: Any,
        sampled: int,
        leaves: Sequence[Leaf],
        keys: Sequence[BoundTerm],
        pieces: int,
        kind: ClusterKind,
    ) -> dict[Leaf, Zones]:
        mine = rows[blocks]
        chosen = np.sort(self._rng.choice(blocks, max(sampled, 2), p=mine / mine.sum()))
        sample = {}
        for leaf in leaves:
            column = sample_values(self._scene.distribution_by_block(leaf), chosen, rows, self._rng)
            # The rows of one value are a larger part of the group than of the table.
            width = min(1.0, column.width * float(rows.sum()) / float(mine.sum()))
            sample[leaf] = SampledColumn(column.values, column.valid, column.nan, width)
        return sorted_zones(sample, keys, pieces, float(mine.sum()) / pieces, self._rng, kind)

    def _live_bytes(self, groups: Sequence[RewriteGroup]) -> Any:
        """Returns the bytes of the groups' files without those of deleted rows, in proportion to rows."""
        rows = np.array([float(self._scene.row_count[each.blocks].sum()) for each in groups])
        live = np.array([float(each.row_count) for each in groups])
        sizes = np.array([float(each.file_size_bytes) for each in groups])
        return sizes * np.minimum(live / np.maximum(rows, 1.0), 1.0)


def index_limit(scene: BlockSample, filter: TrialFilter, is_gone: Any) -> int | None:
    """Returns how many of the blocks ``is_gone`` the table's indexes leave of those that bounds leave; None: all."""
    by_bounds = int((scene.tested(filter.node) != NONE)[is_gone].sum())
    left = int(is_gone[filter.selected].sum())
    return left if left < by_bounds else None


def _joined(parts: Sequence[_Entries], leaves: Sequence[Leaf]) -> _Entries:
    if len(parts) == 1:
        return parts[0]
    return _Entries(
        _stacked([each.narrow for each in parts], leaves),
        _stacked([each.wide for each in parts], leaves),
        *(
            np.concatenate([getattr(each, name) for each in parts])
            for name in ("min_blocks", "max_blocks", "min_bytes", "max_bytes")
        ),
    )


def _stacked(parts: Sequence[Mapping[Leaf, Zones]], leaves: Sequence[Leaf]) -> dict[Leaf, Zones]:
    return {leaf: joined_zones(leaf.dtype, [each[leaf] for each in parts]) for leaf in leaves}
