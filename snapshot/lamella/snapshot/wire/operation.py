"""Operations of the HTTP API as values. The service's routes, the OpenAPI document, permission checks and the client's
calls are made from them.

:mod:`lamella.snapshot.wire.operations` is the table of them. A protocol that can be left out of a service (Iceberg,
Delta Sharing, advice) has its own part of the table in its folder.
"""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from lamella.snapshot.errors import (
    FilterTypeMismatch,
    InvalidFilter,
    InvalidRequest,
    LamellaError,
    LimitExceeded,
    ManifestError,
    NamespaceNotFound,
    SnapshotExpired,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.wire.access import Role

Answer = TypeVar("Answer")
Method = Literal["GET", "POST", "PUT", "DELETE"]
Scope = Literal["public", "authenticated", "request", "server", "namespace", "table", "view"]
Resend = Literal["freely", "with_key", "reported", "never"]

JSON: Final = "application/json"
#: JSON, one value per line.
NDJSON: Final = "application/x-ndjson"
ARROW: Final = "application/vnd.apache.arrow.stream"
MSGPACK: Final = "application/vnd.msgpack"

NAMESPACES: Final = "/v1/namespaces"
NAMESPACE: Final = "/v1/namespaces/{namespace}"
TABLES: Final = "/v1/namespaces/{namespace}/tables"
TABLE: Final = "/v1/namespaces/{namespace}/tables/{table}"
VIEWS: Final = "/v1/namespaces/{namespace}/views"
VIEW: Final = "/v1/namespaces/{namespace}/views/{view}"

#: Descriptions of path parameters.
PATH_PARAMETERS: Final = {
    "namespace": "Name of a namespace.",
    "table": "Name of a table, or `table@branch` for a branch of it.",
    "view": "Name of a view.",
    "snapshot_id": "Id of a snapshot.",
    "segment_id": "Id of a segment.",
    "tag": "Name of a tag.",
    "branch": "Name of a branch.",
    "lease_id": "Id of a lease.",
    "index": "Name of a skip index.",
    "job_id": "Id of a job.",
    "schedule": "Name of a schedule.",
    "key": "Name of an API key.",
    "share": "Name of a share: `lamella`.",
    "plan_id": "Id of a plan.",
    "action_id": "Id of an action of automatic upkeep.",
}
_PATH_PARAMETER: Final = re.compile(r"{(\w+)}")

#: Errors of operations on a table.
OF_A_TABLE: Final = (NamespaceNotFound, TableNotFound)
#: Errors of operations that read a snapshot.
OF_A_SNAPSHOT: Final = (
    InvalidRequest,
    *OF_A_TABLE,
    SnapshotNotFound,
    SnapshotExpired,
    ManifestError,
    StoreError,
    Unavailable,
)
#: Additional errors of operations with a filter.
OF_A_FILTER: Final = (InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded)


class Permission(msgspec.Struct, frozen=True):
    """The permission that an operation requires: a role and its scope. Every operation has one.

    ``scope``: the role is required on the ``server``, or on the ``namespace``, ``table`` or ``view`` in the path.
    ``public``: no key is required. ``authenticated``: any key; the answer has only what the key may see. ``request``:
    the operation's handler decides from the request, and the service enforces that it does.
    """

    scope: Scope
    role: Role | None = None

    @property
    def text(self) -> str:
        """A sentence for the API's description; empty if the description of the operation states the permission."""
        if self.scope == "public":
            return "Requires no key."
        if self.role is None:
            return (
                "Requires any key; the answer has what its grants allow it to see."
                if self.scope == "authenticated"
                else ""
            )
        return f"Requires `{self.role}` on the {self.scope}."


PUBLIC: Final = Permission("public")
AUTHENTICATED: Final = Permission("authenticated")
BY_REQUEST: Final = Permission("request")


def on_table(role: Role) -> Permission:
    """A role on the table in the path."""
    return Permission("table", role)


def on_view(role: Role) -> Permission:
    """A role on the view in the path. Grants on a table's name are on a view of this name."""
    return Permission("view", role)


def on_namespace(role: Role) -> Permission:
    """A role on the namespace in the path."""
    return Permission("namespace", role)


def on_server(role: Role) -> Permission:
    """A role on the whole service."""
    return Permission("server", role)


class Nothing(msgspec.Struct, frozen=True):
    """The answer type of an operation without a response body."""


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A query or header parameter. ``schema``: its JSON Schema.

    ``maximum_setting``: the setting of the service that gives the maximum, if it is configurable.
    """

    name: str
    description: str
    location: Literal["query", "header"] = "query"
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "string"})
    maximum_setting: Literal["page_size_max"] | None = None


IDEMPOTENCY_KEY: Final = Parameter(
    name="Idempotency-Key",
    location="header",
    description="Any text of up to 255 printable characters, such as a version 7 UUID. A request that is repeated "
    "with the same key is not executed again: the service returns the first answer, with the header "
    "Idempotency-Replayed.",
    schema={"type": "string", "minLength": 1, "maxLength": 255},
)


IF_NONE_MATCH: Final = Parameter(
    name="If-None-Match",
    location="header",
    description="The `ETag` of an earlier answer. If it is still current, the response is 304 without a body.",
)


class Operation(msgspec.Struct, Generic[Answer], frozen=True, kw_only=True):
    """One method of one path. ``request_type`` and ``answer_type`` are msgspec types; None and Nothing: no body."""

    #: The id of the operation in the OpenAPI document and the audit trail.
    name: str
    method: Method
    path: str
    permission: Permission
    summary: str
    tag: str
    description: str = ""
    request_type: Any = None
    request_media_type: str = JSON
    answer_type: type[Answer]
    status: int = 200
    media_type: str = JSON
    #: Other media types of the answer, selected by ``Accept``.
    other_media_types: tuple[str, ...] = ()
    #: Without the header Idempotency-Key, which follows from ``resend``.
    own_parameters: tuple[Parameter, ...] = ()
    errors: tuple[type[LamellaError], ...] = ()
    #: What a client may do when it does not know whether its request was carried out. ``freely``: repeat it.
    #: ``with_key``: repeat it with the same Idempotency-Key. ``reported``: repeat it, and report an unknown outcome to
    #: the user if that fails too. ``never``: do not repeat it, since the second answer would differ from the first.
    resend: Resend = "freely"
    #: True for a POST that changes nothing, like a GET: it is cancelled when the client disconnects.
    is_question: bool = False
    #: False for a request that changes something but is not recorded in the audit trail.
    is_recorded: bool = True
    #: True if its body may be as large as the service accepts; other bodies are limited to one mebibyte.
    is_large: bool = False

    @property
    def is_read(self) -> bool:
        """Returns whether the operation changes nothing."""
        return self.is_question or self.method == "GET"

    @property
    def is_audited(self) -> bool:
        """Returns whether every request is recorded in the audit trail."""
        return self.is_recorded and not self.is_read

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Returns the query and header parameters."""
        return (IDEMPOTENCY_KEY, *self.own_parameters) if self.resend == "with_key" else self.own_parameters

    @property
    def path_parameters(self) -> tuple[str, ...]:
        """Returns the names of the path parameters."""
        return tuple(_PATH_PARAMETER.findall(self.path))


def operations_of(module: ModuleType) -> tuple[Operation[Any], ...]:
    """Returns the operations that a module defines, in the order of definition."""
    return tuple(each for each in vars(module).values() if isinstance(each, Operation))
