"""What a prune found, and the answer that travels: blocks as records, columns or ranges, or segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec
import numpy as np

from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.errors import LimitExceeded
from lamella.snapshot.expression.text import sql_of, tree_of
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.prune.outcome import NONE, VERDICT_NAMES
from lamella.snapshot.prune.pipeline import Funnel
from lamella.snapshot.prune.residual import Residuals
from lamella.snapshot.prune.segment_scan import Walked
from lamella.snapshot.prune.selection import Indexes, Kept, KeptBlocks, Runs, runs_of
from lamella.snapshot.wire import (
    BlockColumns,
    BlockRanges,
    OrderBound,
    PruneAnswer,
    PrunedBlock,
    PrunedPages,
    PrunedSegment,
    PruneRequest,
    Report,
    Residual,
    Shape,
    Verdict,
)


class Allowance:
    """``most`` blocks, or entries that stand for them (None: any number), of which parts are taken one by one."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._taken = 0

    def take(self, count: int) -> None:
        """Have so many more; raises LimitExceeded when there are too many together."""
        self._taken += count
        self.check(0)

    def check(self, count: int) -> None:
        """Raises LimitExceeded where so many more would be too many together."""
        if self._most is not None and self._taken + count > self._most:
            text = f"the answer would have more than {self._most} blocks; ask for less, or for pages"
            raise LimitExceeded(text, limit="answer_blocks", most=self._most)


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
    segments: Sidecar
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
    segments: Sidecar,
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


def _segments(segments: Sidecar, funnel: Funnel, rows: Indexes) -> tuple[PrunedSegment, ...]:
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


def arranged(
    columns: BlockColumns, order: Indexes | None, bounds: Sequence[OrderBound] | None, residual: Indexes | None
) -> BlockColumns:
    """``columns`` (in the snapshot's order) in the answer's ``order``, with residuals and bounds beside them.

    ``residual`` is in the snapshot's order as well, ``bounds`` are in the answer's.
    """
    found = columns
    if residual is not None:
        found = msgspec.structs.replace(found, residual=residual.tolist())
    if order is not None:
        places = order.tolist()
        given: dict[str, Any] = msgspec.structs.asdict(found)
        moved = {name: [values[at] for at in places] for name, values in given.items() if isinstance(values, list)}
        found = msgspec.structs.replace(found, **moved)
    if bounds is not None:
        found = msgspec.structs.replace(found, order_bound=list(bounds))
    return found


def residual_table(residuals: Residuals | None) -> tuple[Residual, ...] | None:
    """The distinct residuals as they travel."""
    if residuals is None:
        return None
    return tuple(
        Residual(sql=sql_of(predicate), tree=tree_of(predicate), blocks=count) for predicate, count in residuals.table()
    )


def unresolved_rows(walked: Walked | None) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Rows of the segments that time did not suffice for."""
    return np.array(() if walked is None else walked.unresolved, dtype=np.int64)


#: So many names are looked up one by one faster than together.
_FEW_SEGMENTS: Final = 16


def block_ranges(found: Found, parts: Sequence[Kept]) -> BlockRanges:
    """The runs of all parts; no sidecar is opened for them."""
    return ranges_of(found, runs_of(parts))


def ranges_of(found: Found, runs: Runs) -> BlockRanges:
    """Runs as they travel."""
    segments, place = runs.segments, runs.place
    if runs.segment_count < len(segments):
        used = list(dict.fromkeys(place))  # ascending
        numbers = dict(zip(used, range(len(used)), strict=True))
        segments, place = segments[used], [numbers[each] for each in place]
    if len(segments) <= _FEW_SEGMENTS:
        names = [found.segments.text_at("segment_id", row) for row in segments.tolist()]
    else:
        names = found.segments.texts("segment_id", segments)
    return BlockRanges(
        segment_id=names,
        schema_id=found.schema_id,
        segment=place,
        first=runs.first,
        block_count=runs.count,
        verdict=[VERDICTS[code] for code in runs.code],
    )


def answer(
    head: Snapshot,
    segments: Sidecar,
    funnel: Funnel,
    request: PruneRequest,
    column_ids: Sequence[int] | None,
    filter_text: str,
    *,
    residuals: Residuals | None = None,
) -> PruneAnswer:
    """As :func:`~lamella.snapshot.prune.result.found_by`, as an answer."""
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
        sidecar, rows = part.sidecar, part.rows
        columns.location.extend(sidecar.texts("location", rows))
        columns.row_count.extend(sidecar.numbers("row_count")[rows].tolist())
        columns.file_size.extend(sidecar.numbers("file_size")[rows].tolist())
        columns.verdict.extend([VERDICTS[code] for code in part.codes.tolist()])
        if columns.schema_id is not None:
            columns.schema_id.extend(sidecar.older_schema_ids(rows, found.schema_id))
        if column_ids is not None and columns.column_size_bytes is not None:
            columns.column_size_bytes.extend(sidecar.column_size_bytes(column_ids)[rows].tolist())
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
