"""Page tokens of every listing: they hold for what they were given for, and nobody can make one up."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.service.http.page_token import PageTokens
from lamella.snapshot.errors import InvalidPageToken
from support.app_client import AppClient
from support.service_api import parquet_bytes, read_problem

SCHEMA = [{"name": "a", "type": "int64"}]
TABLES = "/v1/namespaces/n/tables"
SHARE = "/delta-sharing/shares/lamella"

#: Each listing: how its first page is asked for, where its token stands, and how the next page is.
LISTINGS: dict[str, tuple[str, str, dict[str, Any] | None, str, str]] = {
    "snapshots": ("GET", f"{TABLES}/t/snapshots?page_size=1", None, "next_page_token", "page_token"),
    "jobs": ("GET", "/v1/jobs?page_size=1", None, "next_page_token", "page_token"),
    "audit": ("GET", "/v1/audit?page_size=1", None, "next_page_token", "page_token"),
    "changes": ("GET", f"{TABLES}/t/changes?since=start&page_size=1", None, "next_page_token", "page_token"),
    "prune": ("POST", f"{TABLES}/t/prune", {"page_size": 1}, "next_page_token", "page_token"),
    "vacuum": ("POST", f"{TABLES}/t/vacuum", {"max_objects": 1}, "next_page_token", "page_token"),
    "verify": ("POST", f"{TABLES}/t/verify", {"max_ms": 0.001}, "next_page_token", "page_token"),
    "refresh": (
        "POST",
        f"{TABLES}/t/indexes/i/refresh",
        {"mode": "full", "max_blocks": 1},
        "next_page_token",
        "page_token",
    ),
    "iceberg namespaces": ("GET", "/iceberg/v1/namespaces?pageSize=1&pageToken=", None, "next-page-token", "pageToken"),
    "iceberg tables": (
        "GET",
        "/iceberg/v1/namespaces/n/tables?pageSize=1&pageToken=",
        None,
        "next-page-token",
        "pageToken",
    ),
    "schemas": ("GET", f"{SHARE}/schemas?maxResults=1", None, "nextPageToken", "pageToken"),
    "shared tables": ("GET", f"{SHARE}/schemas/n/tables?maxResults=1", None, "nextPageToken", "pageToken"),
    "all tables": ("GET", f"{SHARE}/all-tables?maxResults=1", None, "nextPageToken", "pageToken"),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppClient]:
    """A service with more than one of everything that is listed."""
    folder = tmp_path_factory.mktemp("tokens")
    settings = Settings(warehouse=str(folder / "w"), answer_blocks_max=1, log_requests=False, vacuum_min_age_s=3_600)
    with AppClient(create_app(settings), base_url="http://localhost") as client:
        for namespace in ("m", "n"):
            assert client.post("/v1/namespaces", json={"name": namespace}).status_code == 201
        for table in ("t", "u"):
            assert client.post(TABLES, json={"name": table, "schema": SCHEMA}).status_code == 201
            made = client.post(f"{TABLES}/{table}/tags", json={"name": "start"})
            assert made.status_code in (200, 201), made.text
            for number in range(3):
                file = folder / f"{table}{number}.parquet"
                file.write_bytes(parquet_bytes({"a": [number]}))
                answer = client.post(f"{TABLES}/{table}/register", json={"paths": [f"file://{file}"]})
                assert answer.status_code == 200, answer.text
            index = {"name": "i", "expression": "a", "kind": "bloom"}
            answer = client.post(f"{TABLES}/{table}/indexes", json=index)
            assert answer.status_code in (200, 201), answer.text
            answer = client.post("/v1/jobs", json={"kind": "verify", "table": f"n.{table}"})
            assert answer.status_code in (200, 201), answer.text
        yield client


def page(client: AppClient, listing: str, token: str | None, path: str | None = None) -> httpx2.Response:
    """A page of a listing."""
    method, first, body, _, parameter = LISTINGS[listing]
    first = first if path is None else path
    if method == "GET":
        if token is not None:
            first = f"{first.removesuffix(f'&{parameter}=')}&{parameter}={token}"
        return client.get(first)
    return client.post(first, json={**(body or {}), **({} if token is None else {parameter: token})})


def token_of(client: AppClient, listing: str) -> str:
    """The token that the first page of a listing comes with."""
    answer = page(client, listing, None)
    assert answer.status_code == 200, answer.text
    return str(answer.json()[LISTINGS[listing][3]])


@pytest.mark.parametrize("listing", LISTINGS)
def test_a_token_goes_on_and_no_other_is_taken(client: AppClient, listing: str) -> None:
    """Each altered character, an unsigned one, and those of all other listings are refused."""
    token = token_of(client, listing)
    assert page(client, listing, token).status_code == 200
    made_up = [
        *(
            token[:position] + ("A" if token[position] != "A" else "B") + token[position + 1 :]
            for position in range(0, len(token), 7)
        ),
        base64.urlsafe_b64encode(b"snapshots-below:1").decode().rstrip("="),
        base64.urlsafe_b64encode(b"names-behind:a").decode().rstrip("="),
        base64.urlsafe_b64encode(json.dumps({"snapshot_id": "x", "seq": 1, "step": 1, "asked": ""}).encode()).decode(),
        token[:-2],
        "0",
        *(token_of(client, other) for other in LISTINGS if other != listing),
    ]
    for other in made_up:
        answer = page(client, listing, other)  # Iceberg and Delta Sharing have errors of their own form
        assert answer.status_code == 400, other
        assert re.search("page_?token", answer.text, re.IGNORECASE)


@pytest.mark.parametrize("listing", ["snapshots", "changes", "prune", "vacuum", "verify", "refresh"])
def test_a_token_of_another_table_is_refused(client: AppClient, listing: str) -> None:
    """It would go on at a place that means nothing there."""
    path = LISTINGS[listing][1].replace("/t/", "/u/")
    assert page(client, listing, None, path).status_code == 200
    problem = read_problem(page(client, listing, token_of(client, listing), path))
    assert problem.code in ("invalid_page_token", "snapshot_not_found")


def test_tokens_hold_over_a_restart_and_with_another_secret_do_not() -> None:
    """The secret is the service's, and not the process's."""
    token = PageTokens(b"s" * 32).write(b"here", "a list", "t")
    assert PageTokens(b"s" * 32).read(token, "a list", "t") == b"here"
    for tokens, of, scope in (
        (PageTokens(b"x" * 32), "a list", "t"),
        (PageTokens(), "a list", "t"),
        (PageTokens(b"s" * 32), "another", "t"),
        (PageTokens(b"s" * 32), "a list", "u"),
    ):
        with pytest.raises(InvalidPageToken, match="is not a page token of"):
            tokens.read(token, of, scope)
