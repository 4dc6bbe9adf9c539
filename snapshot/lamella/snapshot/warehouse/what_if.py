"""What filters would read after a change: an index more, another cluster key, or blocks of another size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from lamella.snapshot.advice.recording import Recorded
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import bind
from lamella.snapshot.expression.bound import BoundPredicate
from lamella.snapshot.expression.text import text_of
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.prune.index_layer import OpenIndex
from lamella.snapshot.prune.verdict import NONE
from lamella.snapshot.warehouse.index_access import IndexAccess
from lamella.snapshot.warehouse.index_trial import IndexTrial
from lamella.snapshot.warehouse.layout_trial import LayoutTrial
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.recalled import Asked, recalled
from lamella.snapshot.warehouse.scene import Scene, refined
from lamella.snapshot.warehouse.trial import Rows, TrialFilter
from lamella.snapshot.wire.advice import WhatIfAnswer, WhatIfRequest

#: No more blocks are read for a sample.
MOST_SAMPLED: Final = 10_000


class WhatIf:
    """Answers from manifests, and from a sample of blocks when asked to."""

    def __init__(self, manifests: Manifests, access: IndexAccess, store: Store) -> None:
        self._manifests = manifests
        self._access = access
        self._store = store

    def answer(
        self,
        pointer: SnapshotPointer,
        request: WhatIfRequest,
        asked: Sequence[Asked],
        recorded: Sequence[Recorded] = (),
    ) -> WhatIfAnswer:
        """What the filters would read, and the recorded ones.

        Raises:
            InvalidRequest: not one change, or one that cannot be made; nothing was asked; no size of a sample, no seed.
            InvalidFilter, UnknownColumn, FilterTypeMismatch: the index' expression, a filter, a column of the key.
        """
        changes = [request.index, request.cluster_key, request.rows_per_block]
        if sum(change is not None for change in changes) != 1:
            raise InvalidRequest("give exactly one of index, cluster_key and rows_per_block")
        if not 0 <= request.sample_blocks <= MOST_SAMPLED:
            raise InvalidRequest(f"sample_blocks is from 0 to {MOST_SAMPLED}", sample_blocks=request.sample_blocks)
        if request.seed < 0:
            raise InvalidRequest("seed is a number from 0 on", seed=request.seed)
        if not asked and not recorded:
            raise InvalidRequest("there are no filters: give some, or record those that are asked")
        scene = Scene(self._manifests, pointer)
        again = recalled(scene, recorded, case_sensitive=request.case_sensitive, seed=request.seed)
        asked = [*asked, *again.asked]
        bounds = [
            bind(
                each.predicate,
                scene.head.schema,
                time_zone=each.time_zone,
                case_sensitive=request.case_sensitive,
            )
            for each in asked
        ]
        indexes = self._access.indexes(scene.head) if request.index is not None else []
        filters = [
            TrialFilter(
                node,
                each.times,
                each.text or text_of(each.predicate),
                self._kept(scene, node, indexes),
                each.is_whole,
            )
            for node, each in zip(bounds, asked, strict=True)
        ]
        if request.index is not None:
            found = IndexTrial(scene, self._store, request, filters).answer()
        else:
            trial = LayoutTrial(scene, self._store, request, filters)
            found = trial.reclustered() if request.cluster_key is not None else trial.resized()
        rests_on = found.rests_on
        if recorded:
            drawn = sum(not each.is_full for each in recorded)
            rests_on = (*rests_on, f"{len(recorded):,} recorded filters, {drawn:,} of them with drawn constants")
        return msgspec.structs.replace(found, rests_on=rests_on, left_out=again.left_out)

    def _kept(self, scene: Scene, node: BoundPredicate, indexes: Sequence[OpenIndex]) -> Rows:
        """The blocks that are read now."""
        codes = scene.tested(node)
        kept = np.flatnonzero(codes != NONE)
        if not len(kept) or not indexes:
            return kept
        return scene.numbers_of(refined(indexes, scene, node, scene.parts(kept, codes))[0])
