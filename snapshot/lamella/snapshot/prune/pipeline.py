"""The layers in order: snapshot summary, segment summaries, blocks. Each looks only at what the one above kept.

A segment that its summary decides (nothing matches, or everything) is not opened for testing; one that is wholly
kept is opened only because its blocks' addresses are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec
import numpy as np

from lamella.snapshot.columnar import Sidecar, Zones
from lamella.snapshot.columnar.chunk import Load
from lamella.snapshot.expression.bound import BoundAnd, BoundPredicate, columns_of, leaves_of
from lamella.snapshot.prune.block_layer import BlockLayer, Layers, blocks_of_segment, codes_of_sidecar, lookup_of
from lamella.snapshot.prune.evaluate import Evaluator
from lamella.snapshot.prune.explain import Layer, layer_uses, not_used_of, unbounded_in
from lamella.snapshot.prune.options import NO_OPTIONS, Options
from lamella.snapshot.prune.outcome import ALL, NONE, UNKNOWN, verdicts
from lamella.snapshot.prune.result import (
    VERDICTS,
    BlockSelection,
    Codes,
    Indexes,
    PruneResult,
    SegmentSelection,
    joined,
    totals,
)
from lamella.snapshot.prune.search import WORTH_ENTRIES, Division, division
from lamella.snapshot.prune.segment_scan import SegmentScan
from lamella.snapshot.schema import Leaf
from lamella.snapshot.wire import LayerUse, PredicateUse, PruneAnswer, PrunedSegment, Report, Stage


class Deferred(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A prune that takes more than a moment, and what is known of its cost before anything of it is opened.

    ``block_tests``: about how many statistics are compared, block by block: the blocks of the segments that are left,
    times the predicates, a dear one counted several times (:attr:`~.evaluate.Evaluator.weight`). None: not known,
    since the snapshot's segments are not in memory. ``selected_blocks``: so many are kept whatever the tests say.
    """

    block_tests: int | None = None
    selected_blocks: int = 0


class NotNow(Exception):
    """There is more to look at than the caller has time for, or more than the ``max_tests`` that it gave.

    ``cost``: how much, as far as the segment summaries say. Only callers that gave a limit get this error.
    """

    def __init__(self, cost: Deferred | None = None) -> None:
        super().__init__()
        self.cost = cost if cost is not None else Deferred()


