"""Why a block is kept or not: always the prune's own verdict, and a reason that agrees with it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.errors import InvalidFilter, LamellaError, NotFound, SegmentNotFound, UnknownColumn
from lamella.snapshot.expression.text import tree_of
from lamella.snapshot.manifest import FEATURES, Block, SnapshotPointer
from lamella.snapshot.parquet import ingest
from lamella.snapshot.prune import indexes
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.stats.bucket import bucket_of
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.block_reasons import BlockWhy, ColumnBounds, ConjunctWhy, LayerWhy, ruled_out_text
from lamella.snapshot.wire import PruneRequest
from pages.test_page_sidecar import Lake
from property.test_constants_and_deletes import World
from prune.test_block_layer import random_blocks, written
from support import generate
from support.real_tables import RealTable

SEEDS = st.integers(0, 2**48)


def whys(warehouse: Warehouse, pointer: SnapshotPointer, request: PruneRequest) -> dict[str, BlockWhy]:
    """What is said of every block, by its location; checked against the prune's answer."""
    answer = warehouse.prune(pointer, request).blocks
    assert answer is not None
    verdicts = {block.location: block.verdict for block in answer}
    found: dict[str, BlockWhy] = {}
    for ref in warehouse.segments(pointer):
        for number, each in enumerate(warehouse.segment(ref).blocks):
            why = warehouse.block_reasons.why(pointer, request, ref.segment_id, number)
            assert (why.segment_id, why.number, why.location) == (ref.segment_id, number, each.location)
            assert why.row_count == each.row_count
            assert why.verdict == verdicts.get(each.location, "NONE"), why
            assert (why.decided_by is None) == (why.verdict != "NONE"), why
            assert why.text.startswith("kept: ") == (why.verdict != "NONE"), why
            found[each.location] = why
    assert len(found) == warehouse.head(pointer).summary.block_count
    return found


def only(found: dict[str, BlockWhy]) -> BlockWhy:
    """The one block."""
    (why,) = found.values()
    return why


def check_random(seed: int) -> set[str]:
    """Ask of every block of a random table with random filters; who decided."""
    rng = Random(seed)
    schema = generate.schema(rng)
    table = [block for _ in range(rng.randint(1, 3)) for block in generate.table(rng, schema)]
    files = FsspecStore()
    pointer = written(rng, schema, random_blocks(rng, schema, table), files)
    warehouse = Warehouse(files, "memory://reasons")
    seen = generate.seen_values(schema, table)
    deciders: set[str] = set()
    for _ in range(5):
        request = PruneRequest(filter=tree_of(generate.predicate(rng, schema, seen)))
        for why in whys(warehouse, pointer, request).values():
            _, segment, block = why.layers
            # What the layers say by themselves comes to the verdict.
            assert why.verdict == ("NONE" if segment.verdict == "NONE" else block.verdict), why
            if why.verdict == "NONE":
                assert why.decided_by in ("snapshot", "segment", "block")
                deciders.add(str(why.decided_by))
            else:
                assert all(part.block.verdict != "NONE" for part in why.conjuncts)
                deciders.add(why.verdict)
            if why.verdict == "ALL":
                assert all(part.block.verdict == "ALL" for part in why.conjuncts)
            for part in why.conjuncts:
                for layer in part.layers:
                    assert layer.verdict == "UNKNOWN" or not layer.reasons
    return deciders


@given(seed=SEEDS)
@settings(max_examples=60)
def test_the_verdict_is_the_prunes(seed: int) -> None:
    """Over random tables and filters, of every block, kept or not."""
    check_random(seed)


def test_the_bucket_of_a_block_is_named() -> None:
    """It rules out a value that lies between the bounds, or without any."""
    schema = Schema.assign([Column(name="a", type="int64")])
    dtype = schema.leaf("a").dtype
    stats = generate.exact_stats(dtype, [1, 100])
    bucket = bucket_of(dtype, 50, 16)
    other = (16, (bucket + 1) % 16)
    blocks = [
        Block(
            location=f"memory://{at}",
            row_count=2,
            file_size=1,
            col_stats={1: msgspec.structs.replace(each, bucket=other)},
        )
        for at, each in enumerate((stats, ColumnStats(null_count=0)))
    ]
    warehouse = Warehouse(FsspecStore(), f"memory://buckets-{id(blocks)}")
    empty = warehouse.create("t", schema, now_ms=1)
    pointer = warehouse.commit(empty, added=warehouse.prepare("t", schema, blocks), now_ms=2).pointer
    found = whys(warehouse, pointer, PruneRequest(filter="a = 50"))
    where = f"in bucket {other[1]} of 16, so a = 50 is true for no row"
    assert [why.text for why in found.values()] == [
        f"skipped: a lies in [1, 100] and {where}",
        f"skipped: a is {where}",
    ]
    assert {why.verdict for why in whys(warehouse, pointer, PruneRequest(filter="a <> 50")).values()} == {"ALL"}


