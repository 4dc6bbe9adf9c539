"""What tests/conftest.py does to all tests."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import conftest


@pytest.mark.parametrize(("wanted", "most"), [(200, 200 // conftest.SHARE), (30, conftest.FEWEST), (5, 5)])
def test_property_tests_try_a_share_of_their_examples(wanted: int, most: int) -> None:
    """But no less than some, and never more than they ask for."""
    tried = []

    @settings(max_examples=wanted, database=None)
    @given(st.integers())
    def prop(number: int) -> None:
        tried.append(number)

    conftest._try_fewer(prop)
    prop()
    assert len(tried) == most
