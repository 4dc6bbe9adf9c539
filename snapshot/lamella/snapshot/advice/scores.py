"""Scores and sizes of candidate indexes, from the manifests of a snapshot alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from lamella.snapshot.advice.index_gain import Effectiveness, Sizing, effectiveness, for_budget, for_options
from lamella.snapshot.concurrency import check_deadline
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.index import Kind, kind_named, kinds
from lamella.snapshot.index.building import PART_BLOCKS
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.warehouse.block_sample import BlockSample
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire.advice import AdviceAnswer, AdviceLayer, AdviceRequest, IndexSize, Score
from lamella.snapshot.workload.distribution import ValueDistribution

#: Maximum number of columns that are evaluated if the request names none.
MAX_COLUMNS: Final = 32


class Advising:
    """Evaluates snapshots; reads manifests and sidecars, and never a block."""

    def __init__(self, manifests: Manifests) -> None:
        self._manifests = manifests

    def advise(self, pointer: SnapshotPointer, request: AdviceRequest) -> AdviceAnswer:
        """Returns the scores of columns, kinds and layers.

        Raises:
            InvalidRequest: an unknown kind, an unknown option, an invalid budget.
            UnknownColumn: one of ``columns``.
        """
        scene = BlockSample(self._manifests, pointer)
        budget = _budget(request, scene.head.summary.compressed_byte_size)
        wanted = _all_kinds() if request.kinds is None else [kind_named(name) for name in dict.fromkeys(request.kinds)]
        for name in request.options:
            kind_named(name)
        scores: list[Score] = []
        rests_on: dict[str, str] = {}
        left_out: dict[str, str] = {}
        for leaf in _columns(scene.head.schema, request):
            check_deadline()
            reason = unfit(leaf)
            if reason is not None:
                left_out[leaf.name] = reason
                continue
            blocks, segments = scene.distribution_by_block(leaf), scene.distribution_by_segment(leaf)
            rests_on[leaf.name] = blocks.rests_on
            found = [_score(leaf, "block", blocks), _score(leaf, "segment", segments)]
            for kind in wanted:
                given = request.options.get(kind.name, {})
                found += _of_kind(
                    kind, given, leaf, blocks, segments, budget, scene, is_named=kind.name in request.options
                )
            scores += sorted(found, key=_rank)
        return AdviceAnswer(
            snapshot_id=scene.head.snapshot_id,
            blocks_total=scene.blocks_total,
            blocks_seen=len(scene),
            scores=tuple(scores),
            rests_on=rests_on,
            left_out=left_out,
            budget_bytes=budget,
        )


def unfit(leaf: Leaf) -> str | None:
    """Returns why a column has no scores."""
    if leaf.dtype.order is None:
        return f"values of type {leaf.dtype} have no order"
    return "a row can have several values" if leaf.repeated else None


def index_size(sizing: Sizing) -> IndexSize:
    """Returns a size in its HTTP form."""
    return IndexSize(
        options=sizing.options,
        parts=sizing.parts,
        distinct_per_block=sizing.distinct_per_block,
        is_counted=sizing.is_counted,
        size_bytes=sizing.size_bytes,
        bytes_per_block=sizing.bytes_per_block,
        share=sizing.share,
        fits=sizing.fits,
        reason=sizing.reason,
    )


def sized(
    kind: Kind,
    value_distribution: ValueDistribution,
    options: Mapping[str, Any],
    scene: BlockSample,
    budget: float | None = None,
) -> Sizing:
    """Returns the size of an index over the whole table, of which the sample may have only a part."""
    seen = max(len(scene), 1)
    share = max(scene.blocks_total, 1) / seen
    data_bytes = int(scene.file_size.sum())
    parts = math.ceil(scene.blocks_total / PART_BLOCKS)
    if budget is None:
        found = for_options(kind, value_distribution.profile, options, data_bytes=data_bytes, parts=parts)
    else:
        found = for_budget(
            kind, value_distribution.profile, options, budget / share, data_bytes=data_bytes, parts=parts
        )
    if found.size_bytes is None:
        return found
    return msgspec.structs.replace(found, size_bytes=found.size_bytes * share)


def _of_kind(
    kind: Kind,
    given: Mapping[str, Any],
    leaf: Leaf,
    blocks: ValueDistribution,
    segments: ValueDistribution,
    budget: float | None,
    scene: BlockSample,
    *,
    is_named: bool,
) -> list[Score]:
    try:
        options = kind.options(leaf.dtype, given)
    except InvalidRequest:
        if is_named and given:
            raise
        return []  # the kind does not support this type
    sizing = sized(kind, blocks, options, scene, budget)
    return [
        _score(leaf, "block", blocks, kind, sizing),
        _score(leaf, "segment", segments, kind, sizing),
    ]


def _score(
    leaf: Leaf,
    layer: AdviceLayer,
    value_distribution: ValueDistribution,
    kind: Kind | None = None,
    sizing: Sizing | None = None,
) -> Score:
    expected = of_fewest = None
    if kind is not None and sizing is not None:
        expected = kind.expected(value_distribution.profile, sizing.options)
        of_fewest = (
            None
            if value_distribution.profile.is_counted
            else kind.expected(value_distribution.profile.fewest, sizing.options)
        )
    found: Effectiveness = effectiveness(value_distribution.profile, value_distribution.cover, expected, of_fewest)
    return Score(
        column=leaf.name,
        kind=None if kind is None else kind.name,
        layer=layer,
        score=found.score,
        min_score=found.min_score,
        max_score=found.max_score,
        skip_present=found.skip_present,
        skip_absent=found.skip_absent,
        size=None if sizing is None or layer == "segment" else index_size(sizing),
        reason=found.reason,
    )


def _rank(score: Score) -> tuple[bool, float, str, str]:
    # an unknown score sorts between what surely helps and what surely does not
    likely = score.score if score.score is not None else (score.min_score + score.max_score) / 2
    return (score.kind is not None, -likely, score.kind or "", score.layer)


def _columns(schema: Schema, request: AdviceRequest) -> Sequence[Leaf]:
    if request.columns is None:
        return [leaf for leaf in schema.leaves() if unfit(leaf) is None][:MAX_COLUMNS]
    return list(dict.fromkeys(schema.leaf(name, case_sensitive=request.case_sensitive) for name in request.columns))


def _all_kinds() -> list[Kind]:
    return [kind for _, kind in sorted(kinds().items())]


def _budget(request: AdviceRequest, data_bytes: int) -> float | None:
    given = (request.budget_bytes, request.budget_share)
    if given == (None, None):
        return None
    if None not in given:
        raise InvalidRequest("give budget_bytes or budget_share, not both")
    budget = request.budget_bytes if request.budget_bytes is not None else (request.budget_share or 0.0) * data_bytes
    if not math.isfinite(budget) or budget <= 0:
        raise InvalidRequest("a budget must be a positive number of bytes")
    return budget
