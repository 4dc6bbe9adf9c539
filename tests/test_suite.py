"""What tests/conftest.py and its plugins do to all tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import areas
import conftest


@pytest.mark.parametrize(
    ("wanted", "is_dear", "count"), [(200, False, 33), (30, False, 12), (30, True, 5), (5, False, 5)]
)
def test_property_tests_try_a_share_of_their_examples(wanted: int, is_dear: bool, count: int) -> None:
    """But no less than some, and never more than they ask for."""
    tried = []

    @settings(max_examples=wanted, database=None)
    @given(st.integers())
    def prop(number: int) -> None:
        tried.append(number)

    conftest._try_fewer(prop, conftest.SHARES["lamella"], is_dear=is_dear)
    prop()
    assert len(tried) == count


@settings(max_examples=200, database=None)
@given(st.integers())
def test_a_property_of_integers(number: int) -> None:
    """The test below looks at how many examples it has."""
    assert number == int(str(number))


def test_property_tests_that_are_collected_are_bounded() -> None:
    """The profiles of `make test` and `make check` reach them, and that of `make soak` leaves them alone."""
    share = conftest.SHARES.get(conftest.PROFILE)
    wanted = 200 // share.one_in if share else 200
    assert getattr(test_a_property_of_integers, conftest._SETTINGS).max_examples == wanted


class Case:
    """As much of a collected test as the rule about cases looks at."""

    def __init__(self, name: str, *marks: pytest.Mark) -> None:
        self.nodeid = f"tests/test_a.py::test_it[{name}]"
        self.name = name
        self.marks = {mark.name: mark for mark in marks}

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.marks[marker.name] = marker.mark


@pytest.mark.parametrize(("count", "stay"), [(1, "a"), (2, "ad"), (3, "ace"), (9, "abcdef")])
def test_few_cases_stay_and_the_others_go_to_soak(count: int, stay: str) -> None:
    """Spread evenly over those that are not in soak by themselves."""
    few, soak = pytest.mark.few(count).mark, pytest.mark.soak.mark
    cases = [Case("0", few, soak), *(Case(name, few) for name in "abcdef"), Case("1", few, soak)]
    conftest._leave_cases_to_soak([*cases, other := Case("other")])  # type: ignore[list-item]
    assert "".join(case.name for case in cases if not case.get_closest_marker("soak")) == stay
    assert other.marks == {}


@pytest.mark.parametrize(
    ("nodeid", "area"),
    [("tests/prune/test_join.py::test_a[1/2]", "prune"), ("tests/test_arrows.py::test_b", "test_arrows")],
)
def test_a_test_is_of_the_area_that_its_folder_names(nodeid: str, area: str) -> None:
    """Or of its module, at the top."""
    assert areas.area_of(nodeid) == area


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_progress_is_reported_area_by_area(tmp_path: Path, workers: tuple[str, ...]) -> None:
    """When the last test of an area has run, however many processes run them."""
    for area, body in (("good", "pass"), ("bad", "assert False")):
        folder = tmp_path / "tests" / area
        folder.mkdir(parents=True)
        (folder / f"test_{area}.py").write_text(f"def test_one():\n    {body}\n\n\ndef test_two():\n    pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "areas", "-p", "no:cacheprovider", *workers, "tests"]
    environment = {"PATH": "", "PYTHONPATH": str(Path(areas.__file__).parent)}
    done = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if " areas, " in line]
    assert sorted(line.partition(" in ")[0] for line in lines) == ["bad: 2 tests", "good: 2 tests"]
    assert sum("1 FAILED" in line for line in lines) == 1
    assert lines[-1].endswith("(2 of 2 areas, 4 of 4 tests)")