@given(seed=SEEDS)
@settings(max_examples=40)
def test_constants_and_deleted_rows_are_named(seed: int, folder: Path) -> None:
    """Of every block of random tables: which of the values are constants, and how many rows are left."""
    world = World(seed, folder)
    try:
        predicate = generate.predicate(world.rng, world.schema, world.seen)
        request = PruneRequest(filter=tree_of(predicate), reader_features=FEATURES)
        found = whys(world.warehouse, world.pointer, request)
        names = {leaf.id: leaf.name for leaf in world.warehouse.head(world.pointer).schema.leaves()}
        for ref in world.warehouse.segments(world.pointer):
            for block in world.warehouse.segment(ref).blocks:
                why = found[block.location]
                assert why.live_row_count == block.live_row_count
                if why.verdict == "ALL":
                    assert ("row that is not deleted matches" in why.text) == bool(block.deletes)
                constants = {names[column_id] for column_id in block.constants if column_id in names}
                for part in why.conjuncts:
                    for bounds in part.block.bounds:
                        assert bounds.is_constant == (bounds.column in constants)
                        # A zero is enclosed by both zeros.
                        assert not bounds.is_constant or {bounds.min, bounds.max} in ({bounds.min}, {"-0.0", "0.0"})
                    assert not any(bounds.is_constant for layer in part.layers[:-1] for bounds in layer.bounds)
    finally:
        world.delete_files()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the files of random tables."""
    return tmp_path_factory.mktemp("reasons")


def test_a_constant_is_named_as_one() -> None:
    """A value, a null and NaN."""
    for bounds, said in (
        (ColumnBounds(column="n", min="7", max="7", nulls="none"), "n is 7 in every row (a constant of the block)"),
        (ColumnBounds(column="n", nulls="all"), "n is NULL in every row (a constant of the block)"),
        (ColumnBounds(column="n", nulls="none", nan="all"), "n is NaN in every row (a constant of the block)"),
    ):
        constant = msgspec.structs.replace(bounds, is_constant=True)
        layer = LayerWhy(layer="block", verdict="NONE", bounds=(constant,))
        conjunct = ConjunctWhy(predicate="n = 8", layers=(layer,))
        assert ruled_out_text("block", [conjunct]) == f"skipped: {said}, so n = 8 is true for no row"


def test_every_layer_decides_somewhere() -> None:
    """The random tables come to all verdicts, and each layer leaves blocks out."""
    seen = set().union(*(check_random(seed) for seed in range(25)))
    assert seen == {"snapshot", "segment", "block", "SOME", "ALL", "UNKNOWN"}


def indexed_table(folder: Path, rng: np.random.Generator, *, blocks: int = 12) -> RealTable:
    """``a`` ascends, ``b`` and ``s`` are in no order; an index on each of these two but for the last block."""

    def rows(number: int) -> pa.Table:
        return pa.table(
            {
                "a": pa.array(np.arange(20) + 20 * number),
                "b": pa.array(rng.integers(0, 200, 20) * 2),
                "s": pa.array([f"text {value}" for value in rng.integers(0, 300, 20)]),
            }
        )

    table = RealTable(folder, [rows(number) for number in range(blocks)], verify=False, segment_blocks=5)
    table.add_index("by_b", "bloom", "b", {"false_positives": 1e-4})
    table.add_index("by_s", "keys", "s")
    unindexed = folder / "late.parquet"
    pq.write_table(rows(blocks), unindexed)
    head = table.warehouse.head(table.pointer)
    taken, _ = ingest(table.store, [f"file://{unindexed}"], head.schema, workers=1)
    refs = table.warehouse.prepare(head.table_id, head, taken)
    table.pointer = table.warehouse.commit(table.pointer, added=refs, now_ms=9).pointer
    return table


@pytest.mark.slow
def test_with_indexes_the_verdict_is_the_prunes(tmp_path: Path) -> None:
    """Over random filters of all three columns; what an index says of a part that has to be true agrees with it."""
    table = indexed_table(tmp_path, np.random.default_rng(1))
    rng = Random(1)
    atoms = [
        lambda: f"b = {rng.randint(0, 400)}",
        lambda: f"b IN ({rng.randint(0, 400)}, {rng.randint(0, 400)})",
        lambda: f"s = 'text {rng.randint(0, 320)}'",
        lambda: f"a {rng.choice(['<', '>='])} {rng.randint(0, 260)}",
        lambda: f"NOT (b = {rng.randint(0, 400)})",
    ]
    deciders: set[str | None] = set()
    said: set[str] = set()
    for _ in range(60):
        parts = [rng.choice(atoms)() for _ in range(rng.randint(1, 3))]
        text = rng.choice([" AND ", " AND ", " OR "]).join(parts)
        for location, why in whys(table.warehouse, table.pointer, PruneRequest(filter=text)).items():
            answers = [each for part in why.conjuncts for each in part.indexes]
            said.update(each.said for each in answers)
            deciders.add(why.decided_by)
            if any(each.said == "ruled_out" for each in answers):
                assert why.decided_by == "index", why
            assert (
                location.endswith("late.parquet") == any(each.said == "not_indexed" for each in answers) or not answers
            )
            if why.verdict == "ALL" or why.decided_by in ("snapshot", "segment", "block"):
                assert not answers  # bounds decided
    assert deciders == {None, "snapshot", "segment", "block", "index"}
    assert said == {"ruled_out", "may_match", "not_indexed"}


def test_words_name_what_decided(tmp_path: Path) -> None:
    """The line says which bounds, or which index, kept the block or ruled it out."""
    table = indexed_table(tmp_path, np.random.default_rng(1))
    (ref, *_) = table.warehouse.segments(table.pointer)

    def text(filter: Any, **options: Any) -> str:
        request = msgspec.convert({"filter": filter, **options}, PruneRequest)
        return table.warehouse.block_reasons.why(table.pointer, request, ref.segment_id, 1).text

    assert text("a > 30") == "kept: a lies in [20, 39], which overlaps the filter"
    assert text("a > 30 AND a < 1000") == "kept: a lies in [20, 39], which overlaps the filter"
    assert text("a >= 20") == "kept: every row matches, as a lies in [20, 39]"
    assert text(None) == "kept: every row matches"
    assert text("a > 50") == "skipped: a lies in [20, 39], so a > 50 is true for no row"
    assert text("a > 150") == "skipped with its segment: there a lies in [0, 99], so a > 150 is true for no row"
    assert text("a < 0") == "skipped with the whole table: there a lies in [0, 259], so a < 0 is true for no row"
    assert text("a > 20 AND b = 101") == "skipped by index 'by_b': b = 101 is true for no row"
    assert text("b = 101 OR s = 'text 15x'") == "skipped by indexes 'by_s' and 'by_b' together"
    assert text("rand() < 0.5").startswith("kept: ")
    assert text("a > 30", limit=0) == "left out: the filter keeps it, but not the request's limit"


def test_what_is_not_known_is_the_reason() -> None:
    """A block that is kept for want of proof says what is wanting, layer by layer."""
    rng = Random(0)
    schema = generate.schema(rng, ("int64",))
    files = FsspecStore()
    blocks = random_blocks(rng, schema, [{leaf.name: [1, 2] for leaf in schema.leaves()}])
    leaf = schema.leaves()[0]
    bare = [msgspec.structs.replace(blocks[0], col_stats={})]
    pointer = written(Random(1), schema, bare, files)
    why = only(whys(Warehouse(files, "memory://bare"), pointer, PruneRequest(filter=f"{leaf.name} > 5")))
    assert why.verdict == "UNKNOWN"
    for layer in why.conjuncts[0].layers:
        assert f"the minimum of {leaf.name} is not known" in layer.reasons
        assert (layer.bounds[0].min, layer.bounds[0].max, layer.bounds[0].nulls) == (None, None, "maybe")
    assert why.text == (
        f"kept: the minimum of {leaf.name} is not known, the maximum of {leaf.name} is not known and "
        f"the number of nulls in {leaf.name} is not known"
    )


def test_an_index_that_was_given_up_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prune that stops asking an index keeps blocks that it would rule out, and the line says so."""
    monkeypatch.setattr(indexes, "_TRIAL_BLOCKS", 1)
    monkeypatch.setattr(indexes, "_MIN_PART", 1)
    values = [*[[0, 7, 9]] * 5, [0, 8, 9]]
    table = RealTable(tmp_path, [pa.table({"b": each}) for each in values], segment_blocks=2, verify=False)
    table.add_index("by_b", "bloom", "b", {"false_positives": 1e-6})
    found = whys(table.warehouse, table.pointer, PruneRequest(filter="b = 7"))
    last = list(found.values())[-1]
    assert last.verdict == "SOME"
    assert last.text == (
        "kept: b lies in [0, 9], which overlaps the filter; index 'by_b' would rule it out, but was not evaluated for "
        "it, since"
        " it ruled out almost no blocks"
    )


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 1},
        {"limit": 3, "order_by": [{"column": "a"}]},
        {"join": [{"column": "b", "values": [3, 5]}]},
        {"segments": []},
    ],
)
def test_options_of_the_request_leave_blocks_out(tmp_path: Path, options: dict[str, Any]) -> None:
    """What a filter alone keeps may not be needed: then the request is the reason."""
    table = RealTable(tmp_path, [pa.table({"a": [n, n + 2], "b": [n, n + 1]}) for n in range(6)], segment_blocks=2)
    request = msgspec.convert({"filter": "a >= 1", **options}, PruneRequest)
    found = whys(table.warehouse, table.pointer, request)
    assert "request" in {why.decided_by for why in found.values()}
    assert all(
        next(iter(options)) in why.text.replace(" ", "_") for why in found.values() if why.decided_by == "request"
    )


