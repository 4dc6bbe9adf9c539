"""The superset property with skip indexes: of any kinds, over any columns, that know any of the blocks."""

from __future__ import annotations

import uuid
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import text_of
from lamella.snapshot.ids import Ids
from lamella.snapshot.index import kinds
from lamella.snapshot.index.building import build_part
from lamella.snapshot.manifest import Block, SnapshotPointer
from lamella.snapshot.parquet import ingest, read_footer, schema_of
from lamella.snapshot.schema import Leaf
from lamella.snapshot.schema.evolution import AddColumn, RenameColumn
from lamella.snapshot.storage import FsspecStore, TableLayout
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from support import generate
from support.arrow_files import write_block
from support.oracle import Oracle
from support.real_tables import RealTable
from support.segment_prunes import assert_same_by_segments

#: Options that make indexes of a few rows interesting.
OPTIONS: dict[str, dict[str, object]] = {
    "bloom": {"false_positives": 0.3},
    "ngram": {"false_positives": 0.3, "n": 2},
    "value_set": {"values": 3},
}


def add_random_index(
    rng: Random, warehouse: Warehouse, store: FsspecStore, pointer: SnapshotPointer, leaf: Leaf, blocks: list[Block]
) -> SnapshotPointer:
    """An index of some kind that knows some of the blocks, in parts as they fall."""
    kind = rng.choice(sorted(kinds()))
    name = f"x{uuid.UUID(int=rng.getrandbits(128)).hex}"
    quoted = ".".join(f"`{part}`" for part in leaf.path)
    try:
        pointer = warehouse.indexing.create(
            pointer, name=name, kind=kind, expression=quoted, options=OPTIONS.get(kind), now_ms=3
        ).pointer
    except InvalidRequest:  # the kind is not for the type
        return pointer
    snapshot = warehouse.snapshot(pointer)
    index = snapshot.skip_indexes[-1]
    left = [block for block in blocks if rng.random() < 0.8]
    rng.shuffle(left)
    layout = TableLayout(warehouse.table_location(snapshot.table_id))
    while left:
        size = rng.randint(1, 4)
        built = build_part(store, index, snapshot, left[:size]).part
        left = left[size:]
        if built is not None:
            location = layout.index_part(Ids().new())
            store.put(location, built.data)
            parts = [(built.ref(location), built.keys)]
            pointer = warehouse.indexing.add_parts(pointer, index.index_id, parts, now_ms=4).pointer
    return pointer


def check_indexed(seed: int, folder: Path, filters: int) -> tuple[int, int]:
    """Write, register, index and prune one random table; pairs checked, and blocks that only indexes left out."""
    rng = Random(seed)
    wanted = generate.schema(rng)
    table = generate.table(rng, wanted)
    paths = [folder / f"x{seed}-{i}.parquet" for i in range(len(table))]
    for path, block in zip(paths, table, strict=True):
        write_block(rng, wanted, block, path)
    store = FsspecStore()
    locations = [f"file://{path}" for path in paths]
    schema = schema_of(read_footer(store, locations[0]))
    blocks, refused = ingest(store, locations, schema, workers=1)
    assert refused == []
    warehouse = Warehouse(store, f"memory://indexed-{uuid.uuid4()}", segment_blocks=3)
    table_id = str(uuid.UUID(int=rng.getrandbits(128)))
    pointer = warehouse.create(table_id, schema, now_ms=1)
    half = rng.randint(0, len(blocks))
    for some in (blocks[:half], blocks[half:]):
        if some:
            added = warehouse.prepare(table_id, schema, some)
            pointer = warehouse.commit(pointer, added=added, now_ms=2).pointer
    leaves = [leaf for leaf in schema.leaves() if not leaf.repeated]
    for _ in range(rng.randint(1, 5)):
        pointer = add_random_index(rng, warehouse, store, pointer, rng.choice(leaves), blocks)
    gone = {block.location for block in blocks if rng.random() < 0.15}
    if gone:  # segments around them are written again; what indexes know of the others stays
        pointer = warehouse.commit(pointer, removed=sorted(gone), operation="delete", now_ms=5).pointer
    if rng.random() < 0.3:
        pointer = warehouse.evolve(pointer, [AddColumn(name="added_later", type="int64")], now_ms=6).pointer
    seen = generate.seen_values(wanted, table)
    oracle = Oracle(wanted)
    by_indexes = 0
    for _ in range(filters):
        predicate = generate.predicate(rng, wanted, seen)
        request = rng.choice([PruneRequest(), PruneRequest(explain=True), PruneRequest(max_ms=60_000)])
        answer = warehouse.prune_predicate(pointer, predicate, request)
        assert answer.blocks is not None
        assert not [use.failure for use in answer.report.indexes if use.failure]
        assert_same_by_segments(warehouse, pointer, predicate, answer, f"seed {seed}")
        by_indexes += sum(use.ruled_out for use in answer.report.indexes)
        selected = {block.location: block.verdict for block in answer.blocks}
        for location, columns in zip(locations, table, strict=True):
            results = [oracle.decide(predicate, row) for row in generate.rows_of(columns)]
            case = f"seed {seed}: {text_of(predicate)} over {columns}"
            assert location in selected or location in gone or True not in results, f"left out a match, {case}"
            assert selected.get(location) != "ALL" or all(r is True for r in results), f"wrong ALL, {case}"
    for path in paths:
        path.unlink()
    return filters * len(paths), by_indexes


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**48))
def test_indexed_files_are_never_left_out_wrongly(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever indexes there are and whatever they know, a file with a matching row is kept."""
    check_indexed(seed, tmp_path_factory.getbasetemp(), filters=15)


@pytest.mark.slow
def test_indexes_rule_out_what_statistics_keep(tmp_path: Path) -> None:
    """The random tables above reach indexes that decide."""
    assert sum(check_indexed(seed, tmp_path, filters=15)[1] for seed in range(25)) > 50


@pytest.mark.soak
def test_many_pairs_over_indexed_files_hold_no_false_skip(tmp_path: Path) -> None:
    """The same at length."""
    pairs = decided = seed = 0
    while pairs < 60_000:
        found = check_indexed(seed, tmp_path, filters=30)
        pairs, decided, seed = pairs + found[0], decided + found[1], seed + 1
    print(f"{pairs} pairs over {seed} indexed tables, {decided} decided by indexes alone: 0 false skips, 0 wrong ALL")


def test_a_renamed_column_keeps_its_index(tmp_path: Path) -> None:
    """Columns of an index are known by their ids."""
    table = RealTable(tmp_path, [pa.table({"a": list(range(base, 5_000, 7))}) for base in range(7)])
    table.add_index("x", "bloom", "a")
    pointer = table.warehouse.evolve(table.pointer, [RenameColumn(column="a", name="b")], now_ms=9).pointer
    answer = table.warehouse.prune(pointer, PruneRequest(filter="b = 2345"))
    assert [use.ruled_out for use in answer.report.indexes] == [6]
    assert len(answer.blocks or ()) == 1
