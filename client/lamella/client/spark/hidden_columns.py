"""Columns that tables do not show: plans of Spark name them."""

from __future__ import annotations

import json
from typing import Any, Final

from lamella.client.spark.gateway import CONNECTOR, Gateway
from lamella.client.spark.proxy import Proxy

_COLUMN: Final = CONNECTOR + "catalog.MetadataColumn"


class HiddenColumn(Proxy):
    """A hidden column; ``dtype``: its type as in Spark's JSON."""

    _once = "name dataType isNullable comment transform metadataInJSON"

    class Java:
        implements = [_COLUMN]  # noqa: RUF012  # py4j reads it from the class

    def __init__(self, gateway: Gateway, name: str, dtype: str | dict[str, Any], *, nullable: bool) -> None:
        super().__init__(gateway)
        self._name = name
        self._dtype = json.dumps(dtype)
        self._nullable = nullable

    def name(self) -> str:
        return self._name

    def dataType(self) -> Any:
        return self._gateway.shared(f"type {self._dtype}", lambda: self._gateway.session.parseDataType(self._dtype))

    def isNullable(self) -> bool:
        return self._nullable

    def comment(self) -> None:
        return None

    def transform(self) -> None:
        return None

    def metadataInJSON(self) -> None:
        return None


def columns_array(gateway: Gateway, *columns: HiddenColumn) -> Any:
    """Return a ``MetadataColumn[]``."""
    made = gateway.new_array(_COLUMN, len(columns))
    for at, column in enumerate(columns):
        made[at] = column._in_jvm()
    return made
