"""docs/clients.md: the code of each cell does what the page says of it."""

from __future__ import annotations

import pytest

import client_comparison

HERE = [client for client, (_, environment) in client_comparison.CLIENTS.items() if environment is None]
ELSEWHERE = [client for client in client_comparison.CLIENTS if client not in HERE]


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
