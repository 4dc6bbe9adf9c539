"""Every function that the parser knows, with too few and too many arguments."""

from __future__ import annotations

import pytest
from sqlglot.dialects.spark import Spark

from lamella.snapshot.errors import FilterTypeMismatch, InvalidFilter
from lamella.snapshot.expression.filters import read_filter

ARGUMENTS = ("", "a", "a, b", "a, b, c", "a, 1", "'x', a", "a, 'x'", "1", "'x', 'y'", "*")
FORMS = ("{} = 1", "{}", "a IN ({}, 1)")


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_any_call_is_read_or_refused(arguments: str) -> None:
    """The parser accepts calls that Spark does not; none of them is a failure of the service."""
    refused = 0
    for name in sorted(Spark.Parser.FUNCTIONS):
        for form in FORMS:
            try:
                read_filter(form.format(f"{name}({arguments})"))
            except (InvalidFilter, FilterTypeMismatch):
                refused += 1
    assert 0 < refused < len(FORMS) * len(Spark.Parser.FUNCTIONS)


def test_a_call_without_an_argument_that_it_needs_keeps_all_blocks() -> None:
    """Spark refuses nvl2 with two arguments; here it is not used."""
    for text in ("nvl2(a, b) = 1", "ts_or_ds_to_date_str() = 1"):
        assert type(read_filter(text)).__name__ == "Unknown"
