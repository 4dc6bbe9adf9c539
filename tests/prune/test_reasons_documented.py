"""The page about reads that were not skipped has what `explain` says."""

from __future__ import annotations

import re
from pathlib import Path

from lamella.snapshot.prune import explain

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = re.sub(r"^```.*?^```$", "", (CHECKOUT / "docs/how-to/why.md").read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def test_every_missing_statistic_is_on_the_page() -> None:
    """With the name of a column as `c`."""
    source = Path(explain.__file__).read_text("utf-8")
    reasons = re.findall(r'f"([^"]*\{column\.name\}[^"]*)"', source)
    assert len(reasons) == 5
    for reason in reasons:
        shown = reason.replace("{column.name}", "c").replace("{why}", "...")
        assert f"`{shown}`" in PAGE


def test_every_reason_of_a_bound_is_on_the_page() -> None:
    """The texts that the rules of statistics return, as far as they are fixed."""
    source = (CHECKOUT / "snapshot/lamella/snapshot/parquet/statistics_rules.py").read_text("utf-8")
    reasons = re.findall(r'(?:return|False,|None,|else) "([a-z][^"]* [^"]*)"', source)
    assert len(reasons) > 10
    listed = [each.split("...") for each in re.findall(r"`([^`]+)`", PAGE)]

    def is_listed(reason: str) -> bool:
        return any(all(part.strip() in reason for part in parts) and any(map(str.strip, parts)) for parts in listed)

    assert [reason for reason in reasons if not is_listed(reason)] == []