def test_pages_of_a_request_do_not_count(tmp_path: Path) -> None:
    """A block on the second page of an answer is in the answer."""
    table = RealTable(tmp_path, [pa.table({"a": [n, n + 2]}) for n in range(6)], segment_blocks=2)
    for ref in table.warehouse.segments(table.pointer):
        for number in range(2):
            request = PruneRequest(filter="a >= 0", page_size=1, max_ms=None)
            why = table.warehouse.block_reasons.why(table.pointer, request, ref.segment_id, number)
            assert why.verdict == "ALL"


@pytest.mark.parametrize("text", ["k = 1234", "r = 3", "k >= 950 AND k < 2050", "k >= 0", "r = 3 AND t = 't000000000'"])
def test_pages_leave_what_a_prune_to_pages_leaves(tmp_path: Path, text: str) -> None:
    """At level "page": as many ranges and rows as in the answer, and a block without any is left out by its pages."""
    lake = Lake(tmp_path)
    request = PruneRequest(filter=text, level="page")
    answer = lake.warehouse.prune(lake.pointer, request).blocks
    pages = {block.location: block.pages for block in answer or ()}
    for location, why in whys(lake.warehouse, lake.pointer, request).items():
        pages_left = pages.get(location)
        if pages_left is not None:
            assert why.pages is not None
            assert why.pages.range_count == len(pages_left.row_count)
            assert why.pages.row_count == sum(pages_left.row_count)
            proven = pages_left.all_match or [False] * len(pages_left.row_count)
            assert why.pages.matching_rows == sum(
                n for n, all_ in zip(pages_left.row_count, proven, strict=True) if all_
            )
        elif why.pages is not None:
            assert why.decided_by == "pages"
            assert why.pages.row_count == 0


