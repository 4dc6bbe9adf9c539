"""docs/architecture.md describes the folders that there are. Other tests look for what it names."""

from __future__ import annotations

import re

from docs.fenced import ROOT

PAGE = "docs/architecture.md"
ROOTS = ("snapshot", "service", "client")


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
