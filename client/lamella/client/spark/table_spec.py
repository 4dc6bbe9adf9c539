"""``CREATE TABLE`` of Spark SQL as a table of the service."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lamella.client.http import Lamella
from lamella.client.spark.ddl import column_of, default_text
from lamella.client.spark.gateway import Gateway
from lamella.client.spark.lake import CLUSTER_KIND
from lamella.client.spark.table_properties import own_properties
from lamella.snapshot.errors import InvalidRequest, InvalidSchema
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.schema import Column, Schema, quoted_path
from lamella.snapshot.wire import TableInfo

_LIMITED_TEXT: Final = re.compile(r'"(?:var)?char\(')


class TableSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a table is to be."""

    columns: tuple[Column, ...]
    cluster_key: tuple[str, ...] = ()
    cluster_kind: ClusterKind = "linear"
    properties: dict[str, str] = {}

    @classmethod
    def of(cls, gateway: Gateway, columns: Any, partitions: Any, properties: Mapping[str, str]) -> TableSpec:
        """Spark's ``Column[]``, ``Transform[]`` and properties.

        Raises:
            InvalidRequest: partitions, a location, a default that is no constant, and the like.
            InvalidSchema, UnknownColumn: a type that a table cannot hold, a cluster key that is not there.
        """
        made = tuple(_column(gateway, column) for column in columns)
        key = _cluster_key(partitions)
        own, kind = own_properties(properties)
        if kind is not None and not key:
            raise InvalidRequest(f"{CLUSTER_KIND} is about the order of a cluster key: say CLUSTER BY (...) as well")
        schema = Schema.assign(made)
        for path in key:
            schema.leaf(path)
        return cls(columns=made, cluster_key=key, cluster_kind=kind or "linear", properties=own)

    def create(self, lake: Lamella, name: str) -> TableInfo:
        """Make the table; raises AlreadyExists, NamespaceNotFound."""
        return lake.create_table(
            name,
            schema=self.columns,
            cluster_key=self.cluster_key,
            cluster_kind=self.cluster_kind,
            properties=self.properties,
        )

    def require_alike(self, info: TableInfo) -> None:
        """Raise InvalidRequest unless a table that is there is one such as this, so that its rows alone change."""
        wanted = [_shape(column) for column in self.columns]
        if wanted != [_shape(column) for column in info.schema.columns]:
            raise InvalidRequest(
                f"{info.namespace}.{info.name} has other columns; drop it first, or change them by ALTER TABLE and"
                " INSERT OVERWRITE"
            )
        if self.cluster_key and (self.cluster_key, self.cluster_kind) != (info.cluster_key, info.cluster_kind):
            raise InvalidRequest(
                f"{info.namespace}.{info.name} has another cluster key; change it by ALTER TABLE ... CLUSTER BY"
            )


def _column(gateway: Gateway, column: Any) -> Column:
    name, dtype = str(column.name()), column.dataType()
    if _LIMITED_TEXT.search(str(dtype.json())):
        raise InvalidSchema(
            f"column {name!r} is {dtype.sql()}, whose length nobody would check; say STRING", column=name
        )
    if column.generationExpression() is not None or column.identityColumnSpec() is not None:
        raise InvalidSchema(f"column {name!r} would be generated, which a table cannot do", column=name)
    made = column_of(name, dtype, bool(column.nullable()))
    given = column.defaultValue()
    default = None if given is None else default_text(gateway, str(given.getSql()), dtype)
    return msgspec.structs.replace(made, default=default, doc=column.comment())


def _cluster_key(partitions: Any) -> tuple[str, ...]:
    key: tuple[str, ...] = ()
    for transform in partitions:
        name = str(transform.name())
        if name != "cluster_by":
            # Not describe() of all: py4j does not find it in the private classes of days() and the like.
            text = transform.describe() if name == "identity" else transform.toString()
            raise InvalidRequest(f"a Lamella table has no partitions: say CLUSTER BY (...) instead of {text}")
        key = tuple(quoted_path(map(str, reference.fieldNames())) for reference in transform.arguments())
    return key


def _shape(column: Column) -> tuple[Any, ...]:
    """What a column is, without its id and what is said of it."""
    return (column.name, column.type, column.nullable, column.default, tuple(map(_shape, column.fields)))
