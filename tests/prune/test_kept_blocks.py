"""Selected blocks, as runs and as arrays: the same blocks."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.prune.result import BlockRows, BlockSelection, Runs, SelectionBuilder

Run = tuple[int, int, int]


def unopened(row: int) -> Sidecar:
    """Opens nothing."""
    raise AssertionError(row)


def random_runs(rng: Random) -> list[Run]:
    """First, count and verdict of runs of one segment, the longest there are."""
    found: list[Run] = []
    at = 0
    for _ in range(rng.randint(1, 4)):
        at += rng.choice([0, 0, 1, 5])
        codes = [1, 2, 3]
        if found and found[-1][0] + found[-1][1] == at:
            codes.remove(found[-1][2])
        found.append((at, rng.randint(1, 5), rng.choice(codes)))
        at += found[-1][1]
    return found


def described(selection: BlockSelection) -> list[tuple[int, list[int], list[int]]]:
    """The segments' blocks."""
    return [(part.segment, part.rows.tolist(), part.codes.tolist()) for part in selection.parts(unopened)]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**48))
def test_runs_and_tested_blocks_come_out_as_they_were_added(seed: int) -> None:
    """In any mixture, with segments kept whole between them: the same blocks, verdicts, sizes and runs."""
    rng = Random(seed)
    left = SelectionBuilder()
    counts = np.array([rng.randint(40, 50) for _ in range(8)])
    whole = np.zeros(8, dtype=np.uint8)
    expected = []
    size_bytes = 0
    is_tested = False
    share = rng.choice([0, 0.5, 1])
    for segment in range(8):
        runs = random_runs(rng)
        codes = np.zeros(counts[segment], dtype=np.uint8)
        for first, count, code in runs:
            codes[first : first + count] = code
        sizes = np.array([rng.randint(1, 9) for _ in codes], dtype=np.uint32)
        kind = rng.choice(["kept", "kept", "whole", "nothing"])
        if kind == "whole" and share == 0.5:
            whole[segment] = rng.choice([1, 3])
            expected.append((segment, list(range(counts[segment])), [int(whole[segment])] * int(counts[segment])))
        if kind != "kept":
            continue
        if rng.random() < share:
            start = rng.choice([0, 7])
            shifted = [(first + start, first + start + count, code) for first, count, code in runs]
            left.add_runs(segment, shifted, start)
            left.add_sizes(sizes[codes.nonzero()[0]])
        else:
            is_tested = True
            left.add_tested(np.array([segment]), np.array([0, len(codes)]), codes, sizes)
        rows = codes.nonzero()[0]
        size_bytes += int(sizes[rows].sum())
        expected.append((segment, rows.tolist(), codes[rows].tolist()))
    selection = left.built(whole if whole.any() else None, counts)
    assert left.size_bytes == size_bytes
    assert selection.block_count == sum(len(rows) for _, rows, _ in expected)
    assert isinstance(selection.blocks, BlockRows) == (is_tested or bool(whole.any()))
    found = selection.runs()
    assert described(selection) == expected
    tested = selection.tested()
    again = BlockSelection.of_blocks(
        selection.segments, selection.whole, tested.offsets, tested.rows, tested.codes, counts
    )
    assert again.block_count == selection.block_count
    for name in ("ordinal", "first", "count", "code", "segment_count"):
        assert getattr(found, name) == getattr(again.runs(), name)
    assert all(one[1:] != (other[0], other[2]) for one, other in pairwise(ends(found)))
    assert described(again) == expected
    assert selection.size_bytes >= selection.segments.nbytes + tested.rows.nbytes + tested.codes.nbytes


def ends(found: Runs) -> list[tuple[object, ...]]:
    """Where runs begin and end, with their verdicts."""
    listed = zip(found.ordinal, found.first, found.count, found.code, strict=True)
    return [((ordinal, first), (ordinal, first + count), code) for ordinal, first, count, code in listed]
