"""Advice over real HTTP: what is asked is recorded, and scores, forecasts and reasons come from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lamella.client.http import Lamella, Table
from lamella.snapshot.errors import IndexNotFound, InvalidRequest, UnknownColumn
from lamella.snapshot.wire import IndexChange
from support.service_api import TableApi, World, fresh_name

BLOCKS = 20


@pytest.fixture
def table(local: World) -> Iterator[tuple[TableApi, Table]]:
    """20 blocks of 50 rows: ``a`` ascends, ``b`` is all over."""
    folder = local.folder()
    locations = []
    for number in range(BLOCKS):
        rows = range(50 * number, 50 * number + 50)
        locations.append(
            local.put(f"{folder}/{number:04}.parquet", a=list(rows), b=[row * 7919 % 1000 for row in rows])
        )
    made = local.table(schema=[{"name": "a", "type": "int64"}, {"name": "b", "type": "int64"}])
    with Lamella(local.url) as lake:
        found = lake.table(f"{made.namespace}.{made.name}")
        found.register(locations, verify=True)
        yield made, found


def test_scores_over_http(table: tuple[TableApi, Table]) -> None:
    """A sorted column needs no index, a scattered one does; budgets are kept."""
    _, handle = table
    found = handle.advise(kinds=["bloom", "keys", "ngram"], budget_bytes=4_000)
    scores = {(each.column, each.kind): each for each in found.scores if each.layer == "block"}
    assert (found.blocks_total, found.blocks_seen) == (BLOCKS, BLOCKS)
    assert scores["a", None].score == pytest.approx(100, abs=1)
    assert scores["b", None].score == pytest.approx(3, abs=5)
    assert scores["a", "bloom"].score == pytest.approx(0, abs=1)
    bloom = scores["b", "bloom"]
    assert bloom.score is not None
    assert bloom.score > 80
    assert bloom.size is not None
    assert bloom.size.fits
    assert bloom.size.size_bytes is not None
    assert bloom.size.size_bytes <= 4_000
    assert ("b", "ngram") not in scores
    assert "counts of distinct values" in found.rests_on["b"]
    with pytest.raises(UnknownColumn):
        handle.advise(["c"])
    with pytest.raises(InvalidRequest, match="no index kind"):
        handle.advise(kinds=["colours"])
    with pytest.raises(InvalidRequest, match="not both"):
        handle.advise(budget_bytes=1, budget_share=0.1)


def test_what_is_queried_is_recorded_without_constants_and_replayed(table: tuple[TableApi, Table]) -> None:
    """Prunes leave their shapes; a what-if without filters replays them."""
    _, handle = table
    for value in (14, 210, 777):
        handle.prune(f"b = {value}")
    handle.prune("a BETWEEN 100 AND 300")
    handle.prune(None)
    found = handle.recorded_filters()
    assert found.mode == "shape"
    assert {each.filter: each.times for each in found.filters} == {"b = '?'": 3, "a >= '?' AND a <= '?'": 1}
    assert sorted(each.considered for each in found.filters) == [BLOCKS, 3 * BLOCKS]
    forecast = handle.what_if(index=IndexChange(kind="keys", expression="b"))
    assert len(forecast.filters) == 4
    assert forecast.then is not None
    assert forecast.then.skip > forecast.now.skip
    assert not forecast.measured
    measured = handle.what_if(index=IndexChange(kind="keys", expression="b"), filters=["b = 14"], sample_blocks=20)
    assert measured.blocks_read == measured.now.blocks
    assert measured.then is not None
    assert measured.then.blocks == 1
    assert handle.clear_recorded_filters() == 2
    assert handle.recorded_filters().filters == ()


@pytest.mark.parametrize(("mode", "texts"), [("off", set()), ("full", {"b = 14"})])
def test_a_table_says_what_is_recorded_of_it(local: World, mode: str, texts: set[str]) -> None:
    """By its property; another value is refused."""
    made = local.table(properties={"lamella.record_prunes": mode})
    made.register(*local.numbers(local.folder(), 3))
    with Lamella(local.url) as lake:
        handle = lake.table(f"{made.namespace}.{made.name}")
        column = handle.info().schema.leaves()[0].name
        handle.prune(f"{column} = 14")
        found = handle.recorded_filters()
        assert found.mode == mode
        assert {each.filter.replace(column, "b") for each in found.filters} == texts
        with pytest.raises(InvalidRequest, match=r"lamella\.record_prunes must be one of"):
            handle.commit(properties={"lamella.record_prunes": "some"})


def test_why_not_over_http(table: tuple[TableApi, Table]) -> None:
    """From the index that is not there to the one that helps."""
    _, handle = table
    assert handle.why_not("b = 14").answers == ()
    with pytest.raises(IndexNotFound):
        handle.why_not("b = 14", fresh_name("i"))
    handle.create_index("by_b", "keys", "b")
    (found,) = handle.why_not("b = 14").answers
    assert found.code == "empty"
    handle.refresh_index("by_b")
    answer = handle.why_not("b = 14 AND a < 10")
    assert [(each.predicate, each.code) for each in answer.answers][-2:] == [("a < 10", "other_term"), (None, "helps")]


def test_the_same_shape_is_one_line_however_often_it_is_queried(table: tuple[TableApi, Table]) -> None:
    """Hundreds of prunes are a few lines, and no more than the bound."""
    _, handle = table
    for value in range(300):
        handle.prune(f"b = {value}")
    (line,) = handle.recorded_filters().filters
    assert line.times == 300


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1},
        {"seed": -1, "sample_blocks": 3},
        {"filters": [], "recorded": 0},
        {"filters": [], "recorded": -1},
        {"sample_blocks": -1},
        {"cluster_key": None, "rows_per_block": 0},
    ],
)
def test_a_number_that_cannot_be_is_refused(table: tuple[TableApi, Table], wrong: dict[str, Any]) -> None:
    """With a 400, whatever the question would have been."""
    raw, _ = table
    body = {"cluster_key": ["b"], "filters": ["a = 1"], **wrong}
    problem = raw.api.problem("POST", f"{raw.path}/what-if", body)
    assert (problem.status, problem.code) == (400, "invalid_request")


def test_candidates_over_http(table: tuple[TableApi, Table]) -> None:
    """Without filters nothing can be predicted; what was pruned leads to an index, with its command."""
    made, handle = table
    found = handle.candidates()
    assert found.candidates == ()
    assert "cluster_key" in {each.kind for each in found.unpredicted}
    for number in range(0, 1000, 100):
        handle.prune(f"b = {number}")
    found = handle.candidates(sample_blocks=BLOCKS)
    assert found.filters > 0
    index = next(each for each in found.candidates if each.kind == "index")
    assert index.command.startswith(f"lamella index create --refresh -- {made.namespace}.{made.name} b_")
    assert index.gain is not None
    assert index.gain.after.blocks < index.gain.before.blocks
    with pytest.raises(InvalidRequest):
        handle.candidates(0)
