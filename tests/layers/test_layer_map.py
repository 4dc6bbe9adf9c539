"""Maps of layers beside what manifests, prunes and plain counting say."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.test_depths import counted
from clustering.test_layouts import Table
from lamella.snapshot.errors import InvalidRequest, SegmentNotFound, UnknownColumn
from lamella.snapshot.expression.text import tree_of
from lamella.snapshot.manifest import Block, SnapshotPointer
from lamella.snapshot.prune.outcome import VERDICT_NAMES
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse, layer_map
from lamella.snapshot.warehouse.layer_map import LayerMap, LayerMaps
from lamella.snapshot.wire import PruneRequest
from prune.test_block_layer import random_blocks, written
from support import generate
from verify.test_random_tables import RandomTable

SEEDS = st.integers(0, 2**48)


def blocks_of(warehouse: Warehouse, pointer: SnapshotPointer) -> list[tuple[str, Block]]:
    """The blocks of a snapshot with their segments, from the manifests."""
    return [(ref.segment_id, block) for ref in warehouse.segments(pointer) for block in warehouse.segment(ref).blocks]


def depth_of(found: LayerMap) -> Any:
    """The depths, which the map has."""
    assert found.depth is not None
    return found.depth


def check_tiles(found: LayerMap, at_most: int, segments: slice | None) -> None:
    """Hold tiles against sums over the blocks of their segments."""
    tiles = LayerMaps.tiles(found, at_most, segments=segments)
    chosen = range(len(found.segment_id))[slice(None) if segments is None else segments]
    assert len(tiles) == min(at_most, len(chosen))
    covered = [
        number
        for first, count in zip(tiles.first_segment.tolist(), tiles.segment_count.tolist(), strict=True)
        for number in range(first, first + count)
    ]
    assert covered == list(chosen)
    for at, (first, count) in enumerate(zip(tiles.first_segment, tiles.segment_count, strict=True)):
        mine = (found.segment >= first) & (found.segment < first + count)
        assert tiles.block_count[at] == mine.sum()
        assert not mine.any() or tiles.first_block[at] == np.flatnonzero(mine)[0]
        assert tiles.row_count[at] == found.row_count[mine].sum()
        assert tiles.file_size[at] == found.file_size[mine].sum()
        if found.depth is None or tiles.mean_depth is None or tiles.max_depth is None:
            assert (found.depth, tiles.mean_depth, tiles.max_depth) == (None, None, None)
            continue
        known = found.depth[mine & (found.depth > 0)]
        assert tiles.max_depth[at] == known.max(initial=0)
        assert np.isnan(tiles.mean_depth[at]) if not len(known) else tiles.mean_depth[at] == pytest.approx(known.mean())


@given(seed=SEEDS, steps=st.integers(0, 8))
@settings(max_examples=25)
def test_a_map_says_what_manifests_say(seed: int, steps: int) -> None:
    """Of any life of a table: one entry a block in the snapshot's order, and tiles that add up to its summary."""
    with tempfile.TemporaryDirectory() as folder:
        table = RandomTable(seed, Path(folder))
        for _ in range(steps):
            table.step()
        found = table.warehouse.layer_maps.of(table.pointer)
        blocks = blocks_of(table.warehouse, table.pointer)
        assert found.row_count.tolist() == [block.row_count for _, block in blocks]
        assert found.file_size.tolist() == [block.file_size for _, block in blocks]
        assert [found.segment_id[number] for number in found.segment] == [segment_id for segment_id, _ in blocks]
        assert found.depth is None
        for number, segment_id in enumerate(found.segment_id):
            assert found.number_of(segment_id) == number
            assert (found.segment[found.blocks(number)] == number).all()
            assert found.blocks(number).start == found.starts[number]
        summary = table.warehouse.head(table.pointer).summary
        tiles = LayerMaps.tiles(found, 3)
        assert tiles.row_count.sum() == summary.row_count
        assert tiles.file_size.sum() == summary.compressed_byte_size
        assert tiles.block_count.sum() == summary.block_count
        check_tiles(found, table.rng.randint(1, 9), None)


