"""docs/architecture.md names the folders and modules that there are."""

from __future__ import annotations

import re
from pathlib import Path

from docs.fenced import ROOT

PAGE = "docs/architecture.md"
ROOTS = ("snapshot", "service", "client")


def folder(name: str) -> Path:
    """Where ``root/rest`` lies in the repository."""
    root, _, rest = name.partition("/")
    return ROOT / root / "lamella" / root / rest


def named() -> list[str]:
    """What the page names by its root: folders and modules."""
    text = (ROOT / PAGE).read_text("utf-8")
    return re.findall(rf"`((?:{'|'.join(ROOTS)})/[\w/.]+)`", text)


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


def test_everything_that_is_named_is_there() -> None:
    """Folders and modules."""
    assert named()
    assert [each for each in named() if not folder(each).exists()] == []
