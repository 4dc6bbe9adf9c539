"""Scores of real tables: what is read for them, and what they rest on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lamella.snapshot.advice.scores import Advising
from lamella.snapshot.warehouse.block_sample import BlockSample
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire.advice import AdviceAnswer, AdviceRequest, Score
from support.real_tables import RealTable


def blocks(count: int = 24) -> list[pa.Table]:
    """Files with a sorted column, a scattered one, texts, lists, and one with nulls alone."""
    rng = np.random.default_rng(6)
    return [
        pa.table(
            {
                "sorted": pa.array(np.arange(100) + 100 * number),
                "scattered": pa.array(rng.integers(0, 1 << 40, 100)),
                "name": pa.array([f"name {value:06}" for value in rng.integers(0, 10**6, 100)]),
                "few": pa.array(rng.integers(0, 5, 100)),
                "tags": pa.array([["x"]] * 100),
                "nothing": pa.nulls(100, pa.int64()),
            }
        )
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tables are."""
    return tmp_path_factory.mktemp("advising")


@pytest.fixture(scope="module")
def counted(folder: Path) -> RealTable:
    """With sketches, in three segments."""
    return RealTable(folder, blocks(), segment_blocks=8)


def advise(table: RealTable, **request: Any) -> AdviceAnswer:
    """The answer."""
    advice_request = AdviceRequest(**request)
    return Advising(Manifests(table.store, 64 << 20)).advise(table.pointer, advice_request)


def by_name(answer: AdviceAnswer, layer: str = "block") -> dict[tuple[str, str | None], Score]:
    """The scores of a layer."""
    return {(each.column, each.kind): each for each in answer.scores if each.layer == layer}


def test_columns_are_scored_in_both_layers(counted: RealTable) -> None:
    """What is sorted is told by bounds, what is scattered by an index; lists and nulls are left alone."""
    answer = advise(counted)
    scores = by_name(answer)
    assert scores["sorted", None].score == pytest.approx(100, abs=1)
    assert scores["scattered", None].score == pytest.approx(15, abs=6)  # gaps between few values
    assert scores["scattered", "keys"].score == pytest.approx(85, abs=6)
    assert scores["name", "bloom"].score == pytest.approx(95, abs=5)
    assert scores["name", "ngram"].score is None
    assert scores["few", "value_set"].score == pytest.approx(0, abs=3)
    assert ("tags.list.element", None) not in scores
    assert ("scattered", "ngram") not in scores
    above = by_name(answer, "segment")
    assert above["sorted", None].score == pytest.approx(100, abs=3)
    assert above["scattered", "bloom"].score == pytest.approx(97, abs=4)
    assert above["scattered", "value_set"].score is None


def test_lists_are_left_out_with_the_reason(counted: RealTable) -> None:
    """When somebody names one."""
    leaf = next(
        each.name
        for each in BlockSample(Manifests(counted.store, 1 << 20), counted.pointer).head.schema.leaves()
        if each.repeated
    )
    answer = advise(counted, columns=(leaf,))
    assert answer.scores == ()
    assert answer.left_out == {leaf: "a row can have several values"}


def test_without_sketches_the_answer_says_so(folder: Path) -> None:
    """Footers alone count nothing: limits instead of scores where counts matter."""
    plain = RealTable(folder, blocks(), verify=False, segment_blocks=8)
    answer = advise(plain, columns=("scattered", "sorted"), kinds=("bloom",))
    scores = by_name(answer)
    assert scores["sorted", None].score == pytest.approx(100, abs=1)
    bloom = scores["scattered", "bloom"]
    assert bloom.score is None
    assert bloom.min_score < 50 < bloom.max_score
    assert bloom.size is not None
    assert not bloom.size.is_counted
    assert "row counts" in answer.rests_on["scattered"]


def test_of_a_large_table_segments_all_over_it_are_looked_at(counted: RealTable) -> None:
    """With a bound on blocks, scores stay what they are."""
    manifests = Manifests(counted.store, 64 << 20)
    some = BlockSample(manifests, counted.pointer, max_blocks=16)
    assert len(some) == 16
    assert some.blocks_total == 24
    leaf = some.head.schema.leaf("scattered")
    whole = BlockSample(manifests, counted.pointer).distribution_by_block(leaf)
    assert some.distribution_by_block(leaf).cover.present.mean() == pytest.approx(whole.cover.present.mean(), abs=0.02)


def test_advice_reads_no_block(folder: Path) -> None:
    """With all files of the data gone, the answer is the same."""
    table = RealTable(folder, blocks(6))
    before = advise(table)
    for ref in table.warehouse.segments(table.pointer):
        for block in table.warehouse.segment(ref).blocks:
            table.store.delete(block.location)
    assert advise(table) == before


def test_a_name_that_is_given_many_times_counts_once(counted: RealTable) -> None:
    """Columns and kinds; thousands of them took as many times as long."""
    once = advise(counted, columns=("scattered", "sorted"), kinds=("bloom",))
    again = advise(counted, columns=("scattered", "sorted", "scattered", "SORTED"), kinds=("bloom", "bloom"))
    assert once.scores
    assert again == once


def test_an_empty_table_has_no_scores_to_give(folder: Path) -> None:
    """And no division by nothing."""
    table = RealTable(folder, blocks(2))
    locations = [
        b.location for ref in table.warehouse.segments(table.pointer) for b in table.warehouse.segment(ref).blocks
    ]
    table.pointer = table.warehouse.commit(table.pointer, removed=locations, now_ms=9).pointer
    answer = advise(table, columns=("sorted",), kinds=("bloom",), budget_share=None, budget_bytes=100.0)
    assert [each.score for each in answer.scores] == [None] * 4
    assert answer.blocks_seen == 0
