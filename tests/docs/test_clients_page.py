"""docs/clients.md: the code of each cell does what the page says of it."""

from __future__ import annotations

import pytest

import client_comparison

HERE = [client for client, (_, environment) in client_comparison.CLIENTS.items() if environment is None]
ELSEWHERE = [client for client in client_comparison.CLIENTS if client not in HERE]
PROGRAMS_HERE = [program for program, (_, environment) in client_comparison.PROGRAMS.items() if environment is None]
PROGRAMS_ELSEWHERE = [program for program in client_comparison.PROGRAMS if program not in PROGRAMS_HERE]


def test_the_page_is_that_of_its_source() -> None:
    """`make clients` writes it."""
    assert client_comparison.PAGE.read_text("utf-8") == client_comparison.page()


@pytest.mark.process
@pytest.mark.parametrize("client", HERE)
def test_the_code_of_a_client_does_what_the_page_says(client: str) -> None:
    """A tick: it runs. None: it ends with the error that the page names."""
    assert client_comparison.differences(client) == []


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.parametrize("client", ELSEWHERE)
def test_the_code_of_a_client_with_an_environment_of_its_own_does_what_the_page_says(client: str) -> None:
    """The same; its environment is made, if it is not there."""
    assert client_comparison.differences(client) == []


@pytest.mark.process
@pytest.mark.parametrize("program", PROGRAMS_HERE)
def test_a_command_does_what_the_page_says(program: str) -> None:
    """It prints what the page shows, and exits with its status."""
    assert client_comparison.command_differences(program) == []


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.parametrize("program", PROGRAMS_ELSEWHERE)
def test_a_command_of_another_environment_does_what_the_page_says(program: str) -> None:
    """The same; what it needs is installed, if it is not there."""
    assert client_comparison.command_differences(program) == []
