"""Pages with little but names, and pages about measurements."""

from __future__ import annotations

import client_comparison
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


def code_of_a_feature(_stage: Stage, text: str) -> None:
    """What tests/docs/test_clients_page.py runs."""
    cells = [row.cells.values() for row in client_comparison.features()[0]]
    assert any(all(cell.code in text for cell in row) for row in cells), text


@scene("docs/clients.md", texts=[code_of_a_feature] * len(client_comparison.features()[0]))
def clients(_stage: Stage) -> None:
    """Code of several libraries."""
