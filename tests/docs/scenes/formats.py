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


def code_of_a_row(_stage: Stage, text: str) -> None:
    """What tests/docs/test_clients_page.py runs."""
    codes = [[cell.code for cell in row.cells.values()] for row in client_comparison.features()[0]]
    codes += [[cell.run for cell in row.values()] for _, row in client_comparison.command_features()[0]]
    assert any(all(code in text for code in row) for row in codes), text


_ROWS = len(client_comparison.features()[0]) + len(client_comparison.command_features()[0])


@scene("docs/clients.md", texts=[code_of_a_row] * _ROWS)
def clients(_stage: Stage) -> None:
    """Code of several libraries and programs."""
