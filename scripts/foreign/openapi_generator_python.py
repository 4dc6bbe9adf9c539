"""Calls operations with the Python client that openapi-generator generated; as ``openapi_python_client.py`` does."""

import importlib
import inspect
import json
import pkgutil
import sys
import typing
from typing import Any

import openapi_client.api
from openapi_client import ApiClient, Configuration
from openapi_client.exceptions import ApiException


def methods() -> dict[str, Any]:
    """Return the classes that have the operations, by the names of these."""
    found: dict[str, Any] = {}
    for module in pkgutil.iter_modules(openapi_client.api.__path__):
        loaded = importlib.import_module(f"openapi_client.api.{module.name}")
        for name, kind in inspect.getmembers(loaded, inspect.isclass):
            if name.endswith("Api"):
                found |= {operation: kind for operation in vars(kind) if not operation.startswith("_")}
    return found


def body_of(kind: Any, given: Any) -> Any:
    """Return the body as the class that the client wants."""
    for each in (kind, *typing.get_args(kind)):
        if hasattr(each, "from_dict"):
            return each.from_dict(given)
    return given


def main() -> None:
    wanted = json.load(sys.stdin)
    client = ApiClient(Configuration(host=wanted["url"], access_token=wanted["token"]))
    known, results = methods(), []
    for call in wanted["calls"]:
        result = {"name": call["name"], "status": None, "parsed": "", "error": ""}
        try:
            kind = known[call["name"]]
            api = kind(client)
            hints = typing.get_type_hints(getattr(kind, call["name"]))
            parameters = [name for name in hints if not name.startswith("_") and name != "return"]
            given = {name: call["path"][name] for name in parameters if name in call["path"]}
            given |= {name.replace("-", "_"): value for name, value in call["query"].items()}
            if call["body"] is not None:
                others = [name for name in parameters if name not in given and name in call["bodies"]]
                if others:
                    given[others[0]] = body_of(hints[others[0]], call["body"])
                else:  # a form: each of its members is an argument
                    given |= call["body"]
            answer = getattr(api, f"{call['name']}_with_http_info")(**given)
            result["status"] = answer.status_code
            result["parsed"] = "" if answer.data is None else type(answer.data).__name__
        except ApiException as error:
            result["status"] = error.status
            result["parsed"] = "" if error.data is None else type(error.data).__name__
        except Exception as error:
            result["error"] = f"{type(error).__name__}: {error}"
        results.append(result)
    print(json.dumps(results))


main()
