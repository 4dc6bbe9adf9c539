"""The superset property over real files: pyarrow writes, Lamella reads only footers, a full scan decides."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.expression import text_of
from lamella.snapshot.parquet import ingest, read_footer, schema_of
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from support import generate
from support.arrow_files import write_block
from support.oracle import Oracle


def check_files(seed: int, folder: Path, filters: int) -> int:
    """Write, register and prune one random table; returns the number of (block, filter) pairs checked."""
    rng = Random(seed)
    wanted = generate.schema(rng)
    table = generate.table(rng, wanted)
    paths = [folder / f"{seed}-{i}.parquet" for i in range(len(table))]
    for path, block in zip(paths, table, strict=True):
        write_block(rng, wanted, block, path)
    store = FsspecStore()
    locations = [f"file://{path}" for path in paths]
    schema = schema_of(read_footer(store, locations[0]))
    blocks, refused = ingest(store, locations, schema, workers=1)
    assert refused == []
    assert [block.row_count for block in blocks] == [len(generate.rows_of(columns)) for columns in table]
    assert [block.file_size for block in blocks] == [path.stat().st_size for path in paths]
    warehouse = Warehouse(FsspecStore(), "memory://property", segment_blocks=3)
    table_id = f"{seed}-{rng.randbytes(4).hex()}"
    empty = warehouse.create(table_id, schema, now_ms=1)
    pointer = warehouse.commit(empty, added=warehouse.prepare(table_id, schema, blocks), now_ms=2).pointer
    seen = generate.seen_values(wanted, table)
    oracle = Oracle(wanted)
    for _ in range(filters):
        predicate = generate.predicate(rng, wanted, seen)
        answer = warehouse.prune_predicate(pointer, predicate, PruneRequest())
        assert answer.blocks is not None
        selected = {block.location: block.verdict for block in answer.blocks}
        for location, columns in zip(locations, table, strict=True):
            results = [oracle.decide(predicate, row) for row in generate.rows_of(columns)]
            case = f"seed {seed}: {text_of(predicate)} over {columns}"
            assert location in selected or True not in results, f"left out a match, {case}"
            assert selected.get(location) != "ALL" or all(r is True for r in results), f"wrong ALL, {case}"
    for path in paths:
        path.unlink()
    return filters * len(paths)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**48))
def test_files_of_pyarrow_are_never_left_out_wrongly(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever pyarrow wrote, with or without statistics, a file with a matching row is kept."""
    check_files(seed, tmp_path_factory.getbasetemp(), filters=20)


@pytest.mark.soak
def test_a_hundred_thousand_pairs_over_files_hold_no_false_skip(tmp_path: Path) -> None:
    """The same at length."""
    pairs = seed = 0
    while pairs < 100_000:
        pairs += check_files(seed, tmp_path, filters=40)
        seed += 1
    print(f"{pairs} pairs over {seed} tables of files: 0 false skips, 0 wrong ALL")
