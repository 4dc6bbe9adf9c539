"""The OpenAPI document keeps to what generators of clients can read; they leave out silently what they cannot."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from docs.fenced import ROOT

#: Ids of operations with their methods and paths, sorted.
IDS = ROOT / "tests" / "docs" / "operation_ids.txt"
DOCUMENT = json.loads((ROOT / "docs" / "openapi.json").read_text("utf-8"))
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
#: Answers that have only headers, as another protocol wants it.
EMPTY = {("200", "shared_table_version")}
#: Keywords of a schema that hold values, and those that hold schemas by name.
VALUES = {"default", "enum", "const", "example", "examples"}
BY_NAME = {"properties", "$defs", "patternProperties", "schemas"}


def schemas(node: Any, path: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema within a value of the document, with its place."""
    if isinstance(node, list):
        for number, each in enumerate(node):
            yield from schemas(each, f"{path}/{number}")
    elif isinstance(node, dict):
        yield path, node
        for name, each in node.items():
            if name in BY_NAME:
                for inner, schema in each.items():
                    yield from schemas(schema, f"{path}/{name}/{inner}")
            elif name not in VALUES:
                yield from schemas(each, f"{path}/{name}")


def test_every_array_says_what_its_items_are() -> None:
    """With a schema: some generators stop at false or true, others leave out each operation with an array without."""
    arrays = [(path, schema) for path, schema in schemas(DOCUMENT) if schema.get("type") == "array"]
    assert len(arrays) > 100
    assert [path for path, schema in arrays if not isinstance(schema.get("items"), dict)] == []
    assert [path for path, schema in schemas(DOCUMENT) if "prefixItems" in schema] == []


def test_no_schema_is_a_bare_true_or_false() -> None:
    """JSON Schema allows them, and few generators do; only what an object may have besides is left open so."""
    wrong = []
    for path, schema in schemas(DOCUMENT["components"], "#/components"):
        bare = [
            name for name in ("items", "contains", "not", "if", "then", "else") if isinstance(schema.get(name), bool)
        ]
        bare += [
            name for name in ("anyOf", "oneOf", "allOf") if any(isinstance(each, bool) for each in schema.get(name, []))
        ]
        bare += [name for name, each in schema.get("properties", {}).items() if isinstance(each, bool)]
        wrong += [f"{path}: {name}" for name in bare]
    assert wrong == []


def test_every_operation_has_a_name_of_its_own_that_is_a_name_in_every_language() -> None:
    """Functions of clients are called so."""
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name)] == []


def test_ids_of_operations_stay() -> None:
    """Generated clients are named after them: an id, with its method and path, is never changed. New ones are added to
    the list by hand."""
    found = {
        f"{operation['operationId']} {method.upper()} {path}"
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    }
    assert sorted(found) == IDS.read_text("utf-8").splitlines()


def test_tags_and_the_server_are_described() -> None:
    """Each tag once, in the order of the operations, with what its operations are about."""
    used = list(dict.fromkeys(operation["tags"][0] for operation in OPERATIONS.values()))
    assert [tag["name"] for tag in DOCUMENT["tags"]] == used
    assert all(tag["description"].endswith(".") for tag in DOCUMENT["tags"])
    (server,) = DOCUMENT["servers"]
    assert set(re.findall(r"\{(\w+)\}", server["url"])) == set(server["variables"])


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_bodies_have_types_that_are_there(name: str) -> None:
    """What is sent, and what is answered, is a schema with a name, an open object, or text."""
    operation = OPERATIONS[name]
    components = DOCUMENT["components"]["schemas"]
    bodies = [operation["requestBody"]] if "requestBody" in operation else []
    bodies += [
        answer
        for status, answer in operation["responses"].items()
        if status not in ("204", "304") and (status, operation["operationId"]) not in EMPTY
    ]
    for body in bodies:
        assert body["content"], name
        for kind, content in body["content"].items():
            schema = content["schema"]
            name_of_type = schema.get("$ref", "").rpartition("/")[2]
            assert name_of_type in components or schema.get("type") in ("string", "object"), (name, kind)
    in_path = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path"}
    assert set(re.findall(r"{(\w+)}", name)) == in_path


def test_every_reference_leads_to_a_schema_that_is_used() -> None:
    """None is dangling; none is left over."""
    used = {schema["$ref"] for _, schema in schemas(DOCUMENT) if isinstance(schema.get("$ref"), str)}
    assert used == {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}


def test_a_pair_keeps_its_length() -> None:
    """An array of fixed length still says so, and in which order its members stand."""
    decimal = DOCUMENT["components"]["schemas"]["Bound"]["properties"]["Decimal"]["anyOf"][0]
    assert (decimal["minItems"], decimal["maxItems"]) == (3, 3)
    assert decimal["items"] == {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    assert decimal["description"] == "In this order: string, integer, integer."


@pytest.mark.soak
def test_common_generators_omit_no_operation() -> None:
    """Real ones, in environments of their own; the client that one of them makes prunes over HTTP."""
    command = [sys.executable, "scripts/openapi_generators.py"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "openapi-python-client: nothing omitted" in done.stdout
    assert "a prune with the generated client keeps the 2 blocks" in done.stdout
