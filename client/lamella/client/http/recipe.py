"""How a client that was pickled is made again, in another process.

A key is carried only if it was an argument of the client: a program that passes a key decides where it goes. A key that
the client found in the environment or in a profile is found again there, if it belongs to the same service.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from lamella.client.http.exchange import RetryPolicy
from lamella.client.http.profiles import service_of
from lamella.client.http.transport import parse_address
from lamella.snapshot.errors import InvalidRequest


class ClientRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a client, with the URL that was found. ``found``: the key, if any, was found with the URL."""

    url: str
    token: str | None
    token_file: str | None
    profile: str | None
    found: bool
    timeout_s: float
    policy: RetryPolicy | None
    traces: bool

    def __repr__(self) -> str:
        return f"ClientRecipe(url={self.url!r})"  # without the key


def client_again(
    kind: Callable[..., Any], recipe: ClientRecipe, environment: Mapping[str, str] | None = None
) -> object:
    """Return a client of the same service. ``environment``: None: that of the process."""
    token, token_file = recipe.token, recipe.token_file
    if recipe.found:
        with suppress(InvalidRequest):  # another process need not have the profile; then there is no key
            service = service_of(None, None, None, recipe.profile, environment)
            if parse_address(service.url) == parse_address(recipe.url):
                token = service.token
                token_file = None if service.token_file is None else os.fspath(service.token_file)
    return kind(
        recipe.url,
        token=token,
        token_file=token_file,
        timeout_s=recipe.timeout_s,
        policy=recipe.policy,
        traces=recipe.traces,
    )
