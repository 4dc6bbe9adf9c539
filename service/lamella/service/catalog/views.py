"""Views in the catalog's database.

A table and a view cannot have the same name. Whoever adds a view locks the namespace's row for itself, whoever adds or
renames a table shares it, and both look for the other afterwards.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, RowMapping, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from lamella.service.catalog import schema as sql
from lamella.service.catalog.records import StoredAnswer, StoredView, no_namespace, no_view, plain_definition
from lamella.service.catalog.schema import namespaces, views
from lamella.service.catalog.session import StoredJson, json_text
from lamella.service.catalog.tables import SqlQuotas, namespace_row
from lamella.snapshot.errors import AlreadyExists
from lamella.snapshot.wire import ViewInfo

_DEFINITION: Final = StoredJson(StoredView, "the definition of a view")

_row = select(
    views.c.view_id,
    namespaces.c.name.label("namespace"),
    views.c.name,
    views.c.definition,
    views.c.owner,
    views.c.version,
    views.c.created_at_ms,
    views.c.updated_at_ms,
).join_from(views, namespaces)
_SELECT: Final = _row.where(
    namespaces.c.dropped_at_ms.is_(None),
    namespaces.c.name == bindparam("namespace"),
    views.c.name == bindparam("view"),
)
_SELECT_NAMES: Final = select(views.c.name).where(views.c.namespace_id == bindparam("in_namespace_id"))
_INSERT: Final = insert(views)
#: Only if it still has the definition and the name that were read.
_same_view = (
    (views.c.view_id == bindparam("id"))
    & (views.c.version == bindparam("of_version"))
    & (views.c.name == bindparam("of_name"))
)
_REPLACE: Final = (
    update(views)
    .where(_same_view)
    .values(
        definition=bindparam("new_definition"),
        version=views.c.version + 1,
        updated_at_ms=bindparam("now_ms"),
    )
)
_RENAME: Final = (
    update(views).where(_same_view).values(namespace_id=bindparam("to_namespace_id"), name=bindparam("to_name"))
)
_DROP: Final = delete(views).where(views.c.view_id == bindparam("id"))


class SqlViews(SqlQuotas):
    """The part of :class:`~lamella.service.catalog.port.Catalog` for views."""

    def create_view(self, view: ViewInfo, *, remember: StoredAnswer | None = None) -> None:
        with self._transaction(remember) as connection:
            namespace_id = self._lock_for_view(connection, view.namespace, view.name)
            row = {
                "view_id": view.view_id,
                "namespace_id": namespace_id,
                "name": view.name,
                "definition": json_text(view.definition),
                "owner": view.owner,
                "version": view.version,
                "created_at_ms": view.created_at_ms,
                "updated_at_ms": view.updated_at_ms,
            }
            try:
                connection.execute(_INSERT, row)
            except IntegrityError as error:
                raise _view_exists(view.namespace, view.name) from error

    def views(self, namespace: str) -> list[str]:
        for row in self._rows(sql.SELECT_NAMESPACE, {"namespace": namespace}):
            which = {"in_namespace_id": row["namespace_id"]}
            return sorted(found["name"] for found in self._rows(_SELECT_NAMES, which))
        raise no_namespace(namespace)

    def view(self, namespace: str, name: str) -> ViewInfo:
        for row in self._rows(_SELECT, {"namespace": namespace, "view": name}):
            return _view(row)
        if not self._rows(sql.SELECT_NAMESPACE, {"namespace": namespace}):
            raise no_namespace(namespace)
        raise no_view(namespace, name)

    def replace_view(self, before: ViewInfo, after: ViewInfo, *, remember: StoredAnswer | None = None) -> bool:
        change = {**_which(before), "new_definition": json_text(after.definition), "now_ms": after.updated_at_ms}
        try:
            with self._transaction(remember) as connection:
                if connection.execute(_REPLACE, change).rowcount != 1:
                    raise _Changed
        except _Changed:
            return False
        return True

    def rename_view(self, view: ViewInfo, namespace: str, name: str, *, remember: StoredAnswer | None = None) -> bool:
        try:
            with self._transaction(remember) as connection:
                to = self._lock_for_view(connection, namespace, name)
                change = {**_which(view), "to_namespace_id": to, "to_name": name}
                try:
                    renamed = connection.execute(_RENAME, change)
                except IntegrityError as error:
                    raise _view_exists(namespace, name) from error
                if renamed.rowcount != 1:
                    raise _Changed
        except _Changed:
            return False
        return True

    def drop_view(self, view: ViewInfo, *, remember: StoredAnswer | None = None) -> None:
        with self._transaction(remember) as connection:
            if connection.execute(_DROP, {"id": view.view_id}).rowcount != 1:
                raise no_view(view.namespace, view.name)

    def _lock_for_view(self, connection: Connection, namespace: str, name: str) -> int:
        """Lock a live namespace until the transaction ends, before a view is added to it; return its id.

        Raises NamespaceNotFound; AlreadyExists: a table has the name.
        """
        namespace_id = int(namespace_row(connection, sql.LOCK_NAMESPACE, namespace)["namespace_id"])
        if connection.execute(sql.SELECT_TABLE, {"namespace": namespace, "table": name}).first() is not None:
            raise AlreadyExists(f"table '{namespace}.{name}' exists", namespace=namespace, table=name)
        return namespace_id


class _Changed(Exception):
    """Others have changed, renamed or dropped the view."""


def _which(view: ViewInfo) -> dict[str, Any]:
    return {"id": view.view_id, "of_version": view.version, "of_name": view.name}


def _view_exists(namespace: str, name: str) -> AlreadyExists:
    return AlreadyExists(f"view '{namespace}.{name}' exists", namespace=namespace, view=name)


def _view(row: RowMapping) -> ViewInfo:
    stored = _DEFINITION.decode(row["definition"])
    of_iceberg = stored.iceberg is not None or stored.version_offset
    return ViewInfo(**{**row, "definition": stored if of_iceberg else plain_definition(stored)})
