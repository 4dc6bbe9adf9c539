"""Cutting the rows of sorted runs into ranges, so that each range can be merged by itself, in any place.

All that is known are the keys of the chunks' first rows. They are the quantiles: between two neighbours of them there
are fewer rows than the runs have chunks' worth of. Every row lies in exactly one range, rows of one key too, since
their order goes on by run and by row.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.client.rewrite.runs import Chunk, Run
from lamella.client.rewrite.sorting import Cut, from_stream, to_stream

Numbers = npt.NDArray[np.int64]


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbouring chunks of run number ``run``, the first of which begins with its row ``first_row``."""

    run: int
    location: str
    first_row: int
    chunks: tuple[Chunk, ...]


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """The rows from ``low`` to before ``high`` (None: no bound); they are in these stretches, with some others."""

    low: Cut | None
    high: Cut | None
    stretches: tuple[Stretch, ...]
    row_count: int


def cut_ranges(runs: Sequence[Run], range_rows: int) -> list[Range]:
    """Ranges of about ``range_rows`` rows each, in order; ``row_count`` is a guess."""
    if not runs:
        return []
    total = sum(run.row_count for run in runs)
    keys = pa.concat_tables([from_stream(run.first_keys) for run in runs])
    owner = np.repeat(np.arange(len(runs)), [len(run.chunks) for run in runs])
    weight = np.array([chunk.row_count for run in runs for chunk in run.chunks], dtype=np.int64)
    first_row = np.concatenate([_starts(run) for run in runs])
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names]).to_numpy()
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    wanted = max(1, round(total / max(range_rows, 1)))
    # Half of its rows, on the average, come before the first row of the next chunk in the order, wherever that is.
    passed = np.cumsum(weight[order]) - weight[order]
    targets = np.arange(1, wanted) * total // wanted
    edges = np.unique(np.searchsorted(passed, targets)).tolist()
    edges = [edge for edge in edges if 0 < edge < len(order)]
    cuts = [_cut(keys, int(order[edge]), owner, first_row) for edge in edges]
    bounds = [0, *edges, len(order)]
    found = []
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        low = cuts[number - 1] if number else None
        high = cuts[number] if number < len(cuts) else None
        stretches = tuple(_stretches(runs, place, start, stop))
        found.append(Range(low=low, high=high, stretches=stretches, row_count=int(weight[order[start:stop]].sum())))
    return found


def _starts(run: Run) -> Numbers:
    counts = np.array([chunk.row_count for chunk in run.chunks], dtype=np.int64)
    return np.cumsum(counts) - counts


def _cut(keys: pa.Table, at: int, owner: Numbers, first_row: Numbers) -> Cut:
    return Cut(key=to_stream(keys.slice(at, 1).combine_chunks()), run=int(owner[at]), row=int(first_row[at]))


def _stretches(runs: Sequence[Run], place: Numbers, start: int, stop: int) -> list[Stretch]:
    """The chunks that may have rows between the places ``start`` and ``stop`` in the order of the first rows."""
    found = []
    at = 0
    for number, run in enumerate(runs):
        mine = place[at : at + len(run.chunks)]  # ascending, since the run is sorted
        at += len(run.chunks)
        first = max(0, int(np.searchsorted(mine, start, side="right")) - 1)
        last = int(np.searchsorted(mine, stop, side="left"))
        if first < last:
            found.append(
                Stretch(
                    run=number,
                    location=run.location,
                    first_row=int(_starts(run)[first]),
                    chunks=run.chunks[first:last],
                )
            )
    return found
