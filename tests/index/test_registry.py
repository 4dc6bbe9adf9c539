"""Kinds come from entry points of other packages, and nobody asks which kind an index is."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.index import kind_named, kinds
from lamella.snapshot.index.registry import BUILTIN

ROOT = Path(__file__).resolve().parents[2]
CODE_ROOTS = ("snapshot", "service", "client")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path for imports, whose distributions are seen; the kinds are looked up anew before and after."""
    monkeypatch.syspath_prepend(str(tmp_path))
    kinds.cache_clear()
    yield tmp_path
    kinds.cache_clear()


def install(folder: Path, module: str, name: str) -> None:
    """Put a distribution there that brings one kind: value sets under another name."""
    source = (
        "from lamella.snapshot.index.value_set import ValueSetKind\n\n\n"
        f"class Kind(ValueSetKind):\n    name = {name!r}\n\n\nKIND = Kind()\n"
    )
    (folder / f"{module}.py").write_text(source, encoding="utf-8")
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[lamella.index_kinds]\n{name} = {module}:KIND\n", encoding="utf-8")


def test_a_kind_of_another_package_is_there(packages: Path) -> None:
    """An entry point of the group gives a kind, which is found by its name beside ours."""
    install(packages, "colour_index", "colours")
    assert set(kinds()) == {*(kind.name for kind in BUILTIN), "colours"}
    assert kind_named("colours").name == "colours"


def test_two_kinds_of_one_name_are_refused(packages: Path) -> None:
    """Nobody can tell which of them a part is of."""
    install(packages, "colour_index", "colours")
    install(packages, "color_index", "colours")
    with pytest.raises(InvalidRequest, match="two index kinds have the name 'colours'"):
        kinds()


def test_our_names_cannot_be_taken(packages: Path) -> None:
    """A package that brings a kind by one of our names is refused as well."""
    install(packages, "other_bloom", "bloom")
    with pytest.raises(InvalidRequest, match="two index kinds have the name 'bloom'"):
        kinds()


def test_a_service_does_not_start_beside_a_kind_that_cannot_be_loaded(packages: Path) -> None:
    """It would fail at every prune; the error names the entry point."""
    install(packages, "broken_index", "colours")
    (packages / "broken_index.py").write_text("import nothing_of_that_name\n", encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"'colours' \(broken_index:KIND\) cannot be loaded"):
        create_app(Settings(warehouse=str(packages / "warehouse")))
    (packages / "broken_index.py").write_text("OTHER = 1\n", encoding="utf-8")
    sys.modules.pop("broken_index", None)
    with pytest.raises(InvalidRequest, match="cannot be loaded"):
        kinds()


def test_a_kind_that_is_not_there_is_refused_by_name() -> None:
    """The answer says which kinds there are."""
    with pytest.raises(InvalidRequest, match=r"no index kind 'bloon'; there are affix, bloom, keys"):
        kind_named("bloon")


def asking(source: str) -> list[int]:
    """The lines in which something is compared with the name of a kind, or that import a kind's own module."""
    names = {kind.name for kind in BUILTIN}
    modules = {type(kind).__module__ for kind in BUILTIN}
    found: list[int] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare | ast.MatchValue | ast.Subscript):
            constants = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
            texts = {part for part in constants if isinstance(part, str)}
            of_kind = any(
                isinstance(part, ast.Attribute | ast.Name) and "kind" in ast.unparse(part).lower()
                for part in ast.walk(node)
            )
            if texts & names and of_kind:
                found.append(node.lineno)
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            found.append(node.lineno)
    return sorted(set(found))


@pytest.mark.slow
def test_nobody_else_asks_which_kind_it_is() -> None:
    """Outside the folder of the kinds, nothing is compared with a kind's name, and no kind's module is imported."""
    inside = ROOT / "snapshot" / "lamella" / "snapshot" / "index"
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for root in CODE_ROOTS
        for path in sorted((ROOT / root).rglob("*.py"))
        if inside not in path.parents
        for line in asking(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("if index.kind == 'bloom':\n    pass", 1),
        ("if kind in ('keys', 'ngram'):\n    pass", 1),
        ("x = by_kind['value_set']", 1),
        ("from lamella.snapshot.index.bloom import BloomKind", 1),
        ("if side == 'keys':\n    pass", 0),
        ("from lamella.snapshot.index.registry import kinds", 0),
        ("kind_named('bloom')", 0),
    ],
)
def test_asking_for_a_kind_is_noticed(source: str, count: int) -> None:
    """The check above can fail."""
    assert len(asking(source)) == count
