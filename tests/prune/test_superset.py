"""The one property that may never break: no block with a matching row is left out, no ALL block has another row."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lamella.snapshot.columnar import Sidecar, build_blocks
from lamella.snapshot.columnar.keys import filled
from lamella.snapshot.expression import bind, text_of
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.expression.bound import Anything
from lamella.snapshot.manifest import Block
from lamella.snapshot.prune import ALL, NONE, evaluate, verdicts
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from support import generate, generate_terms
from support.oracle import Oracle

FILTERS_PER_TABLE = 40
SEEDS = st.integers(0, 2**48)


def _block(index: int, columns: generate.Block, stats: dict[int, ColumnStats]) -> Block:
    return Block(
        location=f"memory://blocks/{index}.parquet",
        row_count=len(next(iter(columns.values()))),
        file_size=100,
        col_stats=stats,
    )


def _weakened(rng: Random, schema: Schema, columns: generate.Block) -> dict[int, ColumnStats]:
    given = {leaf.id: generate.weakened_stats(rng, leaf.dtype, columns[leaf.name]) for leaf in schema.leaves()}
    return {column_id: stats for column_id, stats in given.items() if stats is not None}


def check_blocks(seed: int, filters: int = FILTERS_PER_TABLE, *, terms: bool = False) -> int:
    """Check one random table against the oracle; returns the number of (block, filter) pairs.

    ``terms``: filters of the whole language, in a session of any time zone, with ANSI mode and without.
    """
    rng = Random(seed)
    schema = generate.schema(rng)
    zone = rng.choice(generate_terms.ZONES) if terms else "UTC"
    table = generate_terms.table(rng, schema) if terms else generate.table(rng, schema)
    blocks = [_block(i, columns, _weakened(rng, schema, columns)) for i, columns in enumerate(table)]
    sidecar = Sidecar(build_blocks(schema, blocks))
    seen = generate.seen_values(schema, table)
    oracle = Oracle(schema, zone)
    rows = [generate.rows_of(columns) for columns in table]
    draw = generate_terms.predicates(rng, schema, oracle, table)
    for _ in range(filters):
        predicate = draw() if terms else generate.predicate(rng, schema, seen)
        bound = bind(predicate, schema, time_zone=zone)
        outcome = evaluate(bound, lambda leaf: sidecar.zones(leaf.id, leaf.dtype), len(sidecar))
        codes = verdicts(outcome, sidecar.numbers("row_count"))
        for index, code in enumerate(codes):
            case = f"seed {seed}, {zone}: {text_of(predicate)} over {table[index]} with {blocks[index].col_stats}"
            if code == NONE:
                assert not any(oracle.may_match(predicate, row) for row in rows[index]), f"left out a match, {case}"
            elif code == ALL:
                assert not any(oracle.may_not_match(predicate, row) for row in rows[index]), f"wrong ALL, {case}"
    return filters * len(blocks)


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_a_block_with_a_matching_row_is_selected_and_an_all_block_has_no_other_row(seed: int) -> None:
    """Over random types, values, weakened statistics and filters, verdicts agree with a decision row by row."""
    check_blocks(seed)


@pytest.mark.slow
def test_over_the_whole_language_no_match_is_left_out_and_no_all_is_wrong() -> None:
    """Functions, casts, arithmetic, columns beside columns, around changes of clocks: over 20,000 pairs."""
    assert sum(check_blocks(seed, terms=True) for seed in range(180)) > 20_000


@pytest.mark.soak
def test_a_million_pairs_hold_no_false_skip() -> None:
    """A million (block, filter) pairs over columns, and a million over the whole language."""
    for terms in (False, True):
        pairs, seed = 0, 0
        while pairs < 1_000_000:
            pairs += check_blocks(seed, filters=200, terms=terms)
            seed += 1
        print(f"{pairs} pairs over {seed} tables, terms {terms}: 0 false skips, 0 wrong ALL")


def check_layers(seed: int) -> None:
    """Check one random table through appends and a removal of a real warehouse."""
    rng = Random(seed)
    schema = generate.schema(rng)
    table = generate.table(rng, schema, blocks=8)
    blocks = [_block(i, columns, _weakened(rng, schema, columns)) for i, columns in enumerate(table)]
    warehouse = Warehouse(FsspecStore(), "memory://layers", segment_blocks=2)
    table_id = rng.randbytes(16).hex()
    pointer = warehouse.create(table_id, schema, now_ms=1)
    split = rng.randint(0, len(blocks))
    for part in (blocks[:split], blocks[split:]):  # two appends: the summary is merged, not computed at once
        pointer = warehouse.commit(pointer, added=warehouse.prepare(table_id, schema, part), now_ms=2).pointer
    gone = {block.location for block in blocks if rng.random() < 0.2}
    if gone:
        pointer = warehouse.commit(pointer, removed=sorted(gone), operation="delete", now_ms=3).pointer
    seen = generate.seen_values(schema, table)
    oracle = Oracle(schema)
    for _ in range(12):
        predicate = generate.predicate(rng, schema, seen)
        answer = warehouse.prune_predicate(pointer, predicate, PruneRequest())
        assert answer.blocks is not None
        verdict_of = {block.location: block.verdict for block in answer.blocks}
        assert not gone & set(verdict_of)
        for block, columns in zip(blocks, table, strict=True):
            results = [oracle.decide(predicate, row) for row in generate.rows_of(columns)]
            case = f"seed {seed}: {text_of(predicate)} over {columns}"
            assert block.location in gone or block.location in verdict_of or True not in results, case
            assert verdict_of.get(block.location) != "ALL" or all(result is True for result in results), case


@settings(max_examples=120, deadline=None)
@given(SEEDS)
def test_every_layer_keeps_what_the_layer_below_needs(seed: int) -> None:
    """Through snapshot, segments and blocks of a real warehouse, the kept set holds every block with a match."""
    check_layers(seed)


@settings(max_examples=1500, deadline=None)
@given(SEEDS)
@example(0)
def test_exact_bounds_rule_out_what_they_can(seed: int) -> None:
    """With a scan's statistics, one comparison keeps a block only when its range really reaches the literal."""
    rng = Random(seed)
    dtype = generate.dtype_of(rng.choice([kind for kind in generate.TYPES if not kind.startswith("time(")]))
    schema = Schema.assign([Column(name="c0", type=str(dtype))])
    cells = [generate.value(rng, dtype) for _ in range(rng.randint(1, 4))]
    columns = {"c0": cells}
    sidecar = Sidecar(build_blocks(schema, [_block(0, columns, {1: generate.exact_stats(dtype, cells)})]))
    literal = generate.literals(dtype, generate.value(rng, dtype))[0]
    oracle = Oracle(schema)

    def hits(op: n.Operator) -> list[bool | None]:
        return [oracle.decide(n.Compare(op, n.Ref("c0"), literal), {"c0": cell}) for cell in cells]

    op: n.Operator = rng.choice(["lt", "le", "gt", "ge", "eq"])
    bound = bind(n.Compare(op, n.Ref("c0"), literal), schema)
    if isinstance(bound, Anything):
        return
    outcome = evaluate(bound, lambda leaf: sidecar.zones(leaf.id, leaf.dtype), 1)
    reaches = any(hits(op)) if op != "eq" else any(hits("ge")) and any(hits("le"))
    mixed_nan = any(cell != cell for cell in cells) and any(cell == cell for cell in cells)
    is_selected = bool(filled(outcome.true, 1)[0])
    exact = is_selected <= reaches if op == "eq" else is_selected == reaches  # a literal between two values equals none
    assert exact or mixed_nan, f"seed {seed}: {op} {literal} over {cells}"
