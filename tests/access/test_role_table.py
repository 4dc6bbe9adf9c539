"""docs/access.md says what each role is enough for, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from access.role_table import DECIDED, KNOWN, MORE, table_text
from lamella.service import app
from lamella.service.config.settings import Settings
from lamella.service.http.routing import ServedOperation
from lamella.service.services import Services
from lamella.snapshot.wire import ROLES
from lamella.snapshot.wire.operation import Operation

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "access.md"
BEGIN, END = "<!-- made by tests/access/test_role_table.py -->\n\n", "\n<!-- end -->"


@pytest.fixture
def operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Operation[Any], ...]]:
    """Those that an app is made of."""
    found: list[Operation[Any]] = []
    used: list[Services] = []
    described = app.operations

    def noted(services: Services) -> tuple[ServedOperation, ...]:
        served = described(services)
        found.extend(each.operation for each in served)
        used.append(services)
        return served

    monkeypatch.setattr(app, "operations", noted)
    app.create_app(Settings(warehouse=str(tmp_path / "warehouse")))
    yield tuple(found)
    used[0].close()


def test_the_table_in_the_docs_is_what_operations_need(operations: tuple[Operation[Any], ...]) -> None:
    """Each of them has its line; LAMELLA_WRITE_DOCS=1 writes the table anew."""
    text = DOCUMENT.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    wanted = head + BEGIN + table_text(operations) + END + tail
    if os.environ.get("LAMELLA_WRITE_DOCS") == "1":
        DOCUMENT.write_text(wanted, encoding="utf-8")
        text = wanted
    assert text == wanted, "run this test with LAMELLA_WRITE_DOCS=1"


def test_what_is_said_by_hand_is_of_operations_that_decide_by_themselves(
    operations: tuple[Operation[Any], ...],
) -> None:
    """Of all of them, and of no other."""
    decided = {each.name for each in operations if each.permission.scope == "request"}
    known = {each.name for each in operations if each.permission.scope == "authenticated"}
    assert decided == set(DECIDED)
    assert set(KNOWN) <= known
    assert set(MORE) <= {each.name for each in operations if each.permission.role is not None}


def test_the_page_names_every_role() -> None:
    """In the order in which each includes the one before."""
    text = DOCUMENT.read_text(encoding="utf-8")
    places = [text.index(f"| `{role}` |") for role in ROLES]
    assert places == sorted(places)
