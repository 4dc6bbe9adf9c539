"""What-if answers beside what happens when the change is made: real files, real indexes, files written anew."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import read_filter
from lamella.snapshot.warehouse.index_access import IndexAccess
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.recalled import Asked
from lamella.snapshot.warehouse.what_if import WhatIf
from lamella.snapshot.wire.advice import IndexChange, WhatIfAnswer, WhatIfRequest
from support.real_tables import RealTable

ROWS = 12_000
BLOCKS = 60


def rows(seed: int = 1, count: int = ROWS) -> pa.Table:
    """Orders in the sequence of their days, customers and prices in no order, a few states, ids of text."""
    rng = np.random.default_rng(seed)
    day = np.sort(rng.integers(0, 365, count))
    customer = rng.integers(0, 4000, count)
    return pa.table(
        {
            "day": pa.array(day, pa.int32()),
            "customer": pa.array(customer * 3, pa.int64()),
            "price": pa.array(rng.lognormal(3, 1, count)),
            "state": pa.array([f"state {value}" for value in np.minimum(rng.zipf(1.5, count), 40)]),
            "id": pa.array([f"{value:032x}" for value in rng.permutation(count) * 2654435761 % 2**61]),
        }
    )


def cut(table: pa.Table, blocks: int = BLOCKS) -> list[pa.Table]:
    """The table as consecutive pieces."""
    edges = np.linspace(0, len(table), blocks + 1).round().astype(int)
    return [table.slice(start, stop - start) for start, stop in pairwise(edges.tolist())]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tables are."""
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def table(folder: Path) -> RealTable:
    """60 blocks of 200 rows."""
    return RealTable(folder, cut(rows()), segment_blocks=25)


def look_ups(column: str, count: int, *, seed: int = 3, width: int = 1) -> list[str]:
    """Filters for values that are there."""
    values = sorted(rows()[column].unique().to_pylist())
    rng = Random(seed)
    if width == 1:
        # Of few values each once: how often one is in the table differs too much for a few draws.
        chosen = values if len(values) <= 4 * count else rng.sample(values, count)
        return [f"{column} = {value!r}" for value in chosen]
    return [f"{column} IN ({', '.join(map(repr, rng.sample(values, width)))})" for _ in range(count)]


def asked(table: RealTable, filters: Sequence[str], **change: Any) -> WhatIfAnswer:
    """The answer to a change."""
    manifests = Manifests(table.store, 64 << 20)
    what_if = WhatIf(manifests, IndexAccess(manifests), table.store)
    return what_if.answer(table.pointer, WhatIfRequest(**change), [Asked(read_filter(text)) for text in filters])


def mean_skip(table: RealTable, filters: Sequence[str]) -> float:
    """What is skipped on average."""
    return float(np.mean([table.skipped(text) for text in filters]))


INDEXES = [
    ("bloom", "customer", {"false_positives": 0.05}, 1),
    ("bloom", "customer", {}, 5),
    ("bloom", "id", {}, 1),
    ("keys", "id", {}, 1),
    ("value_set", "state", {}, 1),
    ("value_set", "customer", {"values": 10}, 1),
    ("bloom", "day", {}, 1),
    ("bloom", "price", {}, 1),
]


@pytest.mark.parametrize("sample_blocks", [0, 30])
@pytest.mark.parametrize(("kind", "column", "options", "width"), INDEXES)
def test_an_index_skips_what_was_foretold(
    folder: Path, table: RealTable, kind: str, column: str, options: dict[str, Any], width: int, sample_blocks: int
) -> None:
    """Within five points of the skip rate once the index is there; the rate before is exact."""
    filters = look_ups(column, 40, width=width)
    change = IndexChange(kind=kind, expression=column, options=options)
    found = asked(table, filters, index=change, sample_blocks=sample_blocks)
    assert found.now.skip == pytest.approx(mean_skip(table, filters))
    done = RealTable(folder, cut(rows()), segment_blocks=25)
    done.add_index("i", kind, column, options)
    assert found.then.skip == pytest.approx(mean_skip(done, filters), abs=0.05)
    assert found.measured == (sample_blocks > 0)
    assert found.size is not None
    real = done.warehouse.snapshot(done.pointer).skip_indexes[0].size_bytes
    assert found.size.size_bytes == pytest.approx(real, rel=0.5, abs=8_000)


def test_what_only_a_sample_can_tell(folder: Path, table: RealTable) -> None:
    """Patterns, expressions and comparisons are not estimated from manifests, and the answer says so; a sample can."""
    cases = [
        ("ngram", "id", [f"id LIKE '%{value:03x}%'" for value in range(100, 900, 40)]),
        ("bloom", "lower(state)", [f"lower(state) = 'state {value}'" for value in range(1, 30)]),
    ]
    for kind, expression, filters in cases:
        change = IndexChange(kind=kind, expression=expression)
        blind = asked(table, filters, index=change)
        assert blind.then == blind.now
        assert all("not in manifests" in each.reason for each in blind.filters)
        found = asked(table, filters, index=change, sample_blocks=40)
        done = RealTable(folder, cut(rows()), segment_blocks=25)
        done.add_index("i", kind, expression)
        assert found.then.skip == pytest.approx(mean_skip(done, filters), abs=0.05)


