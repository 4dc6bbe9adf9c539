"""docs/operators.md says what the evaluator does, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from expression.operator_table import FUNCTIONS, PREDICATES, TYPES, cell, table_text
from lamella.snapshot.expression.nodes import FUNCTIONS as KNOWN

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "operators.md"
BEGIN, END = "<!-- made by tests/expression/test_operator_table.py -->\n\n", "\n<!-- end -->"


@pytest.mark.slow
def test_the_table_in_the_docs_is_what_the_evaluator_does() -> None:
    """Each cell is found by asking the evaluator; LAMELLA_WRITE_DOCS=1 writes the table anew."""
    text = DOCUMENT.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    wanted = head + BEGIN + table_text() + END + tail
    if os.environ.get("LAMELLA_WRITE_DOCS") == "1":
        DOCUMENT.write_text(wanted, encoding="utf-8")
        text = wanted
    assert text == wanted, "run this test with LAMELLA_WRITE_DOCS=1"


def test_the_table_names_every_function() -> None:
    """A function that is added to the language needs its row."""
    signs = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "negative": "-c", "div": "DIV", "mod": "%"}
    signs |= {"shiftleft": "<<", "shiftright": ">>", "add_interval": "INTERVAL", "yearofweek": "YEAROFWEEK"}
    shown = " ".join(FUNCTIONS)
    assert [name for name in KNOWN if signs.get(name, f"{name}(") not in shown] == []


def test_comparisons_prune_and_prove_for_every_type() -> None:
    """Constants of the column's own type: left out where they cannot match, ALL where they must."""
    for name in TYPES.keys() - {"boolean"}:  # with two values only, some of these hold for both or for none
        for predicate in PREDICATES[:10]:
            assert cell(predicate, name) == "N A", (predicate, name)
