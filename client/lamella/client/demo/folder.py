"""Where the demo keeps its things, and how it knows what is there already."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

#: Changes when the demo lays its tables out in another way, so that older ones are made anew.
LAYOUT = 1


class Loaded(msgspec.Struct, frozen=True):
    """What a finished load left behind: the scale, and the rows of each table."""

    scale: float
    row_counts: dict[str, int]
    layout: int = LAYOUT


class Folder:
    """``<build>/demo``: generated files, warehouse, catalog and logs. ``<build>/demo.json`` holds the results.

    The names of warehouse and catalog are those that ``make serve`` serves.
    """

    def __init__(self, build_dir: Path) -> None:
        self.build_dir = build_dir.absolute()
        self.root = self.build_dir / "demo"
        self.warehouse = self.root / "warehouse"
        self.catalog = self.root / "catalog.db"
        self.service_log = self.root / "service.log"
        self.spark_log = self.root / "spark.log"
        self.spark_dir = self.root / "spark"
        self.results = self.build_dir / "demo.json"
        self._marker = self.root / "loaded.json"

    def source(self, scale: float) -> Path:
        """Where the generated Parquet files of a scale are."""
        return self.root / f"tpch-{scale:g}"

    def loaded(self, scale: float) -> Loaded | None:
        """What an earlier run loaded at this scale, if it finished."""
        try:
            found = msgspec.json.decode(self._marker.read_bytes(), type=Loaded)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        return found if (found.scale, found.layout) == (scale, LAYOUT) else None

    def mark_loaded(self, loaded: Loaded) -> None:
        """Note that the tables are whole."""
        self._marker.write_bytes(msgspec.json.encode(loaded))

    def clear(self) -> None:
        """Remove the tables, not the generated files. No service may run over them."""
        self._marker.unlink(missing_ok=True)
        shutil.rmtree(self.warehouse, ignore_errors=True)
        for file in self.root.glob(self.catalog.name + "*"):  # SQLite's -wal and -shm too
            file.unlink()