@given(seed=SEEDS)
@settings(max_examples=60)
def test_verdicts_are_the_prunes(seed: int) -> None:
    """Over random tables and filters each block has the verdict of the prune's answer, found together or one by one."""
    rng = Random(seed)
    schema = generate.schema(rng)
    table = [block for _ in range(rng.randint(1, 8)) for block in generate.table(rng, schema)]
    store = FsspecStore()
    pointer = written(rng, schema, random_blocks(rng, schema, table), store)
    warehouse = Warehouse(store, "memory://maps")
    found = warehouse.layer_maps.of(pointer)
    locations = [block.location for _, block in blocks_of(warehouse, pointer)]
    tiles = LayerMaps.tiles(found, 4)
    seen = generate.seen_values(schema, table)
    for _ in range(8):
        tree = tree_of(generate.predicate(rng, schema, seen))
        for options in ({}, {"explain": True}, {"limit": 3}, {"page_size": 2}):
            request = msgspec.convert({"filter": tree, **options}, PruneRequest)
            codes = LayerMaps.verdicts(warehouse.find(pointer, request), found)
            answer = warehouse.prune(pointer, request).blocks
            assert answer is not None
            selected = {block.location: block.verdict for block in answer}
            assert [VERDICT_NAMES[code] for code in codes] == [selected.get(location, "NONE") for location in locations]
            ends = np.append(tiles.first_block, len(found))
            expected = [int((codes[first:stop] > 0).sum()) for first, stop in pairwise(ends.tolist())]
            assert LayerMaps.selected_blocks(codes, tiles).tolist() == expected


def random_ranges(rng: Random, count: int) -> list[tuple[int, int]]:
    """Ranges of whole numbers, some of one value."""
    pairs = [sorted((rng.randint(0, 30), rng.randint(0, 30))) for _ in range(count)]
    return [(low, low if rng.random() < 0.2 else high) for low, high in pairs]


@pytest.mark.parametrize("seed", range(12))
def test_depths_are_those_of_counting(seed: int) -> None:
    """On one column: the most blocks over one place of each block; a block without rows has none."""
    rng = Random(seed)
    table = Table(f"map {seed}", segment_blocks=rng.choice([2, 5]))
    for _ in range(rng.randint(1, 4)):
        table.append(*random_ranges(rng, rng.randint(1, 9)), rows=rng.choice([0, 7, 7, 7]))
    found = table.warehouse.layer_maps.of(table.pointer)
    assert (found.columns, found.kind, found.depth_of, found.is_exact) == (("a",), "linear", "block", True)
    numbers = [int(block.location[-6:]) for _, block in blocks_of(table.warehouse, table.pointer)]
    full = [at for at, rows in enumerate(found.row_count) if rows]
    depths = counted([[table.blocks[numbers[at]]] for at in full])[0] if full else []
    assert [depth_of(found)[at] for at in full] == depths
    assert not depth_of(found)[found.row_count == 0].any()
    of_b = table.warehouse.layer_maps.of(table.pointer, ["b"])
    assert depth_of(of_b).tolist() == depth_of(found).tolist()  # the same blocks, seen in a mirror
    check_tiles(found, rng.randint(1, 5), slice(rng.randint(0, 2), rng.randint(0, 9)))


def corner_depths(boxes: list[list[tuple[int, int]]]) -> list[int]:
    """The depth of each box by its definition: the deepest low corner of a box in it; piles of a value are one."""

    def coordinate(low: int, high: int) -> float:
        return low if low == high else low + 0.25

    def holds(box: list[tuple[int, int]], at: tuple[float, ...]) -> bool:
        sides = zip(box, at, strict=True)
        return all(low == here == high or (low < here < high) for (low, high), here in sides)

    def depth(at: tuple[float, ...]) -> int:
        return len({tuple(box) if all(low == high for low, high in box) else n for n, box in covering(at)})

    def covering(at: tuple[float, ...]) -> list[tuple[int, list[tuple[int, int]]]]:
        return [(n, box) for n, box in enumerate(boxes) if holds(box, at)]

    corners = [tuple(coordinate(*side) for side in box) for box in boxes]
    return [max(depth(corner) for corner in corners if holds(box, corner)) for box in boxes]


