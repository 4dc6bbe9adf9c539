"""The reason why a misspelt function is not used names the nearest that is."""

from __future__ import annotations

from typing import Any

import pytest

from lamella.snapshot.expression.filters import read_filter
from lamella.snapshot.expression.nodes import Predicate, Unknown


def reasons(found: Predicate) -> list[str]:
    """The reasons of all predicates that are not used."""
    if isinstance(found, Unknown):
        return [found.reason]
    return [reason for child in getattr(found, "children", ()) for reason in reasons(child)]


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("uppr(a) = 'X'", "upper"),
        ("yeer(a) = 2020 AND b = 1", "year"),
        ("length(subtring(a, 1, 2)) = 2", "substring"),
        ("isnul(a)", "isnull"),
        ("a IN (coalsce(b, 1), 2)", "coalesce"),
    ],
)
def test_a_misspelt_function_in_sql_has_a_hint(text: str, near: str) -> None:
    """Wherever it is in the predicate."""
    (reason,) = reasons(read_filter(text))
    assert reason.endswith(f"; did you mean {near}?")


@pytest.mark.parametrize("text", ["my_function(a) = 1", "pmod(a) = 1", "map_concat(a, b) = 1", "add_intervall(a) = 1"])
def test_a_function_that_is_not_misspelt_has_no_hint(text: str) -> None:
    """Functions of the user, of Spark and with a wrong number of arguments; names that SQL does not have."""
    (reason,) = reasons(read_filter(text))
    assert "did you mean" not in reason


def test_a_misspelt_function_in_json_has_a_hint() -> None:
    """The same names."""
    term: Any = {"type": "apply", "function": "uppr", "arguments": ["a"]}
    (reason,) = reasons(read_filter({"type": "eq", "term": term, "value": "X"}))
    assert reason == "this function is not used for pruning; did you mean upper?"


def test_a_filter_has_few_hints() -> None:
    """Thousands of predicates do not cost a comparison with all names each."""
    found = reasons(read_filter(" OR ".join(f"uppr(a) = 'X{number}'" for number in range(100))))
    hints = [reason for reason in found if "did you mean upper?" in reason]
    assert len(found) == 100
    assert len(hints) == 16