def test_without_files_pages_are_not_known(tmp_path: Path) -> None:
    """The block stays as a whole, and the reason is given."""
    lake = Lake(tmp_path)
    for path in lake.paths:
        path.unlink()
    request = PruneRequest(filter="k = 1234", level="page")
    (why,) = [each for each in whys(lake.warehouse, lake.pointer, request).values() if each.verdict != "NONE"]
    assert why.pages is not None
    assert (why.pages.row_count, why.pages.reason) == (1000, "object_not_found")


@pytest.mark.parametrize(
    ("position", "filter", "error"),
    [
        (("no such segment", 0), None, SegmentNotFound),
        (("", 2), None, NotFound),
        (("", -1), None, NotFound),
        (("", 0), "z = 1", UnknownColumn),
        (("", 0), "a = (", InvalidFilter),
    ],
)
def test_what_cannot_be_requested_is_an_error(
    tmp_path: Path, position: tuple[str, int], filter: str | None, error: type[LamellaError]
) -> None:
    """A segment, a number, a filter: each has its own error."""
    table = RealTable(tmp_path, [pa.table({"a": [1]}), pa.table({"a": [2]})])
    (ref,) = table.warehouse.segments(table.pointer)
    with pytest.raises(error):
        table.warehouse.block_reasons.why(
            table.pointer, PruneRequest(filter=filter), position[0] or ref.segment_id, position[1]
        )
