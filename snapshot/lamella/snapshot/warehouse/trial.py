"""A change tried on filters: what the answers to all changes have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.expression.bound import BoundPredicate
from lamella.snapshot.layout import Store
from lamella.snapshot.warehouse.scene import Scene
from lamella.snapshot.wire.advice import Cost, Forecast, IndexSize, WhatIfAnswer, WhatIfRequest

Rows = npt.NDArray[np.int64]


class TrialFilter(msgspec.Struct, frozen=True, eq=False):
    """A filter that was asked so many times. ``kept``: the blocks that it reads now, ascending. ``is_whole``: False
    when some of its constants were not kept and could not be drawn, so that a part of it is missing.
    """

    node: BoundPredicate
    times: int
    text: str
    kept: Any
    is_whole: bool = True


class Trial:
    """What the answers to all changes have in common."""

    def __init__(self, scene: Scene, store: Store, request: WhatIfRequest, filters: Sequence[TrialFilter]) -> None:
        self._scene = scene
        self._store = store
        self._request = request
        self._filters = filters
        self._rng = np.random.default_rng(request.seed)
        self._share = max(scene.blocks_total, 1) / max(len(scene), 1)
        self._rests_on = [f"statistics of {len(scene):,} of {scene.blocks_total:,} blocks"]
        self._read = 0

    def _now(self, filter: TrialFilter) -> Cost:
        return self._cost(float(len(filter.kept)), float(self._scene.file_size[filter.kept].sum()), len(self._scene))

    def _unchanged(self, filter: TrialFilter, reason: str) -> Forecast:
        """It would read what it reads now."""
        now = self._now(filter)
        return Forecast(filter=filter.text, times=filter.times, now=now, then=now, reason=reason)

    def _untold(self, filter: TrialFilter, reason: str) -> Forecast:
        """What it would read cannot be told."""
        return Forecast(filter=filter.text, times=filter.times, now=self._now(filter), reason=reason)

    def _cost(self, blocks: float, size_bytes: float, count: int) -> Cost:
        """``blocks`` of ``count``, scaled to the whole table."""
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

    def _drawn_from(self, candidates: Rows) -> Rows:
        """Blocks to read, ascending."""
        most = min(self._request.sample_blocks, len(candidates))
        return np.sort(self._rng.choice(candidates, most, replace=False)) if most else candidates[:0]


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