@pytest.mark.parametrize("seed", range(8))
def test_depths_along_a_curve_are_those_of_boxes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of blocks while they are few, else of their segments, and the map says which."""
    rng = Random(seed)
    table = Table(f"boxes {seed}", segment_blocks=3)
    for _ in range(4):
        table.append(*random_ranges(rng, rng.randint(1, 7)))
    blocks = blocks_of(table.warehouse, table.pointer)
    ranges = [table.blocks[int(block.location[-6:])] for _, block in blocks]
    found = table.warehouse.layer_maps.of(table.pointer, ["a", "b"], "hilbert")
    assert (found.columns, found.kind, found.depth_of, found.is_exact) == (("a", "b"), "hilbert", "block", True)
    assert depth_of(found).tolist() == corner_depths([[(low, high), (-high, -low)] for low, high in ranges])
    monkeypatch.setattr(layer_map, "EXACT", len(blocks) - 1)
    fresh = Warehouse(FsspecStore(), "memory://layouts")
    by_segment = fresh.layer_maps.of(table.pointer, ["a", "b"], "hilbert")
    hulls = []
    for number in range(len(found.segment_id)):
        mine = ranges[found.blocks(number)]
        low, high = min(each for each, _ in mine), max(each for _, each in mine)
        hulls.append([(low, high), (-high, -low)])
    assert by_segment.depth_of == "segment"
    assert depth_of(by_segment).tolist() == [corner_depths(hulls)[number] for number in found.segment]


def test_of_very_many_boxes_depths_are_known_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not looked at is said to be not known, and counts into no tile."""
    table = Table("sampled", segment_blocks=1)
    table.append(*((n, n + 3) for n in range(20)))
    monkeypatch.setattr(layer_map, "EXACT", 5)
    for name, value in (("EXACT", 5), ("PAIRS", 100), ("_MIN_SAMPLE", 6)):
        monkeypatch.setattr(f"lamella.snapshot.cluster.depth.{name}", value)
    found = table.warehouse.layer_maps.of(table.pointer, ["a", "b"], "zorder")
    assert (found.depth_of, found.is_exact) == ("segment", False)
    assert int((depth_of(found) != layer_map.NOT_KNOWN).sum()) == 6
    check_tiles(found, 7, None)


def test_a_map_is_made_once_and_cannot_be_changed() -> None:
    """The same key of the same snapshot is the same object; another key or snapshot is another."""
    table = Table("once")
    table.append((1, 5), (3, 9))
    maps = table.warehouse.layer_maps
    found = maps.of(table.pointer)
    assert maps.of(table.pointer) is found
    assert maps.of(table.pointer, ["a"]) is found
    assert maps.of(table.pointer, ["b"]) is not found
    for array in (found.starts, found.segment, found.row_count, found.file_size, depth_of(found)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9
    before = table.pointer
    table.append((4, 6))
    assert len(maps.of(table.pointer)) == 3
    assert maps.of(before) is found


def test_without_memory_maps_are_made_anew() -> None:
    """What does not fit is handed out all the same."""
    table = Table("small")
    table.append((1, 5), (3, 9))
    poor = Warehouse(FsspecStore(), "memory://layouts/small", cache_bytes=1)
    first, second = poor.layer_maps.of(table.pointer), poor.layer_maps.of(table.pointer)
    assert first is not second
    assert depth_of(first).tolist() == depth_of(second).tolist() == [2, 2]


def test_an_empty_table_has_a_map() -> None:
    """No segment, no tile, no verdict."""
    table = Table("empty")
    found = table.warehouse.layer_maps.of(table.pointer)
    tiles = LayerMaps.tiles(found, 10)
    codes = LayerMaps.verdicts(table.warehouse.find(table.pointer, PruneRequest()), found)
    sizes: list[Any] = [len(found), len(tiles), len(codes), len(LayerMaps.selected_blocks(codes, tiles))]
    assert sizes == [0, 0, 0, 0]


def test_what_cannot_be_requested_is_an_error() -> None:
    """Bad keys, tiles and prunes are refused."""
    table = Table("refused", cluster_key=())
    table.append((1, 5))
    maps, before = table.warehouse.layer_maps, table.pointer
    found = maps.of(before)
    assert found.depth is None
    with pytest.raises(UnknownColumn):
        maps.of(before, ["z"])
    with pytest.raises(InvalidRequest):
        maps.tiles(found, 0)
    with pytest.raises(ValueError, match="neighbours"):
        maps.tiles(found, 2, segments=slice(0, 9, 2))
    with pytest.raises(SegmentNotFound):
        found.number_of("none")
    with pytest.raises(ValueError, match="segments only"):
        maps.verdicts(table.warehouse.find(before, PruneRequest(level="segment")), found)
    table.append((2, 3))
    with pytest.raises(ValueError, match="another snapshot"):
        maps.verdicts(table.warehouse.find(table.pointer, PruneRequest()), found)
