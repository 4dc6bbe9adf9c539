"""Generates the pages about the HTTP interface from its OpenAPI document."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from typing import Any

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from reference.prose import cell, markdown

VALUES = "reference-http-values.md"
_REF = "#/components/schemas/"
_HEAD = """# HTTP reference

<!-- written by make reference -->

Every operation, from the [OpenAPI document](openapi.json) of the service, which a running service has at
`/openapi.json` and, for people, at `/docs`. Bodies are JSON, sent as `Content-Type: application/json`; their types
are on [a page of their own](reference-http-values.md). Errors are [problem documents](errors.md) with a stable `code`.
Where the service asks who calls (`auth`), send `Authorization: Bearer <key or token>`. The examples are requests that
were made; their answers are in the document.
"""
_VALUES_HEAD = """# Values of the HTTP interface

<!-- written by make reference -->

The types of request and answer bodies of the [HTTP interface](reference-http.md). A member without a default is there
in every value; one with a default may be left out of a request.
"""


def document() -> dict[str, Any]:
    """Return the OpenAPI document of a service with default settings."""
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings(warehouse=f"file://{folder}/warehouse", catalog=f"sqlite:///{folder}/catalog.db"))
        described: dict[str, Any] = app.openapi()
    return described


def operations_page(described: dict[str, Any]) -> str:
    """Return the page of operations, by tag."""
    about = {tag["name"]: tag["description"] for tag in described["tags"]}
    by_tag: dict[str, list[str]] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            section = "\n".join(_operation(method.upper(), path, operation))
            by_tag.setdefault(operation["tags"][0], []).append(section)
    return _HEAD + "".join(f"\n## {tag}\n\n{about[tag]}\n" + "".join(sections) for tag, sections in by_tag.items())


def values_page(described: dict[str, Any]) -> str:
    """Return the page of types, by name."""
    schemas = described["components"]["schemas"]
    return _VALUES_HEAD + "".join("\n".join(_value(name, schemas[name])) for name in sorted(schemas, key=str.lower))


def _operation(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"\n### {operation['summary']}\n\n`{method} {path}`\n"
    if operation.get("description"):
        yield markdown(operation["description"]) + "\n"
    if operation.get("parameters"):
        yield "| parameter | in | |\n|---|---|---|"
        for each in operation["parameters"]:
            yield f"| `{each['name']}` | {each['in']} | {cell(each['description'])} |"
        yield ""
    body = operation.get("requestBody")
    if body is not None:
        form, content = next(iter(body["content"].items()))
        yield f"- Body: {_kind(content['schema'])}" + ("" if form == "application/json" else f" as `{form}`")
    yield from _answers(operation["responses"])
    yield ""
    if body is not None and "example" in content:
        yield from _example(method, path, operation, content["example"])


def _example(method: str, path: str, operation: dict[str, Any], body: Any) -> Iterator[str]:
    """Yield the request of an example. Its answer is in the OpenAPI document."""
    named = {each["name"]: each["example"] for each in operation.get("parameters", ()) if "example" in each}
    yield f"```http\n{method} {path.format_map(named)}\n\n{json.dumps(body, indent=2, ensure_ascii=False)}\n```\n"


def _answers(responses: dict[str, Any]) -> Iterator[str]:
    for status, response in responses.items():
        codes = re.findall(r"`(\w+)`", response["description"])
        if status == "default":
            continue
        if int(status) >= 400:
            yield f"- {status}: {', '.join(f'`{code}`' for code in codes)}"
        elif status == "304":
            yield "- 304: not modified"
        else:
            yield f"- {status}: {_content(response)}"


def _content(response: dict[str, Any]) -> str:
    content = response.get("content", {})
    if not content:
        return "no body"
    forms = [f"`{form}`" for form in content]
    first = next(iter(content.values()))["schema"]
    kind = _kind(first) if first.get("type") != "string" or "$ref" in first else "text"
    return f"{kind} as {', '.join(forms)}"


def _value(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"\n## {name}\n"
    if schema.get("description"):
        yield markdown(schema["description"]) + "\n"
    members = schema.get("properties", {})
    if not members:
        yield f"{_kind(schema)}\n"
        return
    required = set(schema.get("required", ()))
    yield "| member | type | default |\n|---|---|---|"
    for member, kind in members.items():
        default = "" if member in required or "default" not in kind else f"`{_json(kind['default'])}`"
        yield f"| `{member}` | {cell(_kind(kind))} | {cell(default)} |"
    yield ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _kind(schema: dict[str, Any]) -> str:
    """Return a short description of a type."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        return f"[{name}]({VALUES}#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(f"`{_json(each)}`" for each in schema["enum"])
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return "array of " + ", ".join(_kind(each) for each in schema["prefixItems"])
        return f"array of {_kind(schema.get('items') or {})}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_kind(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))
