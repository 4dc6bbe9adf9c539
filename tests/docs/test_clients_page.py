"""docs/clients.md: the code of each cell does what the page says of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import client_comparison
from support.forked_command import folder_of_command

# What others do changes with the lock only.
OTHERS = [client for client in client_comparison.CLIENTS if client != "lamella"]
OTHER_PROGRAMS = [program for program in client_comparison.PROGRAMS if program != "lamella"]


def test_the_page_is_that_of_its_source() -> None:
    """`make clients` writes it."""
    assert client_comparison.PAGE.read_text("utf-8") == client_comparison.page()


@pytest.mark.process
def test_the_code_of_lamella_does_what_the_page_says() -> None:
    """A tick: it runs. None: it ends with the error that the page names."""
    assert client_comparison.differences("lamella") == []


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.parametrize("client", OTHERS)
def test_the_code_of_another_client_does_what_the_page_says(client: str) -> None:
    """The same; an environment of its own is made, if it is not there."""
    assert client_comparison.differences(client) == []


@pytest.mark.process
def test_a_command_of_lamella_does_what_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints what the page shows, and exits with its status."""
    folder, python = folder_of_command(), Path(sys.executable).parent
    monkeypatch.setattr(client_comparison, "_folder_of", lambda _program: f"{folder}:{python}")
    assert client_comparison.command_differences("lamella") == []


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.parametrize("program", OTHER_PROGRAMS)
def test_a_command_of_another_program_does_what_the_page_says(program: str) -> None:
    """The same; what it needs is installed, if it is not there."""
    assert client_comparison.command_differences(program) == []
