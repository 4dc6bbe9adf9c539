"""Break the rules that decide what is skipped, one place at a time, and see whether a test notices.

    python scripts/mutants.py [--count 60] [--skip 0] [--seed 1] [--before CHECKOUT] [--list]

A mutant is one operator, constant or condition of a function in :data:`RULES` that is changed. The seed chooses them:
each run has the same list, and ``--skip`` goes on where an earlier run ended. For each the tests of its area run
without those that start processes, the fast ones first; the mutant is killed when one fails. With ``--before`` the
same change is made in another release, in the function of the same shape (names do not count), and its own tests run.
The exit status is 1 when a mutant survives here that was killed there.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "snapshot/lamella/snapshot"
#: Modules whose functions are changed, and the tests that hold them.
RULES = {
    "prune/evaluate.py": ("prune",),
    "prune/outcome.py": ("prune",),
    "prune/block_layer.py": ("prune",),
    "prune/indexes.py": ("prune", "index"),
    "prune/join.py": ("prune",),
    "prune/residual.py": ("prune",),
    "prune/search.py": ("prune",),
    "prune/top_k.py": ("prune",),
    "stats/bound.py": ("stats", "prune"),
    "stats/column.py": ("stats", "prune"),
    "stats/ranges.py": ("stats", "prune"),
    "columnar/zones.py": ("prune", "stats"),
    "columnar/points.py": ("cluster", "prune"),
    "expression/bind.py": ("expression", "prune"),
    "expression/coerce.py": ("expression", "prune"),
    "expression/filters.py": ("expression", "prune"),
    "function/calendar.py": ("expression", "prune"),
    "function/numeric.py": ("expression", "prune"),
    "function/text.py": ("expression", "prune"),
    "index/bloom.py": ("index",),
    "index/ngram.py": ("index",),
    "index/value_set.py": ("index",),
    "index/zone_map.py": ("index",),
    "row_filter.py": ("rows", "prune"),
}
#: Seconds that the tests of one mutant may take; one that loops is killed, too.
LIMIT_S = 900

_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_JOINED: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.LShift: ">>",
    ast.RShift: "<<",
}


class Change(NamedTuple):
    """A text to put in the place of another, by byte offsets in a file."""

    start: int
    stop: int
    text: str


class Mutant(NamedTuple):
    """A change of a function: its module and name, the shape of the function, and which of its changes it is."""

    module: str
    function: str
    shape: str
    number: int


class Source:
    """The text of a module, and its functions."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self.functions = dict(self._functions(ast.parse(self.data).body, ""))

    def _functions(self, body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                yield prefix + node.name, node
            elif isinstance(node, ast.ClassDef):
                yield from self._functions(node.body, f"{prefix}{node.name}.")

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _span(self, node: Any) -> tuple[int, int]:
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def changes(self, function: ast.FunctionDef) -> list[Change]:
        """All changes of a function, in the order of its syntax tree."""
        found = []
        for node in (inner for statement in function.body for inner in ast.walk(statement)):
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                between = self._span(node.left)[1], self._span(node.comparators[0])[0]
                found.append(self._swapped(between, _COMPARED[type(node.ops[0])]))
            elif isinstance(node, ast.BoolOp):
                between = self._span(node.values[0])[1], self._span(node.values[1])[0]
                found.append(self._swapped(between, "or" if isinstance(node.op, ast.And) else "and"))
            elif isinstance(node, ast.BinOp) and type(node.op) in _JOINED:
                between = self._span(node.left)[1], self._span(node.right)[0]
                found.append(self._swapped(between, _JOINED[type(node.op)]))
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
                start, stop = self._span(node)
                found.append(Change(start, stop, f"({self._text(*self._span(node.operand))})"))
            elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
                found.append(Change(*self._span(node), str(not node.value)))
        return found

    def _text(self, start: int, stop: int) -> str:
        return self.data[start:stop].decode()

    def _swapped(self, between: tuple[int, int], operator: str) -> Change:
        # Brackets between two operands stay where they are; the operator is the text that is left.
        text = self._text(*between)
        first, last = len(text) - len(text.lstrip(" )\n\t")), len(text.rstrip(" (\n\t"))
        return Change(between[0] + first, between[0] + last, operator)


def shape_of(node: ast.AST) -> str:
    """A function without its names and texts: the types of its nodes and its numbers."""
    parts = []
    for child in ast.walk(node):
        parts.append(type(child).__name__)
        if isinstance(child, ast.Constant) and not isinstance(child.value, str | bytes):
            parts.append(repr(child.value))
    return " ".join(parts)


def all_mutants(checkout: Path) -> list[Mutant]:
    """The changes of all rules."""
    found = []
    for module in RULES:
        path = checkout / PACKAGE / module
        source = Source(path)
        for name, function in source.functions.items():
            shape = shape_of(_bare(function))
            found += [Mutant(module, name, shape, number) for number in range(len(source.changes(function)))]
    return found


def chosen(mutants: list[Mutant], seed: int) -> list[Mutant]:
    """The mutants in the order of a hash, so that a change of one rule leaves the others where they are."""

    def order(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{seed} {mutant.module} {mutant.function} {mutant.number}".encode()).digest()

    return sorted(mutants, key=order)


def _bare(function: ast.FunctionDef) -> ast.Module:
    """The statements of a function without its docstring."""
    body = function.body
    is_text = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    return ast.Module(body=body[1:] if is_text else body, type_ignores=[])


def by_shape(checkout: Path) -> dict[str, list[tuple[Path, str]]]:
    """The functions of a release, by their shape."""
    found: dict[str, list[tuple[Path, str]]] = defaultdict(list)
    for path in sorted((checkout / PACKAGE).rglob("*.py")):
        for name, function in Source(path).functions.items():
            found[shape_of(_bare(function))].append((path.relative_to(checkout), name))
    return found


class Release:
    """A checkout whose snapshot package is copied, so that it can be changed."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self._checkout = checkout
        self._folder = folder
        self._passing: set[str] = set()
        shutil.copytree(checkout / "snapshot", folder / "snapshot", ignore=shutil.ignore_patterns("__pycache__"))

    def is_killed(self, path: Path, function: str, number: int, areas: Sequence[str]) -> bool:
        """Whether a test fails once that change is made."""
        source = Source(self._checkout / path)
        start, stop, text = source.changes(source.functions[function])[number]
        changed = self._folder / path
        changed.write_bytes(source.data[:start] + text.encode() + source.data[stop:])
        try:
            return not self.passes(areas)
        finally:
            changed.write_bytes(source.data)

    def require_passing(self, area: str) -> None:
        """Exit unless the tests of an area pass without a mutant: else every mutant would seem to be killed."""
        if area not in self._passing and not self.passes((area,)):
            raise SystemExit(f"the tests of {area} fail in {self._checkout} without a mutant")
        self._passing.add(area)

    def passes(self, areas: Sequence[str]) -> bool:
        """Whether the tests of some areas pass: those of `make check`, if the release has it, and then all that start
        no process."""
        has_check = 'register_profile("check"' in (self._checkout / "tests" / "conftest.py").read_text("utf-8")
        if has_check and not self._passes(areas, "check", " and not slow"):
            return False
        return self._passes(areas, "lamella", "")

    def _passes(self, areas: Sequence[str], profile: str, but: str) -> bool:
        roots = (self._folder / "snapshot", *(self._checkout / part for part in ("service", "client", "tests")))
        path = os.pathsep.join(map(str, roots))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_PROFILE": profile}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-m",
            f"not soak and not process{but}",
        ]
        tests = [f"tests/{area}" for area in areas if (self._checkout / "tests" / area).is_dir()]
        try:
            done = subprocess.run(
                [*command, *tests],
                check=False,
                cwd=self._checkout,
                env=environment,
                capture_output=True,
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return False
        if done.returncode not in (0, 1, 2):
            raise SystemExit(done.stdout.decode()[-3000:])
        return done.returncode == 0


def main() -> int:
    """Print what becomes of each mutant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first ones of the list")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--before", type=Path, help="a checkout of another release")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run nothing")
    options = parser.parse_args()
    mutants = chosen(all_mutants(ROOT), options.seed)[options.skip : options.count]
    if options.list:
        for mutant in mutants:
            print(f"{mutant.module} {mutant.function} {mutant.number}")
        return 0
    counts: dict[str, int] = defaultdict(int)
    with tempfile.TemporaryDirectory() as now_folder, tempfile.TemporaryDirectory() as before_folder:
        now = Release(ROOT, Path(now_folder))
        before = None if options.before is None else Release(options.before.resolve(), Path(before_folder))
        shapes = {} if options.before is None else by_shape(options.before.resolve())
        for area in sorted({area for mutant in mutants for area in RULES[mutant.module]}):
            now.require_passing(area)
        for mutant in mutants:
            areas = RULES[mutant.module]
            outcome = "killed"
            if not now.is_killed(Path(PACKAGE, mutant.module), mutant.function, mutant.number, areas):
                outcome = "survives"
                twins = shapes.get(mutant.shape, [])
                if before is not None and len(twins) == 1:
                    for area in areas:
                        before.require_passing(area)
                    killed = before.is_killed(*twins[0], mutant.number, areas)
                    outcome = "newly survives" if killed else "survives, as before"
                elif before is not None:
                    outcome = "survives; its function is not in the other release"
            counts[outcome] += 1
            print(f"{outcome}: {mutant.module} {mutant.function} {mutant.number}", flush=True)
    for outcome, count in sorted(counts.items()):
        print(f"{count:6}  {outcome}")
    return int(counts["newly survives"] > 0)


if __name__ == "__main__":
    sys.exit(main())
