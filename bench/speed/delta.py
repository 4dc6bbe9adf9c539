"""delta-rs on a Delta table with statistics of every file and no files: ``file_uris``, and a manual alternative."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from synthetic import MODEL_VERSION, ROWS, TYPES, Model, block_numbers

from speed.questions import Question, iso, prefix_end, sql
from speed.rendered import as_text

_TYPES: Final = {"timestamp(us)": "timestamp", "int64": "long", "int32": "integer", "float64": "double"}
_BATCH: Final = 50_000
_TIME_MS: Final = 1_700_000_000_000
_ADD: Final = pa.struct(
    [
        pa.field("path", pa.string()),
        pa.field("partitionValues", pa.map_(pa.string(), pa.string())),
        pa.field("size", pa.int64()),
        pa.field("modificationTime", pa.int64()),
        pa.field("dataChange", pa.bool_()),
        pa.field("stats", pa.string()),
    ]
)
_PROTOCOL: Final = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
_METADATA: Final = pa.struct(
    [
        ("id", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", pa.map_(pa.string(), pa.string()))])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", pa.map_(pa.string(), pa.string())),
        ("createdTime", pa.int64()),
    ]
)
_CHECKPOINT: Final = pa.schema([("protocol", _PROTOCOL), ("metaData", _METADATA), ("add", _ADD)])


class FileUris:
    """``DeltaTable.file_uris(filter)``: the library's own way, on a table that is open."""

    note = "a table as after a checkpoint; prefixes as a range, since LIKE is refused"

    def __init__(self, folder: Path) -> None:
        self.versions = {"deltalake": version("deltalake"), "pyarrow": pa.__version__}
        self._folder = folder

    def build(self, count: int) -> None:
        """Write the log: a first commit and a checkpoint."""
        root = self._root(count)
        if not (root / "done").exists():
            shutil.rmtree(root, ignore_errors=True)
            _write(root, Model(count))
            (root / "done").touch()

    def open(self, count: int) -> None:
        """Open the table."""
        self._table = DeltaTable(str(self._root(count)))

    def warm_up(self) -> None:
        """Do nothing: the first query warms up."""

    def run(self, query: Question) -> Any:
        """URIs."""
        text = sql(query, lambda ms: f"'{iso(ms)}Z'", like=False)
        return self._table.file_uris(file_pruning_predicate=text)

    def block_numbers(self, answer: Any) -> npt.NDArray[np.int64]:
        """Their blocks."""
        return np.sort(block_numbers(answer))

    def _root(self, count: int) -> Path:
        return self._folder / f"delta-model{MODEL_VERSION}-{count}"


class ByHand(FileUris):
    """``get_add_actions`` once, then tests of minima and maxima written with pyarrow: fast, but not a planner."""

    note = "the user writes each predicate's test; nulls, types and escapes are theirs to get right"

    def open(self, count: int) -> None:
        """Open the table and take its actions as one Arrow table."""
        super().open(count)
        self._actions = pa.table(self._table.get_add_actions(flatten=True))

    def run(self, query: Question) -> Any:
        """Paths."""
        return self._actions["path"].filter(self._test(query))

    def block_numbers(self, answer: Any) -> npt.NDArray[np.int64]:
        """Their blocks."""
        return np.sort(block_numbers(answer.to_pylist()))

    def _test(self, query: Question) -> Any:
        if query.user is not None:
            return self._overlap("user_id", query.user, query.user)
        if query.prefix is not None:
            below_end = pc.less(self._actions["min.path"], prefix_end(query.prefix))
            return pc.and_(pc.greater_equal(self._actions["max.path"], query.prefix), below_end)
        ends = query.ranges or tuple((point, point) for point in query.points)
        if not ends:
            return pc.greater(self._actions["null_count.error_code"], 0)
        found = None
        for start, stop in ends:
            times = [pa.scalar(ms * 1_000, pa.timestamp("us", "UTC")) for ms in (start, stop)]
            one = self._overlap("event_time", *times)
            found = one if found is None else pc.or_(found, one)
        if query.country is not None:
            found = pc.and_(found, self._overlap("country", query.country, query.country))
        return found

    def _overlap(self, column: str, start: Any, stop: Any) -> Any:
        after = pc.greater_equal(self._actions[f"max.{column}"], start)
        return pc.and_(after, pc.less_equal(self._actions[f"min.{column}"], stop))


