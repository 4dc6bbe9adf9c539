"""What-if answers beside what happens when the change is made: real files, real indexes, files written anew."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lamella.snapshot.advice.what_if import WhatIf
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import read_filter
from lamella.snapshot.expression.text import tree_of
from lamella.snapshot.warehouse.finder import IndexAccess
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.read_costs import ReplayedFilter
from lamella.snapshot.wire.advice import IndexChange, WhatIfAnswer, WhatIfRequest
from lamella.snapshot.workload.recorded_filters import Recorded, masked
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


def what_if(table: RealTable, filters: Sequence[str], **change: Any) -> WhatIfAnswer:
    """The answer to a change."""
    manifests = Manifests(table.store, 64 << 20)
    what_if = WhatIf(manifests, IndexAccess(manifests), table.store)
    return what_if.answer(
        table.pointer, WhatIfRequest(**change), [ReplayedFilter(read_filter(text)) for text in filters]
    )


def skip_then(found: WhatIfAnswer) -> float:
    """What is skipped after the change; it can be told."""
    assert found.then is not None
    return found.then.skip


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


@pytest.mark.slow
@pytest.mark.parametrize("sample_blocks", [0, pytest.param(30, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("kind", "column", "options", "width"), INDEXES)
@pytest.mark.few(3)
def test_an_index_skips_what_was_foretold(
    folder: Path, table: RealTable, kind: str, column: str, options: dict[str, Any], width: int, sample_blocks: int
) -> None:
    """Within five points of the skip rate once the index is there; the rate before is exact."""
    filters = look_ups(column, 40, width=width)
    change = IndexChange(kind=kind, expression=column, options=options)
    found = what_if(table, filters, index=change, sample_blocks=sample_blocks)
    assert found.now.skip == pytest.approx(mean_skip(table, filters))
    done = RealTable(folder, cut(rows()), segment_blocks=25)
    done.add_index("i", kind, column, options)
    assert skip_then(found) == pytest.approx(mean_skip(done, filters), abs=0.05)
    assert found.measured == (sample_blocks > 0)
    assert found.size is not None
    real = done.warehouse.snapshot(done.pointer).skip_indexes[0].size_bytes
    assert found.size.size_bytes == pytest.approx(real, rel=0.5, abs=8_000)


@pytest.mark.slow
def test_what_only_a_sample_can_estimate(folder: Path, table: RealTable) -> None:
    """Patterns, expressions and comparisons are not estimated from manifests, and the answer says so; a sample can."""
    cases = [
        ("ngram", "id", [f"id LIKE '%{value:03x}%'" for value in range(100, 900, 40)]),
        ("bloom", "lower(state)", [f"lower(state) = 'state {value}'" for value in range(1, 30)]),
    ]
    for kind, expression, filters in cases:
        change = IndexChange(kind=kind, expression=expression)
        blind = what_if(table, filters, index=change)
        assert blind.then is None
        assert blind.unknown == len(filters)
        assert all(each.then is None and "manifests do not have" in each.reason for each in blind.filters)
        found = what_if(table, filters, index=change, sample_blocks=40)
        done = RealTable(folder, cut(rows()), segment_blocks=25)
        done.add_index("i", kind, expression)
        assert skip_then(found) == pytest.approx(mean_skip(done, filters), abs=0.05)


def test_absent_values_have_a_figure_of_their_own(folder: Path, table: RealTable) -> None:
    """For literals that no row has, ``if_absent`` is what is read."""
    filters = [f"customer = {3 * value + 1}" for value in range(100, 3900, 100)]
    found = what_if(table, filters, index=IndexChange(kind="bloom", expression="customer"))
    done = RealTable(folder, cut(rows()), segment_blocks=25)
    done.add_index("i", "bloom", "customer")
    absent = [each.if_absent.skip for each in found.filters if each.if_absent is not None]
    assert np.mean(absent) == pytest.approx(mean_skip(done, filters), abs=0.05)
    assert skip_then(found) <= np.mean(absent)


KEYS = ["customer", "price", "state", "id", "day"]


@pytest.mark.slow
@pytest.mark.parametrize("sample_blocks", [0, pytest.param(60, marks=pytest.mark.soak)])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.few(2)
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
        found = what_if(table, filters, cluster_key=(key,), sample_blocks=sample_blocks)
        assert found.now.skip == pytest.approx(mean_skip(table, filters))
        assert skip_then(found) == pytest.approx(mean_skip(done, filters), abs=0.05), name
        assert found.blocks_read == sample_blocks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "sample_blocks"),
    [
        (("day DIV 40", "customer"), 0),
        (("day DIV 40", "customer"), 60),
        (("day DIV 90", "customer"), 0),
        (("day DIV 90", "customer"), 60),
        (("left(id, 18)", "day"), 0),
        (("floor(price)", "day"), 60),  # statistics do not tell how many rows have a price
    ],
)
def test_a_cluster_key_of_expressions_skips_what_was_foretold(
    folder: Path, table: RealTable, key: tuple[str, ...], sample_blocks: int
) -> None:
    """Filters over the column of the expression, the other one, and both, within five points of the files written
    anew, sorted by values that pyarrow computes."""
    given = rows().take(np.random.default_rng(5).permutation(ROWS))
    values = {
        "day DIV 40": pc.divide(given["day"], 40),
        "day DIV 90": pc.divide(given["day"], 90),
        "left(id, 18)": pc.utf8_slice_codeunits(given["id"], 0, 18),
        "floor(price)": pc.floor(given["price"]),
    }
    order = pc.sort_indices(
        pa.table({"first": values[key[0]], "second": given[key[1]]}),
        sort_keys=[("first", "ascending"), ("second", "ascending")],
    )
    done = RealTable(folder, cut(given.take(order)), segment_blocks=25)
    rng = Random(8)
    for name, filters in {
        "first": [f"price BETWEEN {low} AND {low * 1.3}" for low in (rng.uniform(5, 90) for _ in range(20))],
        "days": [f"day >= {low} AND day < {low + 20}" for low in range(0, 340, 20)],
        "customers": look_ups("customer", 30),
        "both": [f"day BETWEEN {low} AND {low + 19} AND customer = {3 * rng.randrange(4000)}" for low in range(340)],
        "ids": look_ups("id", 20),
    }.items():
        found = what_if(table, filters, cluster_key=key, sample_blocks=sample_blocks)
        assert found.now.skip == pytest.approx(mean_skip(table, filters))
        assert skip_then(found) == pytest.approx(mean_skip(done, filters), abs=0.05), name


@pytest.mark.slow
@pytest.mark.parametrize(("blocks", "sample_blocks"), [(20, 0), (5, 0), (180, 60)])
def test_another_block_size_skips_what_was_foretold(
    folder: Path, table: RealTable, blocks: int, sample_blocks: int
) -> None:
    """Larger blocks follow from the statistics, smaller ones from rows."""
    done = RealTable(folder, cut(rows(), blocks), segment_blocks=25)
    for column in ("day", "state"):
        filters = look_ups(column, 25)
        found = what_if(table, filters, rows_per_block=ROWS // blocks, sample_blocks=sample_blocks)
        assert skip_then(found) == pytest.approx(mean_skip(done, filters), abs=0.05), column
        assert found.then is not None
        assert found.then.blocks == pytest.approx((1 - skip_then(found)) * blocks, rel=0.15)


def test_smaller_blocks_without_rows_say_what_they_assume(table: RealTable) -> None:
    """Nothing tells the order of rows in a block."""
    found = what_if(table, ["day = 5"], rows_per_block=50)
    assert any("assumed to be unsorted" in each for each in found.rests_on)
    assert found.then is None
    assert "the order of rows in a block" in found.filters[0].reason


def test_requests_that_make_no_sense_are_refused(table: RealTable) -> None:
    """Exactly one change, of something that is there, asked by somebody."""
    index = IndexChange(kind="bloom", expression="customer")
    cases: list[tuple[dict[str, Any], list[str], str]] = [
        ({}, ["day = 1"], "exactly one"),
        ({"index": index, "rows_per_block": 5}, ["day = 1"], "exactly one"),
        ({"rows_per_block": 0}, ["day = 1"], "at least 1"),
        ({"cluster_key": ()}, ["day = 1"], "needs at least one column"),
        ({"index": index, "sample_blocks": 10**9}, ["day = 1"], "sample_blocks"),
        ({"index": index}, [], "no filters"),
    ]
    for change, filters, text in cases:
        with pytest.raises(InvalidRequest, match=text):
            what_if(table, filters, **change)


def test_filters_that_do_not_concern_the_index_stay(table: RealTable) -> None:
    """With the reason, filter by filter."""
    found = what_if(table, ["day = 1", "customer > 5"], index=IndexChange(kind="bloom", expression="customer"))
    assert found.then == found.now
    assert [each.reason for each in found.filters] == [
        "no predicate is on customer",
        "only = and IN test whether a value exists",
    ]


@pytest.fixture(scope="module")
def uncounted(folder: Path) -> RealTable:
    """The same blocks with what their footers say alone: nobody counted different values."""
    return RealTable(folder, cut(rows()), segment_blocks=25, verify=False)


@pytest.fixture(scope="module")
def bare(folder: Path) -> RealTable:
    """The same blocks without any statistics."""
    write = partial(pq.write_table, write_statistics=False)
    return RealTable(folder, cut(rows()), segment_blocks=25, verify=False, write=write)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bloom", "keys", "value_set"])
def test_values_that_nobody_counted_are_not_taken_for_no_gain(folder: Path, uncounted: RealTable, kind: str) -> None:
    """An index that leaves 1 of 60 blocks is never foretold to leave all: it cannot be told, and a sample tells."""
    filters = look_ups("id", 20)
    change = IndexChange(kind=kind, expression="id", options={"values": 1000} if kind == "value_set" else {})
    blind = what_if(uncounted, filters, index=change)
    assert (blind.then, blind.unknown) == (None, 20)
    assert all(each.then is None and "sample_blocks" in each.reason for each in blind.filters)
    assert blind.now.skip == pytest.approx(mean_skip(uncounted, filters))
    found = what_if(uncounted, filters, index=change, sample_blocks=40)
    done = RealTable(folder, cut(rows()), segment_blocks=25, verify=False)
    done.add_index("i", kind, "id", change.options)
    assert found.unknown == 0
    assert found.then is not None
    assert skip_then(found) == pytest.approx(mean_skip(done, filters), abs=0.05)


def test_an_index_of_bounds_adds_nothing_whether_values_were_counted_or_not(uncounted: RealTable) -> None:
    """What does not depend on the counts is told without them."""
    found = what_if(uncounted, ["customer = 300"], index=IndexChange(kind="minmax", expression="customer"))
    assert found.then == found.now
    assert found.filters[0].reason == "the manifests have these bounds already"


def test_figures_are_of_the_filters_that_can_be_estimated(uncounted: RealTable) -> None:
    """One that cannot be told is counted apart, in neither of the two averages."""
    change = IndexChange(kind="bloom", expression="id")
    found = what_if(uncounted, ["day = 5", "id = 'x'", look_ups("id", 1)[0]], index=change)
    assert found.unknown == 1
    assert [each.then is None for each in found.filters] == [False, False, True]
    assert found.now.blocks == pytest.approx(np.mean([each.now.blocks for each in found.filters[:2]]))
    assert found.then == found.now


def test_a_part_that_cannot_be_estimated_makes_the_answer_an_upper_limit(table: RealTable) -> None:
    """A look-up that is told beside a comparison that is not: at most so many blocks."""
    filters = ["customer = 300 AND customer < 100000"]
    found = what_if(
        table, filters, index=IndexChange(kind="value_set", expression="customer", options={"values": 1000})
    )
    assert found.then is not None
    assert found.then.blocks < found.now.blocks
    assert found.filters[0].reason == "or fewer: manifests only allow estimates for look-ups"


def test_constants_that_cannot_be_sampled_are_not_taken_for_no_gain(table: RealTable) -> None:
    """A recorded filter whose constants are gone says nothing of an index over what it asked about."""
    text = "lower(state) = 'state 3'"
    tree = msgspec.json.encode(tree_of(masked(read_filter(text)))).decode()
    recorded = Recorded(tree=tree, text=text, is_full=False, times=1, considered=60, selected=60, time_zone="UTC")
    manifests = Manifests(table.store, 64 << 20)
    what_if = WhatIf(manifests, IndexAccess(manifests), table.store)
    changes: list[dict[str, Any]] = [
        {"index": IndexChange(kind="bloom", expression="lower(state)")},
        {"cluster_key": ("state",)},
        {"rows_per_block": 50},
    ]
    for change in changes:
        for sample_blocks in (0, 10):
            request = WhatIfRequest(sample_blocks=sample_blocks, **change)
            found = what_if.answer(table.pointer, request, [], [recorded])
            assert found.then is None, change
            assert "could not be drawn" in found.filters[0].reason


CHANGES: list[dict[str, Any]] = [
    {"cluster_key": ("customer",)},
    {"cluster_key": ("id",)},
    {"rows_per_block": 50},
    {"rows_per_block": 1000},
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_layout_of_columns_without_bounds_cannot_be_estimated(bare: RealTable, change: dict[str, Any]) -> None:
    """Blocks of which the manifests know nothing are neither all read then, nor none."""
    for text in ("customer = 300", "id = 'x'", "price > 1e9", "state IS NULL"):
        found = what_if(bare, [text], **change)
        assert (found.now.skip, found.then, found.unknown) == (0.0, None, 1)
        assert "no bounds" in found.filters[0].reason


@pytest.mark.parametrize("change", CHANGES)
def test_nulls_and_nan_that_nobody_counted_are_not_taken_for_none(folder: Path, change: dict[str, Any]) -> None:
    """NaN is the greatest number: blocks that have it are read, whatever their bounds say."""
    numbers = np.arange(ROWS)
    price = pa.array(np.where(numbers % 7 == 0, np.nan, numbers % 1000 + 0.5), from_pandas=False)
    data = pa.table({"price": price, "customer": numbers[::-1], "id": [f"{number:08}" for number in numbers]})
    table = RealTable(folder, cut(data), segment_blocks=25, verify=False)
    for text in ("isnan(price)", "price > 5000"):
        assert table.skipped(text) == 0
        found = what_if(table, [text], **change)
        assert found.then is None
        assert "nulls and NaN" in found.filters[0].reason or "rows in a block" in found.filters[0].reason
        if change != {"rows_per_block": 1000}:
            measured = what_if(table, [text], sample_blocks=60, **change)
            assert measured.then is not None
            assert measured.then.skip == pytest.approx(0.0, abs=0.05)


def test_rows_with_nan_come_last_when_a_table_is_sorted_by_their_column(folder: Path) -> None:
    """As Spark sorts them; the blocks before have none."""
    numbers = np.arange(ROWS)
    price = pa.array(np.where(numbers % 4 == 0, np.nan, numbers + 0.5), from_pandas=False)
    table = RealTable(folder, cut(pa.table({"price": price})), segment_blocks=25, verify=False)
    found = what_if(table, ["price > 1e9", "price < 1000"], cluster_key=("price",), sample_blocks=60)
    assert [round(each.then.skip, 2) for each in found.filters if each.then is not None] == [
        pytest.approx(0.75, abs=0.03),
        pytest.approx(0.93, abs=0.03),
    ]


def test_a_filter_whose_few_blocks_are_all_in_the_sample_is_measured_by_them_alone(folder: Path) -> None:
    """What others keep says nothing more of it."""
    data = [pa.table({"code": [number] * 100 + [1000 + number] * 100}) for number in range(40)]
    table = RealTable(folder, data, verify=False)
    filters = ["code = 500", "code = 3", "code IN (5, 6, 7)"]
    found = what_if(table, filters, index=IndexChange(kind="keys", expression="code"), sample_blocks=40)
    assert [round(each.then.blocks) for each in found.filters if each.then is not None] == [0, 1, 3]


@pytest.mark.parametrize("seed", range(12))
def test_a_value_of_the_table_is_not_foretold_to_be_in_no_block(folder: Path, seed: int) -> None:
    """Whatever the key: a draw from statistics lacks rare and extreme values, and its values are not in the order of
    rows of the few that a column has."""
    rng = np.random.default_rng(seed)
    count, blocks, distinct = (int(rng.choice(some)) for some in ([40, 400, 4_000], [2, 4, 8], [2, 3, 12]))
    data = pa.table(
        {
            "id": np.arange(count),
            "low": rng.integers(0, distinct, count) * int(rng.choice([1, 1_000])),
            "word": [["NO", "é", "a longer text", "z"][value % 4] for value in rng.integers(0, distinct, count)],
            "half": rng.integers(0, distinct, count) * 0.5,
            "rare": rng.integers(0, 1_000_000, count),
        }
    )
    table = RealTable(folder, cut(data, blocks))
    filters = []
    for name in data.column_names:
        column = data[name]
        some = [column[int(at)].as_py() for at in rng.integers(0, count, 2)]
        filters += [f"{name} = {value!r}" for value in (*some, pc.min(column).as_py(), pc.max(column).as_py())]
    for key in (("id",), ("rare",), ("word",), ("low",), ("half",), ("word", "rare"), ("low", "id")):
        found = what_if(table, filters, cluster_key=key)
        wrong = [each.filter for each in found.filters if each.then is not None and each.then.blocks < 1]
        assert not wrong, (key, wrong)
        if key in (("word",), ("low",)) and count == 4_000:
            (one,) = what_if(table, [f"{key[0]} = {data[key[0]][0].as_py()!r}"], cluster_key=key).filters
            truth = RealTable(folder, cut(data.sort_by(key[0]), blocks))
            assert one.then is not None
            assert one.then.skip <= truth.skipped(one.filter) + 1 / blocks, (key, one)
