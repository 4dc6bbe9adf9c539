"""The OpenAPI description, written from the operations and the msgspec types that requests and answers really have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from lamella.service.api import IDEMPOTENCY_KEY, IF_NONE_MATCH, JSON, TIMEOUT, Operation
from lamella.service.envelopes import ENVELOPES, envelope_of
from lamella.service.problem import MEDIA_TYPE, status_of
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

#: What any request can be refused for that is not open to all.
_REFUSALS: Final = (InvalidRequest, Unauthenticated, PermissionDenied, RateLimited, Overloaded, Unavailable)

VERSION: Final = "3.1.0"
_REF: Final = "#/components/schemas/{name}"
#: Keywords of a schema that hold values, not schemas.
_VALUES: Final = frozenset(("default", "enum", "const", "examples", "example"))
_SCHEME: Final = "key"
_BEARER: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key, or a token of the OpenID Connect issuer; where the service asks for one (`auth`).",
}
_PATH_PARAMETER: Final = re.compile(r"{(\w+)}")
_PATH_TEXTS: Final = {
    "namespace": "Name of a namespace.",
    "table": "Name of a table.",
    "snapshot_id": "Id of a snapshot.",
    "segment_id": "Id of a segment.",
    "tag": "A tag's name.",
    "lease_id": "Id of a lease.",
    "index": "Name of a skip index.",
    "job_id": "Id of a job.",
    "schedule": "Name of a schedule.",
    "key": "Name of an API key.",
    "share": "Name of a share: `lamella`.",
    "plan_id": "Id of a plan.",
}


def describe(operations: Sequence[Operation], *, title: str, version: str, description: str) -> dict[str, Any]:
    """The whole document."""
    types = [t for o in operations for t in (o.request_type, o.answer_type) if t is not None]
    of_errors = [Problem, *(each.kind for each in ENVELOPES)]
    schemas, components = msgspec.json.schema_components([*types, *of_errors, Block], ref_template=_REF)
    schema_of = dict(zip([id(t) for t in types], schemas[: len(types)], strict=True))
    _name_added_blocks(components)
    for schema in (*components.values(), *schemas):
        _give_items(schema)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schema_of)
    return {
        "openapi": VERSION,
        "info": {"title": title, "version": version, "description": description},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {_SCHEME: _BEARER}},
    }


def _name_added_blocks(components: dict[str, Any]) -> None:
    # They are decoded one by one, so that an error can name the block, and the struct says only "anything".
    added = components.get("CommitRequest", {}).get("properties", {}).get("added")
    if added is not None:
        added["items"] = {"$ref": _REF.format(name="Block")}


def _give_items(schema: Any) -> None:
    """Give every array within a schema the items that generators of clients ask for.

    Many of them stop at ``"items": false``, or leave out each operation that has an array without ``items``. An array
    of fixed length says in ``items`` what any of its members is; their sequence stands in its description.
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


def _named(schema: dict[str, Any]) -> str:
    """What a member of an array is, in a word or two."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kind = schema.get("type", "any value")
    return f"array of {_named(schema['items'])}" if kind == "array" and schema.get("items") else str(kind)


def _operation(operation: Operation, schema_of: dict[int, dict[str, Any]]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.operation_id,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": _responses(operation, schema_of),
    }
    described["description"] = " ".join(filter(None, (operation.description, operation.needs.text)))
    described["security"] = [{_SCHEME: []}] if operation.needs.place != "nobody" else []
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATH_TEXTS[name],
            "schema": {"type": "string"},
        }
        for name in _PATH_PARAMETER.findall(operation.path)
    ]
    parameters += [
        {"name": p.name, "in": p.place, "required": False, "description": p.description, "schema": p.schema}
        for p in (*operation.parameters, *((TIMEOUT,) if operation.is_admitted else ()))
    ]
    if parameters:
        described["parameters"] = parameters
    if operation.request_type is not None:
        schema = schema_of[id(operation.request_type)]
        described["requestBody"] = {"required": True, "content": {operation.request_media_type: {"schema": schema}}}
    return described


def _responses(operation: Operation, schema_of: dict[int, dict[str, Any]]) -> dict[str, Any]:
    done: dict[str, Any] = {"description": "Done."}
    if operation.answer_type is not None:
        done["content"] = {operation.media_type: {"schema": schema_of[id(operation.answer_type)]}}
    elif operation.status != 204:
        done["content"] = {operation.media_type: {"schema": {"type": "string"}}}
    for media_type in operation.other_media_types:
        done["content"][media_type] = {"schema": {"type": "string", "format": "binary"}}
    if IDEMPOTENCY_KEY in operation.parameters:
        done["headers"] = {
            "Idempotency-Replayed": {
                "description": "`true` when this is the stored answer of an earlier request with the same key.",
                "schema": {"type": "string", "enum": ["true"]},
            }
        }
    responses = {str(operation.status): done}
    if IF_NONE_MATCH in operation.parameters:
        responses["304"] = {"description": "The client has it: nothing changed since the `ETag` that it names."}
    by_status: dict[int, list[type[LamellaError]]] = {}
    refusals = _REFUSALS if operation.needs.place != "nobody" else ()
    bodies = (BodyTooLarge, LimitExceeded) if operation.request_type is not None else ()
    envelope = envelope_of(operation.path)
    for kind in dict.fromkeys((*operation.errors, *refusals, *bodies)):
        status = status_of(kind) if envelope is None else envelope.status(kind, status_of(kind))
        by_status.setdefault(status, []).append(kind)
    for status, kinds in sorted(by_status.items()):
        responses[str(status)] = _problem(operation.path, ", ".join(f"`{kind.code}`" for kind in kinds))
    responses["default"] = _problem(operation.path, "any other error")
    return responses


def _problem(path: str, codes: str) -> dict[str, Any]:
    envelope = envelope_of(path)
    if envelope is not None:
        schema = {"$ref": _REF.format(name=envelope.kind.__name__)}
        return {"description": f"An error: {codes}.", "content": {JSON: {"schema": schema}}}
    return {
        "description": f"A problem document: {codes}.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}},
    }
