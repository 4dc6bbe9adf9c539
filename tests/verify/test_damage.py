"""Each check finds the damage that it is for, and no other check takes it for something else."""

from __future__ import annotations

import pytest

from lamella.snapshot.verify import CHECKS, Deep, Options
from support.lying_writer import LyingWriter
from verify.damage import ALL, Damage, without_sums


@pytest.mark.parametrize("damage", ALL, ids=lambda damage: damage.code)
@pytest.mark.few(1)
def test_damage_is_found_as_what_it_is(damage: Damage) -> None:
    """A table that is clean has exactly the finding of the one thing that is then damaged."""
    table = LyingWriter(scanned=damage.scanned, grouped=damage.grouped, pages=damage.pages)
    damage.do(table)
    answer = table.verify(damage.options)
    codes = set(answer.counts)
    assert damage.code in codes, answer.findings
    assert codes <= {damage.code} | damage.besides, answer.findings
    for finding in answer.findings:
        assert finding.severity == CHECKS[finding.code].severity
        assert finding.object.startswith("memory://")
        assert finding.message
        assert finding.advice


def test_a_sidecar_from_before_there_were_sums_contradicts_nothing() -> None:
    """It asserts none, where this release has those of the manifest, or of a default."""
    table = LyingWriter(scanned=True)
    table.lie(sidecar=without_sums)
    assert set(table.verify(Options()).counts) == {"sidecar_older"}


def test_every_check_has_its_damage() -> None:
    """No check is without a test."""
    assert sorted(damage.code for damage in ALL) == sorted(CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("pages", [False, True])
def test_the_undamaged_table_is_clean(scanned: bool, grouped: bool, pages: bool) -> None:
    """Before it is damaged nothing is found, down to the values."""
    table = LyingWriter(scanned=scanned, grouped=grouped, pages=pages)
    answer = table.verify(Options(pages=pages, deep=Deep(sample=1.0, filters=10)))
    assert answer.findings == ()
    assert answer.checked.blocks == answer.checked.files == answer.checked.blocks_read == 6
    assert answer.checked.page_sidecars == (3 if pages else 0)
    assert (answer.checked.groups > 0) == grouped
    assert answer.checked.snapshots == 4
