"""Clients that common generators make of the OpenAPI document call every operation, and get typed answers."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

import openapi_generators
from docs.fenced import ROOT
from fixtures_server import ServerProcess, StartServer
from support.probes import PROBES
from support.tenants import ROOT_KEY, ROOT_SHA256, Asker, Tenants

DOCUMENT = json.loads((ROOT / "docs" / "openapi.json").read_text("utf-8"))
OPERATIONS = {
    operation["operationId"]: (path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for operation in methods.values()
}
#: The generators of Python clients, what calls with them, and the number of each in the list of generators.
CALLERS = {
    "openapi-python-client": ("openapi_python_client.py", 0),
    "openapi-generator": ("openapi_generator_python.py", 1),
}
#: Operations whose answers the generators do not read: the client reports that, and the request has succeeded.
UNREAD = {"shared_table_metadata": "lines of JSON"}
#: Bodies that are forms, which no probe has.
FORMS = {"iceberg_token": {"grant_type": "client_credentials"}}


class ServedTenants(Tenants):
    """Tenants of a service that is reached over HTTP."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.app: Any = httpx2.Client(base_url=server.url, timeout=60)
        self.catalog_url = f"sqlite:///{folder}/_catalog.db"
        self.root = Asker(self.app, ROOT_KEY)
        self._numbers = itertools.count()


def calls(tenants: Tenants) -> list[dict[str, Any]]:
    """A right request for each operation, each about a table of its own."""
    found = []
    for name, (path, operation) in OPERATIONS.items():
        probe = PROBES[name]
        own = tenants.resources("north", *probe.needs)
        tenants.write(own.location, "another.parquet", own.column, own.value, part=2)
        bodies = operation.get("requestBody", {}).get("content", {}).values()
        types = [content["schema"].get("$ref", "").rpartition("/")[2] for content in bodies]
        found.append(
            {
                "name": name,
                "path": {each: str(getattr(own, each)) for each in re.findall(r"{(\w+)}", path)},
                "query": {} if probe.query is None else probe.query(own),
                "body": FORMS.get(name) if probe.body is None else probe.body(own),
                "bodies": [re.sub(r"(?<=[a-z])(?=[A-Z])", "_", each).lower() for each in types]
                + ["body", "request_body"],
            }
        )
    return found


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.parametrize("generator", CALLERS)
def test_a_generated_client_calls_every_operation(generator: str, start_server: StartServer, tmp_path: Path) -> None:
    """Each is answered as its probe says, and what has a body is parsed into a class of the client."""
    script, number = CALLERS[generator]
    openapi_generators.install(ROOT / "build" / "openapi-generators")
    made = openapi_generators.generators(ROOT / "build" / "openapi-generators")[number]
    assert openapi_generators.omitted(made, ROOT / "docs" / "openapi.json", tmp_path / "client") == []
    warehouse = tmp_path / "warehouse"
    settings = {"auth": "true", "root_key_sha256": ROOT_SHA256, "feedback": "true", "auth_failures_per_minute": 100_000}
    server = start_server(warehouse=warehouse, **settings)
    with ServedTenants(server, warehouse) as tenants:
        wanted = {"url": server.url, "token": ROOT_KEY, "calls": calls(tenants)}
        done = subprocess.run(
            [ROOT / "build" / "openapi-generators" / "venv" / "bin" / "python", ROOT / "scripts" / "foreign" / script],
            check=False,
            input=json.dumps(wanted),
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "client")},
        )
    assert done.returncode == 0, done.stderr[-3_000:]
    wrong, results = [], json.loads(done.stdout)
    assert [result["name"] for result in results] == list(OPERATIONS)
    for result in results:
        if result["name"] in UNREAD:
            assert result["error"] or result["status"] == 0, "it is read now"
            continue
        _, operation = OPERATIONS[result["name"]]
        status = result["status"]
        is_right = not result["error"] and (200 <= status < 300 or status in PROBES[result["name"]].also)
        response = operation["responses"].get(str(status), {})
        has_type = any("json" in kind for kind in response.get("content", {}))
        if not is_right or (has_type and result["parsed"] in ("", "dict", "object")):
            wrong.append(result)
    assert wrong == [], json.dumps(wrong, indent=1)
