"""Paths of the API."""

from typing import Final

NAMESPACES: Final = "/v1/namespaces"
NAMESPACE: Final = "/v1/namespaces/{namespace}"
TABLES: Final = "/v1/namespaces/{namespace}/tables"
TABLE: Final = "/v1/namespaces/{namespace}/tables/{table}"

#: Of Delta Sharing, whose schemas are namespaces.
SHARES: Final = "/delta-sharing/shares"
SHARE: Final = "/delta-sharing/shares/{share}"
SHARED_SCHEMAS: Final = "/delta-sharing/shares/{share}/schemas"
SHARED_TABLES: Final = "/delta-sharing/shares/{share}/schemas/{namespace}/tables"
SHARED_TABLE: Final = "/delta-sharing/shares/{share}/schemas/{namespace}/tables/{table}"

#: Of Iceberg's REST catalog.
ICEBERG: Final = "/iceberg/v1"
ICEBERG_NAMESPACES: Final = "/iceberg/v1/namespaces"
ICEBERG_NAMESPACE: Final = "/iceberg/v1/namespaces/{namespace}"
ICEBERG_TABLES: Final = "/iceberg/v1/namespaces/{namespace}/tables"
ICEBERG_TABLE: Final = "/iceberg/v1/namespaces/{namespace}/tables/{table}"
