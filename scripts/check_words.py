"""Check that identifiers use the words of the field (`python scripts/check_words.py`; `--list` shows counts by folder).

``words.toml`` lists the words that identifiers must not contain as a part, with the word to use instead, the folders
that are checked, and the exemptions with their reasons. The exit status is 1 when a checked folder has such a name.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

ROOT: Final = Path(__file__).parents[1]
_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Exemption(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names (shell patterns) that may stay in files whose path begins with ``path``, and why."""

    path: str
    names: tuple[str, ...]
    reason: str


class WordList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``words``: the word to use by the word to avoid. ``folders``: all folders that are read; ``checked``: path
    prefixes in which no name may have such a word. ``allowed``: names (shell patterns) of ordinary English.
    """

    folders: tuple[str, ...]
    checked: tuple[str, ...]
    allowed: tuple[str, ...]
    words: dict[str, str]
    exempt: tuple[Exemption, ...] = ()


class Hit(msgspec.Struct, frozen=True, order=True):
    """A name with a word to avoid, where it is defined; ``line`` is 1-based."""

    path: str
    line: int
    name: str
    word: str


def load(file: Path) -> WordList:
    """Read a word list; raises msgspec.ValidationError for a file of another form."""
    return msgspec.convert(tomllib.loads(file.read_text("utf-8")), WordList)


def names_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a module defines: functions, classes, arguments, variables and attributes, with lines."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno
            case ast.alias(asname=str()):
                yield str(node.asname), node.lineno


@cache
def names_of(file: Path) -> frozenset[tuple[str, int]]:
    """Return the names that a file defines, with lines; each file is read once."""
    return frozenset(names_in(ast.parse(file.read_text("utf-8"))))


def words_of(name: str) -> list[str]:
    """Return the lower-case words of an identifier in snake case or camel case."""
    return [part.lower() for part in _PARTS.findall(name)]


def hits(words: WordList, root: Path = ROOT) -> list[Hit]:
    """Return every name with a word to avoid, in all folders, without allowed and exempt ones."""
    found: set[Hit] = set()
    for folder in words.folders:
        for file in sorted((root / folder).rglob("*.py")):
            path = file.relative_to(root).as_posix()
            for name, line in names_of(file):
                for word in words_of(name):
                    if word in words.words and not _is_exempt(words, path, name):
                        found.add(Hit(path, line, name, word))
    return sorted(found)


def unused_exemptions(words: WordList, root: Path = ROOT) -> list[str]:
    """Return the exempt names that no file defines any more."""
    defined: dict[str, set[str]] = {}
    for folder in words.folders:
        for file in sorted((root / folder).rglob("*.py")):
            path = file.relative_to(root).as_posix()
            defined[path] = {name for name, _ in names_of(file)}
    return [
        f"{each.path}: {pattern}"
        for each in words.exempt
        for pattern in each.names
        if not any(
            fnmatchcase(name, pattern)
            for path, names in defined.items()
            if path.startswith(each.path)
            for name in names
        )
    ]


def main(arguments: Sequence[str]) -> int:
    """Print the names to change, or with ``--list`` the counts by folder; returns the exit status."""
    parser = argparse.ArgumentParser(description="Check that identifiers use the words of the field.")
    parser.add_argument("--list", action="store_true", help="count the names to change by folder and word")
    given: Any = parser.parse_args(arguments)
    words = load(ROOT / "scripts" / "words.toml")
    found = hits(words)
    if given.list:
        counts = Counter((folder_of(hit.path), hit.word) for hit in found)
        for (folder, word), count in sorted(counts.items()):
            print(f"{folder:40} {word:12} {count:5}  {words.words[word]}")
        return 0
    wrong = [hit for hit in found if hit.path.startswith(words.checked)]
    for hit in wrong:
        print(f"{hit.path}:{hit.line}: {hit.name}: {hit.word!r}; use {words.words[hit.word]}")
    stale = unused_exemptions(words)
    for each in stale:
        print(f"scripts/words.toml: exempts a name that is not defined: {each}")
    return 1 if wrong or stale else 0


def folder_of(path: str) -> str:
    """Return the folder under which a path is counted: that of the package's topic, or the top folder."""
    parts = path.split("/")
    return "/".join(parts[:4] if parts[0] in ("client", "service", "snapshot") else parts[:1])


def _is_exempt(words: WordList, path: str, name: str) -> bool:
    if any(fnmatchcase(name, pattern) for pattern in words.allowed):
        return True
    return any(
        path.startswith(each.path) and any(fnmatchcase(name, pattern) for pattern in each.names)
        for each in words.exempt
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
