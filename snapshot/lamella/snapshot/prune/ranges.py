"""The kept blocks as runs of neighbours with one verdict: the smallest exact form of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lamella.snapshot.prune.block_layer import KeptBlocks
from lamella.snapshot.prune.found import VERDICTS, Found
from lamella.snapshot.prune.kept import Indexes, Kept
from lamella.snapshot.prune.verdict import NONE
from lamella.snapshot.wire import BlockRanges


def block_ranges(found: Found, parts: Sequence[Kept]) -> BlockRanges:
    """The runs of all parts; no companion is opened for them."""
    segments, runs = _whole_and_tested(parts) if isinstance(parts, KeptBlocks) else _tested(parts)
    used = np.zeros(len(segments), dtype=bool)
    used[runs["segment"]] = True
    numbers = np.cumsum(used) - 1
    return BlockRanges(
        segment_id=found.segments.texts("segment_id", segments[used]) if used.any() else [],
        schema_id=found.schema_id,
        segment=numbers[runs["segment"]].tolist(),
        first=runs["first"].tolist(),
        block_count=runs["count"].tolist(),
        verdict=[VERDICTS[code] for code in runs["code"].tolist()],
    )


_Runs = dict[str, npt.NDArray[Any]]


def _whole_and_tested(parts: KeptBlocks) -> tuple[Indexes, _Runs]:
    """The segments' rows, and the runs with places among them."""
    owners = np.repeat(np.arange(len(parts.segments)), parts.offsets[1:] - parts.offsets[:-1])
    tested = _runs(owners, parts.rows, parts.codes)
    places = (parts.whole != NONE).nonzero()[0]
    if not len(places):
        return parts.segments, tested
    counts = parts.block_counts[parts.segments[places]]
    some = np.flatnonzero(counts)
    whole: _Runs = {
        "segment": places[some],
        "first": np.zeros(len(some), dtype=np.int64),
        "count": counts[some],
        "code": parts.whole[places[some]],
    }
    joined = {name: np.concatenate([whole[name], tested[name]]) for name in whole}
    order = np.argsort(joined["segment"], kind="stable")  # within a segment they are in order
    return parts.segments, {name: values[order] for name, values in joined.items()}


def _tested(parts: Sequence[Kept]) -> tuple[Indexes, _Runs]:
    nothing = np.zeros(0, dtype=np.int64)
    owners = np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts])
    rows = np.concatenate([nothing, *(part.rows for part in parts)])
    codes = np.concatenate([nothing.astype(np.uint8), *(part.codes for part in parts)])
    return np.array([part.segment for part in parts], dtype=np.int64), _runs(owners, rows, codes)


def _runs(owners: Indexes, rows: Indexes, codes: npt.NDArray[np.uint8]) -> _Runs:
    """Cut blocks into runs; ``owners``: the segment of each, ``rows``: its number there, ascending."""
    if not len(rows):
        return {"segment": owners, "first": rows, "count": rows, "code": codes}
    breaks = (rows[1:] - rows[:-1] != 1) | (owners[1:] != owners[:-1]) | (codes[1:] != codes[:-1])
    begins = np.concatenate([np.zeros(1, dtype=np.int64), breaks.nonzero()[0] + 1])
    return {
        "segment": owners[begins],
        "first": rows[begins],
        "count": np.concatenate([begins[1:], [len(rows)]]) - begins,
        "code": codes[begins],
    }
