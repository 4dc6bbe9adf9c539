"""The published vectors: Lamella gives the expected verdicts, each of them sound, and every bug class has a vector."""

from __future__ import annotations

import pytest

from vectors.vector import Family, Vector, check, classes, copy_of, families

FAMILIES = families()
ALL = [vector for family in FAMILIES for vector in family.vectors]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=[family.family for family in FAMILIES])
def test_lamella_gives_the_expected_verdicts(family: Family) -> None:
    """Every block of every vector, in one segment, and with a segment for each block."""
    assert family.format == 1
    problems = [
        problem for vector in family.vectors for size in (1000, 1) for problem in check(vector, segment_blocks=size)
    ]
    assert problems == []


def test_ids_are_unique_and_belong_to_their_file() -> None:
    """An id names one vector for good."""
    assert len({vector.id for vector in ALL}) == len(ALL) >= 150
    for family in FAMILIES:
        assert all(vector.id.startswith(f"{family.family}-") for vector in family.vectors)


def test_every_bug_class_has_a_vector_or_a_test_elsewhere() -> None:
    """No class of published wrong results is forgotten, and no vector names a class that is not listed."""
    listed = {each.id: each for each in classes()}
    used = {name for vector in ALL for name in vector.classes}
    assert used <= set(listed)
    assert {name for name, each in listed.items() if each.elsewhere is None} <= used


def _vector(name: str) -> Vector:
    return next(vector for vector in ALL if vector.id == name)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"expected": ["NONE"], "sound": [["NONE", "SOME", "UNKNOWN"]]}, "a row matches"),
        ({"expected": ["ALL"], "sound": [["ALL", "SOME", "UNKNOWN"]]}, "a row does not match"),
        ({"expected": ["UNKNOWN"]}, "gives ['SOME'], expected ['UNKNOWN']"),
        ({"expected": ["NONE"]}, "block 0: NONE expected"),
        ({"expected": []}, "not one verdict for each block"),
        ({"sound": [["SOME", "UNKNOWN", "PERHAPS"]]}, "sound"),
        ({"filter": {}}, "no filter"),
    ],
)
def test_the_runner_finds_a_wrong_vector(changes: dict[str, object], problem: str) -> None:
    """A verdict that its rows disprove, one that Lamella does not give, and a form that is broken are all reported."""
    found = check(copy_of(_vector("nan-001"), **changes))
    assert len(found) >= 1
    assert problem in found[0]


@pytest.mark.parametrize(
    ("stats", "problem"),
    [
        ({"min": {"Float64": 2.0}, "null_count": 0, "nan": "maybe"}, "below the minimum"),
        ({"max": {"Float64": 0.5}, "null_count": 0, "nan": "maybe"}, "above the maximum"),
        ({"null_count": 1, "nan": "maybe"}, "the null count"),
        ({"null_count": 0}, "nan is not none"),
    ],
)
def test_the_runner_finds_statistics_that_their_rows_disprove(stats: dict[str, object], problem: str) -> None:
    """A vector whose rows are not what its statistics say would prove nothing."""
    blocks = [{"row_count": 2, "col_stats": {"1": stats}, "rows": {"x": [{"Float64": 1.0}, {"Float64": "NaN"}]}}]
    found = check(copy_of(_vector("nan-001"), blocks=blocks))
    assert len(found) == 1
    assert problem in found[0]
