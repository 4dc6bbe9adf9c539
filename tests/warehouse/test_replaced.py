"""Sets of files that left a table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.errors import ManifestError
from lamella.snapshot.manifest.replaced_files import ReplacedSet, to_merge

_FILES = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from([None, "1", "2"]), max_size=8)


@given(_FILES, _FILES, _FILES)
def test_a_merged_set_finds_what_its_parts_find(
    one: dict[str, str | None], other: dict[str, str | None], files: dict[str, str | None]
) -> None:
    """An entry without a footer finds any file at its place, one with a footer the file that has it; also as bytes."""
    merged = ReplacedSet.merged([ReplacedSet.of(one), ReplacedSet.of(other)])
    expected = {
        location
        for location, footer in files.items()
        for part in (one, other)
        if location in part and (part[location] is None or part[location] == footer)
    }
    assert merged.has(files) == expected
    assert ReplacedSet.read(merged.to_bytes()).has(files) == expected
    assert len(merged) == len({*one.items(), *other.items()})


@pytest.mark.parametrize("cut", [slice(0, 15), slice(0, -1), slice(1, None)])
def test_a_damaged_set_is_an_error(cut: slice) -> None:
    """It is never taken for a smaller set."""
    with pytest.raises(ManifestError):
        ReplacedSet.read(ReplacedSet.of({"a": None, "b": "1"}).to_bytes()[cut])


def test_sets_are_few_and_each_file_is_written_few_times() -> None:
    """Over ten thousand commits of one file each, in terms of the logarithm of all."""
    counts: list[int] = []
    written = max_sets = 0
    for _ in range(10_000):
        made = 1
        while chosen := to_merge([*counts, made]):
            taken = [index for index in chosen if index < len(counts)]
            made += sum(counts[index] for index in taken)
            counts = [each for index, each in enumerate(counts) if index not in taken]
        counts.append(made)
        written += made
        max_sets = max(max_sets, len(counts))
    assert sum(counts) == 10_000
    assert max_sets <= 7 * 5
    assert written <= 6 * 10_000
