"""The pages that a reader begins with."""

from __future__ import annotations

import re

from docs.scene import scene
from docs.stage import Stage


def _printed(stage: Stage, text: str) -> None:
    assert stage.names["written"].strip() == text.strip()


def _plan(stage: Stage, text: str) -> None:
    line = next(each for each in stage.names["written"].splitlines() if "Lamella" in each)
    counts = re.compile(r"BatchScan lake\.db\.events\[.*\] Lamella db\.events@\S+ (blocks=\d+/\d+) (?:.* )?filter=\[")
    real, shown = counts.search(line), counts.search(text)
    assert real, line
    assert shown, text
    assert real.group(1) == shown.group(1), (line, text)


@scene("docs/embedded.md", starts_service=True)
def embedded(_stage: Stage) -> None:
    """The page makes its lake itself."""


@scene("docs/quick-start.md", spark=True, starts_service=True, texts=[_printed, _plan])
def quick_start(stage: Stage) -> None:
    """The session of the tests in place of a new one: all else the page makes itself."""
    stage.swaps["SparkSession.builder.getOrCreate()"] = "spark"
