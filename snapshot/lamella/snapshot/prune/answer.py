"""From what a prune found to the answer that travels, as values: blocks as records, columns or ranges, or segments."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamella.snapshot.columnar import Companion
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.prune.arranged import arranged
from lamella.snapshot.prune.found import VERDICTS, Found, found_by
from lamella.snapshot.prune.kept import Kept
from lamella.snapshot.prune.pipeline import Funnel
from lamella.snapshot.prune.ranges import block_ranges
from lamella.snapshot.prune.residual import Residuals
from lamella.snapshot.prune.runs import runs_of
from lamella.snapshot.wire import BlockColumns, PruneAnswer, PrunedBlock, PruneRequest


def answer(
    head: Snapshot,
    segments: Companion,
    funnel: Funnel,
    request: PruneRequest,
    column_ids: Sequence[int] | None,
    filter_text: str,
    *,
    residuals: Residuals | None = None,
) -> PruneAnswer:
    """As :func:`~lamella.snapshot.prune.found.found_by`, as an answer."""
    return answer_of(found_by(head, segments, funnel, request, column_ids, filter_text, residuals=residuals))


def answer_of(found: Found) -> PruneAnswer:
    """The whole answer, with a Python object for each member of each block.

    :mod:`lamella.snapshot.prune.encode` writes large answers without.
    """
    if found.parts is None:
        return found.answer
    if found.shape == "ranges":
        return msgspec.structs.replace(found.answer, block_ranges=block_ranges(found, found.parts))
    columns = columns_of(found, found.parts)
    if found.shape == "columns":
        return msgspec.structs.replace(found.answer, block_columns=columns)
    return msgspec.structs.replace(found.answer, blocks=_records(columns))


def entry_count(found: Found) -> int:
    """How many blocks, runs or segments the whole answer lists."""
    if found.parts is None:
        return len(found.answer.segments or ())
    return len(runs_of(found.parts)) if found.shape == "ranges" else found.block_count


def columns_of(found: Found, parts: Sequence[Kept]) -> BlockColumns:
    """The blocks as columns, in the answer's sequence."""
    column_ids = found.column_ids
    columns = BlockColumns(
        location=[],
        row_count=[],
        file_size=[],
        verdict=[],
        column_size_bytes=None if column_ids is None else [],
        schema_id=[],
        pages=None if found.pages is None else list(found.pages),
        url=None if found.urls is None else list(found.urls),
    )
    for part in parts:
        companion, rows = part.companion, part.rows
        columns.location.extend(companion.texts("location", rows))
        columns.row_count.extend(companion.numbers("row_count")[rows].tolist())
        columns.file_size.extend(companion.numbers("file_size")[rows].tolist())
        columns.verdict.extend([VERDICTS[code] for code in part.codes.tolist()])
        if columns.schema_id is not None:
            columns.schema_id.extend(companion.older_schema_ids(rows, found.schema_id))
        if column_ids is not None and columns.column_size_bytes is not None:
            columns.column_size_bytes.extend(companion.column_size_bytes(column_ids)[rows].tolist())
    if not any(each is not None for each in columns.schema_id or ()):
        columns = msgspec.structs.replace(columns, schema_id=None)
    if found.order is None and found.bounds is None and found.residual is None:
        return columns
    return arranged(columns, found.order, found.bounds, found.residual)


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
        columns.url or nothing,
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
            url=url,
        )
        for place, count, size, verdict, of_columns, schema_id, residual, order_bound, pages, url in rows
    )
