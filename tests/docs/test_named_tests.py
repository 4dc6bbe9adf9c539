"""What pages call a proof is there: tests, files and commands that they name."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from docs.fenced import ROOT, pages

_NAMED = re.compile(r"`((?:tests|scripts|bench|snapshot|service|client)/[\w./-]+)(?:::(\w+))?`")


@cache
def functions(path: str) -> frozenset[str]:
    """The names of a module's functions."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def is_there(path: str) -> bool:
    """Whether a path is in the repository; ``snapshot/prune`` is short for ``snapshot/lamella/snapshot/prune``."""
    return (ROOT / path).exists() or (ROOT / path.partition("/")[0] / "lamella" / path).exists()


@pytest.mark.parametrize("page", pages())
def test_files_and_tests_that_a_page_names_are_there(page: str) -> None:
    """A path in code marks is in the repository, and a test behind `::` is a function of that file."""
    found = _NAMED.findall((ROOT / page).read_text("utf-8"))
    assert [path for path, _ in found if not is_there(path)] == []
    assert [f"{path}::{name}" for path, name in found if name and name not in functions(path)] == []


def test_the_threat_model_names_a_proof_for_each_attack() -> None:
    """Each row of its tables of attacks ends with a test, or with the page that says how it is switched off."""
    text = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
    attacks = text.split("## Attacks")[1].split("## What is not defended")[0]
    rows = [line for line in attacks.splitlines() if line.startswith("| ") and "shown by" not in line]
    assert len(rows) > 30
    assert [row for row in rows if not re.search(r"`(tests|docs)/[^`]+`(, `[^`]+`)* \|$", row)] == []
