"""Backup and restore of a catalog: export to a file, import from a file, and checks after a restore."""

from lamella.service.backup.export import ExportResult, export_catalog
from lamella.service.backup.restore import ImportResult, import_catalog, read_catalog

__all__ = ["ExportResult", "ImportResult", "export_catalog", "import_catalog", "read_catalog"]
