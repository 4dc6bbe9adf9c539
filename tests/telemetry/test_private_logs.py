"""Nothing private is logged: no literal of a filter, no key or token, no query string, at any level and in any form."""

from __future__ import annotations

import base64
import itertools
import json
import random
import socket
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from fixtures_server import ServerProcess, StartServer
from lamella.snapshot.storage import FsspecStore
from support.service_api import TableApi, World
from support.tenants import ROOT_KEY, ROOT_SHA256

LITERAL: Final = "Zq7secretliteral"
BAD_TOKEN: Final = "Zq7badtoken.Zq7badtoken.Zq7badtoken"
#: Of the dashboard.
PAGES: Final = ("", "/jobs", "/jobs/new", "/service", "/service/audit", "/access", "/login", "/nothing")
PAGES_OF_A_TABLE: Final = (
    "",
    "/columns",
    "/history",
    "/history/difference",
    "/history/rollback",
    "/indexes",
    "/indexes/new",
    "/lab",
    "/lab/block",
    "/lab/compare",
    "/map",
)


def filters() -> list[Any]:
    """Filters with the literal, right and wrong ones, as SQL and as trees."""
    return [
        f"s = '{LITERAL}'",
        f"a = '{LITERAL}'",
        f"{LITERAL} = 1",
        f"s = '{LITERAL}' AND AND (",
        f"s LIKE '{LITERAL}%' OR s IN ('{LITERAL}', 'b')",
        f"CAST('{LITERAL}' AS int) = a",
        f"set {LITERAL} = '{LITERAL}'",
        {"type": "eq", "term": "s", "value": LITERAL},
        {"type": LITERAL, "term": LITERAL},
    ]


def bodies(chance: random.Random) -> list[bytes]:
    """What is sent to every route: well and badly formed, each with the literal in it."""
    made = []
    for filter in filters():
        body: dict[str, Any] = {
            "filter": filter,
            "filters": [filter],
            "aggregates": [f"max({LITERAL})"],
            "properties": {LITERAL: LITERAL},
            "columns": [LITERAL],
            "arguments": {"filter": filter},
            "kind": "delete",
            "no_new_matches": {"filter": filter},
        }
        wanted = chance.sample(sorted(body), chance.randint(1, 3))
        made.append(json.dumps({name: body[name] for name in {"filter", *wanted}}).encode())
        made.append(json.dumps({"filter": filter}).encode())
    return [*made, b'{"filter": "' + LITERAL.encode(), LITERAL.encode(), b"\xff" + LITERAL.encode()]


def ask_everything(server: ServerProcess, table_path: str, authorization: str) -> int:
    """Every operation and page, with the literal in bodies and queries; how many requests there were."""
    chance = random.Random(3)
    request_count = 0
    with httpx2.Client(base_url=server.url, timeout=60) as http:
        described = http.get("/openapi.json", headers={"Authorization": authorization}).json()["paths"]
        operations = [(method, path, each) for path, methods in described.items() for method, each in methods.items()]
        assert len(operations) > 80
        for method, path, operation in operations:
            filled = path.replace("/v1/namespaces/{namespace}/tables/{table}", table_path)
            filled = "/".join("x" if part.startswith("{") else part for part in filled.split("/"))
            if method == "delete" and filled == table_path:
                continue  # the others need it
            given = operation.get("parameters", [])
            query = {each["name"]: LITERAL for each in given if each["in"] == "query"}
            # What is well formed, so that it gets as far as it can, and what is not.
            some = chance.sample(bodies(chance), 6) if "requestBody" in operation else [b""]
            for body, parameters in itertools.product(some, ({}, {**query, LITERAL: LITERAL})):
                headers = {
                    "Authorization": authorization,
                    "Content-Type": chance.choice(["application/json", "application/json", "text/plain"]),
                    "Cookie": f"session={BAD_TOKEN}",
                }
                http.request(method, filled, content=body, params=parameters, headers=headers)
                request_count += 1
        table = table_path.replace("/v1/namespaces/", "/tables/").replace("/tables/t", "/t")
        for page in (*PAGES, *(table + rest for rest in PAGES_OF_A_TABLE)):
            headers = {"Authorization": authorization}
            form = {"filter": f"s = '{LITERAL}'", "key": BAD_TOKEN}
            http.get(
                f"/ui{page}", params={"filter": f"s = '{LITERAL}'", "q": LITERAL, "block": LITERAL}, headers=headers
            )
            http.post(f"/ui{page}", data=form, headers=headers)
            request_count += 2
    return request_count


