"""Pages with little but names, and pages about measurements."""

from __future__ import annotations

from docs.scene import drawing, scene
from docs.stage import Stage


@scene("docs/format.md", texts=[drawing])
def the_format(_stage: Stage) -> None:
    """A drawing of folders."""


@scene("docs/performance-figures.md")
def performance(_stage: Stage) -> None:
    """Commands that measure."""


@scene("docs/sharpness.md")
def sharpness(_stage: Stage) -> None:
    """A command that measures."""


@scene("docs/vectors.md")
def vectors(_stage: Stage) -> None:
    """A command that tests."""
