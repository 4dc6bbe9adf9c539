"""Where each test of another release stands now, and how many examples the property tests of each generate.

    python scripts/test_map.py OTHER_CHECKOUT [--write | --check]

A test is the same when its file and name are. One that moved is found by its name, by its docstring, or by a body that
differs in words only; when none of them tells, the place that docs/decisions/test-map.json names counts, as long as a
test is there. ``--write`` writes the ones that moved or went to that file; the reason why a test went stands there by
hand and is kept. ``--check`` fails when a test of the other release has neither a place nor a reason.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MAP = ROOT / "docs" / "decisions" / "test-map.json"
#: Settings of a property test that say how many examples it generates.
_EXAMPLES = re.compile(r"max_examples=([\d_]+)")


def tests_of(checkout: Path) -> dict[str, ast.FunctionDef]:
    """The test functions by file and name."""
    found: dict[str, ast.FunctionDef] = {}

    def walk(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[prefix + node.name] = node
            elif isinstance(node, ast.ClassDef):
                walk(node.body, f"{prefix}{node.name}::")

    for path in sorted((checkout / "tests").rglob("test_*.py")):
        walk(ast.parse(path.read_text()).body, f"{path.relative_to(checkout).as_posix()}::")
    return found


def shape(node: ast.AST) -> str:
    """A test without its words: names and texts are left out, the structure and numbers stay."""
    return "".join(_shape(node))


def _shape(node: ast.AST) -> Iterator[str]:
    for child in ast.walk(node):
        yield type(child).__name__
        if isinstance(child, ast.Constant) and not isinstance(child.value, str | bytes):
            yield repr(child.value)


def moved(before: dict[str, ast.FunctionDef], now: dict[str, ast.FunctionDef]) -> dict[str, str | None]:
    """The tests that do not stand where they stood, with their place of now; None: there is none."""
    keys: dict[str, dict[Any, list[str]]] = {
        "name": defaultdict(list),
        "doc": defaultdict(list),
        "shape": defaultdict(list),
    }
    for test, node in now.items():
        if test not in before:
            keys["name"][node.name].append(test)
            keys["doc"][ast.get_docstring(node)].append(test)
            keys["shape"][shape(node)].append(test)
    found: dict[str, str | None] = {}
    for test, node in before.items():
        if test in now:
            continue
        candidates = (
            keys["name"].get(node.name),
            keys["doc"].get(ast.get_docstring(node)),
            keys["shape"].get(shape(node)),
        )
        found[test] = next((each[0] for each in candidates if each is not None and len(each) == 1), None)
    return found


def examples(checkout: Path) -> int:
    """How many examples the settings of property tests ask for together."""
    texts = (path.read_text() for path in (checkout / "tests").rglob("*.py"))
    return sum(int(number.replace("_", "")) for text in texts for number in _EXAMPLES.findall(text))


def main() -> int:
    """Compare, and write or check the map."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="a checkout of the release to compare with")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    before, now = tests_of(options.other), tests_of(ROOT)
    moves = moved(before, now)
    written = json.loads(MAP.read_text()) if MAP.exists() else {"moved": {}, "gone": {}}
    moves |= {test: to for test, to in written["moved"].items() if moves.get(test, to) is None and to in now}
    gone = {test: written["gone"].get(test, "") for test, to in moves.items() if to is None}
    print(f"{len(before):,} tests before, {len(now):,} now; {sum(to is not None for to in moves.values())} moved")
    print(f"{examples(options.other):,} examples in settings before, {examples(ROOT):,} now")
    for test, reason in gone.items():
        print(f"gone: {test}: {reason or 'no reason is written'}")
    if options.write:
        entry = {"moved": {test: to for test, to in moves.items() if to is not None}, "gone": gone}
        MAP.write_text(json.dumps(entry, indent=1) + "\n")
    return int(options.check and not all(gone.values()))


if __name__ == "__main__":
    sys.exit(main())
