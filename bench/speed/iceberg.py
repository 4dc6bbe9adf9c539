"""pyiceberg's ``plan_files`` on a table whose manifests pyiceberg itself wrote: unpartitioned, and by day."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pyiceberg import expressions as ice
from pyiceberg import types
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record
from pyiceberg.utils.decimal import decimal_to_bytes
from synthetic import MODEL_VERSION, ROWS, TYPES, Array, Model, block_numbers

from speed.questions import Question
from speed.rendered import as_text, as_values

_TYPES: Final = {
    "timestamp(us)": types.TimestamptzType(),
    "date": types.DateType(),
    "int64": types.LongType(),
    "int32": types.IntegerType(),
    "float64": types.DoubleType(),
    "decimal(18,2)": types.DecimalType(18, 2),
    "string": types.StringType(),
}
_WIDTHS: Final = {"timestamp(us)": "<i8", "date": "<i4", "int64": "<i8", "int32": "<i4", "float64": "<f8"}
_PER_MANIFEST: Final = 4_000
_TRUNCATED: Final = 16  # characters of a text bound, as writers make them by default
_DAY_MS: Final = 86_400_000


class Iceberg:
    """``table.scan(row_filter).plan_files()`` on a loaded table."""

    note = "text bounds cut to 16 characters, as writers do by default"
    days = False

    def __init__(self, folder: Path) -> None:
        self.versions = {"pyiceberg": version("pyiceberg")}
        self._folder = folder

    def build(self, count: int) -> None:
        """Write the manifests."""
        root = self._root(count)
        if not (root / "done").exists():
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir(parents=True)
            _write(root, Model(count), self.days)
            (root / "done").touch()

    def open(self, count: int) -> None:
        """Open the catalog and load the table."""
        self._table = _catalog(self._root(count)).load_table("bench.t")

    def warm_up(self) -> None:
        """Do nothing: the first query warms up."""

    def run(self, query: Question) -> Any:
        """Scan tasks."""
        return list(self._table.scan(row_filter=row_filter(query)).plan_files())

    def block_numbers(self, answer: Any) -> npt.NDArray[np.int64]:
        """The blocks of their files."""
        return np.sort(block_numbers([task.file.file_path for task in answer]))

    def _root(self, count: int) -> Path:
        return self._folder / f"iceberg{'-days' if self.days else ''}-model{MODEL_VERSION}-{count}"


class Days(Iceberg):
    """The same, partitioned by the day of ``event_time``."""

    note = "a file that crosses midnight is put into the day that it starts in, which a real table would not allow"
    days = True


def _catalog(root: Path) -> SqlCatalog:
    return SqlCatalog("bench", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}/warehouse")


def row_filter(query: Question) -> Any:
    """A predicate as pyiceberg's users write it."""
    make: Any = ice  # the types of its constructors ask for more than they need
    if query.user is not None:
        return make.EqualTo("user_id", query.user)
    if query.prefix is not None:
        return make.StartsWith("path", query.prefix)
    if query.points:
        return make.In("event_time", [_time(point) for point in query.points])
    if not query.ranges:
        return make.IsNull("error_code")
    ranges = [
        make.And(make.GreaterThanOrEqual("event_time", _time(start)), make.LessThanOrEqual("event_time", _time(stop)))
        for start, stop in query.ranges
    ]
    if len(ranges) > 1:
        return make.Or(*ranges)
    return ranges[0] if query.country is None else make.And(ranges[0], make.EqualTo("country", query.country))


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds")


def _write(root: Path, model: Model, days: bool) -> None:
    catalog = _catalog(root)
    catalog.create_namespace("bench")
    fields = [types.NestedField(number, name, _TYPES[kind]) for number, (name, kind) in enumerate(TYPES.items(), 1)]
    spec = PartitionSpec(PartitionField(1, 1_000, DayTransform(), "event_day")) if days else PartitionSpec()
    table = catalog.create_table("bench.t", Schema(*fields), partition_spec=spec)
    for start in range(0, model.count, _PER_MANIFEST):
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for file in _files(model, start, min(model.count, start + _PER_MANIFEST), days):
                file.spec_id = table.spec().spec_id
                append.append_data_file(file)


def _files(model: Model, start: int, stop: int, days: bool) -> Iterator[DataFile]:
    lows, highs = ([_bounds(model, name, side, start, stop) for name in TYPES] for side in (model.low, model.high))
    nulls = [model.nulls(name)[start:stop].tolist() for name in TYPES]
    day = (model.low["event_time"][start:stop] // _DAY_MS).tolist()
    sizes = model.file_size[start:stop].tolist()
    ids = range(1, len(TYPES) + 1)
    floats = {number: 0 for number, kind in enumerate(TYPES.values(), 1) if kind == "float64"}
    for at, name in enumerate(model.names(start, stop)):
        yield DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"s3://bucket/table/{name}",
            file_format=FileFormat.PARQUET,
            partition=Record(day[at]) if days else Record(),
            record_count=ROWS,
            file_size_in_bytes=sizes[at],
            column_sizes=dict.fromkeys(ids, sizes[at] // len(TYPES)),
            value_counts=dict.fromkeys(ids, ROWS),
            null_value_counts={number: counts[at] for number, counts in zip(ids, nulls, strict=True)},
            nan_value_counts=floats,
            lower_bounds={number: each[at] for number, each in zip(ids, lows, strict=True) if each[at] is not None},
            upper_bounds={number: each[at] for number, each in zip(ids, highs, strict=True) if each[at] is not None},
            key_metadata=None,
            split_offsets=[4],
            equality_ids=None,
            sort_order_id=None,
        )


def _bounds(model: Model, name: str, side: dict[str, Array], start: int, stop: int) -> list[bytes | None]:
    kind = TYPES[name]
    if kind == "string":
        return [_cut(value, side is model.high) for value in as_text(model, name, side, start, stop).to_pylist()]
    if kind == "decimal(18,2)":
        return [decimal_to_bytes(value) for value in as_values(model, name, side, start, stop).to_pylist()]
    values = side[name][start:stop] * (1_000 if kind == "timestamp(us)" else 1)
    width = np.dtype(_WIDTHS[kind])
    data, size = values.astype(width).tobytes(), width.itemsize
    found: list[bytes | None] = [data[at : at + size] for at in range(0, len(data), size)]
    if name == "error_code":
        return [None if empty else value for value, empty in zip(found, model.all_null[start:stop], strict=True)]
    return found


def _cut(value: str, up: bool) -> bytes:
    if len(value) <= _TRUNCATED:
        return value.encode()
    cut = value[:_TRUNCATED]
    return (cut[:-1] + chr(ord(cut[-1]) + 1) if up else cut).encode()