def ask_rightly(world: World, table: TableApi) -> None:
    """What is answered, with the literal in filters, arguments and properties."""
    snapshot_id = table.info()["snapshot_id"]
    for filter in (f"s = '{LITERAL}'", f"s >= '{LITERAL}' AND a > 3", {"type": "eq", "term": "s", "value": LITERAL}):
        blocks = table.prune(filter, explain=True)["blocks"]
        table.prune(filter, level="page")
        table.prune(filter, residuals=True, columns=["s"])
        world.api.call("POST", f"{table.path}/aggregate", {"aggregates": ["count(*)"], "filter": filter})
        world.api.call("POST", f"{table.path}/why-not", {"filter": filter})
        change = {"cluster_key": ["s"], "filters": [{"filter": filter}]}
        world.api.send("POST", f"{table.path}/what-if", change)
        empty = [block["location"] for block in blocks]
        world.api.send("POST", f"{table.path}/feedback", {"snapshot_id": snapshot_id, "filter": filter, "empty": empty})
        job = {"kind": "delete", "table": f"{table.namespace}.t", "arguments": {"where": f"s = '{LITERAL}'"}}
        world.api.call("POST", "/v1/jobs", job, expect=201)
        resting = {"base_snapshot_id": snapshot_id, "no_new_matches": {"filter": filter}, "properties": {"p": LITERAL}}
        world.api.send("POST", f"{table.path}/commits", resting)
    world.api.call("GET", f"{table.path}/recorded")
    world.api.call("GET", "/v1/jobs")


def send_nonsense(server: ServerProcess) -> None:
    """What is no HTTP, with a token in it."""
    for text in (
        f"GET / HTTP/1.1\r\nAuthorization: Bearer {BAD_TOKEN}\r\nbad header\r\n\r\n",
        f"POST /v1/namespaces HTTP/1.1\r\nAuthorization: Bearer {BAD_TOKEN}\r\nContent-Length: x\r\n\r\n{LITERAL}",
        f"{LITERAL} {BAD_TOKEN}\r\n\r\n",
        f"GET /v1/namespaces?q={LITERAL} HTTP/1.1\r\nHost: localhost\r\nX: {BAD_TOKEN * 5_000}\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            try:
                connection.sendall(text.encode())
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass
            except OSError:  # it hung up first
                continue


@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.parametrize("auth", [False, True])
@pytest.mark.few(2)
def test_no_line_of_the_log_has_a_literal_or_a_token(
    start_server: StartServer, tmp_path: Path, log_format: str, auth: bool
) -> None:
    """All routes and pages, answered, refused and not understood, at the level that tells most. All output is
    searched."""
    allowed = json.dumps({"*": [f"file://{tmp_path}/data"]})
    options = {"auth": "true", "root_key_sha256": ROOT_SHA256, "allowed_locations": allowed} if auth else {}
    settings = {"log_level": "debug", "log_format": log_format, "feedback": "true", "record_prunes": "full"}
    server = start_server(warehouse=tmp_path / "w", auth_failures_per_minute=10**6, **settings, **options)
    tokens = [ROOT_KEY, BAD_TOKEN] if auth else [BAD_TOKEN]
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world:
        if auth:
            world.api.http.headers["Authorization"] = f"Bearer {ROOT_KEY}"
        table = world.table()
        table.register(*world.numbers(world.folder(), 2))
        ask_rightly(world, table)
        request_count = 0
        for token in tokens:
            request_count += ask_everything(server, table.path, f"Bearer {token}")
        basic = base64.b64encode(f"user:{BAD_TOKEN}".encode()).decode()
        world.api.http.get("/v1/namespaces", headers={"Authorization": f"Basic {basic}"})
    send_nonsense(server)
    server.stop()
    text = server.log_text()
    assert text.count("/v1/") > request_count / 2  # the requests are there
    for hidden in (LITERAL, "Zq7", ROOT_KEY, basic, "secretliteral", "badtoken"):
        assert hidden not in text, next(line for line in text.splitlines() if hidden in line)
