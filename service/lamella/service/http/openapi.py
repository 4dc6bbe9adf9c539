"""Writes the OpenAPI document from the operations and their types, and ``/docs``, the same as one HTML page.

Its examples are in examples.json: for each operation a request that was made (``path``, ``query``, ``request``) and its
answer. tests/docs/http_examples.py makes them.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from lamella.service.http.problem import MEDIA_TYPE, Envelope, envelope_of, status_of
from lamella.service.http.routing import ServedOperation
from lamella.service.process.deadline import MAX_TIMEOUT_MS
from lamella.snapshot.errors import (
    BodyTooLarge,
    InvalidRequest,
    LamellaError,
    LimitExceeded,
    Overloaded,
    PermissionDenied,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from lamella.snapshot.manifest import Block
from lamella.snapshot.wire import Problem
from lamella.snapshot.wire.operation import IDEMPOTENCY_KEY, IF_NONE_MATCH, JSON, PATH_PARAMETERS, Nothing, Parameter

#: Errors of every operation that is not open to all.
_REFUSALS: Final = (InvalidRequest, Unauthenticated, PermissionDenied, RateLimited, Overloaded, Unavailable)

VERSION: Final = "3.1.0"
_REF: Final = "#/components/schemas/{name}"
#: Keywords of a schema that hold values, not schemas.
_VALUES: Final = frozenset(("default", "enum", "const", "examples", "example"))
#: What the operations of each tag are about.
TAGS: Final = {
    "Prune": "Which blocks a query must read, and why; differences of snapshots; aggregates from statistics.",
    "Rows": "Some rows of a table, read by the service.",
    "Operations": "Health, metrics, settings and rates of the service, and its audit trail.",
    "Blocks": "Blocks are registered, committed and looked up, also as files arrive or as an external table changes.",
    "Tables": "Tables are created, changed, renamed, dropped and restored.",
    "Namespaces": "Namespaces hold tables and views, and have quotas.",
    "Views": "Views of Spark's catalog.",
    "History": "Snapshots, tags, changes between snapshots, rollback, and leases that hold a snapshot.",
    "Branches": "Other heads of a table, and what moves commits between them.",
    "Indexes": "Skip indexes are created, refreshed and dropped.",
    "Layout": "Cluster keys, how well a table is clustered, and plans of what to rewrite.",
    "Feedback": "Blocks that readers found without a matching row.",
    "Maintenance": "Vacuum, verification, health and upkeep of tables.",
    "Jobs": "Jobs, schedules and policies.",
    "Workers": "What workers call to take jobs and report on them.",
    "Access": "API keys and grants.",
    "Advice": "Recorded filters, and predictions of what a change would save.",
    "Delta Sharing": "Tables as shares of the Delta Sharing protocol.",
    "Iceberg": "Tables over the Iceberg REST protocol.",
}
#: Where a service is; clients replace it.
_SERVER: Final = {
    "url": "{service}",
    "description": "A service.",
    "variables": {
        "service": {"default": "http://127.0.0.1:8181", "description": "Its address, as `lamella serve` says."}
    },
}
_LICENCE: Final = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
_SCHEME: Final = "key"
_BEARER: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key, or a token of the OpenID Connect issuer; required if the service has `auth` on.",
}


#: Of every operation that waits for a place.
TIMEOUT: Final = Parameter(
    name="Lamella-Timeout-Ms",
    location="header",
    description="How long the client waits for the begin of the answer, in milliseconds: the service gives up what "
    "only asks by then, and does not begin a change any more.",
    schema={"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS},
)


def describe(
    operations: Sequence[ServedOperation],
    *,
    title: str,
    version: str,
    description: str,
    maxima: Mapping[str, int],
    envelopes: Sequence[Envelope] = (),
) -> dict[str, Any]:
    """The whole document. ``maxima``: the settings that say the largest values of parameters.

    ``envelopes``: the forms of errors at the paths of other protocols.
    """
    described = [each.operation for each in operations]
    types = [t for o in described for t in (o.request_type, o.answer_type) if t not in (None, Nothing)]
    of_errors = [Problem, *(each.kind for each in envelopes)]
    schemas, components = msgspec.json.schema_components([*types, *of_errors, Block], ref_template=_REF)
    schema_of = dict(zip([id(t) for t in types], schemas[: len(types)], strict=True))
    examples = msgspec.json.decode((files(__package__) / "examples.json").read_bytes())
    _name_added_blocks(components)
    for schema in (*components.values(), *schemas):
        _give_items(schema)
        _drop_members_without_value(schema)
    paths: dict[str, dict[str, Any]] = {}
    for served in operations:
        operation = served.operation
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(
            served, schema_of, maxima, envelope_of(operation.path, envelopes), examples.get(operation.name, {})
        )
    return {
        "openapi": VERSION,
        "info": {"title": title, "version": version, "description": description, "license": _LICENCE},
        "servers": [_SERVER],
        "tags": [{"name": tag, "description": TAGS[tag]} for tag in dict.fromkeys(each.tag for each in described)],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {_SCHEME: _BEARER}},
    }


def _name_added_blocks(components: dict[str, Any]) -> None:
    # The blocks are decoded one by one, so that an error can name the block; the struct says only "anything".
    added = components.get("CommitRequest", {}).get("properties", {}).get("added")
    if added is not None:
        added["items"] = {"$ref": _REF.format(name="Block")}


def _give_items(schema: Any) -> None:
    """Give every array in a schema the ``items`` that client generators need.

    Many of them fail on ``"items": false``, or leave out operations with an array without ``items``. For an array of
    fixed length ``items`` describes any of its members; their order is in its description.
    """
    if isinstance(schema, list):
        for each in schema:
            _give_items(each)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "array" and "prefixItems" in schema:
        members = schema.pop("prefixItems")
        kinds = [kind for number, kind in enumerate(members) if kind not in members[:number]]
        schema["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        if len(kinds) > 1:
            schema.setdefault("description", f"In this order: {', '.join(map(_named, members))}.")
    elif schema.get("type") == "array":
        schema.setdefault("items", {})
    for name, each in schema.items():
        if name not in _VALUES:
            _give_items(each)


def _drop_members_without_value(schema: dict[str, Any]) -> None:
    """Leave out members that can only be null: some generators leave out every operation otherwise."""
    properties = schema.get("properties", {})
    for name in [name for name, each in properties.items() if each.get("type") == "null"]:
        del properties[name]


def _named(schema: dict[str, Any]) -> str:
    """Describe a member of an array in a word or two."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kind = schema.get("type", "any value")
    return f"array of {_named(schema['items'])}" if kind == "array" and schema.get("items") else str(kind)


