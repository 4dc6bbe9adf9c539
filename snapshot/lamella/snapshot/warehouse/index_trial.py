"""An index more: expected from manifests, or measured by an index over some blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from lamella.snapshot.advice.forecast import LookUp, asked_values, chance_of, chances_of, may_match, scale_of
from lamella.snapshot.advice.line import Numbers
from lamella.snapshot.expression.bound import BoundLeaf, BoundPredicate, BoundTest, Pair, leaves_of
from lamella.snapshot.index import kind_named
from lamella.snapshot.index.building import PART_BLOCKS, BuiltPart, build_part
from lamella.snapshot.index.definition import defined, term_key, term_of
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import TableIndex
from lamella.snapshot.prune.index_layer import OpenIndex
from lamella.snapshot.schema import Leaf
from lamella.snapshot.warehouse.advising import index_size, sized
from lamella.snapshot.warehouse.block_sample import MeasuredIndex
from lamella.snapshot.warehouse.scene import Scene, refined
from lamella.snapshot.warehouse.trial import Rows, Trial, TrialFilter, union
from lamella.snapshot.wire.advice import Cost, Forecast, IndexSize, WhatIfAnswer, WhatIfRequest

#: Blocks of a sample that tell of one filter alone.
ENOUGH: Final = 30
_ASK: Final = "ask with sample_blocks"
_NOT_WHOLE: Final = "constants of the filter were not kept and could not be drawn"


class IndexTrial(Trial):
    """One index more."""

    def __init__(self, scene: Scene, store: Store, request: WhatIfRequest, filters: Sequence[TrialFilter]) -> None:
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
        """By a sample when one is asked for, else from manifests."""
        candidates = union([each.kept for each in self._filters if self._reason(each.node) is None])
        chosen = self._drawn_from(candidates)
        if len(chosen):
            return self._measured(chosen)
        outlook = self._scene.blocks_outlook(self._term) if isinstance(self._term, Leaf) else None
        size = None
        if outlook is not None:
            size = index_size(sized(self._kind, outlook, self._index.options, self._scene))
            self._rests_on.append(outlook.rests_on)
        return self._answer(self._foretold(), size)

    def _reason(self, node: BoundPredicate) -> str | None:
        """Why the index would not be asked."""
        mine = self._mine(node)
        reasons = [self._kind.answers(test, self._index.options) for test in mine]
        if None in reasons:
            return None
        return reasons[0] if reasons else f"no predicate is over {self._index.expression}"

    def _mine(self, node: BoundPredicate) -> list[BoundTest]:
        """The predicates over the index's term."""
        key = term_key(self._term)
        tests = [leaf for leaf in dict.fromkeys(leaves_of(node)) if not isinstance(leaf, Pair)]
        return [test for test in tests if test.term is not None and term_key(test.term) == key]

    def _look_ups(self, node: BoundPredicate) -> dict[BoundTest, LookUp]:
        """Those that ask for values."""
        found = {}
        for test in self._mine(node):
            values = asked_values(test)
            if values is not None and self._kind.answers(test, self._index.options) is None:
                found[test] = LookUp(values, may_match(test, self._scene.zones, len(self._scene)))
        return found

    def _foretold(self) -> list[Forecast]:
        """From manifests."""
        look_ups = [self._look_ups(each.node) for each in self._filters]
        scale = 1.0
        if isinstance(self._term, Leaf):
            tests = [test for tests in look_ups for test in tests.values()]
            scale = scale_of(tests, self._scene.blocks_outlook(self._term), self._scene.zones(self._term))
        return [self._expected(each, mine, scale) for each, mine in zip(self._filters, look_ups, strict=True)]

    def _expected(self, filter: TrialFilter, look_ups: Mapping[BoundTest, LookUp], scale: float) -> Forecast:
        reason = self._reason(filter.node)
        if reason is not None or not len(filter.kept):
            return self._unasked(filter, reason or "")
        if not isinstance(self._term, Leaf):
            return self._untold(filter, f"what an expression gives is not in manifests; {_ASK}")
        outlook, options = self._scene.blocks_outlook(self._term), self._index.options
        expected, of_fewest = (self._kind.expected(each, options) for each in (outlook.profile, outlook.profile.fewest))
        there: dict[BoundLeaf, Numbers] = {}
        absent: dict[BoundLeaf, Numbers] = {}
        for test, look_up in look_ups.items():
            found = chances_of(look_up, outlook, self._scene.zones(self._term), expected, scale, of_fewest)
            if found is not None:
                there[test], absent[test] = found.there, found.absent
        answered = [test for test in self._mine(filter.node) if self._kind.answers(test, options) is None]
        is_all = filter.is_whole and len(there) == len(answered)
        why = ""
        if not is_all:
            why = "manifests tell only of look-ups" if filter.is_whole else _NOT_WHOLE
            if expected.kept is None:
                why = expected.reason
            elif len(there) < len(look_ups):
                why = "how many different values there are was not counted"
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

    def _unasked(self, filter: TrialFilter, reason: str) -> Forecast:
        """The index would not be asked, or nothing is left to ask it about; unless that was over a missing part."""
        if not filter.is_whole and len(filter.kept):
            return self._untold(filter, _NOT_WHOLE)
        return self._unchanged(filter, reason)

    def _weighed(self, filter: TrialFilter, known: Mapping[BoundLeaf, Numbers]) -> Cost:
        count = len(self._scene)
        chance = chance_of(filter.node, self._scene.zones, count, known)[filter.kept]
        return self._cost(float(chance.sum()), float((chance * self._scene.file_size[filter.kept]).sum()), count)

    def _measured(self, chosen: Rows) -> WhatIfAnswer:
        built = build_part(self._store, self._index, self._scene.head, [self._scene.block(row) for row in chosen])
        self._read = len(chosen)
        self._rests_on.append(f"an index over {len(chosen) - len(built.left_out):,} blocks that were read")
        if built.left_out:
            self._rests_on.append(f"{len(built.left_out):,} blocks could not be indexed: {built.left_out[0].reason}")
        index = MeasuredIndex(self._kind, self._index, self._term, built)
        pairs = [self._ratio(each, chosen, index) for each in self._filters]
        applying = [pair for pair, each in zip(pairs, self._filters, strict=True) if self._reason(each.node) is None]
        before, after = (sum(side) for side in zip(*applying, strict=True)) if applying else (0, 0)
        forecasts = []
        for each, (mine, left) in zip(self._filters, pairs, strict=True):
            now, reason = self._now(each), self._reason(each.node)
            if reason is not None or not len(each.kept):
                forecasts.append(self._unasked(each, reason or ""))
                continue
            # Where hardly a block of the filter is in the sample, the others' say how many are kept.
            ratio = left / mine if mine >= min(ENOUGH, len(each.kept)) else after / before
            then = Cost(blocks=now.blocks * ratio, bytes=now.bytes * ratio, skip=1.0 - (1.0 - now.skip) * ratio)
            why = "" if each.is_whole else f"or fewer: {_NOT_WHOLE}"
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
        """Of the sample the blocks that the filter reads now, and those that it would read then."""
        mine = chosen[np.isin(chosen, filter.kept)]
        if not len(mine):
            return 0, 0
        parts = self._scene.parts(mine, self._scene.tested(filter.node))
        left, _ = refined([index], self._scene, filter.node, parts)
        return len(mine), sum(len(part.rows) for part in left)
