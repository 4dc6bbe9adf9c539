"""Fixtures of the client's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lamella.client.http import RetryPolicy
from lamella.client.http.fake_transport import Handler
from support.both_clients import AsyncRecordingClient, ClientFor, RecordingClient, SyncRecordingClient
from support.scripted_http import Reply, ScriptedServer


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedServer]]:
    """Starts scripted servers; they end with the test."""
    servers: list[ScriptedServer] = []

    def start(*replies: Reply) -> ScriptedServer:
        servers.append(ScriptedServer(list(replies)))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(params=[SyncRecordingClient, AsyncRecordingClient], ids=["sync", "async"])
def client_for(request: pytest.FixtureRequest) -> ClientFor:
    """Makes either client over a handler: every test that asks for this holds for both."""
    kind = request.param

    def make(handler: Handler, **options: Any) -> RecordingClient:
        options.setdefault("policy", RetryPolicy(attempts=3, base_delay_s=1.0, max_delay_s=8.0))
        options.setdefault("jitter", lambda: 1.0)
        made: RecordingClient = kind(handler, **options)
        return made

    return make