def _write(root: Path, model: Model) -> None:
    log = root / "_delta_log"
    log.mkdir(parents=True)
    fields = [
        {"name": name, "type": _TYPES.get(kind, kind), "nullable": True, "metadata": {}} for name, kind in TYPES.items()
    ]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    metadata = {
        "id": str(uuid.UUID(int=model.count)),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": _TIME_MS,
    }
    note = json.dumps({"commitInfo": {"timestamp": _TIME_MS, "operation": "WRITE"}})
    first = [note, json.dumps({"protocol": protocol}), json.dumps({"metaData": metadata})]
    (log / f"{0:020}.json").write_text("\n".join(first) + "\n")
    (log / f"{1:020}.json").write_text(note + "\n")
    with pq.ParquetWriter(log / f"{1:020}.checkpoint.parquet", _CHECKPOINT) as writer:
        maps = {"format": {"provider": "parquet", "options": []}, "configuration": []}
        head = [{"protocol": protocol}, {"metaData": {**metadata, **maps}}]
        writer.write_table(pa.Table.from_pylist(head, _CHECKPOINT))
        for batch in _adds(model):
            writer.write_table(batch)
    (log / "_last_checkpoint").write_text(json.dumps({"version": 1, "size": model.count + 2}))


def _adds(model: Model) -> Iterator[Any]:
    for start in range(0, model.count, _BATCH):
        stop = min(model.count, start + _BATCH)
        size = stop - start
        columns = {
            "path": pa.array(model.names(start, stop)),
            "partitionValues": pa.array([[]] * size, _ADD.field("partitionValues").type),
            "size": pa.array(model.file_size[start:stop]),
            "modificationTime": pa.array(np.full(size, _TIME_MS)),
            "dataChange": pa.array(np.ones(size, bool)),
            "stats": _stats(model, start, stop),
        }
        add = pa.StructArray.from_arrays(list(columns.values()), fields=list(_ADD))
        nothing = [pa.nulls(size, kind) for kind in (_PROTOCOL, _METADATA)]
        yield pa.Table.from_arrays([*nothing, add], schema=_CHECKPOINT)


def _stats(model: Model, start: int, stop: int) -> Any:
    """The statistics of some files as JSON text."""
    parts: list[Any] = [f'{{"numRecords":{ROWS},"minValues":{{']
    for separator, side in (("", model.low), ('},"maxValues":{', model.high)):
        parts.append(separator)
        parts += [_member(model, name, side, start, stop, number == 0) for number, name in enumerate(TYPES)]
    parts.append('},"nullCount":{')
    for number, name in enumerate(TYPES):
        parts += [f'{"," if number else ""}"{name}":', pc.cast(pa.array(model.nulls(name)[start:stop]), pa.string())]
    parts.append("}}")
    return pc.binary_join_element_wise(*parts, "")


def _member(model: Model, name: str, side: dict[str, Any], start: int, stop: int, first: bool) -> Any:
    """``"name":value`` with the comma before it; nothing where there is no value."""
    value = as_text(model, name, side, start, stop)
    kind = TYPES[name]
    if kind == "timestamp(us)":
        value = pc.binary_join_element_wise(pc.replace_substring(value, " ", "T"), "Z", "")
    quote = '"' if kind in ("timestamp(us)", "date", "string") else ""
    head = f'{"" if first else ","}"{name}":{quote}'
    return pc.fill_null(pc.binary_join_element_wise(head, value, quote, ""), "")
