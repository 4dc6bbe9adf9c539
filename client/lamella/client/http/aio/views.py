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
        """The names of the views of a namespace; raises NamespaceNotFound.

        Example:
            >>> await lake.views("shop")
            ('cheap',)
        """
        return (await self.run(views_call(namespace))).views

    async def view(self: AsyncCallRunner, name: str) -> wire.ViewInfo:
        """A view, ``namespace.view``; raises NamespaceNotFound, ViewNotFound.

        Example:
            >>> (await lake.view("shop.cheap")).definition.sql
            'SELECT id FROM shop.orders WHERE price < 50'
        """
        return await self.run(view_call(TableName.parse(name)))

    async def create_view(
        self: AsyncCallRunner, name: str, definition: wire.ViewDefinition, *, idempotency_key: str | None = None
    ) -> wire.ViewInfo:
        """Create a view; raises InvalidRequest, NamespaceNotFound, AlreadyExists (a table or a view has the name).

        Example:
            >>> from lamella.snapshot.wire import ViewDefinition
            >>> definition = ViewDefinition(sql="SELECT id FROM shop.orders WHERE price > 9", schema_json=columns_json)
            >>> (await lake.create_view("shop.dear", definition)).version
            1
        """
        return await self.run(create_view_call(TableName.parse(name), definition), idempotency_key)

    async def replace_view(
        self: AsyncCallRunner, name: str, definition: wire.ViewDefinition, *, idempotency_key: str | None = None
    ) -> wire.ViewInfo:
        """Give a view another definition; raises InvalidRequest, NamespaceNotFound, ViewNotFound.

        Example:
            >>> from lamella.snapshot.wire import ViewDefinition
            >>> definition = ViewDefinition(sql="SELECT id FROM shop.orders WHERE price < 20", schema_json=columns_json)
            >>> (await lake.replace_view("shop.cheap", definition)).version
            2
        """
        return await self.run(replace_view_call(TableName.parse(name), definition), idempotency_key)

    async def rename_view(
        self: AsyncCallRunner, name: str, new_name: str, *, idempotency_key: str | None = None
    ) -> wire.ViewInfo:
        """Rename a view; with another namespace in ``new_name`` it moves there.

        Raises NamespaceNotFound, ViewNotFound, AlreadyExists (the name is taken).

        Example:
            >>> (await lake.rename_view("shop.cheap", "shop.bargains")).name
            'bargains'
        """
        call = rename_view_call(TableName.parse(name), TableName.parse(new_name))
        return await self.run(call, idempotency_key)

    async def drop_view(self: AsyncCallRunner, name: str, *, idempotency_key: str | None = None) -> None:
        """Drop a view, which cannot be restored; raises NamespaceNotFound, ViewNotFound.

        Example:
            >>> await lake.drop_view("shop.cheap")
            >>> await lake.views("shop")
            ()
        """
        await self.run(drop_view_call(TableName.parse(name)), idempotency_key)
