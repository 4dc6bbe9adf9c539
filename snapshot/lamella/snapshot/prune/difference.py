"""What came and what went between two snapshots, as far as a filter is concerned.

Segments never change, so those that both snapshots have are not looked at. A commit that removes a block writes its
segment anew with the others; those are recognised by location and content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.expression import BoundPredicate
from lamella.snapshot.manifest import Block, Snapshot
from lamella.snapshot.prune.evaluate import Evaluator, evaluate
from lamella.snapshot.prune.options import Allowance
from lamella.snapshot.prune.outcome import NONE, verdicts
from lamella.snapshot.prune.pipeline import Deferred, NotNow
from lamella.snapshot.prune.result import VERDICTS
from lamella.snapshot.wire import DiffAnswer, PrunedBlock

#: Comparing the location of a block costs as much as this many tests.
_WEIGHT_OF_LOCATIONS: Final = 4


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two snapshots.

    ``load`` opens a segment's sidecar by its row, as it looks from the newer snapshot's schema; ``manifest`` reads
    its blocks.
    """

    head: Snapshot
    segments: Sidecar
    load: Callable[[int], Sidecar]
    manifest: Callable[[int], Sequence[Block]]

    def rows_without(self, shared: set[str]) -> list[int]:
        """The rows of the segments that the other side does not have."""
        return [row for row, segment in enumerate(self.segments.texts("segment_id")) if segment not in shared]


def difference(
    before: Side,
    after: Side,
    bound: BoundPredicate,
    column_ids: Sequence[int] | None,
    schema_id: int,
    allowance: Allowance,
    max_tests: int | None = None,
) -> DiffAnswer:
    """The blocks that only one of the sides has; ``bound`` and ``schema_id`` are of the newer schema.

    Raises LimitExceeded when there are more than the ``allowance``, and NotNow where more than ``max_tests`` are to be
    done: that is known before anything is opened.
    """
    shared = set(before.segments.texts("segment_id")) & set(after.segments.texts("segment_id"))
    own = [(side, side.rows_without(shared)) for side in (before, after)]
    if max_tests is not None:
        blocks = sum(int(side.segments.numbers("block_count")[rows].sum()) for side, rows in own)
        tests = blocks * (Evaluator(bound).weight + _WEIGHT_OF_LOCATIONS)
        if tests > max_tests:
            raise NotNow(Deferred(block_tests=tests))
    sides = [_Opened(side, rows) for side, rows in own]
    both = _unchanged(*sides)
    removed, added = (opened.blocks(bound, both, column_ids, schema_id, allowance) for opened in sides)
    return DiffAnswer(
        from_snapshot_id=before.head.snapshot_id,
        to_snapshot_id=after.head.snapshot_id,
        added=added,
        removed=removed,
        unchanged_blocks=after.head.summary.block_count - len(sides[1].rows_by_location) + len(both),
        segments_skipped=len(shared),
        segments_read=sum(len(opened.sidecars) for opened in sides),
    )


class _Opened:
    """The segments of one side that the other does not have; ``rows_by_location``: location -> row of its segment."""

    def __init__(self, side: Side, rows: Sequence[int]) -> None:
        self._side = side
        self.sidecars = {row: side.load(row) for row in rows}
        self.rows_by_location = {location: row for row, c in self.sidecars.items() for location in c.texts("location")}

    def contents(self, locations: set[str]) -> Mapping[str, tuple[object, ...]]:
        """What tells the content of blocks apart, from the manifests of their segments."""
        rows = {self.rows_by_location[location] for location in locations}
        return {
            block.location: (
                block.content_id,
                block.footer_sha256,
                block.file_size,
                block.row_count,
                block.constants,
                block.deletes,
            )
            for row in rows
            for block in self._side.manifest(row)
            if block.location in locations
        }

    def blocks(
        self,
        bound: BoundPredicate,
        unchanged: set[str],
        column_ids: Sequence[int] | None,
        schema_id: int,
        allowance: Allowance,
    ) -> tuple[PrunedBlock, ...]:
        """The blocks that may match and are not on the other side too."""
        found: list[PrunedBlock] = []
        for sidecar in self.sidecars.values():
            matching = _matching(sidecar, bound, unchanged, column_ids, schema_id)
            allowance.take(len(matching))
            found += matching
        return tuple(found)


def _unchanged(before: _Opened, after: _Opened) -> set[str]:
    locations = before.rows_by_location.keys() & after.rows_by_location.keys()
    then, now = before.contents(locations), after.contents(locations)
    return {location for location in locations if then[location] == now[location]}


def _matching(
    sidecar: Sidecar,
    bound: BoundPredicate,
    unchanged: set[str],
    column_ids: Sequence[int] | None,
    schema_id: int,
) -> list[PrunedBlock]:
    row_counts = sidecar.numbers("row_count")
    outcome = evaluate(bound, lambda leaf: sidecar.zones(leaf.id, leaf.dtype), len(sidecar))
    codes = verdicts(outcome, row_counts)
    rows = np.flatnonzero(codes != NONE)
    sizes = None if column_ids is None else sidecar.column_size_bytes(column_ids)
    return [
        PrunedBlock(
            location=location,
            row_count=int(row_counts[row]),
            file_size=int(sidecar.numbers("file_size")[row]),
            verdict=VERDICTS[int(codes[row])],
            column_size_bytes=None if sizes is None else int(sizes[row]),
            schema_id=older,
            constants=constants,
            deletes=deletes,
        )
        for row, location, older, constants, deletes in zip(
            rows.tolist(),
            sidecar.texts("location", rows),
            sidecar.older_schema_ids(rows, schema_id),
            sidecar.constants(rows),
            sidecar.deletes(rows),
            strict=True,
        )
        if location not in unchanged
    ]
