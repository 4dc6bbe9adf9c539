"""docs/architecture.md describes the folders that there are. Other tests look for what it names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from docs.fenced import ROOT

PAGE = "docs/architecture.md"
ROOTS = ("snapshot", "service", "client")


def names_of(file: Path) -> set[str]:
    """Return the names of the functions, classes and constants that a module defines."""
    nodes = list(ast.walk(ast.parse(file.read_text("utf-8"))))
    named = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    return named | {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def test_every_folder_is_described_once() -> None:
    """In the table of its root, so that a newcomer finds it."""
    text = (ROOT / PAGE).read_text("utf-8")
    listed = re.findall(rf"^\| `((?:{'|'.join(ROOTS)})/[\w/]+)` \|", text, flags=re.MULTILINE)
    there = {
        f"{root}/{path.parent.relative_to(ROOT / root / 'lamella' / root).as_posix()}"
        for root in ROOTS
        for path in (ROOT / root / "lamella" / root).glob("*/**/*.py")
    }
    assert len(listed) == len(set(listed))
    assert {each for each in there if not each.endswith("/versions")} == set(listed)


def test_what_the_page_says_where_it_is_is_there() -> None:
    """Each name in the last table is defined in a file of its row, and each of these files defines or uses one."""
    rows = (ROOT / PAGE).read_text("utf-8").split("## Where is ...?")[1].splitlines()[4:]
    assert len(rows) >= 11
    for row in rows:
        _, _, files, names, _ = row.split("|")
        paths = [ROOT / each.partition("/")[0] / "lamella" / each for each in re.findall(r"`([\w/.]+)`", files)]
        wanted = re.findall(r"`(\w+)`", names)
        assert paths
        assert wanted
        assert set(wanted) <= set().union(*map(names_of, paths)), row
        for path in paths:
            assert any(re.search(rf"\b{name}\b", path.read_text("utf-8")) for name in wanted), f"{path}: {row}"
