"""Calls operations with the client that openapi-python-client generated, in an environment that has it.

Reads ``{"url", "token", "calls": [{"name", "path", "query", "body"}]}`` from standard input and writes, for each call,
the status, the class of the parsed answer (empty: nothing was parsed), and an error, if the client raised one.
"""

import importlib
import inspect
import json
import pkgutil
import sys
import typing
from typing import Any

import lamella_client.api
from lamella_client import AuthenticatedClient


def module_of(name: str) -> Any:
    """Return the module of an operation."""
    for tag in pkgutil.iter_modules(lamella_client.api.__path__):
        try:
            return importlib.import_module(f"lamella_client.api.{tag.name}.{name}")
        except ModuleNotFoundError:
            continue
    raise SystemExit(f"the client has no operation {name}")


def body_of(module: Any, given: Any) -> Any:
    """Return the body as the class that the client wants."""
    wanted = typing.get_type_hints(module.sync_detailed)["body"]
    kinds = [kind for kind in (typing.get_args(wanted) or (wanted,)) if hasattr(kind, "from_dict")]
    return kinds[0].from_dict(given)


def main() -> None:
    wanted = json.load(sys.stdin)
    client = AuthenticatedClient(base_url=wanted["url"], token=wanted["token"], follow_redirects=False)
    results = []
    for call in wanted["calls"]:
        module = module_of(call["name"])
        parameters = inspect.signature(module.sync_detailed).parameters
        given = {name: call["path"][name] for name in parameters if name in call["path"]}
        given |= {name.replace("-", "_"): value for name, value in call["query"].items()}
        result = {"name": call["name"], "status": None, "parsed": "", "error": ""}
        try:
            if "body" in parameters and call["body"] is not None:
                given["body"] = body_of(module, call["body"])
            answer = module.sync_detailed(client=client, **given)
            result["status"] = int(answer.status_code)
            result["parsed"] = "" if answer.parsed is None else type(answer.parsed).__name__
        except Exception as error:
            result["error"] = f"{type(error).__name__}: {error}"
        results.append(result)
    print(json.dumps(results))


main()
