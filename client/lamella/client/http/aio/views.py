"""Methods for views."""

from __future__ import annotations

from lamella.client.http.aio.runner import AsyncCallRunner
from lamella.client.http.call import TableName
from lamella.client.http.views import (
    create_view_call,
    drop_view_call,
    rename_view_call,
    replace_view_call,
    view_call,
    views_call,
)
from lamella.snapshot import wire


class AsyncLakeViews:
    """Views; a part of :class:`lamella.client.AsyncLamella`. Spark's catalog reads them; the service runs no query."""

    async def views(self: AsyncCallRunner, namespace: str) -> tuple[str, ...]:
        """The names of the views of a namespace; raises NamespaceNotFound."""
        return (await self.run(views_call(namespace))).views

    async def view(self: AsyncCallRunner, name: str) -> wire.ViewInfo:
        """A view, ``namespace.view``; raises NamespaceNotFound, ViewNotFound."""
        return await self.run(view_call(TableName.parse(name)))

    async def create_view(
        self: AsyncCallRunner, name: str, definition: wire.ViewDefinition, *, idempotency_key: str | None = None
    ) -> wire.ViewInfo:
        """Create a view; raises InvalidRequest, NamespaceNotFound, AlreadyExists (a table or a view has the name)."""
        return await self.run(create_view_call(TableName.parse(name), definition), idempotency_key)

    async def replace_view(
        self: AsyncCallRunner, name: str, definition: wire.ViewDefinition, *, idempotency_key: str | None = None
    ) -> wire.ViewInfo:
        """Give a view another definition; raises InvalidRequest, NamespaceNotFound, ViewNotFound."""
        return await self.run(replace_view_call(TableName.parse(name), definition), idempotency_key)

    async def rename_view(
        self: AsyncCallRunner, name: str, new_name: str, *, idempotency_key: str | None = None
    ) -> wire.ViewInfo:
        """Rename a view; with another namespace in ``new_name`` it moves there.

        Raises NamespaceNotFound, ViewNotFound, AlreadyExists (the name is taken).
        """
        call = rename_view_call(TableName.parse(name), TableName.parse(new_name))
        return await self.run(call, idempotency_key)

    async def drop_view(self: AsyncCallRunner, name: str, *, idempotency_key: str | None = None) -> None:
        """Drop a view, which cannot be restored; raises NamespaceNotFound, ViewNotFound."""
        await self.run(drop_view_call(TableName.parse(name)), idempotency_key)