def _operation(
    served: ServedOperation,
    schema_of: dict[int, dict[str, Any]],
    maxima: Mapping[str, int],
    envelope: Envelope | None,
    example: dict[str, Any],
) -> dict[str, Any]:
    operation = served.operation
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": _responses(served, schema_of, envelope, example),
    }
    described["description"] = " ".join(filter(None, (operation.description, served.permission.text)))
    described["security"] = [{_SCHEME: []}] if served.permission.scope != "public" else []
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": PATH_PARAMETERS[name],
            "schema": {"type": "string"},
            **_example(example.get("path", {}), name),
        }
        for name in operation.path_parameters
    ]
    parameters += [
        {
            "name": p.name,
            "in": p.location,
            "required": False,
            "description": p.description,
            "schema": _schema_of(p, maxima),
            **_example(example.get("query", {}), p.name),
        }
        for p in (*operation.parameters, *((TIMEOUT,) if served.is_admitted else ()))
    ]
    if parameters:
        described["parameters"] = parameters
    if operation.request_type is not None:
        schema = schema_of[id(operation.request_type)]
        content = {"schema": schema, **_example(example, "request")}
        described["requestBody"] = {"required": True, "content": {operation.request_media_type: content}}
    return described


def _example(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {"example": values[name]} if name in values else {}


def _schema_of(parameter: Parameter, maxima: Mapping[str, int]) -> dict[str, Any]:
    if parameter.maximum_setting is None:
        return parameter.schema
    return {**parameter.schema, "maximum": maxima[parameter.maximum_setting]}


def _responses(
    served: ServedOperation, schema_of: dict[int, dict[str, Any]], envelope: Envelope | None, example: dict[str, Any]
) -> dict[str, Any]:
    operation = served.operation
    done: dict[str, Any] = {"description": "Done."}
    if operation.answer_type is not Nothing:
        done["content"] = {
            operation.media_type: {"schema": schema_of[id(operation.answer_type)], **_example(example, "answer")}
        }
    elif operation.media_type != JSON:  # text; an answer without a type and without text has no body
        done["content"] = {operation.media_type: {"schema": {"type": "string"}, **_example(example, "answer")}}
    for media_type in operation.other_media_types:
        done["content"][media_type] = {"schema": {"type": "string", "format": "binary"}}
    if IDEMPOTENCY_KEY in operation.parameters:
        done["headers"] = {
            "Idempotency-Replayed": {
                "description": "`true` if this is the stored answer of an earlier request with the same key.",
                "schema": {"type": "string", "enum": ["true"]},
            }
        }
    responses = {str(operation.status): done}
    if IF_NONE_MATCH in operation.parameters:
        responses["304"] = {"description": "Not modified: the answer still has the `ETag` that the client sent."}
    by_status: dict[int, list[type[LamellaError]]] = {}
    refusals = _REFUSALS if served.permission.scope != "public" else ()
    bodies = (BodyTooLarge, LimitExceeded) if operation.request_type is not None else ()
    for kind in dict.fromkeys((*operation.errors, *refusals, *bodies)):
        status = status_of(kind) if envelope is None else envelope.status(kind, status_of(kind))
        by_status.setdefault(status, []).append(kind)
    for status, kinds in sorted(by_status.items()):
        responses[str(status)] = _problem(envelope, ", ".join(f"`{kind.code}`" for kind in kinds))
    responses["default"] = _problem(envelope, "any other error")
    return responses


def _problem(envelope: Envelope | None, codes: str) -> dict[str, Any]:
    if envelope is not None:
        schema = {"$ref": _REF.format(name=envelope.kind.__name__)}
        return {"description": f"An error: {codes}.", "content": {JSON: {"schema": schema}}}
    return {
        "description": f"A problem document: {codes}.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}},
    }


_STYLE: Final = """
:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}
body{max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font:0.875rem/1.45 ui-monospace,monospace}
pre{overflow:auto;padding:.75rem;border:1px solid #8884;border-radius:.4rem}
details{border:1px solid #8884;border-radius:.4rem;margin:.5rem 0;padding:.4rem .8rem}
summary{cursor:pointer}
summary b{display:inline-block;min-width:4.5rem}
table{border-collapse:collapse;width:100%}
td,th{border-bottom:1px solid #8884;padding:.3rem .6rem .3rem 0;text-align:left;vertical-align:top}
"""

#: The page may use its own style and nothing else.
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    + "'"
)


