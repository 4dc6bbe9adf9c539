"""Blocks whose files lack columns or have deleted rows: pruning, counts and rows against a full scan."""

from __future__ import annotations

import uuid
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.errors import FilterNotEvaluable, ReaderFeatureMissing
from lamella.snapshot.expression import text_of
from lamella.snapshot.manifest import FEATURES, SnapshotPointer
from lamella.snapshot.schema.evolution import AddColumn
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import AggregateRequest, PruneRequest
from scan.planning import WarehouseTable
from scan.test_rows_found import bare, lines
from support import generate
from support.arrow_files import arrow_table
from support.random_blocks import RandomBlocks
from support.segment_prunes import assert_same_by_segments

_EXACT = AggregateRequest(aggregates=("count(*)",))


class World(RandomBlocks):
    """A random table in a warehouse of its own."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed, folder)
        rng, blocks = self.rng, self.blocks
        self.warehouse = Warehouse(self.store, f"memory://constants-{uuid.uuid4()}", segment_blocks=2)
        table_id = str(uuid.UUID(int=rng.getrandbits(128)))
        pointer = self.warehouse.create(table_id, self.schema, now_ms=1)
        half = rng.randint(0, len(blocks))
        for some in (blocks[:half], blocks[half:]):
            if some:
                added = self.warehouse.prepare(table_id, self.schema, some)
                pointer = self.warehouse.commit(pointer, added=added, now_ms=2).pointer
        if rng.random() < 0.3:
            change = AddColumn(name="added_later", type="int64")
            pointer = self.warehouse.evolve(pointer, [change], now_ms=3).pointer
        self.pointer: SnapshotPointer = pointer


def check_pairs(seed: int, folder: Path, filters: int) -> int:
    """Prune and count one random table; returns the number of (block, filter) pairs checked."""
    world = World(seed, folder)
    warehouse, pointer = world.warehouse, world.pointer
    for _ in range(filters):
        predicate = generate.predicate(world.rng, world.schema, world.seen)
        answer = warehouse.prune_predicate(pointer, predicate, PruneRequest(reader_features=FEATURES))
        assert_same_by_segments(warehouse, pointer, predicate, answer, f"seed {seed}: {text_of(predicate)}")
        selected = {block.location: block for block in answer.blocks or ()}
        matching = 0
        for number, block in enumerate(world.blocks):
            results = [world.oracle.decide(predicate, row) for row in world.rows(number)]
            case = f"seed {seed}: {text_of(predicate)} over {world.table[number]}"
            found = selected.get(block.location)
            assert found is not None or True not in results, f"left out a match, {case}"
            if found is not None:
                assert (found.constants or {}) == block.constants, case
                assert (found.deletes or ()) == block.deletes, case
                assert found.verdict != "ALL" or all(r is True for r in results), f"wrong ALL, {case}"
            matching += sum(result is True for result in results)
        counted = warehouse.aggregate_predicate(
            pointer, predicate, msgspec.structs.replace(_EXACT, reader_features=FEATURES)
        )
        if counted.complete:
            value = counted.groups[0].values[0].value if counted.groups else None
            assert (0 if value is None else value.int64) == matching, f"seed {seed}: {text_of(predicate)}"
    world.delete_files()
    return filters * len(world.blocks)


def check_rows(seed: int, folder: Path, filters: int) -> int:
    """Scan one random table in Python; returns how many filters were decided."""
    world = World(seed, folder)
    planner = WarehouseTable(world.warehouse, world.pointer)
    names = [column.name for column in world.schema.columns]
    scanned = 0
    for _ in range(filters):
        predicate = generate.predicate(world.rng, world.schema, world.seen)
        rows = [row for row in world.every_row() if world.oracle.decide(predicate, row) is True]
        chosen = world.rng.sample(names, world.rng.randint(1, len(names)))
        try:
            found = planner.scan(predicate, columns=tuple(chosen)).to_arrow()
        except FilterNotEvaluable:
            continue
        wanted = arrow_table(
            world.schema, {leaf.name: [row[leaf.name] for row in rows] for leaf in world.schema.leaves()}
        )
        wanted = wanted.cast(pa.schema([field.with_type(bare(field.type)) for field in wanted.schema])).select(chosen)
        assert lines(found) == lines(wanted), f"seed {seed}: {text_of(predicate)} of {chosen}"
        scanned += 1
    world.delete_files()
    return scanned


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**48))
def test_no_block_is_left_out_wrongly(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A block with a matching row is kept, ALL is true of every row, and counts are exact."""
    check_pairs(seed, tmp_path_factory.getbasetemp(), filters=15)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**48))
def test_a_scan_has_the_constants_and_lacks_the_deleted_rows(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A scan in Python gives the rows that the files and the constants together hold, without the deleted ones."""
    check_rows(seed, tmp_path_factory.getbasetemp(), filters=4)


@pytest.mark.slow
def test_ten_thousand_pairs_hold_no_false_skip(tmp_path: Path) -> None:
    """The same, at length."""
    check_many_pairs(10_000, tmp_path)


@pytest.mark.soak
def test_a_million_pairs_hold_no_false_skip(tmp_path: Path) -> None:
    """The same, at greater length."""
    check_many_pairs(1_000_000, tmp_path)


def check_many_pairs(count: int, folder: Path) -> None:
    """Check random tables until ``count`` pairs are checked."""
    pairs = seed = 0
    while pairs < count:
        pairs += check_pairs(seed, folder, filters=60)
        seed += 1
    print(f"{pairs} pairs over {seed} tables: 0 false skips, 0 wrong ALL, 0 wrong counts")


def test_a_reader_that_does_not_declare_the_feature_gets_no_files(tmp_path: Path) -> None:
    """The request is refused with a code, whatever its filter, unless no block of the snapshot has constants."""
    for seed in range(100):
        world = World(seed, tmp_path)
        if any(block.constants for block in world.blocks) and any(block.deletes for block in world.blocks):
            break
    with pytest.raises(ReaderFeatureMissing) as refused:
        world.warehouse.prune(world.pointer, PruneRequest(filter="false"))
    assert refused.value.details == {"features": ["constants", "deletes"]}
