"""What the statistics prove, and a scan of the blocks named, give what a full scan gives."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.expression import nodes as n
from lamella.snapshot.expression import text_of
from lamella.snapshot.manifest import FEATURES, Block
from lamella.snapshot.schema import Schema, parse_type
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import AggregateAnswer, AggregateRequest
from support import full_scan, generate
from support.deleted import without_some
from support.oracle import Oracle

SEEDS = st.integers(0, 2**48)


def _stats(rng: Random, schema: Schema, columns: generate.Block, weak: float) -> dict[int, Any]:
    found = {}
    for leaf in schema.leaves():
        cells = columns[leaf.name]
        stats = generate.exact_stats(leaf.dtype, cells)
        if rng.random() < weak:
            stats = generate.weakened_stats(rng, leaf.dtype, cells)  # type: ignore[assignment]  # None: no statistics
        if stats is not None:
            found[leaf.id] = stats
    return found


class World:
    """A random table in a warehouse, and its rows by block."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.schema = generate.schema(rng)
        table = generate.table(rng, self.schema, blocks=8)
        weak = rng.choice([0.0, 0.2, 1.0])
        blocks = [
            Block(
                location=f"memory://blocks/{index}.parquet",
                row_count=len(next(iter(columns.values()))),
                file_size=100,
                col_stats=_stats(rng, self.schema, columns, weak),
            )
            for index, columns in enumerate(table)
        ]
        every = [generate.rows_of(columns) for columns in table]
        if rng.random() < 0.5:
            some = [without_some(rng, block, rows) for block, rows in zip(blocks, every, strict=True)]
            blocks, every = [block for block, _ in some], [rows for _, rows in some]
        self.warehouse = Warehouse(FsspecStore(), "memory://aggregates", segment_blocks=2)
        table_id = rng.randbytes(16).hex()
        pointer = self.warehouse.create(table_id, self.schema, now_ms=1)
        split = rng.randint(0, len(blocks))
        for part in (blocks[:split], blocks[split:]):
            leaves = self.warehouse.prepare(table_id, self.schema, part)
            pointer = self.warehouse.commit(pointer, added=leaves, now_ms=2).pointer
        gone = {block.location for block in blocks if rng.random() < 0.15}
        if gone:
            pointer = self.warehouse.commit(pointer, removed=sorted(gone), operation="delete", now_ms=3).pointer
        self.pointer = pointer
        self.table = table
        self.rows = {
            block.location: rows for block, rows in zip(blocks, every, strict=True) if block.location not in gone
        }
        self.seen = generate.seen_values(self.schema, table)
        self.oracle = Oracle(self.schema)

    def predicate(self) -> n.Predicate:
        """A random filter, or none."""
        if self.rng.random() < 0.3:
            return n.Constant(True)
        return generate.predicate(self.rng, self.schema, self.seen)

    def matching(self, predicate: n.Predicate, location: str) -> list[full_scan.Row]:
        """The rows of a block for which a filter is true."""
        return [row for row in self.rows[location] if self.oracle.decide(predicate, row) is True]

    def truth(
        self, predicate: n.Predicate, aggregates: list[full_scan.AggregateCall], group_by: list[str]
    ) -> full_scan.Groups:
        """What a full scan gives."""
        rows = [row for location in self.rows for row in self.matching(predicate, location)]
        return full_scan.scan(rows, aggregates, group_by)

    def answer(
        self, predicate: n.Predicate, aggregates: list[full_scan.AggregateCall], group_by: list[str], mode: Any
    ) -> AggregateAnswer:
        """What the warehouse says."""
        texts = tuple(f"{function}({column})" for function, column in aggregates)
        request = AggregateRequest(aggregates=texts, group_by=tuple(group_by), mode=mode, reader_features=FEATURES)
        return self.warehouse.aggregate_predicate(self.pointer, predicate, request)


def check(seed: int, questions: int = 12) -> int:
    """Ask one random table; returns how many answers needed no scan."""
    world = World(seed)
    complete = 0
    for _ in range(questions):
        predicate = world.predicate()
        aggregates, group_by = full_scan.ask(world.rng, world.schema)
        case = f"seed {seed}: {aggregates} by {group_by} where {text_of(predicate)} over {world.table}"
        truth = world.truth(predicate, aggregates, group_by)
        answer = world.answer(predicate, aggregates, group_by, "exact")
        listed = [row for block in answer.scan for row in world.matching(predicate, block.location)]
        parts = [full_scan.of_answer(answer), full_scan.scan(listed, aggregates, group_by)]
        assert full_scan.together(aggregates, parts) == truth, case
        assert answer.complete == (not answer.scan), case
        complete += answer.complete
        for block in answer.scan:
            rows = world.rows[block.location]
            assert block.verdict != "ALL" or len(world.matching(predicate, block.location)) == len(rows), case
        check_limits(world.answer(predicate, aggregates, group_by, "bounded"), truth, case)
    return complete


def check_limits(answer: AggregateAnswer, truth: full_scan.Groups, case: str) -> None:
    """The limits of an answer hold the truth."""
    assert not answer.scan
    found = {full_scan.key_of(answer, group.key): group for group in answer.groups}
    assert answer.other_groups or set(truth) <= set(found), case
    types = [parse_type(column.type) for column in answer.columns]
    for key, group in found.items():
        if key not in truth:
            assert not group.certain, case
            continue
        for dtype, value, true in zip(types, group.values, truth[key], strict=True):
            if value.exact:
                assert full_scan.plain(dtype, value.value) == true, case
            elif true is None:
                assert value.may_be_null, case
            else:
                low, high = full_scan.plain(dtype, value.lower), full_scan.plain(dtype, value.upper)
                assert low is None or full_scan.order(low) <= full_scan.order(true), case
                assert high is None or full_scan.order(true) <= full_scan.order(high), case
    if answer.complete:
        assert all(value.exact for group in answer.groups for value in group.values), case


@settings(max_examples=400, deadline=None)
@given(SEEDS)
def test_statistics_and_a_scan_of_the_listed_blocks_give_the_full_result(seed: int) -> None:
    """Over random tables, filters, aggregates and groups the parts add up; the limits hold the truth."""
    check(seed)


@pytest.mark.slow
def test_many_answers_need_no_scan() -> None:
    """The property is not met by listing every block: a good share of random questions is answered at once."""
    assert sum(check(seed) for seed in range(60)) > 60 * 12 // 4


@pytest.mark.soak
def test_tens_of_thousands_of_questions_hold() -> None:
    """The same, at length."""
    for seed in range(1000, 4000):
        check(seed)


def test_an_answer_survives_json() -> None:
    """What is sent is what was found, to the last bit."""
    world = World(11)
    answer = world.answer(n.Constant(True), [("count", "*"), ("min", world.schema.leaves()[0].name)], [], "exact")
    assert msgspec.json.decode(msgspec.json.encode(answer), type=AggregateAnswer) == answer
