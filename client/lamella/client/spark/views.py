"""Views that the service stores, as Spark's catalog gives and takes them."""

from __future__ import annotations

from typing import Any, Final

from lamella.client.spark.gateway import CONNECTOR, Gateway
from lamella.snapshot.wire import ViewDefinition, ViewInfo

_VIEW: Final = CONNECTOR + "catalog.View"
_STRING: Final = "java.lang.String"
_COMMENT: Final = "comment"
#: Properties that Spark sets for itself; the service knows the owner better.
_RESERVED: Final = frozenset({_COMMENT, "owner", "table_type"})


def definition_of(catalog: str, view: Any) -> ViewDefinition:
    """Return the definition of Spark's ``View``; ``catalog``: the name of the catalog that it is stored in.

    That name is not stored as the default one: others may have attached the service under another name.
    """
    properties = _texts(view.properties())
    default = None if view.currentCatalog() is None else str(view.currentCatalog())
    return ViewDefinition(
        sql=str(view.queryText()),
        schema_json=str(view.schema().json()),
        query_columns=tuple(str(name) for name in view.queryColumnNames()),
        default_catalog=None if default == catalog else default,
        default_namespace=tuple(str(part) for part in view.currentNamespace()),
        sql_configs=_texts(view.sqlConfigs()),
        schema_mode=None if view.schemaMode() is None else str(view.schemaMode()),
        properties={key: text for key, text in properties.items() if key not in _RESERVED},
        comment=properties.get(_COMMENT),
    )


def stored_view(gateway: Gateway, catalog: str, info: ViewInfo, *, is_read: bool = False) -> Any:
    """Return Spark's ``View`` of a view that the service stores. ``is_read``: a query reads it, which compares
    ``char(n)`` only as its plan has it."""
    given = info.definition
    schema_json = gateway.planned_schema(given.schema_json) if is_read else given.schema_json
    builder = getattr(gateway.java_class(_VIEW), "Builder")()  # noqa: B009  # a class inside of a class
    builder = builder.withSchema(gateway.struct_type(schema_json))
    builder = builder.withProperties(gateway.java_map(given.properties)).withOwner(info.owner)
    if given.comment is not None:
        builder = builder.withComment(given.comment)
    builder = builder.withQueryText(given.sql).withSqlConfigs(gateway.java_map(given.sql_configs))
    builder = builder.withCurrentCatalog(given.default_catalog or catalog)
    builder = builder.withCurrentNamespace(gateway.array(_STRING, given.default_namespace))
    if given.schema_mode is not None:
        builder = builder.withSchemaMode(given.schema_mode)
    return builder.withQueryColumnNames(gateway.array(_STRING, given.query_columns)).build()


def _texts(java_map: Any) -> dict[str, str]:
    """Return a Java map of strings."""
    return {} if java_map is None else {str(key): str(java_map.get(key)) for key in java_map.keySet()}
