"""Numbers of things in messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lamella.service.dashboard.words import NOTHING, plural
from lamella.snapshot.counts import counted

CHECKOUT = Path(__file__).resolve().parents[2]
#: A formatted number, not a constant limit, directly before a noun in the plural.
_UNINFLECTED = re.compile(
    r"\{(?![A-Z_]+:)[^{}]*:,\} (?:files|rows|tables|blocks|segments|snapshots|columns|jobs|keys|tags|parts|indexes"
    r"|filters|facts|namespaces|objects|entries|values|views|groups|tasks|findings|changes|commits)\b"
)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 blocks"),
        (1, "1 block"),
        (2, "2 blocks"),
        (12_345, "12,345 blocks"),
        (1.0, "1 block"),
        (1.5, "1.5 blocks"),
    ],
)
def test_a_number_has_its_noun(number: float, text: str) -> None:
    """In the commands and in the console."""
    assert counted(number, "block") == text
    assert plural(number, "block") == text


def test_a_noun_may_have_a_plural_of_its_own_and_a_verb() -> None:
    """Both forms are given then."""
    assert counted(1, "entry", "entries") == "1 entry"
    assert counted(2, "entry", "entries") == "2 entries"
    assert counted(1, "file was", "files were") == "1 file was"
    assert plural(None, "entry", "entries") == f"{NOTHING} entries"


def test_the_commands_and_the_console_count_with_the_helper() -> None:
    """No message has a number before a plural that does not follow the number."""
    found = []
    for folder in ("client", "service", "snapshot"):
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                if _UNINFLECTED.search(line):
                    found.append(f"{path.relative_to(CHECKOUT)}:{number}: {line.strip()}")
    assert found == []
