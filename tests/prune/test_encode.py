"""Answers written from columns say the same as answers written from values, whatever the locations hold."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.columnar.sidecar import build_blocks
from lamella.snapshot.manifest import Block
from lamella.snapshot.prune.result import BlockSelection, PruneResult, SegmentSelection
from lamella.snapshot.prune.segment_text import json_strings
from lamella.snapshot.prune.writer import (
    ANSWER,
    ARROW_END,
    answer_of,
    arrow_chunks,
    has_arrow_form,
    json_chunks,
    msgpack_chunks,
)
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.wire import BlockColumns, OrderBy, PruneAnswer, PruneRequest, Report, Shape
from support import generate, stages

SCHEMA = Schema.assign([Column(name="a", type="int64")])
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=12)
SHAPES: tuple[Shape, ...] = ("records", "columns")


def found(rng: Random, segments: list[list[str]], shape: Shape) -> PruneResult:
    """An outcome with all blocks of some segments and some of others, of random schemas and with random numbers."""
    parts = []
    opened = []
    for number, locations in enumerate(segments):
        blocks = [
            Block(
                location=location,
                row_count=rng.choice([0, 1, 2**62, rng.randint(0, 10**6)]),
                file_size=rng.randint(0, 2**63 - 1),
                schema_id=rng.choice([0, 0, 3]) if number % 2 else 0,
            )
            for location in locations
        ]
        sidecar = Sidecar(build_blocks(SCHEMA, blocks))
        rows = np.flatnonzero([rng.random() < 0.7 or number % 3 == 0 for _ in locations])
        codes = np.array([rng.randint(1, 3) for _ in rows], dtype=np.uint8)
        opened.append(sidecar)
        parts.append(SegmentSelection(number, sidecar, rows, codes))
    count = sum(len(part.rows) for part in parts)
    residual = np.array([rng.randint(0, 5) for _ in range(count)], dtype=np.int64)
    report = Report(stages=(), blocks_total=1, rows_total=2, bytes_total=3, filter='"block_columns":null')
    return PruneResult(
        answer=PruneAnswer(snapshot_id="s", timestamp_ms=1, report=report),
        shape=shape,
        selection=BlockSelection.of_parts(parts, np.array([len(each) for each in opened], dtype=np.int64)),
        segments=sidecar_of_nothing(),
        open_segment=opened.__getitem__,
        schema_id=0,
        column_ids=rng.choice([None, (1,)]),
        residual=rng.choice([None, residual]),
    )


def sidecar_of_nothing() -> Sidecar:
    """A layer without segments; encoders of blocks do not look at it."""
    return Sidecar(build_blocks(SCHEMA, []))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.lists(TEXTS, max_size=4), st.sampled_from(SHAPES))
def test_json_of_columns_is_the_json_of_values(seed: int, segments: list[list[str]], shape: Shape) -> None:
    """Byte for byte, but for members that are empty and said nothing."""
    outcome = found(Random(seed), segments, shape)
    written = b"".join(json_chunks(outcome))
    values = answer_of(outcome)
    assert msgspec.json.decode(written, type=PruneAnswer) == without_empty(values)
    if outcome.block_count:
        assert written == msgspec.json.encode(values)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.lists(TEXTS, max_size=4), st.sampled_from(SHAPES))
def test_messagepack_of_columns_says_what_the_values_say(seed: int, segments: list[list[str]], shape: Shape) -> None:
    """Decoded it is the same answer."""
    outcome = found(Random(seed), segments, shape)
    written = b"".join(msgpack_chunks(outcome))
    assert without_empty(msgspec.msgpack.decode(written, type=PruneAnswer)) == without_empty(answer_of(outcome))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.lists(TEXTS, max_size=4))
def test_an_arrow_stream_says_what_the_values_say(seed: int, segments: list[list[str]]) -> None:
    """Its columns are those of the answer, its metadata is the rest, and its end is marked."""
    outcome = found(Random(seed), segments, "columns")
    assert has_arrow_form(outcome)
    written = b"".join(arrow_chunks(outcome))
    assert written.endswith(ARROW_END)
    table = pa.ipc.open_stream(written).read_all()
    assert msgspec.json.decode(table.schema.metadata[ANSWER], type=PruneAnswer) == outcome.answer
    columns = answer_of(outcome).block_columns
    assert columns is not None
    read = {name: table[name].to_pylist() for name in table.column_names}
    if not columns.schema_id:
        assert set(read.pop("schema_id")) <= {None}
    expected = {name: value for name, value in msgspec.structs.asdict(columns).items() if value is not None}
    assert read == expected


def without_empty(answer: PruneAnswer) -> PruneAnswer:
    """The answer without columns that are there but empty."""
    columns = answer.block_columns
    if columns is None or columns.location:
        return answer
    nothing = BlockColumns(location=[], row_count=[], file_size=[], verdict=[])
    return msgspec.structs.replace(answer, block_columns=nothing)


@pytest.mark.parametrize("text", ['"', "\\", "\x00", "\x1f", "\n", "\x7f", "é", "\u2028", "😀", "", "a" * 300])
def test_every_text_is_escaped_as_msgspec_does(text: str) -> None:
    """Alone, and beside texts that need nothing."""
    for texts in ([text], ["plain", text, "plain"]):
        written = json_strings(pa.array(texts, pa.large_string())).to_pylist()
        assert [f'"{each}"'.encode() for each in written] == [msgspec.json.encode(each) for each in texts]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**48))
def test_real_answers_are_the_same_in_every_form(seed: int) -> None:
    """Also those with an order, a limit or residuals, which are written from values."""
    rng = Random(seed)
    lake = stages.lake(rng)
    leaf = rng.choice(lake.schema.leaves())
    request = PruneRequest(
        filter=None,
        shape=rng.choice(SHAPES),
        columns=rng.choice([None, (leaf.name,)]),
        order_by=rng.choice([(), (OrderBy(column=leaf.name),)]),
        limit=rng.choice([None, 5]),
        residuals=rng.random() < 0.5,
    )
    for _ in range(3):
        predicate = generate.predicate(rng, lake.schema, lake.seen, depth=2)
        whole = lake.warehouse.prune_predicate(lake.pointer, predicate, request)
        outcome = lake.warehouse.find_predicate(lake.pointer, predicate, request)
        for decoded in (
            msgspec.json.decode(b"".join(json_chunks(outcome)), type=PruneAnswer),
            msgspec.msgpack.decode(b"".join(msgpack_chunks(outcome)), type=PruneAnswer),
        ):
            assert same(decoded) == same(whole)
        if has_arrow_form(outcome):
            table = pa.ipc.open_stream(b"".join(arrow_chunks(outcome))).read_all()
            assert table["location"].to_pylist() == locations(whole)


def same(answer: PruneAnswer) -> PruneAnswer:
    """The answer without its times and what caches had to do with it."""
    report = msgspec.structs.replace(answer.report, stages=(), from_cache=False, reused_blocks=0)
    return without_empty(msgspec.structs.replace(answer, report=report))


def locations(answer: PruneAnswer) -> list[str]:
    """Where the blocks are, in either shape."""
    if answer.block_columns is not None:
        return answer.block_columns.location
    return [block.location for block in answer.blocks or ()]