class Pruning:
    """One prune of one snapshot; ``timer`` gives seconds, ``load`` opens the sidecar of a segment by its row.

    ``load_many`` opens those of several, perhaps faster than one after another.

    Of ``worth_search`` or more segments only those are looked at that a search leaves (:mod:`.search`).
    Blocks are tested many segments at once where the layers have them together and the options allow it; that changes
    nothing of the result.
    """

    def __init__(
        self,
        layers: Layers,
        load: Callable[[int], Sidecar],
        timer: Callable[[], float],
        load_many: Load | None = None,
        *,
        worth_search: int = WORTH_ENTRIES,
    ) -> None:
        self.worth_search = worth_search
        self._layers = layers
        self._head = layers.head
        self._segments = layers.segments
        self._load = load
        self._timer = timer
        self._load_many: Load = load_many if load_many is not None else _one_by_one(load)

    def run(
        self,
        bound: BoundPredicate | Evaluator,
        *,
        blocks: bool = True,
        explain: bool = False,
        options: Options = NO_OPTIONS,
        max_blocks: int | None = None,
        max_tests: int | None = None,
    ) -> PruneResult:
        """Test every layer; ``blocks`` False stops at the segments.

        Raises:
            NotNow: the segments that are left have more than ``max_blocks`` blocks, or these take more than
                ``max_tests``.
        """
        started = self._timer()
        stages: list[Stage] = []
        summary = self._head.summary

        def stage(name: str, considered: int, selected: int, selected_bytes: int) -> None:
            nonlocal started
            now = self._timer()
            stages.append(
                Stage(stage=name, considered=considered, kept=selected, bytes=selected_bytes, ms=(now - started) * 1e3)
            )
            started = now

        filter = bound if isinstance(bound, Evaluator) else Evaluator(bound)
        codes, chosen, found = self._segment_layer(filter)
        # The summary is asked only which of the two layers ruled all out: where segments are left it is, too.
        alive = len(chosen) > 0 or self._snapshot_layer(filter)
        stages.append(_summary_stage(alive, summary.compressed_byte_size))
        if alive:
            stage("segment", len(codes), len(chosen), int(np.add.reduce(self._segments.numbers("file_size")[chosen])))
        if max_blocks is not None and np.add.reduce(self._segments.numbers("block_count")[chosen]) > max_blocks:
            raise NotNow(self._cost(filter, codes, chosen))
        if max_tests is not None:
            cost = self._cost(filter, codes, chosen)
            if (cost.block_tests or 0) > max_tests:
                raise NotNow(cost)

        indexes = self._layers.indexes if alive and blocks else None
        questions = None if indexes is None else indexes.questions(filter.node)
        if questions is not None and max_blocks is not None:
            raise NotNow  # parts may have to be read
        if self._layers.blocks is not None and alive and blocks and not explain and options.plain:
            layer = BlockLayer(self._layers, self._layers.blocks, self._load_many)
            selection = layer.search(filter, found) if found is not None else None
            if selection is None:
                selection = layer.test(filter, codes, chosen)
            stage("block", layer.considered, selection.block_count, layer.selected_bytes)
            if questions is not None:
                parts = questions.refine(tuple(selection.parts(self._load)))
                stage("index", selection.block_count, *totals(parts))
                selection = BlockSelection.of_parts(parts, selection.block_counts)
            report = Report(
                stages=tuple(stages),
                not_used=(*not_used_of(filter, self._layers, layer.unbounded), *options.not_used),
                blocks_total=summary.block_count,
                rows_total=summary.row_count,
                bytes_total=summary.compressed_byte_size,
                indexes=() if questions is None else questions.uses,
                reused_blocks=layer.reused,
            )
            return self._result(report, selection)

        def open_segment(row: int) -> SegmentSelection:
            return blocks_of_segment(filter, row, self._load(row), int(codes[row]))

        refine = None if questions is None else questions.refine_one
        scan = SegmentScan(options, self._segments, codes, open_segment, self._timer, refine)
        left_codes = scan.segments()
        blocks_found = scan.blocks() if blocks else None
        opened = [scan.opened[row] for row in sorted(scan.opened)]
        if alive:
            stages += scan.stages
        unbounded = unbounded_in(filter, self._layers, [lookup_of(each) for each in opened])
        report = Report(
            stages=tuple(stages),
            not_used=(*not_used_of(filter, self._layers, unbounded), *options.not_used),
            blocks_total=summary.block_count,
            rows_total=summary.row_count,
            bytes_total=summary.compressed_byte_size,
            predicates=self._predicates(filter.node, opened) if explain and blocks else None,
            layers=self._layer_uses(filter.node, alive, opened) if explain else None,
            limit=scan.limit,
            indexes=() if questions is None else questions.uses,
        )
        return self._result(report, blocks_found, scan, left_codes)

    def _result(
        self,
        report: Report,
        selection: BlockSelection | None,
        scan: SegmentScan | None = None,
        codes: Codes | None = None,
    ) -> PruneResult:
        """The result; ``scan`` and the verdicts of the segments where the way led through the segments one by one."""
        head = self._head
        answer = PruneAnswer(snapshot_id=head.snapshot_id, timestamp_ms=head.timestamp_ms, report=report)
        found = PruneResult(
            answer=answer,
            selection=selection,
            segments=self._segments,
            schema_id=head.schema.schema_id,
            open_segment=self._load,
            members=head.summary.required_features,
        )
        if scan is None or codes is None:
            return found
        if selection is None:
            selected = (codes != NONE).nonzero()[0]
            answer = msgspec.structs.replace(answer, segments=self._pruned(codes, selected))
        elif scan.unresolved:
            unresolved = self._pruned(codes, np.array(scan.unresolved, dtype=np.int64))
            answer = msgspec.structs.replace(answer, complete=False, unresolved=unresolved)
        return msgspec.structs.replace(
            found,
            answer=answer,
            open_segment=scan.opened.__getitem__,
            order=scan.order,
            bounds=scan.bounds,
            next_position=scan.next_position,
        )

    def _pruned(self, codes: Codes, rows: Indexes) -> tuple[PrunedSegment, ...]:
        """Segments as they travel."""
        segments = self._segments
        return tuple(
            PrunedSegment(
                segment_id=segment_id,
                location=location,
                block_count=int(segments.numbers("block_count")[row]),
                row_count=int(segments.numbers("row_count")[row]),
                file_size_bytes=int(segments.numbers("file_size")[row]),
                verdict=VERDICTS[int(codes[row])],
            )
            for row, segment_id, location in zip(
                rows.tolist(),
                segments.texts("segment_id", rows),
                segments.texts("manifest.location", rows),
                strict=True,
            )
        )

    def cost(self, filter: Evaluator) -> Deferred:
        """What the segments tell of the cost of a filter; no segment is opened."""
        codes, chosen, _ = self._segment_layer(filter)
        return self._cost(filter, codes, chosen)

    def _cost(self, filter: Evaluator, codes: Codes, chosen: Indexes) -> Deferred:
        counts = self._segments.numbers("block_count")
        selected = int(counts[chosen[codes[chosen] == ALL]].sum())
        tested = int(counts[chosen].sum()) - selected
        return Deferred(block_tests=tested * filter.weight + selected, selected_blocks=selected)

    def _segment_layer(self, filter: Evaluator) -> tuple[Codes, Indexes, Division | None]:
        """The verdicts of the segments, which are kept, and their division where a search decides all of them."""
        count = len(self._segments)
        if count >= self.worth_search:
            found = division(filter, self._layers.edges, count)
            if found.rest is not filter or 2 * sum(stop - start for start, stop in found.windows) < count:
                codes = found.codes(0, count, self._zones)
                if not self._segments.have_rows:
                    codes[self._segments.numbers("row_count") <= 0] = NONE
                elif found.rest is None:
                    return codes, joined([np.arange(start, stop) for start, stop in found.windows], np.int64), found
                return codes, (codes != NONE).nonzero()[0], None
        codes = codes_of_sidecar(filter, self._segments)
        return codes, (codes != NONE).nonzero()[0], None

    def _zones(self, leaf: Leaf) -> Zones:
        return self._segments.zones(leaf.id, leaf.dtype)

    def _snapshot_layer(self, filter: Evaluator) -> bool:
        rows = np.array([self._head.summary.row_count])
        return bool(verdicts(filter.outcome(self._layers.summary, 1), rows)[0] != NONE)

    def _layer_uses(self, bound: BoundPredicate, alive: bool, opened: list[Sidecar]) -> tuple[LayerUse, ...]:
        rows = np.array([self._head.summary.row_count])
        layers = [Layer("snapshot", self._layers.summary, rows)]
        if alive:
            layers.append(Layer.of("segment", self._segments))
        layers += [Layer.of("block", sidecar) for sidecar in opened]
        return layer_uses([(_text(part), part) for part in _conjuncts(bound)], layers)

    def _predicates(self, bound: BoundPredicate, opened: list[Sidecar]) -> tuple[PredicateUse, ...]:
        uses = []
        for part in _conjuncts(bound):
            codes = [codes_of_sidecar(Evaluator(part), sidecar) for sidecar in opened]
            names = [column.name for column in columns_of(part)]
            uses.append(
                PredicateUse(
                    predicate=_text(part),
                    column=", ".join(names),
                    considered=sum(len(c) for c in codes),
                    ruled_out=sum(int((c == NONE).sum()) for c in codes),
                    unknown=sum(int((c == UNKNOWN).sum()) for c in codes),
                )
            )
        return tuple(uses)


def _summary_stage(alive: bool, size_bytes: int) -> Stage:
    return Stage(stage="snapshot", considered=1, kept=int(alive), bytes=size_bytes if alive else 0, ms=0.0)


def _one_by_one(load: Callable[[int], Sidecar]) -> Load:
    def many(
        rows: Sequence[int],
        *,
        keep: bool = True,  # noqa: ARG001  # ``load`` decides
        column_ids: Collection[int] = (),  # noqa: ARG001
    ) -> list[Sidecar]:
        return [load(row) for row in rows]

    return many


def _text(bound: BoundPredicate) -> str:
    return " / ".join(dict.fromkeys(leaf.text for leaf in leaves_of(bound))) or "constant"


def _conjuncts(bound: BoundPredicate) -> list[BoundPredicate]:
    if isinstance(bound, BoundAnd):
        return [part for child in bound.children for part in _conjuncts(child)]
    return [bound]
