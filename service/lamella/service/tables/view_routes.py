"""Routes of views."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import actor_of, require, require_sight
from lamella.service.catalog import Catalog, plain_view
from lamella.service.http.admission import read_json
from lamella.service.http.mutations import Mutations
from lamella.service.http.routing import ServedOperation, json_response, require_json
from lamella.service.process.threads import Threads
from lamella.service.tables.views import Views
from lamella.service.usage.audit import about
from lamella.snapshot.wire import CreateView, RenameRequest, ViewDefinition, ViewList
from lamella.snapshot.wire.operations import views as operations

_CREATE: Final = msgspec.json.Decoder(CreateView)
_REPLACE: Final = msgspec.json.Decoder(ViewDefinition)
_RENAME: Final = msgspec.json.Decoder(RenameRequest)


class ViewRoutes:
    """Routes that create, list, return, change and drop views."""

    def __init__(self, *, catalog: Catalog, readers: Threads, mutations: Mutations, views: Views) -> None:
        self._catalog = catalog
        self._readers = readers
        self._mutations = mutations
        self._views = views

    async def create_view(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        payload = read_json(_CREATE, body)
        namespace, views, owner = request.path_params["namespace"], self._views, actor_of(request)
        about(request, f"{namespace}.{payload.name}")
        return await self._mutations.run(
            request, lambda idempotency_key: views.create(namespace, payload, idempotency_key, owner=owner), body
        )

    async def list_views(self, request: Request) -> Response:
        namespace = request.path_params["namespace"]
        rights = require_sight(request, namespace).rights
        found = await self._readers.run(lambda: self._catalog.views(namespace))
        return json_response(ViewList(views=rights.readable(namespace, found)))

    async def get_view(self, request: Request) -> Response:
        namespace, name = _named(request)
        return json_response(plain_view(await self._readers.run(lambda: self._catalog.view(namespace, name))))

    async def replace_view(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        payload = read_json(_REPLACE, body)
        namespace, name = _named(request)
        views = self._views
        return await self._mutations.run(
            request, lambda idempotency_key: views.replace(namespace, name, payload, idempotency_key), body
        )

    async def rename_view(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = _named(request)
        require(request, "maintain", namespace, view=name)
        payload = read_json(_RENAME, body)
        require(request, "write", payload.namespace or namespace)
        views = self._views
        return await self._mutations.run(
            request, lambda idempotency_key: views.rename(namespace, name, payload, idempotency_key), body
        )

    async def drop_view(self, request: Request) -> Response:
        namespace, name = _named(request)
        views = self._views
        return await self._mutations.run(request, lambda idempotency_key: views.drop(namespace, name, idempotency_key))

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.CREATE_VIEW, self.create_view),
            ServedOperation(operations.LIST_VIEWS, self.list_views),
            ServedOperation(operations.GET_VIEW, self.get_view),
            ServedOperation(operations.REPLACE_VIEW, self.replace_view),
            ServedOperation(operations.RENAME_VIEW, self.rename_view),
            ServedOperation(operations.DROP_VIEW, self.drop_view),
        )


def _named(request: Request) -> tuple[str, str]:
    """Return the namespace and the view of the path."""
    return request.path_params["namespace"], request.path_params["view"]
