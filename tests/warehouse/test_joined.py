"""Sidecars of several parts, and location indexes: the same as one, and damage is noticed."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from lamella.snapshot.columnar import JoinedSidecar, Sidecar, Zones, build_segments
from lamella.snapshot.columnar.locations import LocationIndex, hashes_of, location_hash, may_share
from lamella.snapshot.columnar.zones import Spans
from lamella.snapshot.errors import ManifestError
from lamella.snapshot.manifest import ObjectRef, SegmentRef, Summary
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats, to_bound

KINDS = ("int64", "uint64", "float64", "string", "decimal(38,2)", "boolean", "list")


def schema() -> Schema:
    element = (Column(name="element", type="string"),)
    return Schema.assign([Column(name=kind[:4], type=kind, fields=element if kind == "list" else ()) for kind in KINDS])


def refs(rng: Random, count: int) -> list[SegmentRef]:
    made = []
    for number in range(count):
        stats: dict[int, ColumnStats] = {}
        for leaf in schema().leaves():
            if leaf.dtype.order is None or leaf.repeated or leaf.name == "bool" or rng.random() < 0.2:
                continue
            low = rng.randint(0, 10**6)
            value: Any = low * 10**16 if leaf.name == "deci" else low
            value = b"text-%d" % low if leaf.dtype.order == "bytes" else value
            value = float(low) if leaf.dtype.order == "float" else value
            stats[leaf.id] = ColumnStats(
                min=to_bound(leaf.dtype, value), max=to_bound(leaf.dtype, value), null_count=rng.choice([0, 3, None])
            )
        ref = ObjectRef(location=f"memory://{rng.random()}", size_bytes=number, sha256="0")
        summary = Summary(row_count=rng.randint(0, 9), block_count=1, col_stats=stats)
        made.append(
            SegmentRef(segment_id=f"s{rng.random()}", manifest=ref, sidecar=ref, format_version=1, summary=summary)
        )
    return made


def same(left: Zones, right: Zones) -> bool:
    if (left.low is None) != (right.low is None) or not np.array_equal(left.flags, right.flags):
        return False
    for ours, theirs in ((left.low, right.low), (left.high, right.high)):
        if ours is not None and theirs is not None:
            rows = np.arange(len(left))
            assert type(ours) is type(theirs)
            parts = [vars(keys.take(rows)) for keys in (ours, theirs)]
            if any(bytes(parts[0][name]) != bytes(parts[1][name]) for name in parts[0]):
                return False
    return True


@pytest.mark.parametrize("seed", range(10))
def test_parts_together_are_as_one_sidecar(seed: int) -> None:
    """Numbers, texts, null counts, zone maps of every kind of key; parts with rows left out, and empty ones."""
    rng = Random(seed)
    everything: list[SegmentRef] = []
    parts: list[tuple[Sidecar, Any]] = []
    for _ in range(rng.randint(1, 4)):
        some = refs(rng, rng.randint(0, 6))
        sidecar = Sidecar(build_segments(schema(), some))
        rows = None if rng.random() < 0.5 else np.array(sorted(rng.sample(range(len(some)), len(some) // 2)), np.int64)
        parts.append((sidecar, rows))
        everything += some if rows is None else [some[row] for row in rows.tolist()]
    own = refs(rng, rng.randint(0, 3))
    last = Sidecar(build_segments(schema(), own))
    joined = JoinedSidecar(last, [*parts, (last, None)])
    flat = Sidecar(build_segments(schema(), [*everything, *own]))
    assert len(joined) == len(flat)
    assert joined.texts("segment_id") == flat.texts("segment_id")
    assert joined.numbers("manifest.size_bytes").tolist() == flat.numbers("manifest.size_bytes").tolist()
    for size in (0, 1, 2, len(flat)):
        some_rows = np.array([rng.randrange(len(flat)) for _ in range(size)] if len(flat) else [], dtype=np.int64)
        assert joined.texts("manifest.location", some_rows) == flat.texts("manifest.location", some_rows)
    for leaf in schema().leaves():
        assert same(joined.zones(leaf.id, leaf.dtype), flat.zones(leaf.id, leaf.dtype)), leaf.name
        nulls = (each.null_counts(leaf.id, leaf.dtype).tolist() for each in (joined, flat))
        assert next(nulls) == next(nulls)
    assert joined.column_size_bytes([1]).tolist() == [0] * len(flat)
    assert not joined.from_elsewhere(1).any()


def test_ranges_of_parts_are_those_of_their_entries() -> None:
    """Parts without ranges, entries without ranges, entries picked in any order."""
    first = Spans(np.array([0, 2, 2, 6]), np.array([1, 2, 5, 6, 8, 9]))
    joined = Spans.joined([(None, 2), (first.take(np.array([2, 0])), 2), (first, 3)])
    assert joined is not None
    assert joined.offsets.tolist() == [0, 0, 0, 4, 6, 8, 8, 12]
    hit = (joined.low <= 5) & (joined.high >= 5)
    assert joined.misses(hit).tolist() == [False, False, False, True, True, False, False]
    assert Spans.joined([(None, 2)]) is None


def test_an_index_names_every_segment_that_may_have_a_block() -> None:
    """None is missed, also where two hashes are equal, and after segments got other numbers or left."""
    rng = Random(3)
    locations = [[f"memory://{segment}/{rng.random()}" for _ in range(rng.randint(1, 50))] for segment in range(9)]
    parts = [(np.sort(hashes_of(some)), np.full(len(some), n, np.uint32)) for n, some in enumerate(locations)]
    doubled = np.array([location_hash(locations[0][0])], np.uint64)
    index = LocationIndex.joined([*parts, (doubled, np.array([9], np.uint32))])
    again = LocationIndex.read(index.to_bytes())
    for number, some in enumerate(locations):
        for location in some:
            found = again.candidates(hashes_of([location])).tolist()
            assert number in found
            assert set(found) <= {number, *([9] if location == locations[0][0] else [])}
    assert again.candidates(hashes_of(["memory://elsewhere"])).tolist() == []
    numbers = np.array([-1, 0, -1, 1, 2, 3, 4, 5, 6, 7])
    moved = LocationIndex.joined([again.renumbered(numbers)])
    assert moved.candidates(hashes_of(locations[3])).tolist() == [1]
    assert moved.candidates(hashes_of(locations[2])).tolist() == []
    assert may_share(parts[0][0], np.sort(doubled))
    assert not may_share(parts[1][0], doubled)


@pytest.mark.parametrize("damage", [b"", b"LAMELOC1", b"LAMELOC1" + b"\1" + b"\0" * 7, b"x" * 40, None])
def test_a_damaged_index_is_refused(damage: bytes | None) -> None:
    """What is too short, too long or something else is an error, never an empty index."""
    good = LocationIndex(hashes_of(["a"]), np.zeros(1, np.uint32)).to_bytes()
    with pytest.raises(ManifestError):
        LocationIndex.read(good + b"\0" if damage is None else damage)
