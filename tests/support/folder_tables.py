"""Tables whose columns are folders (``d=2024-02-29``), for tests of exports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lamella.client.http import Lamella
from lamella.client.iceberg.export import ExportResult, export_iceberg
from lamella.client.jobs.context import JobContext, Sizes
from lamella.client.jobs.rewrite import compact
from lamella.client.rewrite.engine import SerialEngine
from lamella.snapshot.manifest import FEATURES, DeleteFile
from lamella.snapshot.schema import Column
from lamella.snapshot.storage import FsspecStore
from support.deleted_rows import delete_positions

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
#: Columns of folders: their type, and texts of values.
COLUMNS: Final = {
    "n": ("int32", ("1", "-7", "2147483647", HIVE_NULL)),
    "big": ("int64", ("9007199254740993", "0", HIVE_NULL)),
    "s": ("string", ("a b", "%C3%A9%2F%3D", "zz", HIVE_NULL)),
    "d": ("date", ("2024-02-29", "1969-12-31", HIVE_NULL)),
    "at": ("timestamp(us)", ("2024-02-29 10%3A00%3A00.5", "1960-01-01 00%3A00%3A00")),
    "price": ("decimal(38,2)", ("123456789012345678901234567890.12", "-0.05", HIVE_NULL)),
    "yes": ("boolean", ("true", "false")),
    "x": ("float64", ("0.25", "-1.5", "0.0", HIVE_NULL)),
}


class FolderTable:
    """A table of files below folders such as ``d=2024-02-29``."""

    def __init__(self, lake: Lamella, root: Path, columns: tuple[str, ...]) -> None:
        self.lake, self.root, self.columns = lake, root, columns
        self.name = f"ice.folders_{root.name}"
        self._ids = iter(range(10_000))
        kinds = {"id": "int64"} | {name: COLUMNS[name][0] for name in columns}
        lake.create_table(self.name, schema=[Column(name=name, type=kind) for name, kind in kinds.items()])
        self.table = lake.table(self.name)

    def add(self, *folders: dict[str, str]) -> None:
        """Register one file in each folder, in one commit."""
        paths = []
        for texts in folders:
            folder = self.root.joinpath(*(f"{name}={text}" for name, text in texts.items()))
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{next(self._ids)}.parquet"
            pq.write_table(pa.table({"id": [next(self._ids), next(self._ids)]}), path)
            paths.append(f"file://{path}")
        self.table.register(paths)

    @property
    def files(self) -> list[str]:
        """The locations of all blocks, in the order in which they were added."""
        found = self.table.prune(reader_features=FEATURES).locations
        return sorted(found, key=lambda each: int(Path(each).stem))

    def delete(self, rows: Mapping[int, Sequence[int]]) -> list[DeleteFile]:
        """Delete rows of files, by number, with vectors in one file; each file has two rows."""
        files = self.files
        return delete_positions(self.table, {files[number]: each for number, each in rows.items()})

    def export(self) -> ExportResult:
        """An export of the current snapshot."""
        return export_iceberg(self.lake, self.name, FsspecStore())

    def rows(self) -> list[dict[str, Any]]:
        """All rows, as Lamella's own scan reads them."""
        found: list[dict[str, Any]] = self.table.scan().to_arrow().to_pylist()
        return found

    def compact(self) -> None:
        """Write all rows into files that hold all columns."""
        compact(JobContext(lake=self.lake, table=self.name, engine=SerialEngine(), sizes=Sizes(block_rows=100)))


def filled(lake: Lamella, root: Path, files: int = 12) -> FolderTable:
    """A table with a column of each type, whose files have random values."""
    table, rng = FolderTable(lake, root, tuple(COLUMNS)), Random(4)
    table.add(*({name: rng.choice(texts) for name, (_, texts) in COLUMNS.items()} for _ in range(files)))
    return table
