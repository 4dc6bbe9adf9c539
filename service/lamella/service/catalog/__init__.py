"""The catalog: namespaces, tables, the pointer to each table's current snapshot, and answers to replay."""

from lamella.service.catalog.port import Catalog, HistoryEntry, StoredAnswer, TableRecord
from lamella.service.catalog.sql import SqlCatalog, open_catalog

__all__ = ["Catalog", "HistoryEntry", "SqlCatalog", "StoredAnswer", "TableRecord", "open_catalog"]
