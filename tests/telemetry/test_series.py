"""The number of series is bounded, whatever is asked and however often."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from support.app_client import AppClient
from support.service_api import parquet_bytes

NAMES = 1_000
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW", "GE", "get", "PROPFIND", "X" * 40)
Series = frozenset[tuple[str, frozenset[tuple[str, str]]]]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AppClient]:
    """A service with table ``db.t``."""
    settings = Settings(warehouse=str(tmp_path / "w"), log_requests=False, auth_failures_per_minute=10**9)
    with AppClient(create_app(settings), base_url="http://localhost", raise_server_exceptions=False) as client:
        assert client.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        body = {"name": "t", "schema": [{"name": "a", "type": "int64"}, {"name": "s", "type": "string"}]}
        assert client.post("/v1/namespaces/db/tables", json=body).status_code == 201
        file = tmp_path / "x.parquet"
        file.write_bytes(parquet_bytes({"a": [1, 2], "s": ["x", "y"]}))
        assert client.post("/v1/namespaces/db/tables/t/register", json={"paths": [str(file)]}).status_code == 200
        yield client


def series(client: AppClient) -> Series:
    """Every series that is shown, by its name and labels."""
    found = text_string_to_metric_families(client.get("/metrics").text)
    return frozenset((sample.name, frozenset(sample.labels.items())) for family in found for sample in family.samples)


def paths(client: AppClient) -> list[str]:
    """The templates of all routes, with those that are no operation of the API."""
    described = client.get("/openapi.json").json()["paths"]
    return [*described, "/ui", "/ui/tables/{table}", "/docs", "/openapi.json"]


def ask(client: AppClient, templates: list[str], chance: random.Random, name: str) -> None:
    """Some requests that no others are like, right and wrong."""
    template = chance.choice(templates)
    path = "/".join(name if part.startswith("{") else part for part in template.split("/"))
    body: dict[str, Any] = {
        "name": name,
        "filter": f"s = '{name}' AND a > {chance.randrange(10**9)}",
        "kind": name,
        "owner": name,
        "worker": name,
        "paths": [f"/{name}"],
        name: name,
    }
    headers = {
        "X-Request-Id": name,
        "Idempotency-Key": name,
        "Authorization": f"Bearer {name}",
        "traceparent": f"00-{uuid.UUID(int=chance.getrandbits(128)).hex}-{chance.getrandbits(64):016x}-01",
        "User-Agent": name,
    }
    method = chance.choice(METHODS)
    client.request(method, path, json=body if method in ("POST", "PUT") else None, headers=headers)
    client.request("GET", f"/{name}/{name}")
    client.post("/v1/namespaces/db/tables/t/prune", json={"filter": body["filter"]}, headers=headers)
    client.request(chance.choice(METHODS), f"/v1/namespaces/{name}/tables/{name}?{name}={name}")


@pytest.mark.slow
def test_a_thousand_of_everything_adds_no_series(client: AppClient) -> None:
    """Names, ids, paths, methods, keys and filters that were never seen leave no label behind.

    The same requests are sent twice, the second time with other names everywhere: there is not one series more. No
    label has a value that a request brought.
    """
    templates = paths(client)
    series(client)  # what looks is a request, too
    seen: list[Series] = []
    for turn in ("zqa", "zqb"):
        chance = random.Random(11)
        for number in range(NAMES // 2):
            ask(client, templates, chance, f"{turn}{number}x{number * 7919:x}")
        seen.append(series(client))
    assert seen[1] - seen[0] == frozenset()
    values = {value for _, labels in seen[1] for _, value in labels}
    assert not [value for value in values if "zq" in value.lower()]
    methods = {dict(labels)["method"] for name, labels in seen[1] if name == "lamella_requests_total"}
    assert {"GET", "POST", "PUT", "DELETE", "other"} <= methods
    assert methods <= {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"}
