"""Replays recorded filters to measure what they read of a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import Predicate, bind, read_filter
from lamella.snapshot.manifest import FEATURES, SnapshotPointer
from lamella.snapshot.prune.outcome import NONE
from lamella.snapshot.warehouse.block_sample import BlockSample
from lamella.snapshot.warehouse.finder import Finder
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import Cost, PruneRequest, RecordedCost
from lamella.snapshot.workload.recorded_filters import LiteralSampler, Recorded, is_sampled

#: Sets of constants that are tried for a filter, and the number that is used: those that keep about as many blocks as
#: recorded.
_TRIES: Final = 10
_TAKEN: Final = 2


class ReplayedFilter(msgspec.Struct, frozen=True, eq=False):
    """A filter, and how often it was used. ``is_whole``: False if some of its constants could not be sampled."""

    predicate: Predicate
    times: int = 1
    text: str = ""
    time_zone: str = "UTC"
    is_whole: bool = True


class ReplayedFilters(msgspec.Struct, frozen=True, eq=False):
    """Filters that can be replayed, and those that cannot, with the reason."""

    filters: Sequence[ReplayedFilter]
    left_out: dict[str, str]


def replayed_filters(
    scene: BlockSample, recorded: Sequence[Recorded], *, case_sensitive: bool, seed: int
) -> ReplayedFilters:
    """Returns the filters to replay on a snapshot."""
    schema = scene.head.schema
    rng = Random(seed)  # noqa: S311  # no secret is made of it
    sampler = LiteralSampler(
        lambda path: schema.leaf(path, case_sensitive=case_sensitive), scene.distribution_by_block, rng
    )
    filters: list[ReplayedFilter] = []
    left_out: dict[str, str] = {}
    for each in recorded:
        try:
            masked = read_filter(msgspec.json.decode(each.tree), time_zone=each.time_zone)
            if each.is_full:
                bind(masked, schema, time_zone=each.time_zone, case_sensitive=case_sensitive)
                filters.append(ReplayedFilter(masked, each.times, each.text, each.time_zone))
                continue
            wanted = each.selected / max(each.considered, 1)
            tries = []
            for number in range(_TRIES):
                predicate = sampler.filled(masked, wanted)
                node = bind(predicate, schema, time_zone=each.time_zone, case_sensitive=case_sensitive)
                part = float((scene.tested(node) != NONE).mean()) if len(scene) else 0.0
                tries.append((abs(part - wanted), number, predicate))
        except InvalidRequest as error:  # a column that was dropped, or has another type
            left_out[each.text] = error.message
            continue
        for _, _, predicate in sorted(tries, key=lambda one: one[:2])[:_TAKEN]:
            filters.append(ReplayedFilter(predicate, each.times, each.text, each.time_zone, is_sampled(predicate)))
    return ReplayedFilters(filters, left_out)


#: Seed of the constants of masked filters, so that repeated requests use the same constants.
_SEED: Final = 0


class ReadCosts:
    """Replays filters; opens no block."""

    def __init__(self, manifests: Manifests, finder: Finder) -> None:
        self._manifests = manifests
        self._finder = finder

    def of(
        self, pointer: SnapshotPointer, recorded: Sequence[Recorded], *, case_sensitive: bool = False
    ) -> tuple[tuple[RecordedCost, ...], dict[str, str]]:
        """Returns what each of the filters reads, as a prune finds it, and why some cannot be replayed on this
        snapshot.

        A filter whose constants were not recorded is replayed with others of similar selectivity; the results are
        averaged.
        """
        if not recorded:
            return (), {}
        again = replayed_filters(
            BlockSample(self._manifests, pointer), recorded, case_sensitive=case_sensitive, seed=_SEED
        )
        by_filter: dict[tuple[str, str], list[ReplayedFilter]] = {}
        for filter in again.filters:
            by_filter.setdefault((filter.text, filter.time_zone), []).append(filter)
        blocks_total = self._manifests.head(pointer).summary.block_count
        found = []
        for (text, _), similar in by_filter.items():
            blocks, size_bytes = 0, 0
            for filter in similar:
                selected, read = self._read(pointer, filter, case_sensitive)
                blocks += selected
                size_bytes += read
            mean = blocks / len(similar)
            cost = Cost(
                blocks=mean, bytes=size_bytes / len(similar), skip=1.0 - mean / blocks_total if blocks_total else 0.0
            )
            found.append(RecordedCost(filter=text, times=similar[0].times, cost=cost))
        return tuple(found), again.left_out

    def _read(self, pointer: SnapshotPointer, filter: ReplayedFilter, case_sensitive: bool) -> tuple[int, int]:
        """Returns the blocks and bytes that a filter reads."""
        request = PruneRequest(time_zone=filter.time_zone, case_sensitive=case_sensitive, reader_features=FEATURES)
        found = self._finder.find_predicate(pointer, filter.predicate, request)
        stages = found.answer.report.stages
        return found.block_count, next((stage.bytes for stage in reversed(stages) if stage.stage != "page"), 0)
