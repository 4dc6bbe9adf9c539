"""Views in Lamella's form and in Iceberg's: the query that Spark runs, and the metadata that Iceberg clients read.

A view that Spark made has metadata with one version, in the dialect ``spark``. Of a view that an Iceberg client made,
Spark runs the query in that dialect, or else the first one, as Iceberg's own libraries do.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import InvalidRequest, InvalidSchema, NotExpressible
from lamella.snapshot.iceberg.table_metadata import Json
from lamella.snapshot.iceberg.types import schema_json
from lamella.snapshot.iceberg.view_metadata import FORMAT_VERSION, current_view_schema, current_view_version
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.spark_types import columns_of
from lamella.snapshot.wire import ViewDefinition, ViewInfo

SPARK: Final = "spark"
_COMMENT: Final = "comment"
#: The property in which Iceberg's catalog of Spark has the names that the query itself gives the columns.
QUERY_COLUMNS: Final = "spark.query-column-names"
_ENGINE: Final = "engine-name"
#: Spark's types of Iceberg's, as Spark sees the columns of Lamella's tables.
_SPARK_TYPES: Final = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "time": "time(6)",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "uuid": "binary",
    "binary": "binary",
    "variant": "variant",
    "unknown": "void",
}


def metadata_of_definition(view: ViewInfo, *, version_id: int, location: str) -> Json:
    """Returns the metadata of a view that Spark made.

    Raises:
        NotExpressible: Iceberg has no type for a column.
    """
    given = view.definition
    properties = dict(given.properties)
    if given.comment is not None:
        properties[_COMMENT] = given.comment
    if given.query_columns and not any("," in each for each in given.query_columns):
        properties[QUERY_COLUMNS] = ",".join(given.query_columns)
    version: Json = {
        "version-id": version_id,
        "timestamp-ms": view.updated_at_ms,
        "schema-id": 0,
        "summary": {_ENGINE: SPARK, "operation": "create" if view.version == 1 else "replace"},
        "representations": [{"type": "sql", "sql": given.sql, "dialect": SPARK}],
        "default-namespace": list(given.default_namespace),
    }
    if given.default_catalog is not None:
        version["default-catalog"] = given.default_catalog
    return {
        "view-uuid": view.view_id,
        "format-version": FORMAT_VERSION,
        "location": location,
        "schemas": [_iceberg_schema(given.schema_json)],
        "current-version-id": version_id,
        "versions": [version],
        "version-log": [{"timestamp-ms": view.updated_at_ms, "version-id": version_id}],
        "properties": properties,
    }


def definition_of_metadata(metadata: Json, before: ViewDefinition | None) -> ViewDefinition:
    """Returns what Spark reads of a view. ``before``: its definition until now, whose settings the same query keeps.

    Raises:
        InvalidRequest: a member that is longer than views of Lamella may have.
    """
    version, schema = current_view_version(metadata), current_view_schema(metadata)
    queries = [each for each in version["representations"] if each["type"] == "sql"]
    query = next((each for each in queries if each["dialect"].lower() == SPARK), queries[0])
    same = before is not None and before.sql == query["sql"]
    properties = dict(metadata.get("properties", {}))
    listed = properties.pop(QUERY_COLUMNS, None)
    names = before.query_columns if same and before is not None else ()
    if listed is not None and (same or version["summary"].get(_ENGINE, "").lower() == SPARK):
        names = tuple(listed.split(","))
    found = {
        "sql": query["sql"],
        "schema_json": spark_struct(schema),
        "query_columns": names if len(names) == len(schema["fields"]) else (),
        "default_catalog": version.get("default-catalog"),
        "default_namespace": version["default-namespace"],
        "comment": properties.pop(_COMMENT, None),
        "properties": properties,
        "sql_configs": before.sql_configs if same and before is not None else {},
        "schema_mode": before.schema_mode if same and before is not None else None,
    }
    try:
        return msgspec.convert(found, ViewDefinition)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the view cannot be stored: {error}") from error


def spark_struct(schema: Json) -> str:
    """Returns the fields of an Iceberg schema as a struct type in Spark's JSON.

    They are nullable, as in all tables that Spark reads here. A field whose type Spark does not have is ``binary`` with
    a comment.
    """
    return json.dumps({"type": "struct", "fields": [_field(each) for each in schema["fields"]]})


def _field(field: Json) -> Json:
    kind = _spark_type(field["type"])
    metadata = {} if not field.get("doc") else {"comment": field["doc"]}
    if kind is None:
        metadata = {"comment": f"type {field['type']}: Spark cannot read it"}
    return {"name": field["name"], "type": kind or "binary", "nullable": True, "metadata": metadata}


def _spark_type(kind: Any) -> Any:
    """Returns Spark's type in its JSON; None if it has none."""
    if isinstance(kind, str):
        if kind.startswith("decimal("):
            return kind.replace(" ", "")
        return "binary" if kind.startswith("fixed[") else _SPARK_TYPES.get(kind)
    if kind["type"] == "struct":
        return {"type": "struct", "fields": [_field(each) for each in kind["fields"]]}
    if kind["type"] == "list":
        element = _spark_type(kind["element"])
        return element and {"type": "array", "elementType": element, "containsNull": True}
    key, value = _spark_type(kind["key"]), _spark_type(kind["value"])
    return key and value and {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def _iceberg_schema(spark: str) -> Json:
    try:
        return schema_json(Schema.assign(columns_of(spark)))
    except (InvalidSchema, KeyError, TypeError, AttributeError) as error:
        raise NotExpressible(f"the view's columns have no types in Iceberg: {error}") from error
