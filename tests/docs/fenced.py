"""The code blocks of README.md and of the pages in docs/."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
#: The pages and languages of examples that run elsewhere: those of docstrings in
#: tests/client/test_docstring_examples.py, and requests in tests/docs/http_examples.py.
_ELSEWHERE = {("docs/reference-python.md", "pycon"), ("docs/reference-http.md", "http")}
_OPENING = re.compile(r"^( *)(`{3,}|~{3,})(.*)$")


class Fence(msgspec.Struct, frozen=True):
    """One code block. ``line`` is that of its first line, from 1."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line} ({self.language or 'no language'})"


def pages() -> list[str]:
    """README.md and all pages below docs/, as paths from the root of the repository."""
    return ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]


def fences(page: str) -> list[Fence]:
    """The blocks of a page in their order, but for those that run elsewhere; ValueError for one that does not end."""
    found = []
    lines = iter(enumerate((ROOT / page).read_text("utf-8").splitlines(), 1))
    for number, line in lines:
        opening = _OPENING.match(line)
        if opening is None:
            continue
        indent, mark, language = opening.groups()
        body: list[str] = []
        for _, inner in lines:
            if inner.strip() == mark:
                break
            body.append(inner.removeprefix(indent))
        else:
            raise ValueError(f"{page}:{number}: the block does not end")
        if (page, language.strip()) not in _ELSEWHERE:
            found.append(Fence(page, number + 1, language.strip(), "\n".join(body)))
    return found