def reference_page(document: dict[str, Any]) -> str:
    """Return the HTML page of an OpenAPI document."""
    info = document["info"]
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(_operation_html(method.upper(), path, operation))
    sections = "".join(
        f"<h2>{escape(tag)}</h2><p>{escape(TAGS[tag])}</p>{''.join(parts)}" for tag, parts in by_tag.items()
    )
    schemas = "".join(_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items()))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1><p>{escape(info['description'])}</p>"
        '<p>For programs: <a href="openapi.json">openapi.json</a></p>'
        f"{sections}<h2>Values</h2>{schemas}</body></html>"
    )


def front_page(title: str, version: str, links: Mapping[str, str]) -> str:
    """Return the HTML page at ``/`` of a service without a console; ``links``: addresses by what they are."""
    rows = "".join(
        f'<tr><td><a href="{escape(address.removeprefix("/"))}"><code>{escape(address)}</code></a></td>'
        f"<td>{escape(what)}</td></tr>"
        for what, address in links.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)} <small>{escape(version)}</small></h1>"
        f"<p>The service runs. Its console is switched off.</p><table>{rows}</table></body></html>"
    )


def _operation_html(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [f"<p>{escape(operation['description'])}</p>"] if "description" in operation else []
    if "parameters" in operation:
        rows = "".join(
            f"<tr><td><code>{escape(p['name'])}</code></td><td>{escape(p['in'])}</td>"
            f"<td>{escape(p['description'])}</td></tr>"
            for p in operation["parameters"]
        )
        parts.append(f"<table><tr><th>parameter</th><th>in</th><th></th></tr>{rows}</table>")
    if "requestBody" in operation:
        parts.append(f"<p>Body: {_content(operation['requestBody'])}</p>")
    rows = "".join(
        f"<tr><td>{escape(status)}</td><td>{escape(response['description'])}</td><td>{_content(response)}</td></tr>"
        for status, response in operation["responses"].items()
    )
    parts.append(f"<table><tr><th>status</th><th></th><th>body</th></tr>{rows}</table>")
    parts += [f"<p>For example:</p><pre>{escape(each)}</pre>" for each in _examples(method, path, operation)]
    return (
        f'<details id="{escape(operation["operationId"])}"><summary><b>{method}</b> <code>{escape(path)}</code> '
        f"{escape(operation['summary'])}</summary>{''.join(parts)}</details>"
    )


def _examples(method: str, path: str, operation: dict[str, Any]) -> list[str]:
    """The request that is an example, and its answer, as one text; none if the operation has no example."""
    parameters = [each for each in operation.get("parameters", ()) if "example" in each]
    named = {each["name"]: each["example"] for each in parameters if each["in"] == "path"}
    query = urlencode({each["name"]: each["example"] for each in parameters if each["in"] == "query"})
    done = next(each for status, each in operation["responses"].items() if status.startswith("2"))
    bodies = [*operation.get("requestBody", {}).get("content", {}).values(), *done.get("content", {}).values()]
    texts = [_text(each["example"]) for each in bodies if "example" in each]
    if not texts:
        return []
    return ["\n\n".join((f"{method} {path.format_map(named)}{'?' if query else ''}{query}", *texts))]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _content(holder: dict[str, Any]) -> str:
    return ", ".join(
        f"{_link(body['schema'])} <small>{escape(kind)}</small>" for kind, body in holder.get("content", {}).items()
    )


def _link(schema: dict[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    return f'<a href="#schema-{escape(name)}"><code>{escape(name)}</code></a>' if name else "text"


def _schema(name: str, schema: dict[str, Any]) -> str:
    body = escape(_text(schema))
    title = f"<summary><code>{escape(name)}</code></summary>"
    return f'<details id="schema-{escape(name)}">{title}<pre>{body}</pre></details>'
