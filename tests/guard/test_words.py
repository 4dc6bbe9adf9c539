"""Identifiers use the words of the field: scripts/check_words.py and its list."""

from pathlib import Path

import pytest

import check_words
from check_words import Exemption, WordList, hits, unused_exemptions, words_of

WORDS = WordList(
    folders=("code",), checked=("code/new/",), allowed=("at_most",), words={"told": "output", "most": "max"}
)
CODE = """
class ToldLines:
    most_seen: int

    def line(self, told: str) -> None:
        self._told, at_most = told, 1


import json as most
"""


@pytest.mark.slow
def test_checked_folders_use_the_words_of_the_field() -> None:
    """No name of a checked folder has a word of the list, and every exemption is needed."""
    assert check_words.main([]) == 0


def test_every_way_to_define_a_name_is_seen(tmp_path: Path) -> None:
    """Classes, fields, arguments, attributes and imported names; at_most is allowed."""
    file = tmp_path / "code" / "new" / "module.py"
    file.parent.mkdir(parents=True)
    file.write_text(CODE)
    assert [(hit.line, hit.name) for hit in hits(WORDS, tmp_path)] == [
        (2, "ToldLines"),
        (3, "most_seen"),
        (5, "told"),
        (6, "_told"),
        (9, "most"),
    ]


def test_an_exemption_holds_for_its_path_alone(tmp_path: Path) -> None:
    """The same name elsewhere is a hit, and an exemption of a name that is gone is reported."""
    for folder in ("new", "old"):
        (tmp_path / "code" / folder).mkdir(parents=True)
        (tmp_path / "code" / folder / "module.py").write_text("told = 1\n")
    exempt = Exemption(path="code/old/", names=("told", "absent*"), reason="an old format")
    words = WordList(**{**{f: getattr(WORDS, f) for f in WORDS.__struct_fields__}, "exempt": (exempt,)})
    assert [hit.path for hit in hits(words, tmp_path)] == ["code/new/module.py"]
    assert unused_exemptions(words, tmp_path) == ["code/old/: absent*"]


def test_names_are_split_into_words() -> None:
    """In snake case, in camel case and in capitals."""
    assert words_of("_MAX_HeldBytes2") == ["max", "held", "bytes", "2"]
    assert words_of("HTTPPlaces") == ["http", "places"]
