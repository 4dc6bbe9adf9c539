"""Backup and restore of a catalog: a file that holds all of it, and what an older one can still be used for."""

from lamella.service.backup.exporting import Exported, export_catalog
from lamella.service.backup.importing import Imported, import_catalog, read_catalog
from lamella.service.backup.point_in_time import Lost

__all__ = ["Exported", "Imported", "Lost", "export_catalog", "import_catalog", "read_catalog"]