def test_absent_values_have_a_figure_of_their_own(folder: Path, table: RealTable) -> None:
    """For literals that no row has, ``if_absent`` is what is read."""
    filters = [f"customer = {3 * value + 1}" for value in range(100, 3900, 100)]
    found = asked(table, filters, index=IndexChange(kind="bloom", expression="customer"))
    done = RealTable(folder, cut(rows()), segment_blocks=25)
    done.add_index("i", "bloom", "customer")
    absent = [each.if_absent.skip for each in found.filters if each.if_absent is not None]
    assert np.mean(absent) == pytest.approx(mean_skip(done, filters), abs=0.05)
    assert found.then.skip <= np.mean(absent)


KEYS = ["customer", "price", "state", "id", "day"]


@pytest.mark.parametrize("sample_blocks", [0, 60])
@pytest.mark.parametrize("key", KEYS)
def test_another_cluster_key_skips_what_was_foretold(
    folder: Path, table: RealTable, key: str, sample_blocks: int
) -> None:
    """Filters over the new key, the old one, and both, within five points of the files written anew, sorted."""
    shuffled = rows().take(np.random.default_rng(5).permutation(ROWS))
    done = RealTable(folder, cut(shuffled.sort_by(key)), segment_blocks=25)
    rng = Random(8)
    kinds_of_filters = {
        "equal": look_ups(key, 30) if key != "price" else [],
        "ranges": [f"price BETWEEN {low} AND {low * 1.3}" for low in (rng.uniform(5, 90) for _ in range(20))],
        "days": [f"day >= {low} AND day < {low + 20}" for low in range(0, 340, 20)],
        "both": [f"day >= {low} AND customer = {3 * rng.randrange(4000)}" for low in range(0, 340, 20)],
    }
    for name, filters in kinds_of_filters.items():
        if not filters:
            continue
        found = asked(table, filters, cluster_key=(key,), sample_blocks=sample_blocks)
        assert found.now.skip == pytest.approx(mean_skip(table, filters))
        assert found.then.skip == pytest.approx(mean_skip(done, filters), abs=0.05), name
        assert found.blocks_read == sample_blocks


@pytest.mark.parametrize(("blocks", "sample_blocks"), [(20, 0), (5, 0), (180, 60)])
def test_another_block_size_skips_what_was_foretold(
    folder: Path, table: RealTable, blocks: int, sample_blocks: int
) -> None:
    """Larger blocks follow from the statistics, smaller ones from rows."""
    done = RealTable(folder, cut(rows(), blocks), segment_blocks=25)
    for column in ("day", "state"):
        filters = look_ups(column, 25)
        found = asked(table, filters, rows_per_block=ROWS // blocks, sample_blocks=sample_blocks)
        assert found.then.skip == pytest.approx(mean_skip(done, filters), abs=0.05), column
        assert found.then.blocks == pytest.approx((1 - found.then.skip) * blocks, rel=0.15)


def test_smaller_blocks_without_rows_say_what_they_assume(table: RealTable) -> None:
    """Nothing tells how rows lie within a block."""
    found = asked(table, ["day = 5"], rows_per_block=50)
    assert any("sorted by nothing" in each for each in found.rests_on)


def test_requests_that_make_no_sense_are_refused(table: RealTable) -> None:
    """Exactly one change, of something that is there, asked by somebody."""
    index = IndexChange(kind="bloom", expression="customer")
    cases: list[tuple[dict[str, Any], list[str], str]] = [
        ({}, ["day = 1"], "exactly one"),
        ({"index": index, "rows_per_block": 5}, ["day = 1"], "exactly one"),
        ({"rows_per_block": 0}, ["day = 1"], "at least 1"),
        ({"cluster_key": ()}, ["day = 1"], "has a column"),
        ({"index": index, "sample_blocks": 10**9}, ["day = 1"], "sample_blocks"),
        ({"index": index}, [], "no filters"),
    ]
    for change, filters, text in cases:
        with pytest.raises(InvalidRequest, match=text):
            asked(table, filters, **change)


def test_filters_that_do_not_concern_the_index_stay(table: RealTable) -> None:
    """With the reason, filter by filter."""
    found = asked(table, ["day = 1", "customer > 5"], index=IndexChange(kind="bloom", expression="customer"))
    assert found.then == found.now
    assert [each.reason for each in found.filters] == [
        "no predicate is over customer",
        "only = and IN ask whether a value is there",
    ]
