"""Creates, replaces, renames and drops views."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import msgspec

from lamella.service.catalog import Catalog, StoredView, plain_view
from lamella.service.http.idempotency import IdempotencyKey, StoredResponse
from lamella.service.tables.names import check_name
from lamella.snapshot.errors import InvalidRequest, Unavailable
from lamella.snapshot.iceberg.view_metadata import last_version_id
from lamella.snapshot.ids import Ids
from lamella.snapshot.wire import CreateView, RenameRequest, ViewDefinition, ViewInfo

#: How often a change of a view is retried if others change it too.
_TRIES: Final = 20


class Views:
    """Creates and changes views by name."""

    def __init__(self, catalog: Catalog, ids: Ids, clock: Callable[[], int]) -> None:
        self._catalog = catalog
        self._ids = ids
        self._clock = clock

    def create(
        self, namespace: str, request: CreateView, idempotency_key: IdempotencyKey, *, owner: str
    ) -> StoredResponse:
        """Add a view. Raises InvalidRequest, NamespaceNotFound, AlreadyExists (a table or view has the name)."""
        _check(request.definition)
        now_ms = self._clock()
        view = ViewInfo(
            view_id=str(self._ids.new()),
            namespace=namespace,
            name=check_name("view", request.name),
            definition=request.definition,
            owner=owner,
            version=1,
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
        stored_response = idempotency_key.store_as(201, view)
        self._catalog.create_view(view, remember=stored_response.stored)
        return stored_response

    def replace(
        self, namespace: str, name: str, definition: ViewDefinition, idempotency_key: IdempotencyKey
    ) -> StoredResponse:
        """Give a view another definition. Raises InvalidRequest, NamespaceNotFound, ViewNotFound, Unavailable."""
        _check(definition)
        for _ in range(_TRIES):
            before = self._catalog.view(namespace, name)
            after = msgspec.structs.replace(
                before,
                definition=_following(before, definition),
                version=before.version + 1,
                updated_at_ms=max(self._clock(), before.updated_at_ms),
            )
            stored_response = idempotency_key.store_as(200, plain_view(after))
            if self._catalog.replace_view(before, after, remember=stored_response.stored):
                return stored_response
        raise _busy()

    def rename(
        self, namespace: str, name: str, request: RenameRequest, idempotency_key: IdempotencyKey
    ) -> StoredResponse:
        """Give a view another name, or move it to another namespace.

        Raises:
            InvalidRequest: an invalid name, or the name that it has.
            NamespaceNotFound, ViewNotFound: no such view, or no such namespace to move it to.
            AlreadyExists: a table or view has the name.
        """
        to = (request.namespace or namespace, check_name("view", request.name))
        if to == (namespace, name):
            raise InvalidRequest(f"the view is called {namespace}.{name} already")
        for _ in range(_TRIES):
            before = self._catalog.view(namespace, name)
            after = msgspec.structs.replace(before, namespace=to[0], name=to[1])
            stored_response = idempotency_key.store_as(200, plain_view(after))
            if self._catalog.rename_view(before, *to, remember=stored_response.stored):
                return stored_response
        raise _busy()

    def drop(self, namespace: str, name: str, idempotency_key: IdempotencyKey) -> StoredResponse:
        """Drop a view. Raises NamespaceNotFound, ViewNotFound."""
        view = self._catalog.view(namespace, name)
        stored_response = idempotency_key.store_as(204)
        self._catalog.drop_view(view, remember=stored_response.stored)
        return stored_response


def _following(before: ViewInfo, definition: ViewDefinition) -> ViewDefinition:
    """Return the definition to store. Iceberg's metadata is made anew from it, with a higher number of the version."""
    known = before.definition
    if not isinstance(known, StoredView):
        return definition
    offset = known.version_offset
    if known.iceberg is not None:
        offset = max(offset, last_version_id(known.iceberg.metadata) - before.version)
    fields = {name: getattr(definition, name) for name in ViewDefinition.__struct_fields__}
    return StoredView(**fields, version_offset=offset)


def _check(definition: ViewDefinition) -> None:
    """Raise InvalidRequest for columns that no reader could use."""
    try:
        struct = json.loads(definition.schema_json)
        names = [field["name"] for field in struct["fields"]]
        is_valid = struct["type"] == "struct" and all(isinstance(name, str) for name in names)
    except (ValueError, TypeError, KeyError, RecursionError):
        is_valid = False
    if not is_valid:
        raise InvalidRequest("schema_json is not a struct type in Spark's JSON")
    if definition.query_columns and len(definition.query_columns) != len(names):
        raise InvalidRequest(f"the view has {len(names)} columns, and query_columns {len(definition.query_columns)}")


def _busy() -> Unavailable:
    return Unavailable("the view is being changed by others; try again", retry_after_s=1)
