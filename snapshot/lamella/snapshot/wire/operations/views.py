"""Views."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    AlreadyExists,
    BodyTooLarge,
    IdempotencyMismatch,
    InvalidRequest,
    NamespaceNotFound,
    OutcomeUnknown,
    Unavailable,
    ViewNotFound,
)
from lamella.snapshot.wire import CreateView, RenameRequest, ViewDefinition, ViewInfo, ViewList
from lamella.snapshot.wire.operation import (
    BY_REQUEST,
    VIEW,
    VIEWS,
    Nothing,
    Operation,
    on_namespace,
    on_view,
)

_OF_A_CHANGE: Final = (
    InvalidRequest,
    BodyTooLarge,
    NamespaceNotFound,
    IdempotencyMismatch,
    Unavailable,
    OutcomeUnknown,
)

CREATE_VIEW: Final = Operation(
    name="create_view",
    method="POST",
    path=VIEWS,
    permission=on_namespace("write"),
    summary="Create a view",
    tag="Views",
    description="A view is a query under a name, which Spark's catalog reads. The service stores it and does not run "
    "it. Tables and views of a namespace have different names.",
    request_type=CreateView,
    answer_type=ViewInfo,
    status=201,
    errors=(*_OF_A_CHANGE, AlreadyExists),
    resend="with_key",
)

LIST_VIEWS: Final = Operation(
    name="list_views",
    method="GET",
    path=VIEWS,
    permission=BY_REQUEST,
    summary="List the views of a namespace",
    tag="Views",
    answer_type=ViewList,
    errors=(NamespaceNotFound,),
)

GET_VIEW: Final = Operation(
    name="get_view",
    method="GET",
    path=VIEW,
    permission=on_view("read"),
    summary="Get a view",
    tag="Views",
    description="To read a view, a role on the tables of its query is needed, too.",
    answer_type=ViewInfo,
    errors=(NamespaceNotFound, ViewNotFound),
)

REPLACE_VIEW: Final = Operation(
    name="replace_view",
    method="PUT",
    path=VIEW,
    permission=on_view("write"),
    summary="Replace the definition of a view",
    tag="Views",
    request_type=ViewDefinition,
    answer_type=ViewInfo,
    errors=(*_OF_A_CHANGE, ViewNotFound),
    resend="with_key",
)

RENAME_VIEW: Final = Operation(
    name="rename_view",
    method="POST",
    path=VIEW + "/rename",
    permission=BY_REQUEST,
    summary="Rename a view, or move it to another namespace",
    tag="Views",
    description="Requires `maintain` on the view, and `write` on the namespace that gets the name.",
    request_type=RenameRequest,
    answer_type=ViewInfo,
    errors=(*_OF_A_CHANGE, ViewNotFound, AlreadyExists),
    resend="with_key",
)

DROP_VIEW: Final = Operation(
    name="drop_view",
    method="DELETE",
    path=VIEW,
    permission=on_view("maintain"),
    summary="Drop a view",
    tag="Views",
    description="A view cannot be restored.",
    answer_type=Nothing,
    status=204,
    errors=(NamespaceNotFound, ViewNotFound, IdempotencyMismatch, Unavailable, OutcomeUnknown),
    resend="with_key",
)
