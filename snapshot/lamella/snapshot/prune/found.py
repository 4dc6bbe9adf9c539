"""What a prune found, before it takes a form to travel in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import msgspec
import numpy as np

from lamella.snapshot.columnar import Companion
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.prune.arranged import residual_table, unresolved_rows
from lamella.snapshot.prune.kept import Indexes, Kept
from lamella.snapshot.prune.kept_blocks import KeptBlocks
from lamella.snapshot.prune.pipeline import Funnel
from lamella.snapshot.prune.residual import Residuals
from lamella.snapshot.prune.verdict import NONE, VERDICT_NAMES
from lamella.snapshot.wire import (
    OrderBound,
    PruneAnswer,
    PrunedPages,
    PrunedSegment,
    PruneRequest,
    Report,
    Shape,
    Verdict,
)

#: The verdicts as they travel, by code.
VERDICTS: Final = cast("tuple[Verdict, ...]", VERDICT_NAMES)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A prune's outcome. ``answer`` is all of it but the blocks, ``block_count`` of them, which are in ``parts`` (None:
    none were asked for).

    ``order``: the sequence of the blocks in the answer, as places in the parts one after another, None for that very
    sequence; ``bounds`` go with it, and ``pages`` with the parts, as do ``residual`` (places in the answer's table)
    and ``urls``.
    ``column_ids``: the leaves whose sizes are asked for, None when none are. ``segments`` is the snapshot's layer of
    them, ``schema_id`` the schema in force there.
    """

    answer: PruneAnswer
    shape: Shape
    parts: Sequence[Kept] | None
    block_count: int
    segments: Companion
    schema_id: int
    column_ids: tuple[int, ...] | None = None
    order: Indexes | None = None
    bounds: tuple[OrderBound, ...] | None = None
    pages: tuple[PrunedPages, ...] | None = None
    residual: Indexes | None = None
    urls: tuple[str, ...] | None = None

    @property
    def segment_rows(self) -> list[int]:
        """The rows of the segments that the blocks are in."""
        if isinstance(self.parts, KeptBlocks):
            rows: list[int] = self.parts.segments.tolist()
            return rows
        return [part.segment for part in self.parts or ()]

    @property
    def is_plain(self) -> bool:
        """True when the answer is blocks in the snapshot's own sequence, with nothing but numbers beside each."""
        plain = self.order is None and self.bounds is None and self.pages is None and self.urls is None
        return self.parts is not None and plain


def found_by(
    head: Snapshot,
    segments: Companion,
    funnel: Funnel,
    request: PruneRequest,
    column_ids: Sequence[int] | None,
    filter_text: str,
    *,
    residuals: Residuals | None = None,
    next_page_token: str | None = None,
) -> Found:
    """What a funnel found; ``column_ids`` are the leaves that will be read, None when all.

    ``residuals`` have taken the funnel's kept blocks already.
    """
    walked = funnel.walked
    report = Report(
        stages=funnel.stages,
        not_used=funnel.not_used,
        blocks_total=head.summary.block_count,
        rows_total=head.summary.row_count,
        bytes_total=head.summary.compressed_byte_size,
        filter=filter_text if request.explain else None,
        predicates=funnel.predicates,
        layers=funnel.layers,
        limit=None if walked is None else walked.limit,
        pages=funnel.page_use,
        reused_blocks=funnel.reused,
        indexes=funnel.indexes,
        feedback=funnel.feedback,
        from_cache=funnel.from_cache,
    )
    late = unresolved_rows(walked)
    only_segments = funnel.kept is None
    return Found(
        answer=PruneAnswer(
            snapshot_id=head.snapshot_id,
            timestamp_ms=head.timestamp_ms,
            report=report,
            segments=_segments(segments, funnel, np.flatnonzero(funnel.segment_codes != NONE))
            if only_segments
            else None,
            residuals=residual_table(residuals),
            complete=not len(late),
            unresolved=_segments(segments, funnel, late) if len(late) else None,
            next_page_token=next_page_token,
        ),
        shape=request.shape,
        parts=funnel.kept,
        block_count=block_count_of(funnel.kept),
        segments=segments,
        schema_id=head.schema.schema_id,
        column_ids=None if column_ids is None else tuple(column_ids),
        order=None if walked is None else walked.order,
        bounds=None if walked is None else walked.bounds,
        pages=funnel.pages,
        residual=None if residuals is None or only_segments else residuals.indexes(),
    )


def block_count_of(parts: Sequence[Kept] | None) -> int:
    """How many blocks there are in all parts."""
    if isinstance(parts, KeptBlocks):
        return parts.block_count
    return sum(len(part.rows) for part in parts or ())


def _segments(segments: Companion, funnel: Funnel, rows: Indexes) -> tuple[PrunedSegment, ...]:
    return tuple(
        PrunedSegment(
            segment_id=segment_id,
            location=location,
            block_count=int(segments.numbers("block_count")[row]),
            row_count=int(segments.numbers("row_count")[row]),
            file_size_bytes=int(segments.numbers("file_size")[row]),
            verdict=VERDICTS[int(funnel.segment_codes[row])],
        )
        for row, segment_id, location in zip(
            rows.tolist(),
            segments.texts("segment_id", rows),
            segments.texts("manifest.location", rows),
            strict=True,
        )
    )
