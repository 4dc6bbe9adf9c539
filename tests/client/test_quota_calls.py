"""Properties and quotas of namespaces by either client and by the command: what is asked, and what is shown."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from lamella.client.cli.app import cli
from lamella.client.cli.connection import Target
from lamella.client.http import NO_RETRY, Lamella
from lamella.client.http.fake_transport import FakeTransport, json_response
from lamella.snapshot import wire
from lamella.snapshot.errors import InvalidRequest
from support.both_clients import ClientFor

INFO = wire.NamespaceInfo(name="a.b", properties={"lamella.quota.tables": "3"})
QUOTA = wire.NamespaceQuota(
    tables=wire.QuotaUse(used=2, maximum=3),
    blocks=wire.QuotaUse(used=7),
    bytes=wire.QuotaUse(used=2_048, maximum=4_096),
)


def test_properties_are_set_and_removed(client_for: ClientFor) -> None:
    """One request with a key, so that it is safe to send it again."""
    client = client_for(lambda _: json_response(INFO))
    change = {"lamella.quota.tables": "3"}
    assert client.run(lambda lake: lake.change_namespace("a.b", set=change, remove=["x"])) == INFO
    (request,) = client.requests
    assert (request.method, request.target) == ("POST", "/v1/namespaces/a.b/properties")
    assert json.loads(request.body) == {"set": change, "remove": ["x"]}
    assert request.header("Idempotency-Key")
    with pytest.raises(InvalidRequest):
        client.run(lambda lake: lake.change_namespace("a.b", remove="x"))


def test_the_quota_of_a_namespace_is_requested(client_for: ClientFor) -> None:
    """What there is, and what there may be."""
    client = client_for(lambda _: json_response(QUOTA))
    assert client.run(lambda lake: lake.namespace_quota("a.b")) == QUOTA
    assert [(each.method, each.target) for each in client.requests] == [("GET", "/v1/namespaces/a.b/quota")]


def run(answer: object, *arguments: str) -> tuple[Result, FakeTransport]:
    """A command against a service with one answer."""
    fake = FakeTransport(lambda _: json_response(answer))

    def connect(target: Target) -> Lamella:
        return Lamella(target.url, transport=fake, policy=NO_RETRY)

    return CliRunner().invoke(cli, ["namespaces", *arguments], obj=connect), fake


def test_the_command_sets_properties() -> None:
    """And shows all that there are then."""
    result, fake = run(INFO, "set", "a.b", "--property", "lamella.quota.tables=3", "--remove", "x")
    assert (result.exit_code, result.output) == (0, "namespace a.b has lamella.quota.tables=3\n")
    assert json.loads(fake.requests[0].body) == {"set": {"lamella.quota.tables": "3"}, "remove": ["x"]}
    result, _ = run(INFO, "set", "a.b", "--remove", "x", "--json")
    assert json.loads(result.output) == {"name": "a.b", "properties": INFO.properties}
    result, fake = run(INFO, "set", "a.b")
    assert result.exit_code == 2
    assert not fake.requests


def test_the_command_shows_a_quota() -> None:
    """Where there is none, it says so."""
    result, _ = run(QUOTA, "quota", "a.b")
    assert result.exit_code == 0
    rows = [line.split() for line in result.output.splitlines()]
    assert ["tables", "2", "3"] in rows
    assert ["blocks", "7", "any"] in rows
    assert any(row[:1] == ["bytes"] and "2.0" in row for row in rows), result.output
    result, _ = run(QUOTA, "quota", "a.b", "--json")
    assert json.loads(result.output)["bytes"] == {"used": 2_048, "maximum": 4_096}
