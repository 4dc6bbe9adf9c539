"""What the filters that were asked of a table read of one of its snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lamella.snapshot.advice.recording import Recorded
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.warehouse.finder import Finder
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.recalled import Asked, recalled
from lamella.snapshot.warehouse.scene import Scene
from lamella.snapshot.wire import Cost, PruneRequest, RecordedCost

#: Of masked filters the constants are drawn anew each time; the same ones each time the same question is asked.
_SEED: Final = 0


class ReadCosts:
    """Asks filters again; opens no block."""

    def __init__(self, manifests: Manifests, finder: Finder) -> None:
        self._manifests = manifests
        self._finder = finder

    def of(
        self, pointer: SnapshotPointer, recorded: Sequence[Recorded], *, case_sensitive: bool = False
    ) -> tuple[tuple[RecordedCost, ...], dict[str, str]]:
        """What each of the filters reads, as a prune finds it, and why some cannot be asked of this snapshot.

        A filter whose constants were not kept is asked with others, about as selective; what they read is averaged.
        """
        if not recorded:
            return (), {}
        again = recalled(Scene(self._manifests, pointer), recorded, case_sensitive=case_sensitive, seed=_SEED)
        by_filter: dict[tuple[str, str], list[Asked]] = {}
        for asked in again.asked:
            by_filter.setdefault((asked.text, asked.time_zone), []).append(asked)
        blocks_total = self._manifests.head(pointer).summary.block_count
        found = []
        for (text, _), alike in by_filter.items():
            blocks, size_bytes = 0, 0
            for asked in alike:
                kept, read = self._read(pointer, asked, case_sensitive)
                blocks += kept
                size_bytes += read
            mean = blocks / len(alike)
            cost = Cost(
                blocks=mean, bytes=size_bytes / len(alike), skip=1.0 - mean / blocks_total if blocks_total else 0.0
            )
            found.append(RecordedCost(filter=text, times=alike[0].times, cost=cost))
        return tuple(found), again.left_out

    def _read(self, pointer: SnapshotPointer, asked: Asked, case_sensitive: bool) -> tuple[int, int]:
        """Blocks and bytes."""
        request = PruneRequest(time_zone=asked.time_zone, case_sensitive=case_sensitive)
        found = self._finder.find_predicate(pointer, asked.predicate, request)
        stages = found.answer.report.stages
        return found.block_count, next((stage.bytes for stage in reversed(stages) if stage.stage != "page"), 0)
