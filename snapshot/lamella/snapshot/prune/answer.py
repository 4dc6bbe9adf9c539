"""From a funnel to the answer that travels: blocks as records or as columns, or segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import numpy as np

from lamella.snapshot.columnar import Companion
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.prune.arranged import arranged, residual_table, unresolved_rows
from lamella.snapshot.prune.kept import Indexes, Kept
from lamella.snapshot.prune.pipeline import Funnel
from lamella.snapshot.prune.residual import Residuals
from lamella.snapshot.prune.verdict import NONE, VERDICT_NAMES
from lamella.snapshot.wire import (
    BlockColumns,
    PruneAnswer,
    PrunedBlock,
    PrunedSegment,
    PruneRequest,
    Report,
    Verdict,
)

_NAMES: Final = cast("tuple[Verdict, ...]", VERDICT_NAMES)


def answer(
    head: Snapshot,
    segments: Companion,
    funnel: Funnel,
    request: PruneRequest,
    column_ids: Sequence[int] | None,
    filter_text: str,
    *,
    residuals: Residuals | None = None,
    next_page_token: str | None = None,
) -> PruneAnswer:
    """The answer to ``request``; ``column_ids`` are the leaves that will be read, None when all.

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
    )
    columns = None
    if funnel.kept is not None:
        columns = arranged(_columns(funnel, funnel.kept, column_ids, head.schema.schema_id), walked, residuals)
    late = unresolved_rows(walked)
    return PruneAnswer(
        snapshot_id=head.snapshot_id,
        timestamp_ms=head.timestamp_ms,
        report=report,
        blocks=_records(columns) if columns is not None and request.shape == "records" else None,
        block_columns=columns if request.shape == "columns" else None,
        segments=_segments(segments, funnel, np.flatnonzero(funnel.segment_codes != NONE)) if columns is None else None,
        residuals=residual_table(residuals),
        complete=not len(late),
        unresolved=_segments(segments, funnel, late) if len(late) else None,
        next_page_token=next_page_token,
    )


def _columns(funnel: Funnel, kept: Sequence[Kept], column_ids: Sequence[int] | None, schema_id: int) -> BlockColumns:
    schema_ids = [each for part in kept for each in part.companion.older_schema_ids(part.rows, schema_id)]
    columns = BlockColumns(
        location=[],
        row_count=[],
        file_size=[],
        verdict=[],
        column_size_bytes=None if column_ids is None else [],
        schema_id=schema_ids if any(each is not None for each in schema_ids) else None,
        pages=None if funnel.pages is None else list(funnel.pages),
    )
    for part in kept:
        columns.location.extend(part.companion.texts("location", part.rows))
        columns.row_count.extend(part.companion.numbers("row_count")[part.rows].tolist())
        columns.file_size.extend(part.companion.numbers("file_size")[part.rows].tolist())
        columns.verdict.extend(_NAMES[code] for code in part.codes.tolist())
        if column_ids is not None and columns.column_size_bytes is not None:
            columns.column_size_bytes.extend(part.companion.column_size_bytes(column_ids)[part.rows].tolist())
    return columns


def _records(columns: BlockColumns) -> tuple[PrunedBlock, ...]:
    nothing = [None] * len(columns.location)
    rows = zip(
        columns.location,
        columns.row_count,
        columns.file_size,
        columns.verdict,
        columns.column_size_bytes or nothing,
        columns.schema_id or nothing,
        columns.residual or nothing,
        columns.order_bound or nothing,
        columns.pages or nothing,
        strict=True,
    )
    return tuple(
        PrunedBlock(
            location=place,
            row_count=count,
            file_size=size,
            verdict=verdict,
            column_size_bytes=of_columns,
            schema_id=schema_id,
            residual=residual,
            order_bound=order_bound,
            pages=pages,
        )
        for place, count, size, verdict, of_columns, schema_id, residual, order_bound, pages in rows
    )


def _segments(segments: Companion, funnel: Funnel, rows: Indexes) -> tuple[PrunedSegment, ...]:
    return tuple(
        PrunedSegment(
            segment_id=segment_id,
            location=location,
            block_count=int(segments.numbers("block_count")[row]),
            row_count=int(segments.numbers("row_count")[row]),
            file_size_bytes=int(segments.numbers("file_size")[row]),
            verdict=_NAMES[int(funnel.segment_codes[row])],
        )
        for row, segment_id, location in zip(
            rows.tolist(),
            segments.texts("segment_id", rows),
            segments.texts("manifest.location", rows),
            strict=True,
        )
    )
