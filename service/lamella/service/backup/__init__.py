"""Backup and restore of a catalog: a file that holds all of it, and what an older one can still be used for."""

from lamella.service.backup.export import ExportResult, export_catalog
from lamella.service.backup.restore import ImportResult, import_catalog, read_catalog

__all__ = ["ExportResult", "ImportResult", "export_catalog", "import_catalog", "read_catalog"]
