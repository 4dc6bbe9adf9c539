"""The score orders layouts as look-ups in them really skip, and says what cannot be known."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

from lamella.snapshot.advice.index_gain import Effectiveness, effectiveness
from lamella.snapshot.columnar.zones import nothing_known, zones_of
from lamella.snapshot.index import kinds
from lamella.snapshot.schema import parse_type
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.workload.distribution import value_distribution_of
from support import layouts
from support.layouts import Layout, LayoutLookUps
from support.ranks import spearman

#: Kinds that manifests say enough of, with their options; None: the bounds alone.
OPTIONS: dict[str | None, dict[str, Any]] = {
    None: {},
    "bloom": {"false_positives": 0.1},
    "value_set": {},
    "keys": {},
}


class Compared(NamedTuple):
    """One layout: what was expected, and what was measured."""

    layout: str
    score: float
    measured_score: float
    skip: float
    measured_skip: float


def expected(layout: Layout, kind: str | None, **of: Any) -> Effectiveness:
    """What advice says of a layout."""
    value_distribution = layouts.value_distribution(layout, **of)
    if kind is None:
        return effectiveness(value_distribution.profile, value_distribution.cover)
    options = kinds()[kind].options(layout.dtype, OPTIONS.get(kind, {}))
    return effectiveness(
        value_distribution.profile,
        value_distribution.cover,
        kinds()[kind].expected(value_distribution.profile, options),
    )


def compared(layout: Layout, kind: str | None, look_ups: int, **of: Any) -> Compared:
    """Expect, and measure."""
    found = expected(layout, kind, **of)
    there, not_there = layouts.present_and_absent(Random(layout.name), layout, look_ups)
    of_layout = LayoutLookUps(layout, kind, OPTIONS[kind])
    present = of_layout.measured(there)
    absent = of_layout.measured(not_there) if found.skip_absent is not None else None
    assert found.score is not None
    assert found.skip_present is not None
    return Compared(
        layout.name,
        found.score,
        layouts.score(present, absent, is_index=kind is not None),
        found.skip_present,
        1 - present.both / present.blocks,
    )


def check(found: list[Compared], kind: str | None) -> None:
    """Ranks correlate; and the figures themselves are near."""
    assert spearman([each.score for each in found], [each.measured_score for each in found]) >= 0.98, kind
    assert spearman([each.skip for each in found], [each.measured_skip for each in found]) >= 0.95, kind
    errors = [abs(each.score - each.measured_score) for each in found]
    assert np.mean(errors) < 2, kind
    assert max(errors) < 15, max(found, key=lambda each: abs(each.score - each.measured_score))


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(OPTIONS))
@pytest.mark.few(2)
def test_scores_order_layouts_as_look_ups_skip(kind: str | None) -> None:
    """From useless to perfect, whatever the values, the score has the ranks of the skip rate that is measured."""
    check([compared(each, kind, 40) for each in layouts.family(1, blocks=(40,), rows=(30, 200))], kind)


@pytest.mark.soak
@pytest.mark.parametrize("kind", list(OPTIONS))
@pytest.mark.parametrize("seed", range(3))
def test_scores_order_many_layouts(kind: str | None, seed: int) -> None:
    """The same with more and larger blocks."""
    family = layouts.family(seed, blocks=(20, 200), rows=(20, 600))
    check([compared(each, kind, 80) for each in family], kind)


def test_sketches_do_as_well_as_counts() -> None:
    """With different values estimated by real sketches the ranks are the same."""
    some = list(layouts.family(2, blocks=(30,), rows=(60,)))[::3]
    check([compared(each, "bloom", 30, sketched=True) for each in some], "bloom")


def test_the_ends_of_the_scale() -> None:
    """Disjoint blocks are 100 and leave nothing to an index; alike ones are 0, and exact keys are all of 100 there."""
    numbers = np.arange(100_000)
    perfect = Layout("perfect", parse_type("int64"), np.array_split(numbers, 100))
    useless = Layout("useless", parse_type("int64"), [numbers[at::100] for at in range(100)])
    scores = {(of.name, kind): expected(of, kind).score for of in (perfect, useless) for kind in OPTIONS}
    assert scores["perfect", None] == pytest.approx(100, abs=0.1)
    assert scores["perfect", "bloom"] == pytest.approx(0, abs=0.1)
    assert scores["useless", None] == pytest.approx(0, abs=1.5)
    assert scores["useless", "keys"] == pytest.approx(100, abs=1.5)
    assert scores["useless", "bloom"] == pytest.approx(90, abs=3)


def test_blocks_of_one_value_need_no_filter() -> None:
    """Bounds tell a single value exactly, so an index adds nothing, and a value set over too many values neither."""
    single = Layout("single", parse_type("int64"), [np.full(50, at % 7) for at in range(60)])
    assert expected(single, None).score == pytest.approx(100)
    assert expected(single, "bloom").score == pytest.approx(0)
    many = Layout("many", parse_type("int64"), [np.arange(at, 60_000, 60) for at in range(60)])
    assert expected(many, "value_set").score == pytest.approx(0)
    assert (expected(many, "bloom").score or 0) > 80


def test_without_counts_there_are_limits_and_no_invention() -> None:
    """Where nobody counted different values, an index over overlapping blocks has wide limits and no score."""
    shuffled = np.random.default_rng(1).permutation(20_000)
    useless = Layout("useless", parse_type("int64"), np.array_split(shuffled, 50))
    found = expected(useless, "bloom", counted=False)
    assert found.score is None
    assert found.min_score < 50 < found.max_score
    assert "distinct values is not known" in found.reason
    true = expected(useless, "bloom").score
    assert true is not None
    assert found.min_score <= true <= found.max_score
    perfect = Layout("perfect", parse_type("int64"), np.array_split(np.arange(20_000), 50))
    assert expected(perfect, None, counted=False).score == pytest.approx(100, abs=0.2)


@pytest.mark.parametrize("kind", ["ngram", "affix"])
def test_what_manifests_do_not_say_is_said_to_be_unknown(kind: str) -> None:
    """Pieces of text are in no manifest: no score, and a reason."""
    layout = next(each for each in layouts.family(1) if each.dtype.is_text)
    found = expected(layout, kind)
    assert (found.score, found.min_score, found.max_score) == (None, 0, 100)
    assert "manifests do not have" in found.reason


def test_bounds_again_as_an_index_add_nothing() -> None:
    """A minmax index over a column whose manifests have bounds is worth 0; where they lack them it is not known."""
    layout = next(iter(layouts.family(1)))
    assert expected(layout, "minmax").score == 0
    value_distribution = value_distribution_of(
        "block", nothing_known(5), layout.dtype, np.full(5, 10.0), np.full(5, 10.0), 50.0
    )
    unknown = kinds()["minmax"].expected(value_distribution.profile, {})
    assert effectiveness(value_distribution.profile, value_distribution.cover, unknown).score is None
    assert effectiveness(value_distribution.profile, value_distribution.cover).skip_present == 0


def test_entries_without_values_hold_nothing() -> None:
    """All-null blocks are skipped by any look-up, and blocks without bounds by none."""
    dtype = parse_type("int64")
    some = ColumnStats(min=to_bound(dtype, 1), max=to_bound(dtype, 10), null_count=0)
    entries = [(10, some), (10, ColumnStats(null_count=10)), (10, ColumnStats(null_count=0))]
    value_distribution = value_distribution_of(
        "block", zones_of(dtype, entries), dtype, np.array([10.0, 0.0, 10.0]), np.array([5.0, 0.0, 5.0]), 8.0
    )
    assert value_distribution.cover.present.tolist() == [1.0, 0.0, 1.0]
    assert value_distribution.cover.holds[1] == 0


@pytest.mark.slow
def test_expected_sizes_are_those_of_real_parts() -> None:
    """What an index is expected to take is what it takes."""
    for layout in list(layouts.family(3, blocks=(60,), rows=(2000,)))[::6]:
        for kind, given in (("bloom", {"false_positives": 0.01, "above_bytes": 0}), ("keys", {}), ("value_set", {})):
            profile = layouts.value_distribution(layout).profile
            size = kinds()[kind].expected(profile, kinds()[kind].options(layout.dtype, given)).size_bytes
            real = LayoutLookUps(layout, kind, given).size_bytes
            assert size == pytest.approx(real, rel=0.02, abs=900), (layout.name, kind)


def test_a_kind_that_works_for_few_values_only_is_not_scored_where_nobody_counted() -> None:
    """The most values that there can be are too many for a value set; that says nothing of how many there are."""
    layout = Layout("few", parse_type("int64"), [np.repeat([1, 500, 999], 200)] * 40)
    value_distribution = layouts.value_distribution(layout, counted=False)
    kind = kinds()["value_set"]
    options = kind.options(layout.dtype, {"values": 10})
    expectations = [
        kind.expected(each, options) for each in (value_distribution.profile, value_distribution.profile.fewest)
    ]
    found = effectiveness(value_distribution.profile, value_distribution.cover, *expectations)
    assert found.score is None
    assert found.skip_absent is None
    assert found.min_score == pytest.approx(0, abs=1)
    assert found.max_score == pytest.approx(100, abs=5)
