"""Whether output looks as a page shows it: the same words in the same order, whatever the numbers and ids are."""

from __future__ import annotations

import re

_FREE = [
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "0"),
    (re.compile(r"\b[0-9a-f]{4,}\.\.\."), "0"),
    (re.compile(r"\b[0-9a-f]{16,}\b"), "0"),
    (re.compile(r"\d[\d,]*(\.\d+)?"), "0"),
    (re.compile(r"\b(B|kB|MB|GB|KiB|MiB|GiB|ms|us|s|min)\b"), "unit"),
    (re.compile(r"[━─╇┳╸]+"), "-"),
    (re.compile(r"\s+"), " "),
]


def shape(line: str) -> str:
    """A line with one word for every number, id, unit, rule and run of blanks."""
    for free, instead in _FREE:
        line = free.sub(instead, line)
    return line.strip()


def missing_line(shown: list[str] | tuple[str, ...], real: str) -> str | None:
    """The first line that a page shows and the output has not, behind those before it; None: all are there.

    A line of three dots stands for any lines, and three dots inside a line for any text.
    """
    found = iter([shape(line) for line in real.splitlines()])
    for line in shown:
        wanted = shape(line)
        if wanted in ("", "...", "…"):
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in re.split(r"\.\.\.|…", wanted)))
        if not any(pattern.fullmatch(each) for each in found):
            return line
    return None
