"""Paths of the API."""

from typing import Final

NAMESPACES: Final = "/v1/namespaces"
NAMESPACE: Final = "/v1/namespaces/{namespace}"
TABLES: Final = "/v1/namespaces/{namespace}/tables"
TABLE: Final = "/v1/namespaces/{namespace}/tables/{table}"
