"""From a budget of bytes to options, and back; nobody types how many different values there are."""

from __future__ import annotations

from typing import Any

import pytest

from lamella.snapshot.advice.index_gain import RATE, Sizing, for_budget, for_options
from lamella.snapshot.index import kinds
from support import layouts
from support.layouts import Layout, LayoutLookUps

DATA_BYTES = 10_000_000


def layout() -> Layout:
    """60 blocks of 2,000 different numbers."""
    return next(iter(layouts.family(3, blocks=(60,), rows=(2000,))))


def sized(budget: float, kind: str = "bloom", given: dict[str, Any] | None = None, *, counted: bool = True) -> Sizing:
    """What fits into a budget."""
    of = layout()
    profile = layouts.value_distribution(of, counted=counted).profile
    options = kinds()[kind].options(of.dtype, given or {})
    return for_budget(kinds()[kind], profile, options, budget, data_bytes=DATA_BYTES, parts=1)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [120_000, 200_000, 400_000, 800_000])
def test_a_budget_is_used_and_not_exceeded(budget: float) -> None:
    """The filters that fit a budget take nearly all of it, as real ones do; a larger one makes them sharper."""
    found = sized(budget, given={"above_bytes": 0})
    assert found.fits
    assert found.size_bytes is not None
    assert budget * 0.97 < found.size_bytes <= budget
    assert LayoutLookUps(layout(), "bloom", found.options).size_bytes == pytest.approx(found.size_bytes, rel=0.02)
    assert found.options[RATE] > sized(budget * 1.5, given={"above_bytes": 0}).options[RATE]


def test_a_rate_gives_bytes() -> None:
    """The other way round: bytes of all, by block, and as a share of the data."""
    of = layout()
    kind = kinds()["bloom"]
    options = kind.options(of.dtype, {RATE: 0.001, "above_bytes": 0})
    found = for_options(kind, layouts.value_distribution(of).profile, options, data_bytes=DATA_BYTES, parts=1)
    assert found.size_bytes == pytest.approx(LayoutLookUps(of, "bloom", options).size_bytes, rel=0.02)
    assert found.size_bytes is not None
    assert found.bytes_per_block == pytest.approx(found.size_bytes / 60)
    assert found.share == pytest.approx(found.size_bytes / DATA_BYTES)
    assert found.distinct_per_block == pytest.approx(2000)


def test_what_does_not_fit_is_said() -> None:
    """Neither the coarsest filters nor an index of one size fit a budget that is too small."""
    assert sized(10_000).fits is False
    assert sized(10_000).options[RATE] == 0.5
    assert sized(10_000, "keys").fits is False
    assert sized(10_000_000, "keys").fits is True


def test_without_counts_sizes_are_upper_limits() -> None:
    """Where nobody counted, rows bound the different values, and the answer says so."""
    found = sized(200_000, counted=False)
    assert not found.is_counted
    assert found.distinct_per_block == pytest.approx(2000)
    assert found.fits


def test_unknown_sizes_stay_unknown() -> None:
    """How many pieces of text there are is in no manifest."""
    of = next(each for each in layouts.family(1) if each.dtype.is_text)
    kind = kinds()["ngram"]
    profile = layouts.value_distribution(of).profile
    found = for_budget(kind, profile, kind.options(of.dtype, {}), 1e6, data_bytes=DATA_BYTES, parts=1)
    assert (found.size_bytes, found.fits) == (None, None)
    assert found.reason


def test_an_upper_limit_that_does_not_fit_is_not_an_index_that_does_not_fit() -> None:
    """Where nobody counted, the size may be far less: whether it fits is not known, unless even the least does not."""
    assert sized(400_000, "keys", counted=False).fits is None
    assert sized(10_000_000, "keys", counted=False).fits is True
    assert sized(100, "keys", counted=False).fits is False
