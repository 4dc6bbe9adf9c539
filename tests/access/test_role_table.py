"""docs/access.md says what each role is enough for, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from access.role_table import DECIDED, KNOWN, MORE, table_text
from lamella.service import composition
from lamella.service.catalog import open_catalog
from lamella.service.composition import Core
from lamella.service.config.settings import Settings
from lamella.service.extensions import register_all
from lamella.snapshot.ids import Ids, unix_ms
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import ROLES
from lamella.snapshot.wire.operation import Operation

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "access.md"
BEGIN, END = "<!-- made by tests/access/test_role_table.py -->\n\n", "\n<!-- end -->"


@pytest.fixture
def operations(tmp_path: Path) -> Iterator[tuple[Operation[Any], ...]]:
    """Those that an app is made of."""
    settings = Settings(warehouse=str(tmp_path / "warehouse"))
    core = Core(settings, store=FsspecStore(), catalog=open_catalog(settings.catalog_url), ids=Ids(), clock=unix_ms)
    register_all(core)
    yield tuple(each.operation for each in composition.operations(core))
    core.close()


def test_the_table_in_the_docs_is_what_operations_need(operations: tuple[Operation[Any], ...]) -> None:
    """Each of them is in it; LAMELLA_WRITE_DOCS=1 writes the table anew."""
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
    positions = [text.index(f"| `{role}` |") for role in ROLES]
    assert positions == sorted(positions)
