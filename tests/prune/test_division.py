"""What a search decides of a filter, and what it leaves to be tested: the same verdicts as when all is tested."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.columnar import Zones, zones_of
from lamella.snapshot.columnar.zones import Edges, edges_of
from lamella.snapshot.expression import bind, read_sql, text_of
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.expression.bound import BoundOperator, BoundPredicate
from lamella.snapshot.prune import evaluate, verdicts
from lamella.snapshot.prune import search as window_module
from lamella.snapshot.prune.evaluate import Evaluator
from lamella.snapshot.prune.search import Division, division
from lamella.snapshot.schema import Column, Leaf, Schema
from lamella.snapshot.stats import ColumnStats, to_bound
from support import generate

SEEDS = st.integers(0, 2**48)
FILTERS = 25

Entry = tuple[int, ColumnStats | None]


def layer(rng: Random, leaf: Leaf, entries: int) -> tuple[list[Any], list[Entry]]:
    """Values, and statistics of consecutive shares of them: mostly as of a table that is sorted by the column."""
    present = [generate.value(rng, leaf.dtype) for _ in range(3 * entries)]
    if rng.random() < 0.8:
        present = sorted([each for each in present if each == each] or [0])
    nulls = rng.choice(["none", "none", "all", "some"])
    found: list[Entry] = []
    for index in range(entries):
        first = index * len(present) // entries
        cells = present[first : max(first + 1, (index + 1) * len(present) // entries)]
        if nulls == "all" or (nulls == "some" and rng.random() < 0.5):
            cells = [*cells, None]
        weak = rng.random() < 0.02
        stats = generate.weakened_stats(rng, leaf.dtype, cells) if weak else generate.exact_stats(leaf.dtype, cells)
        found.append((len(cells), stats))
    return present, found


def check(seed: int, edges: Callable[[Edges | None], Edges | None] = lambda found: found) -> tuple[int, int]:
    """Compare the verdicts of random filters over one random layer, after ``edges``; how many filters a search decided
    wholly and in part."""
    rng = Random(seed)
    schema = generate.schema(rng)
    entries = rng.randint(1, 30)
    made = {leaf: layer(rng, leaf, entries) for leaf in schema.leaves()}
    zones = {leaf: zones_of(leaf.dtype, found) for leaf, (_, found) in made.items()}
    seen = {leaf.name: present for leaf, (present, _) in made.items()}
    wholly = partly = 0
    for _ in range(FILTERS):
        predicate = generate.predicate(rng, schema, seen)
        if rng.random() < 0.4:
            predicate = n.And((predicate, generate.predicate(rng, schema, seen)))
        bound = bind(predicate, schema)
        filter = Evaluator(bound)
        found = division(filter, lambda leaf: edges(edges_of(zones[leaf])), entries)
        wholly += found.rest is None
        partly += found.rest is not None and found.rest is not filter
        expected = expected_codes(bound, zones, entries)
        case = f"seed {seed}: {text_of(predicate)}"
        assert found.codes(0, entries, zones.__getitem__).tolist() == expected, case
        start = rng.randrange(entries)
        stop = rng.randint(start, entries)
        assert found.codes(start, stop, zones.__getitem__).tolist() == expected[start:stop], case
        if found.rest is None:
            assert unrolled(found, start, stop) == expected[start:stop], case
    return wholly, partly


def expected_codes(bound: BoundPredicate, zones: dict[Leaf, Zones], entries: int) -> list[int]:
    """The verdicts when every entry is looked at."""
    outcome = evaluate(bound, zones.__getitem__, entries)
    codes: list[int] = verdicts(outcome, np.ones(entries, dtype=np.int64)).tolist()
    return codes


def unrolled(found: Division, start: int, stop: int) -> list[int]:
    """The verdicts of entries, from the runs of those that are kept."""
    codes = [0] * (stop - start)
    runs = found.runs(start, stop)
    for first, last, code in runs:
        assert start <= first < last <= stop
        codes[first - start : last - start] = [code] * (last - first)
    assert not any(one[1:] == (other[0], other[2]) for one, other in pairwise(runs))
    return codes


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_a_search_gives_the_verdicts_of_a_test(seed: int) -> None:
    """Over random types, sorted and unsorted, with nulls, NaN and missing bounds, entry by entry the same."""
    check(seed)


@pytest.mark.slow
def test_the_random_layers_are_searched() -> None:
    """Many filters are decided by the search alone, and many in part."""
    found = [check(seed) for seed in range(150)]
    assert sum(wholly for wholly, _ in found) > 400
    assert sum(partly for _, partly in found) > 40


@pytest.mark.soak
def test_many_searches_give_the_verdicts_of_a_test() -> None:
    """A hundred thousand filters and more."""
    for seed in range(5_000):
        check(seed)


def _no_nulls(found: Edges | None) -> Edges | None:
    return None if found is None else msgspec.structs.replace(found, nulls=False)


def _exact(found: Edges | None) -> Edges | None:
    return None if found is None else msgspec.structs.replace(found, exact=True, nulls=False)


@pytest.mark.parametrize("mistake", [_no_nulls, _exact])
def test_a_mistake_about_a_column_is_noticed(mistake: Callable[[Edges | None], Edges | None]) -> None:
    """Nulls that are overlooked, or a column that is taken for sorted, would not go unseen by the test above."""
    assert _fails(lambda seed: check(seed, mistake))


@pytest.mark.parametrize(
    ("op", "limit"),
    [*product(("ge", "gt"), (0, 2)), *product(("le", "lt"), (1, 3)), *product(("eq",), range(4))],
)
def test_a_wrong_side_of_a_search_is_noticed(op: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that stops before instead of behind an equal bound, or the other way round."""
    right = window_module._limits

    def wrong(edges: Edges, given_op: BoundOperator, value: Any, count: int) -> tuple[int, ...]:
        found = list(right(edges, given_op, value, count))
        if given_op == op:
            bounds = edges.reached if limit in (0, 3) else edges.left
            sides = [int(bounds.searchsorted(value, "left")), int(bounds.searchsorted(value, "right"))]
            found[limit] = sum(sides) - found[limit]
        return tuple(found)

    monkeypatch.setattr(window_module, "_limits", wrong)
    assert _fails(check)


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("every", lambda found: msgspec.structs.replace(found, every=found.windows)),
        ("no every", lambda found: msgspec.structs.replace(found, every=())),
        ("rest", lambda found: msgspec.structs.replace(found, rest=None)),
        ("windows", lambda found: msgspec.structs.replace(found, windows=found.windows[1:])),
    ],
)
def test_a_wrong_division_is_noticed(
    name: str, mistake: Callable[[Division], Division], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ALL where it is not proven, no ALL where it is, a part that is not tested, a window that is lost."""
    right = division
    monkeypatch.setattr(f"{__name__}.division", lambda *given: mistake(right(*given)))
    assert _fails(check), name


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("x BETWEEN 35 AND 62", None),
        ("x IN (5, 35, 36, 70) OR x > 90", None),
        ("x > 35 AND x < 20", None),
        ("x > 35 AND y = 7", "y = 7"),
        ("x > 35 AND y = 7 AND x < 90 AND y IS NOT NULL", "y = 7 AND y IS NOT NULL"),
        ("x > 35 OR y = 7", "all"),
        ("y = 7", "all"),
        ("x > 35 AND x IS NULL", "all"),  # together they exclude every row, which neither does alone
        ("x > 35 AND NOT (x > 50)", "NOT (x > 50)"),
    ],
)
def test_a_search_decides_what_speaks_of_sorted_columns_alone(text: str, rest: str | None) -> None:
    """The rest is tested, all of it where the parts of a filter are not independent."""
    schema = Schema.assign([Column(name="x", type="int64"), Column(name="y", type="int64")])
    x, y = schema.leaves()
    of_x = [stats_of(x, index * 10, index * 10 + 9, nulls=1) for index in range(10)]
    of_y = [stats_of(y, index % 3, 9 - index % 2, nulls=0) for index in range(10)]
    zones = {x: zones_of(x.dtype, [(10, each) for each in of_x]), y: zones_of(y.dtype, [(10, each) for each in of_y])}
    filter = Evaluator(bind(read_sql(text), schema))
    found = division(filter, lambda leaf: edges_of(zones[leaf]), 10)
    if rest is None or rest == "all":
        assert found.rest is (None if rest is None else filter)
    else:
        assert found.rest is not None
        assert found.rest.node == bind(read_sql(rest), schema)
    assert found.codes(0, 10, zones.__getitem__).tolist() == expected_codes(filter.node, zones, 10)


def stats_of(leaf: Leaf, low: int, high: int, *, nulls: int) -> ColumnStats:
    """Statistics of whole numbers."""
    return ColumnStats(min=to_bound(leaf.dtype, low), max=to_bound(leaf.dtype, high), null_count=nulls)


def _fails(run: Callable[[int], object], seeds: int = 400) -> bool:
    """Whether one of the seeds fails."""
    for seed in range(seeds):
        try:
            run(seed)
        except AssertionError:
            return True
    return False
