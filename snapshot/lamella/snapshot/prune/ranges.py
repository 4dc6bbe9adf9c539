"""The kept blocks as runs of neighbours with one verdict: the smallest exact form of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lamella.snapshot.prune.found import VERDICTS, Found
from lamella.snapshot.prune.kept import Kept
from lamella.snapshot.prune.kept_blocks import Runs
from lamella.snapshot.prune.runs import runs_of
from lamella.snapshot.wire import BlockRanges

#: So many names are looked up one by one faster than together.
_FEW_SEGMENTS: Final = 16


def block_ranges(found: Found, parts: Sequence[Kept]) -> BlockRanges:
    """The runs of all parts; no companion is opened for them."""
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
