# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/views.py: change that file.
"""Methods for views."""

from __future__ import annotations

from lamella.client.http.call import TableName
from lamella.client.http.sync.runner import CallRunner
from lamella.client.http.views import (
    create_view_call,
    drop_view_call,
    rename_view_call,
    replace_view_call,
    view_call,
    views_call,
)
from lamella.snapshot import wire


class LakeViews:
    """Views; a part of :class:`lamella.client.Lamella`. Spark's catalog reads them; the service runs no query."""

    def views(self: CallRunner, namespace: str) -> tuple[str, ...]:
        """The names of the views of a namespace; raises NamespaceNotFound."""
        return self.run(views_call(namespace)).views

    def view(self: CallRunner, name: str) -> wire.ViewInfo:
        """A view, ``namespace.view``; raises NamespaceNotFound, ViewNotFound."""
        return self.run(view_call(TableName.parse(name)))

    def create_view(
        self: CallRunner, name: str, definition: wire.ViewDefinition, *, idempotency_key: str | None = None
    ) -> wire.ViewInfo:
        """Create a view; raises InvalidRequest, NamespaceNotFound, AlreadyExists (a table or a view has the name)."""
        return self.run(create_view_call(TableName.parse(name), definition), idempotency_key)

    def replace_view(
        self: CallRunner, name: str, definition: wire.ViewDefinition, *, idempotency_key: str | None = None
    ) -> wire.ViewInfo:
        """Give a view another definition; raises InvalidRequest, NamespaceNotFound, ViewNotFound."""
        return self.run(replace_view_call(TableName.parse(name), definition), idempotency_key)

    def rename_view(self: CallRunner, name: str, new_name: str, *, idempotency_key: str | None = None) -> wire.ViewInfo:
        """Rename a view; with another namespace in ``new_name`` it moves there.

        Raises NamespaceNotFound, ViewNotFound, AlreadyExists (the name is taken).
        """
        call = rename_view_call(TableName.parse(name), TableName.parse(new_name))
        return self.run(call, idempotency_key)

    def drop_view(self: CallRunner, name: str, *, idempotency_key: str | None = None) -> None:
        """Drop a view, which cannot be restored; raises NamespaceNotFound, ViewNotFound."""
        self.run(drop_view_call(TableName.parse(name)), idempotency_key)
