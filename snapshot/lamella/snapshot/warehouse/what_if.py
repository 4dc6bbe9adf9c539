"""What filters would read after a change: an index more, another cluster key, or blocks of another size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import Predicate, bind
from lamella.snapshot.expression.bound import BoundPredicate
from lamella.snapshot.expression.text import text_of
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.prune.index_layer import IndexLayer
from lamella.snapshot.prune.verdict import NONE
from lamella.snapshot.warehouse.index_access import IndexAccess
from lamella.snapshot.warehouse.index_trial import IndexTrial
from lamella.snapshot.warehouse.layout_trial import LayoutTrial
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.scene import Scene
from lamella.snapshot.warehouse.trial import Rows, TrialFilter
from lamella.snapshot.wire.advice import WhatIfAnswer, WhatIfRequest

#: No more blocks are read for a sample.
MOST_SAMPLED: Final = 10_000


class Asked(msgspec.Struct, frozen=True, eq=False):
    """A filter, and how often it was asked."""

    predicate: Predicate
    times: int = 1
    text: str = ""


class WhatIf:
    """Answers from manifests, and from a sample of blocks when asked to."""

    def __init__(self, manifests: Manifests, access: IndexAccess, store: Store, timer: Callable[[], float]) -> None:
        self._manifests = manifests
        self._access = access
        self._store = store
        self._timer = timer

    def answer(self, pointer: SnapshotPointer, request: WhatIfRequest, asked: Sequence[Asked]) -> WhatIfAnswer:
        """What the filters would read.

        Raises:
            InvalidRequest: not one change, or one that cannot be made; nothing was asked; too large a sample.
            InvalidFilter, UnknownColumn, FilterTypeMismatch: the index' expression, a filter, a column of the key.
        """
        changes = [request.index, request.cluster_key, request.rows_per_block]
        if sum(change is not None for change in changes) != 1:
            raise InvalidRequest("give exactly one of index, cluster_key and rows_per_block")
        if not 0 <= request.sample_blocks <= MOST_SAMPLED:
            raise InvalidRequest(f"sample_blocks is from 0 to {MOST_SAMPLED}", sample_blocks=request.sample_blocks)
        if not asked:
            raise InvalidRequest("there are no filters: give some, or record those that are asked")
        scene = Scene(self._manifests, pointer)
        bounds = [
            bind(
                each.predicate,
                scene.head.schema,
                time_zone=request.time_zone,
                case_sensitive=request.case_sensitive,
            )
            for each in asked
        ]
        with_indexes = request.index is not None
        indexes = self._access.indexes(scene.head) if with_indexes else []
        layer = IndexLayer(indexes, scene.keys, self._timer)
        filters = [
            TrialFilter(node, each.times, each.text or text_of(each.predicate), self._kept(scene, node, layer))
            for node, each in zip(bounds, asked, strict=True)
        ]
        if request.index is not None:
            return IndexTrial(scene, self._store, self._timer, request, filters).answer()
        trial = LayoutTrial(scene, self._store, request, filters)
        return trial.reclustered() if request.cluster_key is not None else trial.resized()

    def _kept(self, scene: Scene, node: BoundPredicate, layer: IndexLayer) -> Rows:
        """The blocks that are read now."""
        codes = scene.tested(node)
        kept = np.flatnonzero(codes != NONE)
        if len(kept) and layer.applies(node):
            return scene.numbers_of(layer.refine(node, scene.parts(kept, codes)).kept)
        return kept
