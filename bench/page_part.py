"""The parts of pages in ``docs/`` that benchmarks write."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_END: Final = "<!-- end -->"


def replace_part(page: Path, command: str, text: str) -> None:
    """Replace what is between the comment that names ``command`` and the end. Raises ValueError without the comment."""
    begin = f"<!-- written by {command}: begin -->"
    before, found, rest = page.read_text("utf-8").partition(begin)
    if not found:
        raise ValueError(f"{page} has no {begin}")
    page.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{_END}{rest.partition(_END)[2]}", "utf-8")
