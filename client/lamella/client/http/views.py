"""Views: the calls. Their methods are in :mod:`lamella.client.http.aio.views`."""

from __future__ import annotations

from lamella.client.http.call import Call, TableName, make_call
from lamella.snapshot import wire
from lamella.snapshot.wire import operations
from lamella.snapshot.wire.operation import Nothing


def views_call(namespace: str) -> Call[wire.ViewList]:
    """List the views of a namespace."""
    return make_call(operations.views.LIST_VIEWS, namespace=namespace)


def view_call(name: TableName) -> Call[wire.ViewInfo]:
    """Get a view."""
    return make_call(operations.views.GET_VIEW, namespace=name.namespace, view=name.table)


def create_view_call(name: TableName, definition: wire.ViewDefinition) -> Call[wire.ViewInfo]:
    """Create a view."""
    body = wire.CreateView(name=name.table, definition=definition)
    return make_call(operations.views.CREATE_VIEW, namespace=name.namespace, body=body)


def replace_view_call(name: TableName, definition: wire.ViewDefinition) -> Call[wire.ViewInfo]:
    """Replace the definition of a view."""
    return make_call(operations.views.REPLACE_VIEW, namespace=name.namespace, view=name.table, body=definition)


def rename_view_call(name: TableName, new_name: TableName) -> Call[wire.ViewInfo]:
    """Rename a view."""
    namespace = None if new_name.namespace == name.namespace else new_name.namespace
    body = wire.RenameRequest(name=new_name.table, namespace=namespace)
    return make_call(operations.views.RENAME_VIEW, namespace=name.namespace, view=name.table, body=body)


def drop_view_call(name: TableName) -> Call[Nothing]:
    """Drop a view."""
    return make_call(operations.views.DROP_VIEW, namespace=name.namespace, view=name.table)
